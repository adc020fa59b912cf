//! Instructions that stay in place, and before which no code of ours runs.
//!
//! A *restartable sequence* (`man 2 rseq`) is atomic because the kernel compares a thread's instruction pointer with
//! the sequence's addresses. A detour lies outside of these addresses: for a thread there, the kernel neither
//! restarts the sequence nor keeps it armed. So no instruction of a sequence is displaced, and none traps. The same
//! holds for the instruction before the sequence, which arms it: the kernel disarms a sequence if it finds the thread
//! outside of it.
//!
//! ```text
//!            mov fs:[rseq_cs], rax     arms: stays in place
//!   start:   mov eax, fs:[cpu_id]      the sequence
//!            inc qword ptr [rbx]       its last instruction
//!   end:
//!   ...      ud1 edi, [rip+53053053h]  a signature: the kernel compares it before it sends a thread to
//!   abort:   jmp again
//! ```
//!
//! Neither a detour nor a signal handler can run where rsp does not point to a stack (`stack.rs`).

use std::ops::Range;

use super::instruction::Instruction;
use super::kind::Kind;
use super::map::FunctionMap;
use super::restartable::Restartable;
use crate::Refusal;

impl FunctionMap {
    /// Adds restartable sequences. [`super::follow`] asks its surroundings for them.
    pub fn show_restartable(&mut self, sequences: impl IntoIterator<Item = Restartable>) {
        self.fixed.restartable.extend(sequences);
    }

    /// Whether an instruction can neither be displaced nor trap.
    pub(crate) fn is_fixed(&self, instruction: Instruction) -> bool {
        instruction.kind == Kind::Breakpoint
            || self.is_kept_call(instruction)
            || self.is_stackless(instruction.offset)
            || self.is_restartable(&(instruction.offset..instruction.end()))
    }

    /// Whether some of these bytes belong to a restartable sequence.
    pub(crate) fn is_restartable(&self, range: &Range<u32>) -> bool {
        self.restartable_at(range).is_some()
    }

    fn restartable_at(&self, range: &Range<u32>) -> Option<&Restartable> {
        let (start, end) = (self.address(range.start).0, self.address(range.end).0);
        let overlaps = |kept: &Range<u64>| kept.start < end && start < kept.end;
        let mut sequences = self.fixed.restartable.iter();
        sequences.find(|sequence| sequence.kept().iter().any(overlaps))
    }

    fn is_stackless(&self, offset: u32) -> bool {
        self.fixed.stackless.binary_search(&offset).is_ok()
    }

    /// Why an instruction cannot be probed.
    pub(crate) fn refusal_at(&self, instruction: Instruction) -> Option<Refusal> {
        let site = self.address(instruction.offset);
        if instruction.kind == Kind::Breakpoint {
            return Some(Refusal::Breakpoint { site });
        }
        if self.is_kept_call(instruction) {
            return Some(Refusal::ShadowStack { site });
        }
        if let Some(found) = self.restartable_at(&(instruction.offset..instruction.end())) {
            return Some(Refusal::Restartable {
                site,
                start: found.sequence.start,
                end: found.sequence.end,
            });
        }
        self.is_stackless(instruction.offset)
            .then_some(Refusal::NoStack { site })
    }
}
