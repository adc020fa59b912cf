//! What a process's threads execute, now and then: perf_event_open(2)'s samples.
//!
//! # Theory of operation
//!
//! A thread that is on a processor is interrupted there after so much of its own time, by the kernel's timer, and what
//! it was doing is written into memory that we read whenever we like: its registers as the program has them, the first
//! kilobytes of its stack, where, when. Nothing of the program is patched, borrowed or stopped for it.
//!
//! ```text
//!              processor 0        processor 1
//!   thread 7   event              event           An event for each thread that there is and each processor: only so
//!   thread 8   event ----+        event ----+     may they write into one ring for each processor, and have threads
//!                        v                  v     inherit them that come later.
//!                      ring               ring
//! ```
//!
//! Threads that appear while the events are opened may have inherited some of them; which ones is not known. So all
//! begins anew then, a few times.
//!
//! The kernel counts each thread's time for itself, from nothing on. A program may keep all processors busy with
//! threads that each work for less than the time between two samples. There would be no sample of it. Therefore
//! samples are taken more often than they are asked for, and one of so many is kept, by chance ([`Thinning`]).
//! An interrupt costs the thread some microseconds, many times what the bytes of its stack do. So a thread that
//! was there from the beginning, and is seen to work, gets events of the period that was asked for. Its other
//! events are disabled ([`Paces`]).
//!
//! The time in the kernel is sampled only where we may see it (perf_event_paranoid of 1 at most, or CAP_PERFMON).

pub(crate) mod opening;
mod pace;
mod record;
mod thinning;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub use record::{Sample, UserState};

use pace::Paces;
use thinning::Thinning;

use crate::perf::{self, Ring, Sampling};
use crate::{ProcessId, ThreadId};

/// Samples of all threads of a process, those to come among them. Dropping it ends the sampling.
#[derive(Debug)]
pub struct Sampler {
    process: ProcessId,
    with_stack: bool,
    thinning: Thinning,
    paces: Paces,
    /// Events of the period that was asked for.
    coarse: Sampling,
    /// Kept, and not taken yet.
    kept: Vec<Sample>,
    lost: u64,
    may_miss_threads: bool,
    /// By processor.
    rings: HashMap<u32, Ring>,
    events: HashMap<ThreadId, Events>,
}

/// Of a thread that there was when they were opened, one for each processor.
#[derive(Debug, Default)]
struct Events {
    fine: Vec<Arc<OwnedFd>>,
    /// Where it is sampled so.
    coarse: Vec<OwnedFd>,
}

impl Sampler {
    /// Whether some threads may be in no sample: new ones kept appearing while the sampling began.
    pub fn may_miss_threads(&self) -> bool {
        self.may_miss_threads
    }

    /// Whether a thread is sampled no more often than it was asked for.
    pub fn is_coarse(&self, thread: ThreadId) -> bool {
        self.events.get(&thread).is_some_and(|events| !events.coarse.is_empty())
    }

    /// Reads what the kernel has written. The kernel has room for at least [`Sampler::READ_PERIOD`].
    pub fn read(&mut self) {
        let (mut samples, mut created, mut lost) = (Vec::new(), Vec::new(), 0_u64);
        for ring in self.rings.values() {
            let taken = record::read(&ring.take(), self.with_stack);
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
        // What was lost may have announced a thread.
        if lost > 0 {
            for thread in self.paces.coarse() {
                self.paces.stays_fine(thread);
                self.sample_finely(thread);
            }
        }
        // A kernel that knows no difference between threads and processes samples forked ones, too.
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

    /// From now on a thread is sampled as often as it was asked for, and no more; or, where that is refused, as before.
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
            // The only possible error is that the kernel has none of this, which then samples more than it need.
            let _ = perf::set_enabled(event, false);
        }
    }

    /// Takes that back, for what has inherited it, too.
    fn sample_finely(&mut self, thread: ThreadId) {
        let Some(events) = self.events.get_mut(&thread) else {
            return;
        };
        for event in &events.fine {
            let _ = perf::set_enabled(event, true);
        }
        events.coarse.clear();
    }

    /// The samples since the last call, in the order of their time, and how many more there was no room for.
    pub fn take(&mut self) -> (Vec<Sample>, u64) {
        self.read();
        let lost = self.lost.div_ceil(self.thinning.each());
        self.lost = 0;
        (std::mem::take(&mut self.kept), lost)
    }

    /// How often the samples are to be read.
    pub const READ_PERIOD: Duration = Duration::from_millis(10);
}
