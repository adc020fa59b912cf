//! Excused differences: the sequence has no single result, or sees something that patching necessarily changes.

use nanoprobe_patch::FunctionMap;

use super::{Bench, Native, State};
use crate::access;
use crate::difference::Found;
use crate::executor::Start;
use crate::memory::{BASES, STACK_BYTES, write};
use crate::sequence::Laid;

/// A patched run has four seconds of processor time. Where each instruction traps, it takes up to 40,000 times as long
/// as the native run (4 us instead of a tenth of a nanosecond). So the patched run of a native run that takes longer
/// than this cannot be told from an endless one.
const NATIVE_NS_MAX: u64 = 50_000;

/// The processor time of this thread.
fn processor_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Bench {
    /// Whether the sequence runs so long that its patched run cannot be told from an endless one. The shortest of some
    /// runs counts: the others may have been interrupted.
    pub(super) fn runs_long(&mut self, which: usize, state: &State, entry: u64) -> bool {
        let mut run = || {
            let start = processor_ns();
            self.run(which, state, entry, 1, &[]);
            processor_ns() - start
        };
        (0..8).map(|_| run()).min().is_none_or(|ns| ns > NATIVE_NS_MAX)
    }

    /// Whether only flags differ that an instruction of the sequence leaves undefined: they may depend on earlier
    /// instructions.
    pub(super) fn only_undefined_flags(&self, map: &FunctionMap, laid: &Laid, native: &Native, found: &Found) -> bool {
        use iced_x86::{Decoder, DecoderOptions, RflagsBits};
        let bits = [
            (RflagsBits::CF, 0x1),
            (RflagsBits::PF, 0x4),
            (RflagsBits::AF, 0x10),
            (RflagsBits::ZF, 0x40),
            (RflagsBits::SF, 0x80),
            (RflagsBits::OF, 0x800),
        ];
        let code = &laid.bytes[..laid.size as usize];
        let undefined = Decoder::with_ip(64, code, map.start().0, DecoderOptions::NONE)
            .into_iter()
            .fold(0, |flags, instruction| flags | instruction.rflags_undefined());
        let mask: u64 = bits
            .iter()
            .filter(|(bit, _)| undefined & bit != 0)
            .map(|(_, flag)| flag)
            .sum();
        let without = |found: &Found| {
            let mut registers = found.outcome.registers;
            registers.flags &= !mask;
            registers
        };
        without(&native.result) == without(found)
            && native.result.outcome.image == found.outcome.image
            && native.result.data == found.data
    }

    /// Whether the sequence reads or writes code: its own code, which is patched, or the remains of other detours of
    /// either arena.
    pub(super) fn looks_at_code(&mut self, which: usize, laid: &Laid, state: &State, entry: u64) -> bool {
        let arena = &self.arenas[which];
        let (code, memory) = (arena.code(), arena.data()..arena.stack() + STACK_BYTES as u64);
        write(arena.data(), &state.data);
        write(arena.stack(), &state.stack);
        let start = Start {
            registers: state.registers,
            image: &state.image,
            target: entry,
            ticks: 1000,
        };
        self.executor.count_steps(&start, code);
        laid.write(&self.arenas[which]);
        self.executor.steps().iter().any(|registers| {
            let rip = registers[16];
            let Some(bytes) = rip.checked_sub(code).and_then(|at| laid.bytes.get(at as usize..)) else {
                return false;
            };
            let accessed = access::addresses(bytes, rip, registers, state.registers.fs_base);
            accessed.iter().any(|address| {
                // An address that is cut to 32 bits leads from the high arena to the detours of the low one.
                let near = BASES.iter().any(|base| address.abs_diff(*base) < 1 << 31);
                near && !memory.contains(address)
            })
        })
    }

    /// Whether the sequence has a different result in each run, or reads memory below the red zone.
    pub(super) fn is_native_unstable(
        &mut self,
        which: usize,
        laid: &Laid,
        state: &State,
        entry: u64,
        native: &Native,
        lowest: u64,
    ) -> bool {
        let below = (lowest - self.arenas[which].stack()) as usize;
        // The last is a denormal number.
        let patterns = [0, u64::MAX, 0x3c3c_3c3c_3c3c_3c3c, 1];
        for garbage in std::iter::once(None).chain(patterns.map(Some)) {
            let mut other = State {
                registers: state.registers,
                image: state.image.clone(),
                data: state.data.clone(),
                stack: state.stack.clone(),
            };
            if let Some(garbage) = garbage {
                for word in other.stack[..below].chunks_exact_mut(8) {
                    word.copy_from_slice(&garbage.to_le_bytes());
                }
            }
            let Some(again) = self.natively(which, laid, &other, entry) else {
                return true;
            };
            let same = again.result.outcome == native.result.outcome
                && again.result.data == native.result.data
                && again.result.stack[below..] == native.result.stack[below..];
            if !same {
                return true;
            }
        }
        false
    }
}
