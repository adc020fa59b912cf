//! Which threads are sampled no more often than it is asked for. Pure.
//!
//! Fine samples are for threads that work too little to come to one at the coarse pace, and each costs some
//! microseconds of the thread that works. One that was there from the beginning and has worked for many times the
//! coarse period loses next to nothing by the coarse pace: what is left at its end is one period at most. But threads
//! that it creates inherit its pace, so one that creates threads is sampled finely, and what it has created with it.

use std::collections::HashMap;

use crate::ThreadId;

/// A thread has worked for so many coarse periods on each processor, when it need not be sampled finely any more.
const PERIODS: u64 = 10;

/// How a thread is sampled that was there from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Finely; so many samples have come.
    Fine(u64),
    /// As often as it was asked for.
    Coarse,
    /// Finely for good.
    Creator,
}

/// Of all threads that were there from the beginning.
#[derive(Debug, Default)]
pub(super) struct Paces {
    threads: HashMap<ThreadId, Pace>,
    /// So many fine samples are enough.
    enough: u64,
}

impl Paces {
    /// Each coarse period is so many fine ones; 1: there is one pace only.
    pub fn new(threads: &[ThreadId], each: u64, processors: usize) -> Paces {
        let threads = if each > 1 { threads } else { &[] };
        Paces {
            threads: threads.iter().map(|thread| (*thread, Pace::Fine(0))).collect(),
            enough: PERIODS.saturating_mul(each).saturating_mul(processors as u64),
        }
    }

    /// A fine sample of a thread; whether it is to be sampled coarsely from now on.
    pub fn sampled(&mut self, thread: ThreadId) -> bool {
        let Some(pace) = self.threads.get_mut(&thread) else {
            return false;
        };
        let Pace::Fine(samples) = pace else { return false };
        *samples += 1;
        let is_enough = *samples >= self.enough;
        if is_enough {
            *pace = Pace::Coarse;
        }
        is_enough
    }

    /// A thread has created another; whether it is to be sampled finely again.
    pub fn created(&mut self, creator: ThreadId, created: ThreadId) -> bool {
        // Its number was another's, which has ended.
        if let Some(pace) = self.threads.get_mut(&created) {
            *pace = Pace::Creator;
        }
        self.stays_fine(creator)
    }

    /// A thread is sampled finely for good; whether it was not.
    pub fn stays_fine(&mut self, thread: ThreadId) -> bool {
        let pace = self.threads.get_mut(&thread);
        pace.is_some_and(|pace| std::mem::replace(pace, Pace::Creator) == Pace::Coarse)
    }

    /// Those that are sampled coarsely.
    pub fn coarse(&self) -> Vec<ThreadId> {
        let coarse = self.threads.iter().filter(|(_, pace)| **pace == Pace::Coarse);
        coarse.map(|(thread, _)| *thread).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(paces: &mut Paces, thread: ThreadId, samples: usize) -> usize {
        (0..samples).filter(|_| paces.sampled(thread)).count()
    }

    #[test]
    fn who_has_worked_long_enough_is_sampled_coarsely() {
        let mut paces = Paces::new(&[1, 2], 10, 2);
        assert_eq!(work(&mut paces, 1, 199), 0);
        assert!(paces.sampled(1), "ten periods on each of two processors");
        assert_eq!(work(&mut paces, 1, 1000), 0, "once");
        assert_eq!(work(&mut paces, 2, 199), 0, "each for itself");
        assert_eq!(
            work(&mut paces, 3, 1000),
            0,
            "it has come later: its events are not ours to choose"
        );
        assert_eq!(paces.coarse(), [1]);
    }

    #[test]
    fn who_creates_threads_is_sampled_finely() {
        let mut paces = Paces::new(&[1, 2, 3], 10, 1);
        assert_eq!(work(&mut paces, 1, 100), 1);
        assert!(paces.created(1, 9));
        assert!(!paces.created(1, 10), "it is already");
        assert!(!paces.created(2, 11), "it was all the time");
        assert!(!paces.created(9, 12), "its creator is");
        assert_eq!(work(&mut paces, 1, 1000) + work(&mut paces, 2, 1000), 0, "for good");
        // The number of a thread that has ended is given again.
        assert_eq!(work(&mut paces, 3, 100), 1);
        assert!(!paces.created(2, 3));
        assert_eq!(work(&mut paces, 3, 1000), 0);
    }

    #[test]
    fn where_there_is_one_pace_nothing_changes() {
        let mut paces = Paces::new(&[1], 1, 4);
        assert_eq!(work(&mut paces, 1, 100_000), 0);
        assert!(!paces.created(1, 2));
    }
}
