//! The records of a ring, as perf_event_open(2) describes them ("MMAP layout"). The registers are those of
//! `<asm/perf_regs.h>`. Pure.
//!
//! ```text
//! header   u32 type, u16, u16 size of the whole record
//! sample   u64 ip | u32 pid, u32 tid | u64 time | u32 processor, u32 | u64 period
//!          | if the kernel's stack is wanted: u64 n, n addresses, with marks between those of different contexts
//!          | of tracepoints: u32 n, n bytes of the tracepoint's record; both together are a multiple of 8
//!          | u64 abi, and if that is not 0: 20 registers
//!          | u64 n, and if that is not 0: n bytes of the stack, then u64: how many of them belong to the stack
//! lost     u64 id, u64 count
//! fork     u32 pid, u32 pid of the creator | u32 tid, u32 tid of the creator | u64 time
//! ```

use crate::{ProcessId, ThreadId};

pub(super) const LOST: u32 = 2;
pub(super) const FORK: u32 = 7;
pub(super) const SAMPLE: u32 = 9;
pub(super) const HEADER_BYTES: usize = 8;

/// The state of a thread when it was sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub process: ProcessId,
    pub thread: ThreadId,
    pub processor: u32,
    /// The time, by CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The address that was executed, in the program or in the kernel.
    pub executed: u64,
    /// The kernel's stack, innermost frame first. Empty if it was not wanted, or if the thread was not in the kernel.
    pub kernel: Vec<u64>,
    /// The thread's state in the program; `None` for an ending thread that has no such state any more.
    pub user: Option<UserState>,
}

/// A thread's registers and stack in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserState {
    /// The registers, in the order of [`UserState::NAMES`].
    pub registers: [u64; 20],
    /// Bytes from the stack pointer upwards.
    pub stack: Vec<u8>,
}

impl UserState {
    /// The names of the registers.
    pub const NAMES: [&str; 20] = [
        "ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip", "flags", "cs", "ss", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15",
    ];

    /// The register of a name; 0 for an unknown name.
    pub fn register(&self, name: &str) -> u64 {
        let index = Self::NAMES.iter().position(|register| *register == name);
        index.and_then(|index| self.registers.get(index)).copied().unwrap_or(0)
    }

    /// The word of the stack at an address, if the sample contains it.
    pub fn stack_word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.register("sp"))?).ok()?;
        let word = self.stack.get(offset..)?.get(..8)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }
}

/// Which stacks samples have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// A copy of the program's, for unwinding it.
    pub program: bool,
    /// The frames of the kernel's.
    pub kernel: bool,
}

impl Stacks {
    /// Whether there are any.
    #[must_use]
    pub fn any(self) -> bool {
        self.program || self.kernel
    }
}

/// The content of a ring.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Each sample, and the processor time in ns that it stands for.
    pub samples: Vec<(u64, Sample)>,
    /// The threads that were created in a process, as pairs of creator and created.
    pub created: Vec<(ThreadId, ThreadId)>,
    /// The number of records that were lost for lack of room.
    pub lost: u64,
}

/// Reads whole records; an invalid one ends the reading.
pub(super) fn read(mut bytes: &[u8], stacks: Stacks) -> Taken {
    let mut taken = Taken::default();
    while let Some((kind, body, rest)) = next(bytes) {
        match kind {
            SAMPLE => taken.samples.extend(sample(body, stacks)),
            LOST => {
                let count = Words(body).skip(8).and_then(|mut words| words.word());
                taken.lost = taken.lost.saturating_add(count.unwrap_or(0));
            }
            FORK => taken.created.extend(created(body)),
            _ => {}
        }
        bytes = rest;
    }
    taken
}

fn next(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let mut words = Words(bytes);
    let header = words.word()?;
    let size = usize::from((header >> 48) as u16);
    let body = bytes.get(HEADER_BYTES..size)?;
    Some((header as u32, body, bytes.get(size..)?))
}

/// The creator and the created thread; `None` if a process was created.
fn created(body: &[u8]) -> Option<(ThreadId, ThreadId)> {
    let mut words = Words(body);
    let (process, of_creator) = words.halves()?;
    let (thread, creator) = words.halves()?;
    (process == of_creator).then_some((creator as ThreadId, thread as ThreadId))
}

pub(super) fn sample(body: &[u8], stacks: Stacks) -> Option<(u64, Sample)> {
    let (period_ns, mut sample, mut words) = head(body, stacks)?;
    sample.user = user_state(&mut words, stacks.program)?;
    Some((period_ns, sample))
}

/// A sample of a tracepoint, and the tracepoint's record.
pub(super) fn fired(body: &[u8], stacks: Stacks) -> Option<(Sample, &[u8])> {
    let (_, mut sample, words) = head(body, stacks)?;
    let (size, rest) = words.0.split_first_chunk::<4>()?;
    let (raw, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*size)).ok()?)?;
    sample.user = user_state(&mut Words(rest), stacks.program)?;
    Some((sample, raw))
}

/// The first part of a sample, with its period, and what follows.
fn head(body: &[u8], stacks: Stacks) -> Option<(u64, Sample, Words<'_>)> {
    let mut words = Words(body);
    let executed = words.word()?;
    let (process, thread) = words.halves()?;
    let time_ns = words.word()?;
    let (processor, _) = words.halves()?;
    let period_ns = words.word()?;
    let kernel = if stacks.kernel {
        call_chain(&mut words)?
    } else {
        Vec::new()
    };
    let sample = Sample {
        process: process as ProcessId,
        thread: thread as ThreadId,
        processor,
        time_ns,
        executed,
        kernel,
        user: None,
    };
    Some((period_ns, sample, words))
}

/// The frames of the kernel in a call chain.
fn call_chain(words: &mut Words<'_>) -> Option<Vec<u64>> {
    /// `PERF_CONTEXT_MAX`: words from here on are marks.
    const MARKS: u64 = -4095_i64 as u64;
    /// `PERF_CONTEXT_KERNEL`: the kernel's frames follow.
    const KERNEL: u64 = -128_i64 as u64;
    let bytes = usize::try_from(words.word()?).ok()?.checked_mul(8)?;
    let (mut chain, rest) = words
        .0
        .split_at_checked(bytes)
        .map(|(chain, rest)| (Words(chain), rest))?;
    words.0 = rest;
    let (mut frames, mut is_kernel) = (Vec::new(), false);
    while let Some(word) = chain.word() {
        match word {
            MARKS.. => is_kernel = word == KERNEL,
            frame if is_kernel => frames.push(frame),
            _ => {}
        }
    }
    Some(frames)
}

/// The registers and the stack. `Some(None)`: the thread has none in the program.
fn user_state(words: &mut Words<'_>, with_stack: bool) -> Option<Option<UserState>> {
    let mut user = None;
    if words.word()? != 0 {
        let mut state = UserState::default();
        for register in &mut state.registers {
            *register = words.word()?;
        }
        if with_stack {
            let length = usize::try_from(words.word()?).ok()?;
            if length > 0 {
                let stack = words.0.get(..length)?;
                let valid = usize::try_from(words.skip(length)?.word()?).ok()?;
                state.stack = stack.get(..valid)?.to_vec();
            }
        }
        user = Some(state);
    }
    Some(user)
}

/// Little-endian words, one after the other.
pub(super) struct Words<'a>(pub &'a [u8]);

impl<'a> Words<'a> {
    pub fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    pub fn halves(&mut self) -> Option<(u32, u32)> {
        let word = self.word()?;
        Some((word as u32, (word >> 32) as u32))
    }

    pub fn skip(&self, bytes: usize) -> Option<Words<'a>> {
        Some(Words(self.0.get(bytes..)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Stacks = Stacks {
        program: false,
        kernel: false,
    };
    const PROGRAM: Stacks = Stacks {
        program: true,
        kernel: false,
    };
    const BOTH: Stacks = Stacks {
        program: true,
        kernel: true,
    };

    fn record(kind: u32, body: &[u64]) -> Vec<u8> {
        let size = (HEADER_BYTES + 8 * body.len()) as u64;
        let words = [u64::from(kind) | size << 48];
        let words = words.iter().chain(body);
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    fn body(with_stack: bool) -> Vec<u64> {
        let mut body = vec![0x40_1000, 7 | 8 << 32, 99, 1, 1_000_000, 2];
        body.extend((0..20).map(|register| if register == 7 { 0x7000 } else { register }));
        if with_stack {
            // Three words were requested, of which two belong to the stack.
            body.extend([24, 0xaaaa, 0xbbbb, 0, 16]);
        }
        body
    }

    #[test]
    fn a_sample_has_thread_time_processor_and_address() {
        let bytes = [
            record(SAMPLE, &body(true)),
            record(LOST, &[0, 5]),
            record(3, &[1, 2, 3]),
            // The first record is of a thread, the second of a process.
            record(FORK, &[7 | 7 << 32, 9 | 8 << 32, 99]),
            record(FORK, &[10 | 7 << 32, 10 | 8 << 32, 99]),
        ]
        .concat();
        let taken = read(&bytes, PROGRAM);
        assert_eq!(taken.lost, 5);
        assert_eq!(taken.created, [(8, 9)]);
        let [(1_000_000, sample)] = taken.samples.as_slice() else {
            panic!("one sample: {taken:?}")
        };
        assert_eq!(
            (
                sample.process,
                sample.thread,
                sample.processor,
                sample.time_ns,
                sample.executed
            ),
            (7, 8, 1, 99, 0x40_1000)
        );
        let user = sample.user.as_ref().expect("a user's state");
        assert_eq!(
            (user.register("ip"), user.register("r15"), user.register("sp")),
            (8, 19, 0x7000)
        );
        assert_eq!(user.stack_word(0x7000), Some(0xaaaa));
        assert_eq!(user.stack_word(0x7008), Some(0xbbbb));
        assert_eq!(user.stack_word(0x7010), None, "behind the stack");
        assert_eq!(user.stack_word(0x6ff8), None, "in front of it");
    }

    #[test]
    fn a_thread_without_a_state_of_the_users_has_none() {
        let bytes = record(SAMPLE, &[0xffff_ffff_8100_0000, 7 | 8 << 32, 99, 1, 1_000_000, 0]);
        let taken = read(&bytes, NONE);
        assert_eq!(
            taken.samples.first().map(|(_, sample)| sample.user.is_none()),
            Some(true)
        );
    }

    /// The record of a tracepoint lies before the registers. One that claims to be longer than the sample is none.
    #[test]
    fn a_sample_of_a_tracepoint_has_its_record() {
        let mut whole = body(true);
        whole.insert(5, 12 | 0xdead_beef << 32);
        whole.insert(6, 0x0102_0304_0506_0708);
        let bytes: Vec<u8> = whole.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (sample, raw) = fired(&bytes, PROGRAM).expect("a sample");
        assert_eq!((sample.thread, sample.time_ns, sample.processor), (8, 99, 1));
        assert_eq!(raw, [0xef, 0xbe, 0xad, 0xde, 8, 7, 6, 5, 4, 3, 2, 1]);
        let user = sample.user.expect("a user's state");
        assert_eq!((user.register("ip"), user.stack_word(0x7008)), (8, Some(0xbbbb)));
        for length in 0..bytes.len() {
            assert_eq!(
                fired(bytes.get(..length).unwrap_or_default(), PROGRAM),
                None,
                "{length}"
            );
        }
        whole[5] = u64::from(u32::MAX);
        let bytes: Vec<u8> = whole.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(fired(&bytes, PROGRAM), None);
    }

    /// Only what lies between the kernel's mark and the next one is the kernel's.
    #[test]
    fn a_call_chain_has_the_frames_of_the_kernel() {
        let (inner, outer) = (0xffff_ffff_8100_0010, 0xffff_ffff_8120_0020);
        let [kernel, user, guest] = [-128_i64, -512, -2048].map(|mark| mark as u64);
        let chain = [1, guest, 2, kernel, inner, outer, user, 0x40_1000];
        let with_chain = |length: u64, tracepoint: &[u64]| {
            let mut whole = body(true);
            let words = [&[length], &chain[..], tracepoint].concat();
            drop(whole.splice(5..5, words));
            whole
        };
        let length = chain.len() as u64;
        let taken = read(&record(SAMPLE, &with_chain(length, &[])), BOTH);
        let [(_, sample)] = taken.samples.as_slice() else {
            panic!("one sample: {taken:?}")
        };
        assert_eq!(sample.kernel, [inner, outer]);
        let user = sample.user.as_ref().expect("a user's state");
        assert_eq!(user.stack_word(0x7008), Some(0xbbbb), "what follows is in its place");
        for length in [length + 40, 1 << 40, u64::MAX] {
            let taken = read(&record(SAMPLE, &with_chain(length, &[])), BOTH);
            assert_eq!(taken, Taken::default(), "a chain of {length} words");
        }
        let fired_with = with_chain(length, &[4 | 0xdead_beef << 32]);
        let bytes: Vec<u8> = fired_with.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (sample, raw) = fired(&bytes, BOTH).expect("a sample of a tracepoint");
        assert_eq!((sample.kernel, raw.len()), (vec![inner, outer], 4));
        // In the program there is no chain.
        let mut empty = body(true);
        empty.insert(5, 0);
        let taken = read(&record(SAMPLE, &empty), BOTH);
        assert_eq!(taken.samples.first().map(|(_, sample)| sample.kernel.len()), Some(0));
    }

    #[test]
    fn truncated_and_invalid_records_are_no_samples() {
        let whole = record(SAMPLE, &body(true));
        for length in 0..whole.len() {
            assert_eq!(read(whole.get(..length).unwrap_or_default(), PROGRAM), Taken::default());
        }
        // A stack that claims to be longer than its record, and a record of length 0.
        let mut long = body(true);
        long[26] = 1 << 40;
        assert_eq!(read(&record(SAMPLE, &long), PROGRAM), Taken::default());
        assert_eq!(read(&[0; 64], PROGRAM), Taken::default());
    }
}
