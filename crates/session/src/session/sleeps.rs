//! Sleeps that nobody was seen to end.
//!
//! A thread that went to sleep and runs again was woken. Some virtual machines record nothing while a processor idles,
//! and so not the interrupts that wake threads there. Such wakings are counted and told.
//!
//! A thread may be woken while it still leaves its processor. So what counts is a waking between two moments at which
//! the thread came to a processor.

use std::collections::HashSet;

use nanoprobe_target::ThreadId;

/// The sleeps of the threads of a process. Threads whose sleep began before the watch are not counted.
#[derive(Debug, Default)]
pub(super) struct Sleeps {
    asleep: HashSet<ThreadId>,
    woken: HashSet<ThreadId>,
    /// How many sleeps have ended.
    pub ended: u64,
    /// How many of them ended without a waking that was seen.
    pub unseen: u64,
}

impl Sleeps {
    /// The thread left its processor, and sleeps.
    pub fn begins(&mut self, thread: ThreadId) {
        self.asleep.insert(thread);
    }

    /// Somebody was seen to wake the thread.
    pub fn is_woken(&mut self, thread: ThreadId) {
        self.woken.insert(thread);
    }

    /// The thread came to a processor.
    pub fn runs(&mut self, thread: ThreadId) {
        let was_woken = self.woken.remove(&thread);
        if self.asleep.remove(&thread) {
            self.ended += 1;
            self.unseen += u64::from(!was_woken);
        }
    }

    /// The thread has ended. Another one may get its number.
    pub fn forget(&mut self, thread: ThreadId) {
        self.asleep.remove(&thread);
        self.woken.remove(&thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_without_a_waking_is_counted() {
        let mut sleeps = Sleeps::default();
        // It slept when the watch began.
        sleeps.runs(7);
        // It is woken twice, and while it leaves.
        sleeps.is_woken(7);
        sleeps.begins(7);
        sleeps.is_woken(7);
        sleeps.runs(7);
        assert_eq!((sleeps.ended, sleeps.unseen), (1, 0));
        // It is preempted.
        sleeps.runs(7);
        sleeps.begins(7);
        sleeps.is_woken(8);
        sleeps.runs(7);
        assert_eq!((sleeps.ended, sleeps.unseen), (2, 1));
        // Another thread has its number.
        sleeps.begins(7);
        sleeps.forget(7);
        sleeps.runs(7);
        assert_eq!((sleeps.ended, sleeps.unseen), (2, 1));
    }
}
