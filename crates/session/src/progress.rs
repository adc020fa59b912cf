//! Work that takes long before anything is printed, and its progress.
//!
//! The working thread records its present step and a count here; another thread may show it ([`now`]). This costs the
//! working thread only a store now and then. Work inside of other work is shown as the inner one, and after its end as
//! the outer one again.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// The kind of work that is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Symbols, debug information and types are read.
    Reading,
    /// Probes are matched; the count is that of matched probes.
    Matching,
    /// Places are planned; the count is that of planned functions.
    Planning,
    /// The code to which probes lead is made; the count is that of jumps.
    Building,
    /// Probes are written into the program's text.
    Writing,
    /// Probes are taken out of the text.
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
/// The total of the current work; 0: not known.
static OF: AtomicUsize = AtomicUsize::new(0);

/// How far the current work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The kind of work.
    pub work: Work,
    /// How many items of the work are done.
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

/// Names the current work until this value is dropped.
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

/// Counts `more` items of the work as done.
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
