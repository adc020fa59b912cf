//! Samples of all processes.
//!
//! # Theory of operation
//!
//! Where the kernel permits it (CAP_PERFMON, or perf_event_paranoid of 0 at most), each processor has one event, which
//! samples whatever runs there, the idle task too. The kernel also writes who is created, named and ended, so each
//! process has the name that it had when it was sampled.
//!
//! Elsewhere the threads of those processes are sampled that the user may trace ([`Own`]), and their children by
//! inheritance. The rings are the same: one for each processor.
//!
//! Not every kernel keeps its word: some virtual machines give no sample while a processor idles. So the samples that
//! came are compared with those that were due, for each processor ([`Missing`]).
//!
//! A thread of ours empties the rings all the time. The tracer may be busy for seconds, because the names of a large
//! program have to be read when its first sample comes.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;

use super::events::{self, Event};
use super::opening::{SamplingError, processors, raise_limit, stack_bytes};
use super::own::{Own, Tasks};
use super::record::{Sample, Stacks};
use super::thinning::Thinning;
use crate::perf::{self, EVERY_THREAD, Ring, Sampling};

/// The memory of all rings together, and the size of one, in pages. Then smaller ones are tried.
const PAGES_OF_ALL: usize = 64 << 8;
const PAGES_MAX: usize = 4096;
const FEWER_PAGES: [usize; 2] = [128, 32];

/// Which processes are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All, and the idle processors.
    Everything,
    /// The processes that the user may trace.
    Own {
        /// How many were found by now.
        processes: usize,
        /// How many others there were.
        others: usize,
    },
}

/// A processor whose samples the kernel has not all given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    pub processor: u32,
    /// How many samples came, or were lost for lack of room.
    pub given: u64,
    /// How many periods the processor was sampled for.
    pub due: u64,
}

impl Missing {
    /// More than a tenth is missing. Fewer are, for instance, interrupts that came late and count as one.
    fn is_worth_telling(self) -> bool {
        self.given.saturating_mul(10) < self.due.saturating_mul(9) && self.due - self.given >= 20
    }
}

/// The most memory for events that the tracer has not taken yet. Further samples are lost, and counted.
const PENDING_BYTES_MAX: usize = 256 << 20;
/// A ring has room for this many times as long as that of a single process: a second.
const LASTS: u64 = 20;
/// How often the rings are emptied.
const READ_PERIOD: Duration = Duration::from_millis(10);

/// Samples of all processes, or of the user's own. Dropping it ends the sampling.
#[derive(Debug)]
pub struct SystemSampler {
    sampling: Sampling,
    thinning: Thinning,
    /// The events of the processors.
    everything: Vec<(u32, Arc<OwnedFd>)>,
    state: Arc<Mutex<State>>,
    is_over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

/// What the thread that empties the rings shares with the tracer.
#[derive(Debug, Default)]
struct State {
    rings: HashMap<u32, Ring>,
    stacks: Stacks,
    own: Option<Own>,
    pending: Vec<Event>,
    bytes: usize,
    lost: u64,
    /// How many samples each processor's ring had, with those that were lost.
    given: BTreeMap<u32, u64>,
}

impl State {
    /// Reads the records that the kernel has written.
    fn read(&mut self) {
        let mut lost = 0_u64;
        let mut fresh = Vec::new();
        for (processor, ring) in &self.rings {
            let taken = events::read(&ring.take(), self.stacks);
            lost = lost.saturating_add(taken.lost);
            let samples = taken.list.iter().filter(|(_, event)| matches!(event, Event::Sample(_)));
            let given = self.given.entry(*processor).or_default();
            *given = given.saturating_add(taken.lost).saturating_add(samples.count() as u64);
            fresh.extend(taken.list);
        }
        fresh.sort_by_key(|(time, _)| *time);
        if let Some(own) = &mut self.own {
            own.note(fresh.iter().map(|(_, event)| event), lost > 0);
        }
        self.lost = self.lost.saturating_add(lost);
        for (_, event) in fresh {
            let stacks = match &event {
                Event::Sample(sample) => {
                    let program = sample.user.as_ref().map_or(0, |user| user.stack.len());
                    size_of::<Sample>() + program + 8 * sample.kernel.len()
                }
                _ => 0,
            };
            let bytes = size_of::<Event>() + stacks;
            if matches!(event, Event::Sample(_)) && self.bytes + bytes > PENDING_BYTES_MAX {
                self.lost += 1;
                continue;
            }
            self.bytes += bytes;
            self.pending.push(event);
        }
    }
}

impl Drop for SystemSampler {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            // A panic there was reported when it came.
            let _ = reader.join();
        }
    }
}

impl SystemSampler {
    /// Begins to sample once in each `period_ns`: of each processor's time, or of the processor time of each of the
    /// user's threads. A program's stack is enough of it for unwinding.
    ///
    /// # Errors
    /// [`SamplingError`].
    pub fn open(period_ns: u64, stacks: Stacks) -> Result<SystemSampler, SamplingError> {
        let processors = processors();
        let mut share = PAGES_OF_ALL / processors.len().max(1);
        share = (share.max(1) + 1).next_power_of_two() / 2;
        let mut sizes = std::iter::once(share.clamp(32, PAGES_MAX)).chain(FEWER_PAGES);
        let mut pages = sizes.next().unwrap_or(32);
        let mut wanted = Sampling {
            period_ns,
            stack_bytes: 0,
            kernel: true,
            kernel_stack: stacks.kernel,
            threads_only: false,
            wakes: false,
            names: true,
        };
        let mut is_whole = true;
        loop {
            let thinning = Thinning::of(if is_whole { 0 } else { period_ns });
            let sampling = Sampling {
                period_ns: period_ns / thinning.each(),
                stack_bytes: match stacks.program {
                    true => stack_bytes(period_ns / thinning.each() / LASTS, pages),
                    false => 0,
                },
                ..wanted
            };
            let opened = match is_whole {
                true => SystemSampler::everything(&processors, sampling, thinning, pages),
                false => SystemSampler::of_own(&processors, sampling, thinning, pages),
            };
            match opened {
                Ok(mut sampler) => {
                    sampler.start_reader();
                    return Ok(sampler);
                }
                Err(Refusal::Ring(reason)) => match sizes.next() {
                    Some(fewer) => pages = fewer,
                    None => return Err(SamplingError::Refused { reason }),
                },
                // First all processes, then the user's own with their time in the kernel, then without.
                Err(Refusal::Event(Errno::EACCES | Errno::EPERM)) if is_whole => {
                    is_whole = false;
                    raise_limit();
                }
                Err(Refusal::Event(Errno::EACCES | Errno::EPERM)) if wanted.kernel && !stacks.kernel => {
                    wanted.kernel = false;
                }
                Err(Refusal::Event(reason)) => return Err(SamplingError::Refused { reason }),
            }
        }
    }

    fn empty(sampling: Sampling, thinning: Thinning) -> SystemSampler {
        SystemSampler {
            sampling,
            thinning,
            everything: Vec::new(),
            state: Arc::new(Mutex::new(State {
                stacks: Stacks {
                    program: sampling.stack_bytes > 0,
                    kernel: sampling.kernel_stack,
                },
                ..State::default()
            })),
            is_over: Arc::default(),
            reader: None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Without the thread, the tracer reads when it has time.
    fn start_reader(&mut self) {
        let (state, is_over) = (self.state.clone(), self.is_over.clone());
        let read = move || {
            while !is_over.load(Ordering::Relaxed) {
                state.lock().unwrap_or_else(PoisonError::into_inner).read();
                std::thread::sleep(READ_PERIOD);
            }
        };
        self.reader = std::thread::Builder::new().name("samples".to_owned()).spawn(read).ok();
    }

    fn everything(
        processors: &[u32],
        sampling: Sampling,
        thinning: Thinning,
        pages: usize,
    ) -> Result<SystemSampler, Refusal> {
        let mut sampler = SystemSampler::empty(sampling, thinning);
        for &processor in processors {
            let event = match perf::sampling(EVERY_THREAD, processor, sampling) {
                Ok(event) => Arc::new(event),
                // The processor is offline.
                Err(Errno::ENODEV) => continue,
                Err(reason) => return Err(Refusal::Event(reason)),
            };
            let ring = Ring::map(event.clone(), pages).map_err(Refusal::Ring)?;
            sampler.state().rings.insert(processor, ring);
            sampler.everything.push((processor, event));
        }
        Ok(sampler)
    }

    /// The rings belong to events of this thread, so that they are there before any process is found.
    fn of_own(
        processors: &[u32],
        sampling: Sampling,
        thinning: Thinning,
        pages: usize,
    ) -> Result<SystemSampler, Refusal> {
        let sampler = SystemSampler::empty(sampling, thinning);
        let mut own = Own::default();
        let tracer = rustix::thread::gettid().as_raw_nonzero().get();
        for &processor in processors {
            let event = match perf::sampling(tracer, processor, sampling) {
                Ok(event) => Arc::new(event),
                Err(Errno::ENODEV) => continue,
                Err(reason) => return Err(Refusal::Event(reason)),
            };
            let ring = Ring::map(event.clone(), pages).map_err(Refusal::Ring)?;
            sampler.state().rings.insert(processor, ring);
            own.add(std::process::id() as i32, tracer, event);
        }
        sampler.state().own = Some(own);
        // A thread is opened when two looks have seen it, and no record says that it has inherited the events.
        for _ in 0..3 {
            sampler.look();
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(sampler)
    }

    /// Which processes are sampled.
    pub fn reach(&self) -> Reach {
        match &self.state().own {
            None => Reach::Everything,
            Some(own) => Reach::Own {
                processes: own.processes(),
                others: own.others(),
            },
        }
    }

    /// Whether the time in the kernel is sampled, too.
    pub fn sees_kernel(&self) -> bool {
        self.sampling.kernel
    }

    /// The processors of which many samples did not come. Empty where only the user's own processes are sampled, whose
    /// time is not known here.
    pub fn missing(&self) -> Vec<Missing> {
        let mut state = self.state();
        state.read();
        let of_processor = |(processor, event): &(u32, Arc<OwnedFd>)| {
            let due = perf::enabled_ns(event).ok()? / self.sampling.period_ns.max(1);
            let given = state.given.get(processor).copied().unwrap_or(0);
            let missing = Missing {
                processor: *processor,
                given,
                due,
            };
            missing.is_worth_telling().then_some(missing)
        };
        self.everything.iter().filter_map(of_processor).collect()
    }

    /// Looks for processes of the user that have come, and are no children of known ones. Does nothing where all
    /// processes are sampled.
    pub fn look(&self) {
        if self.state().own.is_none() {
            return;
        }
        // The list is made first: a thread in it that inherited the events has left its record by then.
        let tasks = Tasks::now();
        let mut state = self.state();
        state.read();
        let State { own, rings, .. } = &mut *state;
        if let Some(own) = own {
            own.open(&tasks, self.sampling, rings);
        }
    }

    /// The events since the last call, ordered by time, and the number of samples that were lost for lack of room.
    pub fn take(&mut self) -> (Vec<Event>, u64) {
        let (pending, lost) = {
            let mut state = self.state();
            state.read();
            state.bytes = 0;
            (std::mem::take(&mut state.pending), std::mem::take(&mut state.lost))
        };
        let keeps = |event: &Event| !matches!(event, Event::Sample(_)) || self.thinning.keeps();
        let kept = pending.into_iter().filter(keeps).collect();
        (kept, lost.div_ceil(self.thinning.each()))
    }
}

/// What the kernel has refused.
enum Refusal {
    Event(Errno),
    /// The memory of a ring.
    Ring(Errno),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_told_when_a_tenth_is_missing() {
        let of = |given, due| Missing {
            processor: 0,
            given,
            due,
        };
        assert!(of(3, 705).is_worth_telling());
        assert!(!of(0, 19).is_worth_telling(), "a run that was too short to tell");
        assert!(of(179, 200).is_worth_telling());
        assert!(!of(181, 200).is_worth_telling());
        assert!(!of(201, 200).is_worth_telling());
    }
}
