//! Work that takes long before anything is printed, and its progress.
//!
//! The working thread records here what it does, and counts; another thread may show it ([`now`]). This costs the
//! working thread only a store now and then. Work inside of other work is shown as the inner one, and after its end
//! as the outer one again.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Symbols, debug information and types are read.
    Reading,
    /// Probes are matched: so many so far.
    Matching,
    /// Places are planned: functions of which there is a plan.
    Planning,
    /// The code to which probes lead is made: so many jumps.
    Building,
    /// Probes are written into the program's text.
    Writing,
    /// Probes are taken out of it.
    Restoring,
}

const ALL: [Work; 6] = [
    Work::Reading,
    Work::Matching,
    Work::Planning,
    Work::Building,
    Work::Writing,
    Work::Restoring,
];

/// One more than the index in [`ALL`]; 0: no work.
static WORK: AtomicU8 = AtomicU8::new(0);
static DONE: AtomicUsize = AtomicUsize::new(0);
/// 0: not known.
static OF: AtomicUsize = AtomicUsize::new(0);

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// What is done.
    pub work: Work,
    /// How much of it.
    pub done: usize,
    /// The total, if it is known.
    pub of: Option<usize>,
}

/// The current work, if there is any.
pub fn now() -> Option<State> {
    let number = WORK.load(Ordering::Relaxed).checked_sub(1)?;
    let of = OF.load(Ordering::Relaxed);
    Some(State {
        work: *ALL.get(usize::from(number))?,
        done: DONE.load(Ordering::Relaxed),
        of: (of > 0).then_some(of),
    })
}

/// The current work is this until the value is dropped.
#[must_use]
pub struct Doing {
    before: (u8, usize, usize),
}

/// Starts this work. `of`: the total; 0: unknown.
pub fn doing(work: Work, of: usize) -> Doing {
    let number = ALL.iter().position(|known| *known == work).unwrap_or(0) as u8 + 1;
    Doing {
        before: (
            WORK.swap(number, Ordering::Relaxed),
            DONE.swap(0, Ordering::Relaxed),
            OF.swap(of, Ordering::Relaxed),
        ),
    }
}

/// Counts more of it as done.
pub fn done(more: usize) {
    DONE.fetch_add(more, Ordering::Relaxed);
}

impl Drop for Doing {
    fn drop(&mut self) {
        let (work, done, of) = self.before;
        WORK.store(work, Ordering::Relaxed);
        DONE.store(done, Ordering::Relaxed);
        OF.store(of, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_within_work_is_told_and_then_the_outer_one_again() {
        assert_eq!(now(), None);
        let outer = doing(Work::Planning, 10);
        done(3);
        {
            let _inner = doing(Work::Reading, 0);
            done(1);
            let state = State {
                work: Work::Reading,
                done: 1,
                of: None,
            };
            assert_eq!(now(), Some(state));
        }
        let state = State {
            work: Work::Planning,
            done: 3,
            of: Some(10),
        };
        assert_eq!(now(), Some(state));
        drop(outer);
        assert_eq!(now(), None);
    }
}
