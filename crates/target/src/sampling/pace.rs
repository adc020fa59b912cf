//! Which threads are sampled only as often as requested. Pure.
//!
//! Fine samples are for threads that work too little for one coarse period, and each sample costs the thread some
//! microseconds. A thread that existed from the beginning, and has worked for many coarse periods, loses almost
//! nothing when it is sampled coarsely: at its end, at most one period is not sampled. But threads that it creates
//! inherit its pace. So a thread that creates threads is sampled finely, and so are the threads that it creates.

use std::collections::HashMap;

use crate::ThreadId;

/// The number of coarse periods of work on each processor after which a thread need not be sampled finely any more.
const PERIODS: u64 = 10;

/// The pace of a thread that existed from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// The thread is sampled finely; this many samples have come so far.
    Fine(u64),
    /// The thread is sampled only as often as requested.
    Coarse,
    /// The thread is sampled finely for good, because it creates threads.
    Creator,
}

/// The paces of all threads that existed from the beginning.
#[derive(Debug, Default)]
pub(super) struct Paces {
    threads: HashMap<ThreadId, Pace>,
    /// The number of fine samples after which a thread is sampled coarsely.
    enough: u64,
}

impl Paces {
    /// `each`: the number of fine periods in a coarse period; 1 means that both are the same.
    pub fn new(threads: &[ThreadId], each: u64, processors: usize) -> Paces {
        let threads = if each > 1 { threads } else { &[] };
        Paces {
            threads: threads.iter().map(|thread| (*thread, Pace::Fine(0))).collect(),
            enough: PERIODS.saturating_mul(each).saturating_mul(processors as u64),
        }
    }

    /// Notes a fine sample of a thread. Returns whether the thread is to be sampled coarsely from now on.
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

    /// Notes that a thread has created another. Returns whether the creator is to be sampled finely again.
    pub fn created(&mut self, creator: ThreadId, created: ThreadId) -> bool {
        // The created thread has the number of a thread that has ended.
        if let Some(pace) = self.threads.get_mut(&created) {
            *pace = Pace::Creator;
        }
        self.stays_fine(creator)
    }

    /// Makes a thread sampled finely for good. Returns whether it was sampled coarsely.
    pub fn stays_fine(&mut self, thread: ThreadId) -> bool {
        let pace = self.threads.get_mut(&thread);
        pace.is_some_and(|pace| std::mem::replace(pace, Pace::Creator) == Pace::Coarse)
    }

    /// The threads that are sampled coarsely.
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
    fn a_thread_that_has_worked_long_enough_is_sampled_coarsely() {
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
    fn a_thread_that_creates_threads_is_sampled_finely() {
        let mut paces = Paces::new(&[1, 2, 3], 10, 1);
        assert_eq!(work(&mut paces, 1, 100), 1);
        assert!(paces.created(1, 9));
        assert!(!paces.created(1, 10), "it is already");
        assert!(!paces.created(2, 11), "it was all the time");
        assert!(!paces.created(9, 12), "its creator is");
        assert_eq!(work(&mut paces, 1, 1000) + work(&mut paces, 2, 1000), 0, "for good");
        // A new thread gets the number of a thread that has ended.
        assert_eq!(work(&mut paces, 3, 100), 1);
        assert!(!paces.created(2, 3));
        assert_eq!(work(&mut paces, 3, 1000), 0);
    }

    #[test]
    fn with_one_pace_nothing_changes() {
        let mut paces = Paces::new(&[1], 1, 4);
        assert_eq!(work(&mut paces, 1, 100_000), 0);
        assert!(!paces.created(1, 2));
    }
}
