//! Samples of the code that a process's threads execute, by perf_event_open(2).
//!
//! # Theory of operation
//!
//! The kernel's timer interrupts a thread on its processor after a period of the thread's own time. The kernel then
//! writes a sample into memory that the tracer reads later: the time, the processor, the program's registers, and the
//! first kilobytes of the stack. Sampling patches nothing in the program, and borrows and stops no thread.
//!
//! ```text
//!              processor 0        processor 1
//!   thread 7   event              event           Each thread has an event for each processor. Only such events
//!   thread 8   event ----+        event ----+     may write into one ring for each processor and also be inherited by
//!                        v                  v     threads that are created later.
//!                      ring               ring
//! ```
//!
//! A thread that appears while the events are opened may have inherited some of them, but the tracer cannot know
//! which. So all events are then opened again, a few times at most.
//!
//! The kernel counts each thread's time separately, from 0. A program may keep all processors busy with threads that
//! each work for less than one period. There would be no sample of such a program. Therefore samples are taken more
//! often than requested, and one out of several is kept at random ([`Thinning`]). An interrupt costs the thread some
//! microseconds, many times more than copying the bytes of its stack. So a thread that existed from the beginning,
//! and is seen to work, gets events of the requested period, and its other events are disabled ([`Paces`]).
//!
//! The time in the kernel is sampled only if the tracer may see it (perf_event_paranoid of 1 at most, or
//! CAP_PERFMON).

pub(crate) mod events;
pub(crate) mod firings;
pub(crate) mod kernel;
pub(crate) mod opening;
mod own;
mod pace;
mod record;
pub(crate) mod switching;
pub(crate) mod system;
mod thinning;
mod tracepoint;
pub(crate) mod waking;

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

pub use record::{Sample, Stacks, UserState};

use pace::Paces;
use thinning::Thinning;

use crate::perf::{self, Ring, Sampling};
use crate::{ProcessId, ThreadId};

/// Samples of all threads of a process, including later ones. Dropping it ends the sampling.
#[derive(Debug)]
pub struct Sampler {
    process: ProcessId,
    stacks: Stacks,
    thinning: Thinning,
    paces: Paces,
    /// The parameters of the events with the requested period.
    coarse: Sampling,
    /// Samples that were kept, and that the caller has not taken yet.
    kept: Vec<Sample>,
    lost: u64,
    may_miss_threads: bool,
    /// The ring of each processor.
    rings: HashMap<u32, Ring>,
    events: HashMap<ThreadId, Events>,
}

/// The events of one thread, one for each processor. The thread existed when the sampling began.
#[derive(Debug, Default)]
struct Events {
    fine: Vec<Arc<OwnedFd>>,
    /// The events of the requested period, if the thread has them.
    coarse: Vec<OwnedFd>,
}

impl Sampler {
    /// Whether some threads may be missing in all samples, because new threads kept appearing while the sampling
    /// began.
    pub fn may_miss_threads(&self) -> bool {
        self.may_miss_threads
    }

    /// Whether the thread is sampled only as often as requested, and not more finely.
    pub fn is_coarse(&self, thread: ThreadId) -> bool {
        self.events.get(&thread).is_some_and(|events| !events.coarse.is_empty())
    }

    /// Reads the samples that the kernel has written. The rings have room for at least [`Sampler::READ_PERIOD`].
    pub fn read(&mut self) {
        let (mut samples, mut created, mut lost) = (Vec::new(), Vec::new(), 0_u64);
        for ring in self.rings.values() {
            let taken = record::read(&ring.take(), self.stacks);
            lost = lost.saturating_add(taken.lost);
            samples.extend(taken.samples);
            created.extend(taken.created);
        }
        self.lost = self.lost.saturating_add(lost);
        for (creator, created) in created {
            if self.paces.created(creator, created) {
                self.sample_finely(creator);
            }
        }
        // A lost record may have announced a thread.
        if lost > 0 {
            for thread in self.paces.coarse() {
                self.paces.stays_fine(thread);
                self.sample_finely(thread);
            }
        }
        // A kernel that cannot leave out forked processes samples them, too.
        samples.retain(|(_, sample)| sample.process == self.process);
        samples.sort_by_key(|(_, sample)| sample.time_ns);
        for (period_ns, sample) in samples {
            let (is_fine, thread) = (period_ns != self.coarse.period_ns, sample.thread);
            if !is_fine || self.thinning.keeps() {
                self.kept.push(sample);
            }
            if is_fine && self.paces.sampled(thread) {
                self.sample_coarsely(thread);
            }
        }
    }

    /// From now on, samples a thread only as often as requested; or, if the kernel refuses that, as often as before.
    fn sample_coarsely(&mut self, thread: ThreadId) {
        let Some(events) = self.events.get_mut(&thread) else {
            return;
        };
        for (processor, ring) in &self.rings {
            let event = perf::sampling(thread, *processor, self.coarse);
            match event.and_then(|event| ring.take_in(&event).map(|()| event)) {
                Ok(event) => events.coarse.push(event),
                Err(_) => {
                    events.coarse.clear();
                    self.paces.stays_fine(thread);
                    return;
                }
            }
        }
        for event in &events.fine {
            // The only possible error: the kernel does not know the request. Then the thread is sampled more often
            // than necessary.
            let _ = perf::set_enabled(event, false);
        }
    }

    /// Reverts [`Self::sample_coarsely`], also for threads that have inherited the events.
    fn sample_finely(&mut self, thread: ThreadId) {
        let Some(events) = self.events.get_mut(&thread) else {
            return;
        };
        for event in &events.fine {
            let _ = perf::set_enabled(event, true);
        }
        events.coarse.clear();
    }

    /// The samples since the last call, ordered by time, and the number of samples that were lost for lack of room.
    pub fn take(&mut self) -> (Vec<Sample>, u64) {
        self.read();
        self.take_read()
    }

    /// The samples that were read, and not taken yet, in the order of their reading.
    pub fn kept(&self) -> &[Sample] {
        &self.kept
    }

    /// Takes the samples that were read, and reads no more.
    pub fn take_read(&mut self) -> (Vec<Sample>, u64) {
        let lost = self.lost.div_ceil(self.thinning.each());
        self.lost = 0;
        (std::mem::take(&mut self.kept), lost)
    }

    /// The descriptors that each sample makes readable, if the sampler was told to wake.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let rings = self.rings.values().filter(|_| self.coarse.wakes);
        rings.map(Ring::descriptor)
    }

    /// How often the samples have to be read.
    pub const READ_PERIOD: Duration = Duration::from_millis(10);
}
