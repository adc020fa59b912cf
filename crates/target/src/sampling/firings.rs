//! The firings of one of the kernel's tracepoints, for the threads of a process, and maybe for all others.
//!
//! ```text
//! event of          samples             has                              counts for threads
//! each thread       while it runs       registers, the stack if wanted   of the process
//! each processor    whoever runs        registers                        of other processes, and interrupts
//! ```
//!
//! So what the rest of the machine does costs a record of some 300 bytes each, and no copied stack. Nothing counts
//! twice: the thread that runs belongs to the process, or not.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::errno::Errno;

use super::opening::{processors, raise_limit, until_none_appears};
use super::record::{self, HEADER_BYTES, LOST, SAMPLE, Sample, Stacks, Words};
use super::tracepoint::Tracepoint;
use crate::perf::{self, EVERY_THREAD, Firing, Ring};
use crate::{Process, ProcessId, ThreadId};

/// The sizes of a ring to try, in pages.
const RING_PAGES: [usize; 3] = [2048, 128, 32];
/// The bytes of the stack in a sample.
const STACK_BYTES: u32 = 8 << 10;
/// The number of the machine's own pid namespace. Records of tracepoints have its numbers.
const OUTERMOST: &str = "pid:[4026531836]";

/// Why a tracepoint is not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TracepointError {
    /// Its description cannot be read.
    #[error("the kernel's tracepoint {name} cannot be read ({reason}): only root (CAP_PERFMON and tracefs) may")]
    Unreadable { name: &'static str, reason: Errno },
    /// Its events are refused.
    #[error("the kernel permits no events of {name} ({reason}): only root (CAP_PERFMON) may open them")]
    Refused { name: &'static str, reason: Errno },
    /// The kernel's numbers of threads are others than the tracer's.
    #[error("{name} has the numbers of threads outside of this container: trace from there")]
    OuterNumbers { name: &'static str },
}

/// Whose firings are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// The stacks of the process's threads. The kernel's stack is also that of others.
    pub stacks: Stacks,
    /// What others do, too.
    pub everybody: bool,
}

/// See the module's description. Dropping it ends the watch.
#[derive(Debug)]
pub(super) struct Firings {
    process: ProcessId,
    tracepoint: Tracepoint,
    wanted: Wanted,
    may_miss_threads: bool,
    /// For each processor: what the process's threads do.
    own: HashMap<u32, Ring>,
    /// For each processor: what anybody does.
    all: Vec<Ring>,
    _events: Vec<Arc<OwnedFd>>,
}

/// What becomes of a firing: its sample, and the tracepoint's record.
type Made<'m, T> = dyn Fn(&Tracepoint, Sample, &[u8]) -> Option<T> + 'm;

/// An error, and whether it came from a ring.
type Failed = (Errno, bool);

impl Firings {
    /// Begins to watch a tracepoint, by its group and its name.
    pub fn of(
        process: &Process,
        (group, name): (&str, &'static str),
        wanted: Wanted,
    ) -> Result<Firings, TracepointError> {
        let namespace = std::fs::read_link("/proc/self/ns/pid");
        if namespace.is_ok_and(|of| of.to_str() != Some(OUTERMOST)) {
            return Err(TracepointError::OuterNumbers { name });
        }
        let found = Tracepoint::find(group, name);
        let tracepoint = found.map_err(|reason| TracepointError::Unreadable { name, reason })?;
        let mut sizes = RING_PAGES.into_iter();
        let mut pages = sizes.next().unwrap_or(32);
        let (mut threads_only, mut is_raised) = (true, false);
        let mut open = |threads: &[ThreadId]| loop {
            let mut firings = Firings {
                process: process.pid(),
                tracepoint: tracepoint.clone(),
                wanted,
                may_miss_threads: false,
                own: HashMap::new(),
                all: Vec::new(),
                _events: Vec::new(),
            };
            match firings.open(threads, threads_only, pages) {
                Ok(()) => return Ok(firings),
                Err((reason @ Errno::EPERM, true)) => match sizes.next() {
                    Some(fewer) => pages = fewer,
                    None => return Err(TracepointError::Refused { name, reason }),
                },
                Err((Errno::EINVAL, false)) if threads_only => threads_only = false,
                Err((Errno::EMFILE, _)) if !is_raised => {
                    is_raised = true;
                    raise_limit();
                }
                Err((reason, _)) => return Err(TracepointError::Refused { name, reason }),
            }
        };
        let (mut firings, is_complete) = until_none_appears(&mut || process.threads().unwrap_or_default(), &mut open)?;
        firings.may_miss_threads = !is_complete;
        Ok(firings)
    }

    fn open(&mut self, threads: &[ThreadId], threads_only: bool, pages: usize) -> Result<(), Failed> {
        let own = Firing {
            number: self.tracepoint.number,
            stack_bytes: if self.wanted.stacks.program { STACK_BYTES } else { 0 },
            kernel_stack: self.wanted.stacks.kernel,
            threads_only,
        };
        let all = Firing {
            stack_bytes: 0,
            threads_only: false,
            ..own
        };
        for processor in processors() {
            if self.wanted.everybody {
                match perf::tracepoint(EVERY_THREAD, processor, all) {
                    Ok(event) => {
                        let ring = Ring::map(Arc::new(event), pages).map_err(|error| (error, true))?;
                        self.all.push(ring);
                    }
                    // The processor is offline.
                    Err(Errno::ENODEV) => continue,
                    Err(error) => return Err((error, false)),
                }
            }
            for &thread in threads {
                let event = match perf::tracepoint(thread, processor, own) {
                    Ok(event) => Arc::new(event),
                    // The thread has ended, or the processor is offline.
                    Err(Errno::ESRCH | Errno::ENODEV) => continue,
                    Err(error) => return Err((error, false)),
                };
                if let Some(ring) = self.own.get(&processor) {
                    ring.take_in(&event).map_err(|error| (error, false))?;
                } else {
                    let ring = Ring::map(event.clone(), pages).map_err(|error| (error, true))?;
                    self.own.insert(processor, ring);
                }
                self._events.push(event);
            }
        }
        Ok(())
    }

    pub fn may_miss_threads(&self) -> bool {
        self.may_miss_threads
    }

    /// What `made` makes of the firings since the last call, and how many records were lost for lack of room.
    pub fn take<T>(&mut self, made: &Made<'_, T>) -> (Vec<T>, u64) {
        let (mut list, mut lost) = (Vec::new(), 0_u64);
        for ring in self.own.values() {
            let made = |sample: Sample, raw: &[u8]| {
                let is_meant = sample.process == self.process;
                is_meant.then(|| made(&self.tracepoint, sample, raw)).flatten()
            };
            lost += read(&ring.take(), self.wanted.stacks, &made, &mut list);
        }
        for ring in &self.all {
            let made = |sample: Sample, raw: &[u8]| {
                let is_meant = sample.process != self.process;
                is_meant.then(|| made(&self.tracepoint, sample, raw)).flatten()
            };
            let stacks = Stacks {
                program: false,
                ..self.wanted.stacks
            };
            lost += read(&ring.take(), stacks, &made, &mut list);
        }
        (list, lost)
    }
}

/// Reads whole records; an invalid one ends the reading. Returns how many were lost.
fn read<T>(mut bytes: &[u8], stacks: Stacks, made: &dyn Fn(Sample, &[u8]) -> Option<T>, list: &mut Vec<T>) -> u64 {
    let mut lost = 0_u64;
    while let Some(header) = Words(bytes).word() {
        let size = usize::from((header >> 48) as u16);
        let (Some(body), Some(rest)) = (bytes.get(HEADER_BYTES..size), bytes.get(size..)) else {
            break;
        };
        match header as u32 {
            SAMPLE => list.extend(record::fired(body, stacks).and_then(|(sample, raw)| made(sample, raw))),
            LOST => {
                let count = Words(body).skip(8).and_then(|mut words| words.word());
                lost = lost.saturating_add(count.unwrap_or(0));
            }
            _ => {}
        }
        bytes = rest;
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_records_count_and_an_invalid_one_ends_the_reading() {
        let lost: Vec<u8> = [u64::from(LOST) | 24 << 48, 0, 5]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let none = Stacks::default();
        let made = |sample: Sample, _: &[u8]| Some(sample.thread);
        let mut list = Vec::new();
        assert_eq!(read(&[lost.clone(), lost.clone()].concat(), none, &made, &mut list), 10);
        // A record of length 0, and a sample without a body.
        assert_eq!(
            read(
                &[lost.clone(), vec![0; 8], lost.clone()].concat(),
                none,
                &made,
                &mut list
            ),
            5
        );
        let short = (u64::from(SAMPLE) | 8 << 48).to_le_bytes().to_vec();
        assert_eq!(read(&[short, lost].concat(), none, &made, &mut list), 5);
        assert_eq!(list, Vec::<ThreadId>::new());
    }
}
