//! Opens the events for all threads and processors, within the kernel's limits.

use std::collections::HashMap;
use std::sync::Arc;

use nix::errno::Errno;

use super::pace::Paces;
use super::thinning::Thinning;
use super::{Events, Sampler, Stacks};
use crate::perf::{self, Ring, Sampling};
use crate::{Process, ProcessId, ThreadId};

/// How often the opening begins anew when threads appear.
const ATTEMPTS: usize = 8;
/// The sizes of a ring to try, in pages, each a power of two: 4 MiB, then the size that a user may lock by default,
/// then less.
const RING_PAGES: [usize; 3] = [1024, 128, 32];
/// The time for which the largest ring has room without being read.
const RING_NS: u64 = 50_000_000;
/// The least and the greatest number of bytes of the stack in a sample that is to be unwound. A record's size is a
/// u16.
const STACK_BYTES: std::ops::RangeInclusive<u64> = 8 << 10..=32 << 10;

/// Why a process cannot be sampled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplingError {
    /// Forbidden by perf_event_paranoid or seccomp, or missing in the kernel.
    #[error(
        "the kernel permits no samples of the threads' time ({reason}): set /proc/sys/kernel/perf_event_paranoid to 2 or less, and let the container permit perf_event_open"
    )]
    Refused { reason: Errno },
    /// Each pair of a thread and a processor takes a descriptor.
    #[error(
        "samples of {threads} threads on {processors} processors need an open file for each pair of the two: raise the limit (ulimit -n)"
    )]
    TooMany { threads: usize, processors: usize },
}

impl Process {
    /// Begins to sample the threads, once in each `period_ns` of their processor time. A program's stack is enough of
    /// it for unwinding. `wakes`: each sample makes a descriptor readable ([`Sampler::descriptors`]).
    ///
    /// # Errors
    /// [`SamplingError`].
    pub fn sampler(&self, period_ns: u64, stacks: Stacks, wakes: bool) -> Result<Sampler, SamplingError> {
        let thinning = Thinning::of(period_ns);
        let mut wanted = Sampling {
            period_ns: period_ns / thinning.each(),
            stack_bytes: 0,
            kernel: true,
            kernel_stack: stacks.kernel,
            threads_only: true,
            wakes,
            names: false,
        };
        let mut is_raised = false;
        let mut sizes = RING_PAGES.into_iter();
        let mut pages = sizes.next().unwrap_or(1);
        let mut open = |threads: &[ThreadId]| loop {
            wanted.stack_bytes = if stacks.program {
                stack_bytes(wanted.period_ns, pages)
            } else {
                0
            };
            match Sampler::open(self.pid(), threads, (wanted, period_ns), pages, &thinning) {
                Ok(sampler) => return Ok(sampler),
                // Tries again with less: first with the largest ring that is allowed, then without the kernel's time,
                // then without the features of Linux 5.13.
                Err(Refusal::Ring(reason)) => match sizes.next() {
                    Some(smaller) => pages = smaller,
                    None => return Err(SamplingError::Refused { reason }),
                },
                Err(Refusal::Event(Errno::EACCES | Errno::EPERM)) if wanted.kernel && !stacks.kernel => {
                    wanted.kernel = false;
                }
                Err(Refusal::Event(Errno::EINVAL)) if wanted.threads_only => wanted.threads_only = false,
                // The limit is raised only if necessary, because commands that nanoprobe starts inherit it.
                Err(Refusal::Event(Errno::EMFILE)) if !is_raised => {
                    is_raised = true;
                    raise_limit();
                }
                Err(Refusal::Event(Errno::EMFILE | Errno::ENFILE)) => {
                    return Err(SamplingError::TooMany {
                        threads: threads.len(),
                        processors: processors().len(),
                    });
                }
                Err(Refusal::Event(reason)) => return Err(SamplingError::Refused { reason }),
            }
        };
        let (mut sampler, is_complete) = until_none_appears(&mut || self.threads().unwrap_or_default(), &mut open)?;
        sampler.may_miss_threads = !is_complete;
        Ok(sampler)
    }
}

/// Opens the events of all threads, and opens them again if new threads have appeared meanwhile. True if no thread
/// appeared during the last attempt.
pub(super) fn until_none_appears<T, E>(
    threads: &mut dyn FnMut() -> Vec<ThreadId>,
    open: &mut dyn FnMut(&[ThreadId]) -> Result<T, E>,
) -> Result<(T, bool), E> {
    let mut attempts = 0;
    let mut known = threads();
    loop {
        let opened = open(&known)?;
        attempts += 1;
        let now = threads();
        let is_complete = now.iter().all(|thread| known.contains(thread));
        if is_complete || attempts == ATTEMPTS {
            return Ok((opened, is_complete));
        }
        known = now;
    }
}

/// The event that the kernel has refused.
enum Refusal {
    Event(Errno),
    /// The memory of a ring.
    Ring(Errno),
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Refusal {
        Refusal::Event(error)
    }
}

impl Sampler {
    fn open(
        process: ProcessId,
        threads: &[ThreadId],
        (wanted, period_ns): (Sampling, u64),
        pages: usize,
        thinning: &Thinning,
    ) -> Result<Sampler, Refusal> {
        let mut rings: HashMap<u32, Ring> = HashMap::new();
        let mut events: HashMap<ThreadId, Events> = HashMap::new();
        let processors = processors();
        for &thread in threads {
            for &processor in &processors {
                let event = match perf::sampling(thread, processor, wanted) {
                    Ok(event) => Arc::new(event),
                    // The thread has ended, or the processor is offline.
                    Err(Errno::ESRCH | Errno::ENODEV) => continue,
                    Err(error) => return Err(error.into()),
                };
                if let Some(ring) = rings.get(&processor) {
                    ring.take_in(&event)?;
                } else {
                    let ring = Ring::map(event.clone(), pages).map_err(Refusal::Ring)?;
                    rings.insert(processor, ring);
                }
                events.entry(thread).or_default().fine.push(event);
            }
        }
        Ok(Sampler {
            process,
            stacks: Stacks {
                program: wanted.stack_bytes > 0,
                kernel: wanted.kernel_stack,
            },
            thinning: thinning.clone(),
            paces: Paces::new(threads, thinning.each(), processors.len()),
            coarse: Sampling { period_ns, ..wanted },
            kept: Vec::new(),
            lost: 0,
            may_miss_threads: false,
            rings,
            events,
        })
    }
}

/// The bytes of the stack in a sample: the more samples, the fewer bytes.
pub(super) fn stack_bytes(period_ns: u64, pages: usize) -> u32 {
    let samples = (RING_NS / period_ns.max(1)).max(1);
    let bytes = (pages as u64 * 4096 / samples).clamp(*STACK_BYTES.start(), *STACK_BYTES.end());
    // The kernel requires a multiple of 8.
    bytes as u32 & !7
}

/// The processors that are online.
pub(super) fn processors() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let listed = list_of(&text);
    if !listed.is_empty() {
        return listed;
    }
    let count = std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1));
    (0..count).collect()
}

/// Parses a list such as `0-3,8`.
fn list_of(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    text.trim()
        .split(',')
        .filter_map(range)
        .flatten()
        .take(1 << 16)
        .collect()
}

/// Raises the tracer's limit of open files as far as allowed: sampling needs many descriptors.
pub(super) fn raise_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_often_the_less_of_the_stack() {
        assert_eq!(stack_bytes(10_000_000, 1024), 32 << 10);
        assert_eq!(stack_bytes(200_000, 1024), 16_776);
        assert_eq!(stack_bytes(1_000_000, 128), 10_480);
        assert_eq!(stack_bytes(0, 1024), 8 << 10);
        assert_eq!(stack_bytes(u64::MAX, 1024), 32 << 10);
    }

    #[test]
    fn threads_that_keep_appearing_are_reported() {
        let mut last = 0;
        let mut threads = || {
            last += 1;
            (1..=last).collect::<Vec<ThreadId>>()
        };
        let mut opened = Vec::new();
        let mut open = |threads: &[ThreadId]| {
            opened.push(threads.len());
            Ok::<usize, ()>(threads.len())
        };
        assert_eq!(until_none_appears(&mut threads, &mut open), Ok((ATTEMPTS, false)));
        assert_eq!(
            opened,
            (1..=ATTEMPTS).collect::<Vec<usize>>(),
            "each time for all that there are"
        );
        assert_eq!(
            until_none_appears(&mut || vec![7, 8], &mut |_| Ok::<_, ()>(())),
            Ok(((), true))
        );
        assert_eq!(until_none_appears(&mut Vec::new, &mut |_| Err::<(), _>(5)), Err(5));
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(list_of("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(list_of("0"), [0]);
        assert_eq!(list_of("nonsense, 4-"), [0; 0]);
    }
}
