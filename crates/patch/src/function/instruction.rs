//! One decoded instruction, and what it refers to.

use std::ops::Range;

use iced_x86::{Mnemonic, OpKind, Register};

use super::kind::Kind;

/// No offset of a branch: what leads there does not lie in this function, or is computed.
pub(super) const ELSEWHERE: u32 = u32::MAX;

/// One decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// Bytes from the view's start.
    pub offset: u32,
    /// Length in bytes, 1..=15.
    pub length: u8,
    pub kind: Kind,
    /// Lies between blocks, and is never executed.
    pub padding: bool,
    /// Sets the stack pointer otherwise than frames do.
    pub moves_stack: bool,
}

/// A memory operand relative to the instruction pointer that lies in the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// Offset of the instruction.
    pub from: u32,
    /// Offset of what it refers to.
    pub to: u32,
    /// How much it reads there, at least 1.
    pub bytes: u32,
    /// It reads or writes there; else it takes the address.
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

/// Whether an instruction sets rsp in a way that frames do not. All other instructions keep a stack a stack.
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

/// Whether rsp is moved by a distance, or aligned.
pub(super) fn is_relative(instruction: &iced_x86::Instruction) -> bool {
    let bytes = instruction.op0_register().size();
    if instruction.mnemonic() != Mnemonic::And {
        return bytes == 8;
    }
    // What is left of the upper bits must be all of them.
    match instruction.op1_kind() {
        OpKind::Register | OpKind::Memory => bytes == 8,
        _ => bytes == 1 || bytes == 2 || bytes == 8 && instruction.immediate(1).cast_signed() < 0,
    }
}
