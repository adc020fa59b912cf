//! Relocation: the same instruction, executed elsewhere.
//!
//! Each family of instructions has a file, whose head shows the relocated form. The families differ by what depends
//! on the instruction's own address: nothing ([`verbatim`]), an operand ([`verbatim`], with a new displacement), the
//! target of a branch ([`jump`], [`conditional`], [`counted`], [`transaction`]), or the address after the
//! instruction, which the callee or the program learns ([`call`], [`system`]). Registers, flags and memory end up as
//! in place, with two exceptions. Programs cannot rely on the first one, and do not rely on the second one:
//!
//! - a call through memory writes the two words below the stack pointer, not one; the callee's frame lies there;
//! - the x87 unit notes the address of its last instruction, which is that of the copy. Only `fnstenv`, `fnsave`,
//!   `fxsave` and `xsave` show it.
//!
//! These instructions are refused, each with the reason in [`Refusal::Unmovable`]:
//!
//! | instruction | why |
//! |---|---|
//! | a direct branch with an operand-size prefix | Intel ignores it, AMD cuts the target to 16 bits: unsure length |
//! | `sysenter` | the kernel returns to an address of its own choice |
//! | far calls | what they push depends on the processor's maker, and 32-bit code cannot return to the copy |
//! | `jmp rsp`, offsets of 2 GiB from rsp or esp, where a point fires if the jump leaves | the handler moves rsp |
//!
//! `int3` is [`Refusal::Breakpoint`]: it is the program's own.

mod call;
mod conditional;
mod counted;
mod jump;
mod operand;
mod system;
mod transaction;
mod verbatim;

use iced_x86::{Instruction, Mnemonic};

use crate::assemble::{Assembler, Label};
use crate::{Refusal, TargetAddress};

pub(crate) use operand::load_branch_target;

/// An instruction to relocate: decoded at its original address, and its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Original<'a> {
    pub instruction: &'a Instruction,
    pub bytes: &'a [u8],
}

impl Original<'_> {
    fn address(&self) -> TargetAddress {
        TargetAddress(self.instruction.ip())
    }

    fn unmovable(&self, reason: &'static str) -> Refusal {
        Refusal::Unmovable {
            address: self.address(),
            reason,
        }
    }

    /// The target of a direct branch, if its width is beyond doubt.
    fn branch_target(&self) -> Result<TargetAddress, Refusal> {
        // Intel's processors ignore an operand-size prefix here, AMD's cut the target to 16 bits. With REX.W both
        // ignore the prefix.
        let mut ambiguous = false;
        for byte in self.bytes {
            match byte {
                0x66 => ambiguous = true,
                0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67 | 0xf0 | 0xf2 | 0xf3 => {}
                0x48..=0x4f => {
                    ambiguous = false;
                    break;
                }
                _ => break,
            }
        }
        if ambiguous {
            return Err(
                self.unmovable("a branch with an operand-size prefix means different things to different processors")
            );
        }
        Ok(TargetAddress(self.instruction.near_branch_target()))
    }
}

/// The properties of a relocated instruction that other parts of this crate need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Relocated {
    /// The place to which the kernel returns. It corresponds to the address after the original.
    pub returns_to: Option<Label>,
    /// The number of words that the relocated instruction has pushed, from this label to its end. The original
    /// instruction would not have pushed them if it faults.
    pub pushed: Option<(Label, u8)>,
}

/// Appends the relocated instruction. `taken`: replaces the target of a conditional branch.
pub(crate) fn relocate(
    code: &mut Assembler,
    original: Original<'_>,
    taken: Option<Label>,
) -> Result<Relocated, Refusal> {
    let instruction = original.instruction;
    if instruction.is_jcc_short_or_near() {
        return conditional::relocate(code, original, taken);
    }
    if instruction.is_loop() || instruction.is_loopcc() || instruction.is_jcx_short() {
        return counted::relocate(code, original, taken);
    }
    if taken.is_some() {
        return Err(Refusal::NoSuchEdge {
            site: original.address(),
            edge: "taken",
        });
    }
    if instruction.is_jmp_short_or_near() {
        return jump::relocate(code, original);
    }
    if instruction.is_call_near() {
        return call::direct(code, original);
    }
    if instruction.is_call_near_indirect() {
        return call::indirect(code, original);
    }
    if instruction.is_call_far() || instruction.is_call_far_indirect() {
        return Err(original.unmovable("a far call pushes its own address"));
    }
    match instruction.mnemonic() {
        Mnemonic::Xbegin => transaction::relocate(code, original),
        Mnemonic::Syscall => system::relocate(code, original),
        Mnemonic::Int => Ok(system::interrupt(code, original)),
        Mnemonic::Int3 => Err(Refusal::Breakpoint {
            site: original.address(),
        }),
        Mnemonic::Sysenter => Err(original.unmovable("the kernel returns from sysenter to a fixed address")),
        _ => verbatim::relocate(code, original),
    }
}
