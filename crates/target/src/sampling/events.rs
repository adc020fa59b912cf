//! The records of a ring as events in the order of their times: samples, and what becomes of threads. Pure.
//!
//! Records other than samples have this form here (`sample_id_all` of perf_event_open(2)):
//!
//! ```text
//! header   u32 type, u16 flags, u16 size of the whole record
//! comm     u32 pid, u32 tid | the name, NUL, zeros up to a multiple of 8    | stamp
//! exit     as fork                                                          | stamp
//! fork     u32 pid, u32 pid of the creator | u32 tid, u32 tid of the creator | u64 time | stamp
//! switch   nothing; the flags say whether the thread is switched out, and was preempted | stamp
//! stamp    u32 pid, u32 tid | u64 time | u32 processor, u32
//! ```

use super::Sample;
use super::record::{FORK, HEADER_BYTES, LOST, SAMPLE, Stacks, Words, sample};
use crate::{ProcessId, ThreadId};

const COMM: u32 = 3;
const EXIT: u32 = 4;
const SWITCH: u32 = 14;
/// Flags of a switch: the thread leaves its processor; it could have run on.
const SWITCH_OUT: u64 = 1 << 13;
const SWITCH_PREEMPTED: u64 = 1 << 14;
/// A flag of a new name: the thread executes another program.
const COMM_EXEC: u64 = 1 << 13;
const STAMP_BYTES: usize = 24;

/// Something that happened to a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was sampled.
    Sample(Box<Sample>),
    /// It was created.
    Created {
        process: ProcessId,
        thread: ThreadId,
        creator_process: ProcessId,
        creator: ThreadId,
    },
    /// It has ended.
    Ended { process: ProcessId, thread: ThreadId },
    /// It has another name, maybe because it executes another program.
    Named {
        process: ProcessId,
        thread: ThreadId,
        name: String,
        is_program: bool,
    },
    /// It came to a processor, or left it.
    Switched {
        process: ProcessId,
        thread: ThreadId,
        processor: u32,
        /// It left the processor; true: it could have run on.
        off: Option<bool>,
    },
}

/// The content of a ring.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Events {
    /// Each event, with its time.
    pub list: Vec<(u64, Event)>,
    /// The number of records that were lost for lack of room.
    pub lost: u64,
}

/// Reads whole records; an invalid one ends the reading.
pub(super) fn read(mut bytes: &[u8], stacks: Stacks) -> Events {
    let mut events = Events::default();
    while let Some((header, body, rest)) = next(bytes) {
        match header as u32 {
            LOST => {
                let count = Words(body).skip(8).and_then(|mut words| words.word());
                events.lost = events.lost.saturating_add(count.unwrap_or(0));
            }
            kind => events.list.extend(event(kind, header, body, stacks)),
        }
        bytes = rest;
    }
    events
}

fn next(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let header = Words(bytes).word()?;
    let size = usize::from((header >> 48) as u16);
    Some((header, bytes.get(HEADER_BYTES..size)?, bytes.get(size..)?))
}

fn event(kind: u32, header: u64, body: &[u8], stacks: Stacks) -> Option<(u64, Event)> {
    let mut words = Words(body);
    match kind {
        SAMPLE => {
            let (_, sample) = sample(body, stacks)?;
            Some((sample.time_ns, Event::Sample(Box::new(sample))))
        }
        FORK | EXIT => {
            let (process, creator_process) = words.halves()?;
            let (thread, creator) = words.halves()?;
            let time = words.word()?;
            let (process, thread) = (process as ProcessId, thread as ThreadId);
            let event = match kind {
                FORK => Event::Created {
                    process,
                    thread,
                    creator_process: creator_process as ProcessId,
                    creator: creator as ThreadId,
                },
                _ => Event::Ended { process, thread },
            };
            Some((time, event))
        }
        COMM => {
            let (process, thread) = words.halves()?;
            let name = body.get(8..body.len().checked_sub(STAMP_BYTES)?)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let time = Words(body).skip(body.len() - STAMP_BYTES + 8)?.word()?;
            // The flags lie above the type.
            let is_program = header >> 32 & COMM_EXEC != 0;
            Some((
                time,
                Event::Named {
                    process: process as ProcessId,
                    thread: thread as ThreadId,
                    name: String::from_utf8_lossy(name).into_owned(),
                    is_program,
                },
            ))
        }
        SWITCH => {
            let (process, thread) = words.halves()?;
            let time = words.word()?;
            let (processor, _) = words.halves()?;
            let flags = header >> 32;
            let event = Event::Switched {
                process: process as ProcessId,
                thread: thread as ThreadId,
                processor,
                off: (flags & SWITCH_OUT != 0).then_some(flags & SWITCH_PREEMPTED != 0),
            };
            Some((time, event))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, flags: u64, body: &[u64]) -> Vec<u8> {
        let size = (HEADER_BYTES + 8 * body.len()) as u64;
        let words = [u64::from(kind) | flags << 32 | size << 48];
        words.iter().chain(body).flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn threads_are_created_named_and_end() {
        let stamp = [7 | 8 << 32, 99, 1];
        let name = u64::from_le_bytes(*b"worker\0\0");
        let bytes = [
            record(COMM, COMM_EXEC, &[&[7 | 8 << 32, name, 0], &stamp[..]].concat()),
            record(COMM, 0, &[&[7 | 8 << 32, name], &stamp[..]].concat()),
            record(FORK, 0, &[&[10 | 7 << 32, 10 | 8 << 32, 100], &stamp[..]].concat()),
            record(EXIT, 0, &[&[10 | 7 << 32, 10 | 8 << 32, 101], &stamp[..]].concat()),
            record(SWITCH, SWITCH_OUT, &[7 | 8 << 32, 102, 1]),
            record(SWITCH, SWITCH_OUT | SWITCH_PREEMPTED, &[7 | 8 << 32, 103, 1]),
            record(SWITCH, 0, &[7 | 8 << 32, 104, 1]),
            record(LOST, 0, &[0, 5]),
        ]
        .concat();
        let events = read(&bytes, Stacks::default());
        let named = |is_program| Event::Named {
            process: 7,
            thread: 8,
            name: "worker".to_owned(),
            is_program,
        };
        let created = Event::Created {
            process: 10,
            thread: 10,
            creator_process: 7,
            creator: 8,
        };
        let ended = Event::Ended {
            process: 10,
            thread: 10,
        };
        let switched = |off| Event::Switched {
            process: 7,
            thread: 8,
            processor: 1,
            off,
        };
        assert_eq!(
            events.list,
            [
                (99, named(true)),
                (99, named(false)),
                (100, created),
                (101, ended),
                (102, switched(Some(false))),
                (103, switched(Some(true))),
                (104, switched(None)),
            ]
        );
        assert_eq!(events.lost, 5);
        for length in 0..bytes.len() {
            let stacks = Stacks {
                program: true,
                kernel: true,
            };
            let _ = read(bytes.get(..length).unwrap_or_default(), stacks);
        }
        assert_eq!(read(&record(COMM, 0, &[1]), Stacks::default()), Events::default());
    }
}
