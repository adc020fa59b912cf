//! Counts the instructions that begin, by the trap flag.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::memory::CODE_BYTES;

/// The code whose instructions are counted while it is single-stepped.
static STEPPED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static STEP_COUNT: AtomicU32 = AtomicU32::new(0);
static LAST_STEP: AtomicU64 = AtomicU64::new(0);
static STEPS: [AtomicU32; CODE_BYTES as usize] = [const { AtomicU32::new(0) }; _];
const STEPS_MAX: u32 = 60;
/// The registers before each step: those of [`ORDER`], rsp, rip.
static STEP_REGISTERS: [[AtomicU64; 17]; STEPS_MAX as usize + 2] =
    [const { [const { AtomicU64::new(0) }; 17] }; STEPS_MAX as usize + 2];
/// The indices of the general registers in a signal frame, in the order of [`Registers`].
pub const ORDER: [i32; 15] = [
    libc::REG_RAX,
    libc::REG_RBX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Records the registers.
pub fn note(registers: &[i64; 23]) {
    let step = STEP_COUNT.fetch_add(1, Relaxed) as usize;
    let order = ORDER.iter().chain(&[libc::REG_RSP, libc::REG_RIP]);
    if let Some(words) = STEP_REGISTERS.get(step) {
        for (word, register) in words.iter().zip(order) {
            word.store(registers[*register as usize] as u64, Relaxed);
        }
    }
}

/// Begins to count in the code at this address, from `target` on.
pub fn begin(code: u64, target: u64) {
    STEPS.iter().for_each(|count| count.store(0, Relaxed));
    STEP_COUNT.store(0, Relaxed);
    LAST_STEP.store(target, Relaxed);
    STEPS[(target - code) as usize].store(1, Relaxed);
    STEPPED[1].store(code + CODE_BYTES, Relaxed);
    STEPPED[0].store(code, Relaxed);
}

/// Ends the counting; returns how often each byte of the code was the start of an instruction that began.
pub fn end() -> Vec<u32> {
    STEPPED[0].store(0, Relaxed);
    STEPS.iter().map(|count| count.load(Relaxed)).collect()
}

/// The code in which steps are counted; `None` if steps are not counted.
pub fn range() -> Option<Range<u64>> {
    let [start, end] = [STEPPED[0].load(Relaxed), STEPPED[1].load(Relaxed)];
    (start != 0).then_some(start..end)
}

/// Where the counting begins.
pub fn first() -> u64 {
    LAST_STEP.load(Relaxed)
}

/// Notes that an instruction of the code is about to begin; returns whether there may be more.
pub fn count(rip: u64, code: u64, registers: &[i64; 23]) -> bool {
    // A repeated string instruction steps once an iteration.
    if LAST_STEP.swap(rip, Relaxed) != rip {
        STEPS[(rip - code) as usize].fetch_add(1, Relaxed);
    }
    note(registers);
    STEP_COUNT.load(Relaxed) <= STEPS_MAX
}

/// The registers before each step.
pub fn all() -> Vec<[u64; 17]> {
    let count = STEP_COUNT.load(Relaxed) as usize;
    let steps = STEP_REGISTERS.iter().take(count);
    steps
        .map(|words| std::array::from_fn(|word| words[word].load(Relaxed)))
        .collect()
}
