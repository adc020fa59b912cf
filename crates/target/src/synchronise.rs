//! Making sure that every processor has seen new text, without a stop of all threads.
//!
//! A processor may hold instructions that it fetched before their bytes were changed. It gives them up when it enters the
//! kernel and comes back. So, text having been written, it is enough that every thread has been in the kernel once,
//! one after the other:
//!
//! ```text
//!   state of the thread       is in the kernel               what is done
//!   S, I, D, T, t             now, and not yet back          nothing
//!   R                         perhaps not                    stopped by ptrace, and let go at once
//!   R, and another traces it  at its next switch             waited for
//!   D, in vfork               yes; but its child, which      waited for
//!                             has the same memory, is not
//! ```
//!
//! A new thread begins in the kernel. It is missing in the first listing when it is created meanwhile, so listings are
//! repeated until two in a row show nobody new.
//!
//! membarrier(2) with PRIVATE_EXPEDITED_SYNC_CORE does the same in 15 us, but only for its caller's memory: it would have
//! to be called by a borrowed thread of the target, and first be registered there, for which the kernel waits for a grace
//! period of RCU. That holds the thread for 12 to 23 ms, a thousand times what stopping a thread takes, and the
//! registration stays for good.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::error::StopError;
use crate::process::Process;
use crate::stop::{Patience, Stopped};
use crate::{ThreadId, threads};

/// How long a thread is waited for that another process traces, or that waits for a child of vfork.
const LIMIT: Duration = Duration::from_secs(1);

/// For how long threads stood still on our account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    whole: Duration,
    single: BTreeMap<ThreadId, Duration>,
}

impl Pauses {
    /// All threads at once.
    pub fn add_whole(&mut self, duration: Duration) {
        self.whole += duration;
    }

    /// One thread, while the others ran.
    pub fn add_single(&mut self, tid: ThreadId, duration: Duration) {
        *self.single.entry(tid).or_default() += duration;
    }

    /// Those of others are added.
    pub fn add(&mut self, other: &Pauses) {
        self.whole += other.whole;
        for (tid, duration) in &other.single {
            self.add_single(*tid, *duration);
        }
    }

    /// How long all threads stood still together.
    pub fn whole(&self) -> Duration {
        self.whole
    }

    /// How long the thread stood still that stood longest, together with the others and alone.
    pub fn longest(&self) -> Duration {
        self.whole + self.single.values().max().copied().unwrap_or_default()
    }
}

impl Process {
    /// Returns when every thread executes the text as it is now. Threads that run are stopped one by one, and shown to
    /// `visit` while they stand; with `everybody` those too that sleep in the kernel.
    ///
    /// # Errors
    /// [`StopError`], and what `visit` returns. Some threads may then not have seen the text.
    pub fn synchronise<E: From<StopError>>(
        &self,
        everybody: bool,
        pauses: &mut Pauses,
        visit: &mut dyn FnMut(&mut Stopped) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done: BTreeSet<ThreadId> = BTreeSet::new();
        let mut quiet_listings = 0;
        while quiet_listings < 2 {
            quiet_listings += 1;
            for tid in self.listed()? {
                if done.insert(tid) {
                    quiet_listings = 0;
                    self.synchronise_thread(tid, everybody, pauses, visit)?;
                }
            }
        }
        Ok(())
    }

    fn synchronise_thread<E: From<StopError>>(
        &self,
        tid: ThreadId,
        everybody: bool,
        pauses: &mut Pauses,
        visit: &mut dyn FnMut(&mut Stopped) -> Result<(), E>,
    ) -> Result<(), E> {
        let pid = self.pid();
        let mut patience = Patience::until(Instant::now() + LIMIT);
        let mut switches = None;
        loop {
            match threads::state(pid, tid) {
                None | Some('Z' | 'X' | 'x') => return Ok(()),
                Some('D') if threads::is_in_vfork(pid, tid) => {}
                // A thread in 'D' would stop later, behind our back; and it is in the kernel.
                Some('D') => return Ok(()),
                Some(state) if state != 'R' && !everybody => return Ok(()),
                Some(_) => match self.stop_thread(tid) {
                    Ok(mut stopped) => {
                        let visited = visit(&mut stopped);
                        pauses.add_single(tid, stopped.release());
                        return visited;
                    }
                    // Somebody else traces it, and stops it.
                    Err(error @ StopError::Refused { .. }) => {
                        let now = threads::switches(pid, tid);
                        if *switches.get_or_insert(now) != now {
                            return Ok(());
                        }
                        if !patience.pause() {
                            return Err(error.into());
                        }
                        continue;
                    }
                    Err(StopError::Gone { .. }) => return Ok(()),
                    Err(error) => return Err(error.into()),
                },
            }
            if !patience.pause() {
                let place = threads::waits_at(pid, tid);
                return Err(StopError::Uninterruptible {
                    pid,
                    tid,
                    state: 'D',
                    place,
                }
                .into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stood_as_long_as_all_did_and_then_alone() {
        let mut pauses = Pauses::default();
        pauses.add_single(1, Duration::from_micros(5));
        pauses.add_single(2, Duration::from_micros(7));
        pauses.add_single(1, Duration::from_micros(4));
        pauses.add_whole(Duration::from_micros(100));
        assert_eq!(pauses.longest(), Duration::from_micros(109));
        assert_eq!(pauses.whole(), Duration::from_micros(100));
        let mut all = Pauses::default();
        all.add(&pauses);
        all.add(&pauses);
        assert_eq!(all.longest(), Duration::from_micros(218));
    }
}
