//! One decoded instruction, and its references to bytes of the function.

use std::ops::Range;

use iced_x86::{Mnemonic, OpKind, Register};

use super::kind::Kind;

/// Stands for the offset of a branch that lies outside of this function, or is computed.
pub(super) const ELSEWHERE: u32 = u32::MAX;

/// One decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// Bytes from the view's start.
    pub offset: u32,
    /// Length in bytes, 1..=15.
    pub length: u8,
    pub kind: Kind,
    /// Whether the instruction lies between blocks and is never executed.
    pub padding: bool,
    /// Whether the instruction sets the stack pointer in a way that does not belong to a frame.
    pub moves_stack: bool,
}

/// A memory operand that is relative to the instruction pointer and lies in the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// The offset of the instruction.
    pub from: u32,
    /// The offset of the operand.
    pub to: u32,
    /// The size of the operand in bytes, at least 1.
    pub bytes: u32,
    /// Whether the instruction reads or writes the operand. Otherwise it only takes the operand's address.
    pub is_read: bool,
}

impl Reference {
    pub fn overlaps(&self, range: &Range<u32>) -> bool {
        self.to < range.end && range.start < self.to.saturating_add(self.bytes)
    }
}

impl Instruction {
    pub fn of(decoded: &iced_x86::Instruction, offset: u32) -> Instruction {
        Instruction {
            offset,
            length: decoded.len() as u8,
            kind: Kind::of(decoded),
            padding: false,
            moves_stack: is_moved_by(decoded),
        }
    }

    pub fn end(self) -> u32 {
        self.offset + u32::from(self.length)
    }
}

/// Whether an instruction sets rsp in a way that does not belong to a frame. After any other instruction, rsp points to
/// a stack if it did before.
pub(super) fn is_moved_by(instruction: &iced_x86::Instruction) -> bool {
    let is_rsp = |operand: u32| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).full_register() == Register::RSP
    };
    let exchanged = matches!(instruction.mnemonic(), Mnemonic::Xchg | Mnemonic::Xadd) && is_rsp(1);
    if instruction.op_count() == 0 || !(is_rsp(0) || exchanged) {
        return false;
    }
    match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Call | Mnemonic::Jmp | Mnemonic::Bt => false,
        Mnemonic::Mov => instruction.op1_kind() != OpKind::Register || instruction.op1_register() != Register::RBP,
        Mnemonic::Lea => !is_stack_operand(instruction),
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::And => !is_relative(instruction),
        _ => true,
    }
}

/// `[rsp+x]` or `[rbp+x]`.
fn is_stack_operand(instruction: &iced_x86::Instruction) -> bool {
    matches!(instruction.memory_base(), Register::RSP | Register::RBP)
        && instruction.memory_index() == Register::None
        && instruction.op0_register().size() == 8
}

/// Whether rsp is moved by a constant distance, or aligned.
pub(super) fn is_relative(instruction: &iced_x86::Instruction) -> bool {
    let bytes = instruction.op0_register().size();
    if instruction.mnemonic() != Mnemonic::And {
        return bytes == 8;
    }
    // Apart from the lowest bits, all bits of the mask must be set.
    match instruction.op1_kind() {
        OpKind::Register | OpKind::Memory => bytes == 8,
        _ => bytes == 1 || bytes == 2 || bytes == 8 && instruction.immediate(1).cast_signed() < 0,
    }
}
