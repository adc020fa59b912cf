//! The moments at which a process's threads leave their processors and come back, by perf_event_open(2).
//!
//! # Theory of operation
//!
//! An event that counts nothing (`PERF_COUNT_SW_DUMMY`) has the kernel write a record whenever its thread is switched
//! out or in (`context_switch`). This needs no privilege, and each record has the kernel's own time. As for samples,
//! each thread has an event for each processor, which later threads inherit, and each processor has one ring.
//!
//! Where the kernel permits it (CAP_PERFMON, or perf_event_paranoid of 1 at most), a second event (`context-switches`)
//! samples each thread as it is switched out, with its registers and its stack. The sample comes right before the
//! record of the switch, in the same ring. Elsewhere the tracer reads the stack of a thread that sleeps ([`Asleep`]).

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::errno::Errno;

use super::events::{self, Event};
use super::opening::{SamplingError, processors, raise_limit, until_none_appears};
use super::record::{Sample, Stacks};
use crate::perf::{self, Ring, Switching};
use crate::proc_file;
use crate::{Process, ProcessId, ThreadId};

/// The sizes of a ring to try, in pages.
const RING_PAGES: [usize; 3] = [2048, 128, 32];
/// The bytes of the stack in a sample.
const STACK_BYTES: u32 = 8 << 10;

/// A switch of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    pub process: ProcessId,
    pub thread: ThreadId,
    pub processor: u32,
    /// The time, by CLOCK_MONOTONIC.
    pub time_ns: u64,
    pub turn: Turn,
}

/// What the switch did to the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The thread came to a processor.
    On,
    /// The thread left its processor.
    Off {
        /// It could have run on.
        is_preempted: bool,
        /// Its sample, if the kernel has taken one.
        sample: Option<Box<Sample>>,
    },
    /// The thread has ended.
    Ended,
}

/// The switches of all threads of a process, including later ones. Dropping it ends the watch.
#[derive(Debug)]
pub struct SwitchWatch {
    process: ProcessId,
    stacks: Stacks,
    may_miss_threads: bool,
    rings: HashMap<u32, Ring>,
    _events: Vec<Arc<OwnedFd>>,
}

impl Process {
    /// Begins to watch the threads' switches, with the stacks of threads that leave their processors.
    ///
    /// # Errors
    /// [`SamplingError`].
    pub fn switches(&self, stacks: Stacks) -> Result<SwitchWatch, SamplingError> {
        let mut wanted = Switching {
            stack_bytes: if stacks.program { STACK_BYTES } else { 0 },
            kernel_stack: stacks.kernel,
            threads_only: true,
        };
        let mut sizes = RING_PAGES.into_iter();
        let mut pages = sizes.next().unwrap_or(32);
        let mut is_raised = false;
        let mut open = |threads: &[ThreadId]| loop {
            match SwitchWatch::open(self.pid(), threads, wanted, pages) {
                Ok(watch) => return Ok(watch),
                Err((Errno::EPERM, true)) => match sizes.next() {
                    Some(fewer) => pages = fewer,
                    None => return Err(SamplingError::Refused { reason: Errno::EPERM }),
                },
                Err((Errno::EACCES | Errno::EPERM, false)) if wanted.stack_bytes > 0 && !stacks.kernel => {
                    wanted.stack_bytes = 0;
                }
                Err((Errno::EINVAL, false)) if wanted.threads_only => wanted.threads_only = false,
                Err((Errno::EMFILE, _)) if !is_raised => {
                    is_raised = true;
                    raise_limit();
                }
                Err((Errno::EMFILE | Errno::ENFILE, _)) => {
                    return Err(SamplingError::TooMany {
                        threads: threads.len(),
                        processors: processors().len(),
                    });
                }
                Err((reason, _)) => return Err(SamplingError::Refused { reason }),
            }
        };
        let (mut watch, is_complete) = until_none_appears(&mut || self.threads().unwrap_or_default(), &mut open)?;
        watch.may_miss_threads = !is_complete;
        Ok(watch)
    }
}

impl SwitchWatch {
    /// An error says whether it came from a ring.
    fn open(
        process: ProcessId,
        threads: &[ThreadId],
        wanted: Switching,
        pages: usize,
    ) -> Result<SwitchWatch, (Errno, bool)> {
        let mut watch = SwitchWatch {
            process,
            stacks: Stacks {
                program: wanted.stack_bytes > 0,
                kernel: wanted.kernel_stack,
            },
            may_miss_threads: false,
            rings: HashMap::new(),
            _events: Vec::new(),
        };
        let processors = processors();
        let kinds: &[bool] = if watch.stacks.any() { &[true, false] } else { &[false] };
        for &thread in threads {
            for &processor in &processors {
                for &is_sampled in kinds {
                    let event = match perf::switching(thread, processor, wanted, is_sampled) {
                        Ok(event) => Arc::new(event),
                        // The thread has ended, or the processor is offline.
                        Err(Errno::ESRCH | Errno::ENODEV) => continue,
                        Err(error) => return Err((error, false)),
                    };
                    if let Some(ring) = watch.rings.get(&processor) {
                        ring.take_in(&event).map_err(|error| (error, false))?;
                    } else {
                        let ring = Ring::map(event.clone(), pages).map_err(|error| (error, true))?;
                        watch.rings.insert(processor, ring);
                    }
                    watch._events.push(event);
                }
            }
        }
        Ok(watch)
    }

    /// Whether some threads may be missing, because new ones kept appearing while the watch began.
    pub fn may_miss_threads(&self) -> bool {
        self.may_miss_threads
    }

    /// Whether the kernel samples the program's stack at each switch.
    pub fn has_stacks(&self) -> bool {
        self.stacks.program
    }

    /// The switches since the last call, ordered by time, and how many records were lost for lack of room.
    pub fn take(&mut self) -> (Vec<Switch>, u64) {
        let (mut switches, mut lost) = (Vec::new(), 0_u64);
        for ring in self.rings.values() {
            let taken = events::read(&ring.take(), self.stacks);
            lost = lost.saturating_add(taken.lost);
            join(taken.list, &mut switches);
        }
        // A kernel that cannot leave out forked processes writes their switches, too.
        switches.retain(|switch: &Switch| switch.process == self.process);
        switches.sort_by_key(|switch| switch.time_ns);
        (switches, lost)
    }
}

/// Joins the switches of one ring with the samples before them.
fn join(events: Vec<(u64, Event)>, switches: &mut Vec<Switch>) {
    let mut sampled: Option<Box<Sample>> = None;
    for (time_ns, event) in events {
        let (process, thread, processor, turn) = match event {
            Event::Sample(sample) => {
                sampled = Some(sample);
                continue;
            }
            Event::Switched {
                process,
                thread,
                processor,
                off: None,
            } => (process, thread, processor, Turn::On),
            Event::Switched {
                process,
                thread,
                processor,
                off: Some(is_preempted),
            } => {
                let turn = Turn::Off {
                    is_preempted,
                    sample: sampled.take().filter(|sample| sample.thread == thread),
                };
                (process, thread, processor, turn)
            }
            Event::Ended { process, thread } => (process, thread, 0, Turn::Ended),
            Event::Created { .. } | Event::Named { .. } => continue,
        };
        switches.push(Switch {
            process,
            thread,
            processor,
            time_ns,
            turn,
        });
    }
}

/// The registers that the kernel shows of a thread that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asleep {
    /// The system call in which it sleeps, if it sleeps in one.
    pub call: Option<u64>,
    pub stack_pointer: u64,
    pub program_counter: u64,
}

impl Asleep {
    /// `None`: the thread runs, or is gone, or may not be looked at.
    pub fn of(process: ProcessId, thread: ThreadId) -> Option<Asleep> {
        Asleep::parse(&proc_file::read_text(format!("/proc/{process}/task/{thread}/syscall")).ok()?)
    }

    /// `running`; or the call's number, its six arguments, the stack pointer, the program counter; or -1 and the two.
    fn parse(text: &str) -> Option<Asleep> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &&str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let call: i64 = words.first()?.parse().ok()?;
        let [.., stack_pointer, program_counter] = words.get(1..)? else {
            return None;
        };
        Some(Asleep {
            call: u64::try_from(call).ok(),
            stack_pointer: number(stack_pointer)?,
            program_counter: number(program_counter)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::UserState;
    use super::*;

    #[test]
    fn a_sleeping_thread_shows_two_registers() {
        let asleep = Asleep::parse("230 0x1 0x0 0x7ffd 0x0 0x0 0x0 0x7ffc50 0x7f0010\n");
        let expected = Asleep {
            call: Some(230),
            stack_pointer: 0x7f_fc50,
            program_counter: 0x7f_0010,
        };
        assert_eq!(asleep, Some(expected));
        assert_eq!(
            Asleep::parse("-1 0x7ffc50 0x7f0010"),
            Some(Asleep { call: None, ..expected })
        );
        for text in ["running\n", "", "0", "7 0x1", "x 0x1 0x2", "1 2 3"] {
            assert_eq!(Asleep::parse(text), None, "{text}");
        }
    }

    /// A sample belongs to the next switch of the same thread only.
    #[test]
    fn a_switch_has_the_stack_of_its_own_sample() {
        let its = |thread| {
            Box::new(Sample {
                process: 1,
                thread,
                processor: 0,
                time_ns: 5,
                executed: 0,
                kernel: vec![thread as u64],
                user: Some(UserState::default()),
            })
        };
        let sample = |thread| Event::Sample(its(thread));
        let switched = |thread, off| Event::Switched {
            process: 1,
            thread,
            processor: 0,
            off,
        };
        let events = vec![
            (5, sample(2)),
            (6, switched(2, Some(false))),
            (7, switched(2, None)),
            (8, sample(2)),
            (9, switched(3, Some(true))),
            (10, switched(2, Some(false))),
        ];
        let mut switches = Vec::new();
        join(events, &mut switches);
        let off = |is_preempted, has| Turn::Off {
            is_preempted,
            sample: if has { Some(its(2)) } else { None },
        };
        let turns: Vec<&Turn> = switches.iter().map(|switch| &switch.turn).collect();
        assert_eq!(
            turns,
            [&off(false, true), &Turn::On, &off(true, false), &off(false, false)]
        );
    }
}
