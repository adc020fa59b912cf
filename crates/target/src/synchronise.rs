//! Makes sure that every processor has seen new text, without stopping all threads at once.
//!
//! A processor may hold instructions that it fetched before their bytes were changed. It drops them when it enters
//! the kernel and returns. So after a change of the text, it is enough that every thread has been in the kernel once,
//! one after the other:
//!
//! ```text
//!   state of the thread       is in the kernel               what is done
//!   S, I, D, T, t             now, and not yet back          nothing
//!   R                         perhaps not                    stopped by ptrace, and let go at once
//!   R, and has no processor   now, and not yet back          nothing, where that is known (see `processor`)
//!   R, and another traces it  at its next switch             waited for
//!   D, in vfork               yes, but its child, with       waited for
//!                             the same memory, is not
//! ```
//!
//! A new thread begins in the kernel. A listing may leave threads out when others end meanwhile, so listings are
//! repeated until two in a row show no new thread. In a program that creates threads all the time, that would never
//! happen. So in the end, threads that were created after the change are left out.
//!
//! membarrier(2) with PRIVATE_EXPEDITED_SYNC_CORE does the same in 15 us, but only for the caller's memory. So a
//! borrowed thread of the target would have to call it, after a registration for which the kernel waits for a grace
//! period of RCU. That holds the thread for 12 to 23 ms, a thousand times as long as a stop, and the registration is
//! permanent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::error::StopError;
use crate::process::Process;
use crate::processor::Clocks;
use crate::stop::{Patience, Stopped, Wait};
use crate::{ThreadId, threads};

/// How long to wait for a thread that another process traces, or for a thread whose child of vfork still runs.
const LIMIT: Duration = Duration::from_secs(1);
/// The largest number of threads that were asked to stop and have not stopped yet. Several threads wait for a
/// processor at the same time: if they were stopped one after the other, each would wait for its own time slice. A
/// stopped thread continues after at most this many looks.
const LATE_MAX: usize = 16;

/// How long threads stood still because of us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    whole: Duration,
    single: BTreeMap<ThreadId, Duration>,
}

impl Pauses {
    /// Adds a stop of all threads.
    pub fn add_whole(&mut self, duration: Duration) {
        self.whole += duration;
    }

    /// Adds a stop of one thread, during which the other threads ran.
    pub fn add_single(&mut self, tid: ThreadId, duration: Duration) {
        *self.single.entry(tid).or_default() += duration;
    }

    /// Adds the pauses of another step.
    pub fn add(&mut self, other: &Pauses) {
        self.whole += other.whole;
        for (tid, duration) in &other.single {
            self.add_single(*tid, *duration);
        }
    }

    /// How long all threads together stood still.
    pub fn whole(&self) -> Duration {
        self.whole
    }

    /// How long the thread that stood longest stood still: its stops together with the others plus its single
    /// stops.
    pub fn longest(&self) -> Duration {
        self.whole + self.single.values().max().copied().unwrap_or_default()
    }
}

/// The number of listings after which threads that were created after the change are left out.
const LISTINGS_MIN: u32 = 8;
/// If a thread has waited this long for a processor, clocks are worth their cost.
const LONG_WAIT: Duration = Duration::from_millis(2);

/// A thread that is not yet known to have seen the text.
struct Late {
    tid: ThreadId,
    deadline: Instant,
    /// The stop of the thread, if the thread was asked to stop.
    asked: Option<(Stopped, Wait)>,
    /// For a thread that another process traces: how often it had left its processor at the first look.
    switches: Option<Option<u64>>,
}

impl Process {
    /// Returns when every thread executes the text as it is now. Threads that run are stopped, one by one or a few at a
    /// time. `visit` is called for each of them while it stands. With `everybody`, the same is done with threads that
    /// sleep in the kernel.
    ///
    /// # Errors
    /// [`StopError`], and the errors of `visit`. Some threads may then not have seen the text.
    pub fn synchronise<E: From<StopError>>(
        &self,
        everybody: bool,
        pauses: &mut Pauses,
        visit: &mut dyn FnMut(&mut Stopped) -> Result<(), E>,
    ) -> Result<(), E> {
        let _claim = self.claim()?;
        let mut round = Round {
            process: self,
            clocks: self.has_late_threads().then(Clocks::ready).flatten(),
            everybody,
            pauses,
            visit,
        };
        let begun = threads::ticks_now();
        let mut known: BTreeSet<ThreadId> = BTreeSet::new();
        let mut listings = 0;
        let mut quiet_listings = 0;
        while quiet_listings < 2 {
            listings += 1;
            quiet_listings += 1;
            let mut late: Vec<Late> = Vec::new();
            for tid in self.listed()? {
                if !known.insert(tid) {
                    continue;
                }
                let is_younger = || threads::created(self.pid(), tid).is_none_or(|created| created > begun + 1);
                if listings > LISTINGS_MIN && is_younger() {
                    continue;
                }
                quiet_listings = 0;
                if let Some(thread) = round.begin(tid)? {
                    late.push(thread);
                    round.look_at_all(&mut late, false)?;
                    round.wait(&mut late, LATE_MAX)?;
                }
            }
            round.wait(&mut late, 0)?;
        }
        Ok(())
    }
}

/// The state of one call of `synchronise`.
struct Round<'round, E> {
    process: &'round Process,
    clocks: Option<Clocks>,
    everybody: bool,
    pauses: &'round mut Pauses,
    visit: &'round mut dyn FnMut(&mut Stopped) -> Result<(), E>,
}

impl<E: From<StopError>> Round<'_, E> {
    /// Begins to make a thread see the new text; `None` if it has already seen it. Takes microseconds unless the
    /// thread waits for a processor.
    fn begin(&mut self, tid: ThreadId) -> Result<Option<Late>, E> {
        let mut thread = Late {
            tid,
            deadline: Instant::now() + LIMIT,
            asked: None,
            switches: None,
        };
        let mut patience = Patience::until(thread.deadline);
        while !self.look_at(&mut thread, false)? {
            if !patience.is_prompt() {
                return Ok(Some(thread));
            }
            patience.pause();
        }
        Ok(None)
    }

    /// Waits until at most `left` threads are late.
    fn wait(&mut self, late: &mut Vec<Late>, left: usize) -> Result<(), E> {
        let begun = Instant::now();
        let mut patience = Patience::until(begun + LIMIT);
        while late.len() > left {
            // Each thread has its own limit.
            patience.pause();
            self.look_at_all(late, patience.is_long())?;
        }
        if begun.elapsed() > LONG_WAIT {
            self.process.note_late_threads();
        }
        Ok(())
    }

    fn look_at_all(&mut self, late: &mut Vec<Late>, closer: bool) -> Result<(), E> {
        let mut index = 0;
        while let Some(thread) = late.get_mut(index) {
            if self.look_at(thread, closer)? {
                late.swap_remove(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    /// Whether the thread has seen the text.
    fn look_at(&mut self, thread: &mut Late, closer: bool) -> Result<bool, E> {
        let (pid, tid) = (self.process.pid(), thread.tid);
        if let Some((mut stopped, mut wait)) = thread.asked.take() {
            if !stopped.look(&mut wait, closer)? {
                thread.asked = Some((stopped, wait));
                return Ok(false);
            }
            // The thread may have ended instead of stopping.
            if stopped.threads().next().is_some() {
                let visited = (self.visit)(&mut stopped);
                self.pauses.add_single(tid, stopped.release());
                visited?;
            }
            return Ok(true);
        }
        match threads::state(pid, tid) {
            None | Some('Z' | 'X' | 'x') => return Ok(true),
            Some('D') if threads::is_in_vfork(pid, tid) => {}
            // A thread in 'D' would stop later, unnoticed. It need not stop, because it is in the kernel.
            Some('D') => return Ok(true),
            Some(state) if state != 'R' && !self.everybody => return Ok(true),
            Some(_) if !self.everybody && self.clocks.as_ref().is_some_and(|clocks| clocks.stands_still(tid)) => {
                return Ok(true);
            }
            Some(_) => match self.process.ask_to_stop(tid) {
                Ok(stopped) => {
                    let wait = stopped.wait();
                    thread.asked = Some((stopped, wait));
                    return Ok(false);
                }
                // Another process traces the thread, and may stop it.
                Err(error @ StopError::Refused { .. }) => {
                    let now = threads::switches(pid, tid);
                    if *thread.switches.get_or_insert(now) != now {
                        return Ok(true);
                    }
                    if Instant::now() >= thread.deadline {
                        return Err(error.into());
                    }
                    return Ok(false);
                }
                Err(StopError::Gone { .. }) => return Ok(true),
                Err(error) => return Err(error.into()),
            },
        }
        if Instant::now() < thread.deadline {
            return Ok(false);
        }
        let place = threads::waits_at(pid, tid);
        Err(StopError::Uninterruptible {
            pid,
            tid,
            state: 'D',
            place,
        }
        .into())
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
