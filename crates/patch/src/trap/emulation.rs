//! The effect of an instruction, as a value that the agent's signal handler can carry out (`agent/emulate.c`).
//! Emulations exist for the usual instructions at the entries and exits of functions and at branches, and those that
//! need no memory but the stack: pushes, calls, jumps, returns, moves, and arithmetic between registers. For all other
//! instructions a copy is better. Operands of one byte are left out (`ah` is no register of the signal frame). So are
//! instructions with an operand-size prefix that move the stack pointer or branch.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use super::descriptor::{
    CONDITION_JCXZ, CONDITION_LOOP, CONDITION_LOOPE, CONDITION_LOOPNE, Memory, Operand, Operation, Segment,
};

/// An operation with its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Emulation {
    pub operation: Operation,
    /// Bytes of the operands: 2, 4 or 8.
    pub size: u8,
    /// `enum np_condition`.
    pub condition: u8,
    /// Number of the destination register.
    pub destination: u8,
    pub source: Operand,
}

impl Emulation {
    const NOTHING: Self = Self {
        operation: Operation::Nop,
        size: 8,
        condition: 0,
        destination: 0,
        source: Operand::Immediate(0),
    };

    fn of(operation: Operation, source: Operand) -> Option<Self> {
        Some(Self {
            operation,
            source,
            ..Self::NOTHING
        })
    }

    /// The emulation of an instruction; `None` if it is not emulated.
    pub fn of_instruction(instruction: &Instruction) -> Option<Emulation> {
        if instruction.has_lock_prefix() {
            return None;
        }
        if instruction.is_jcc_short_or_near() {
            return branch(instruction, instruction.condition_code() as u8 - 1, 8);
        }
        match instruction.code() {
            Code::Endbr64 | Code::Endbr32 | Code::Nopq | Code::Nopd | Code::Nopw => Some(Self::NOTHING),
            Code::Nop_rm16 | Code::Nop_rm32 | Code::Nop_rm64 => Some(Self::NOTHING),
            Code::Push_r64 | Code::Push_rm64 | Code::Pushq_imm8 | Code::Pushq_imm32 => {
                Self::of(Operation::Push, source(instruction, 0)?)
            }
            Code::Pop_r64 => Some(Self {
                operation: Operation::Pop,
                destination: register(instruction.op0_register())?,
                ..Self::NOTHING
            }),
            Code::Leaveq => Self::of(Operation::Leave, Operand::Immediate(0)),
            Code::Call_rel32_64 => Self::of(Operation::Call, Operand::Immediate(instruction.near_branch_target())),
            Code::Call_rm64 => Self::of(Operation::Call, source(instruction, 0)?),
            Code::Jmp_rel8_64 | Code::Jmp_rel32_64 => {
                Self::of(Operation::Jump, Operand::Immediate(instruction.near_branch_target()))
            }
            Code::Jmp_rm64 => Self::of(Operation::Jump, source(instruction, 0)?),
            Code::Retnq => Self::of(Operation::Return, Operand::Immediate(0)),
            Code::Retnq_imm16 => Self::of(
                Operation::Return,
                Operand::Immediate(u64::from(instruction.immediate16())),
            ),
            Code::Loop_rel8_64_RCX => branch(instruction, CONDITION_LOOP, 8),
            Code::Loop_rel8_64_ECX => branch(instruction, CONDITION_LOOP, 4),
            Code::Loope_rel8_64_RCX => branch(instruction, CONDITION_LOOPE, 8),
            Code::Loope_rel8_64_ECX => branch(instruction, CONDITION_LOOPE, 4),
            Code::Loopne_rel8_64_RCX => branch(instruction, CONDITION_LOOPNE, 8),
            Code::Loopne_rel8_64_ECX => branch(instruction, CONDITION_LOOPNE, 4),
            Code::Jrcxz_rel8_64 => branch(instruction, CONDITION_JCXZ, 8),
            Code::Jecxz_rel8_64 => branch(instruction, CONDITION_JCXZ, 4),
            _ => between_registers(instruction),
        }
    }

    /// Whether the emulation reads or writes memory.
    pub fn touches_memory(&self) -> bool {
        matches!(self.source, Operand::Memory(_)) && self.operation != Operation::Lea
            || matches!(
                self.operation,
                Operation::Push | Operation::Pop | Operation::Leave | Operation::Call | Operation::Return
            )
    }
}

fn branch(instruction: &Instruction, condition: u8, size: u8) -> Option<Emulation> {
    Some(Emulation {
        operation: Operation::Branch,
        size,
        condition,
        source: Operand::Immediate(instruction.near_branch_target()),
        ..Emulation::NOTHING
    })
}

/// `op register, register` and `op register, immediate`; lea.
fn between_registers(instruction: &Instruction) -> Option<Emulation> {
    let operation = match instruction.mnemonic() {
        Mnemonic::Mov => Operation::Move,
        Mnemonic::Lea => Operation::Lea,
        Mnemonic::Add => Operation::Add,
        Mnemonic::Sub => Operation::Sub,
        Mnemonic::And => Operation::And,
        Mnemonic::Or => Operation::Or,
        Mnemonic::Xor => Operation::Xor,
        Mnemonic::Cmp => Operation::Cmp,
        Mnemonic::Test => Operation::Test,
        _ => return None,
    };
    if instruction.op_count() != 2 || instruction.op0_kind() != OpKind::Register {
        return None;
    }
    let size = match instruction.op0_register() {
        name if name.is_gpr64() => 8,
        name if name.is_gpr32() => 4,
        name if name.is_gpr16() => 2,
        _ => return None,
    };
    let source = match (operation, instruction.op1_kind()) {
        (Operation::Lea, OpKind::Memory) => Operand::Memory(memory(instruction)?),
        (_, OpKind::Memory) => return None,
        _ => source(instruction, 1)?,
    };
    Some(Emulation {
        operation,
        size,
        destination: register(instruction.op0_register())?,
        source,
        ..Emulation::NOTHING
    })
}

/// An operand that is read.
fn source(instruction: &Instruction, operand: u32) -> Option<Operand> {
    match instruction.op_kind(operand) {
        OpKind::Register => register(instruction.op_register(operand)).map(Operand::Register),
        OpKind::Memory => memory(instruction).map(Operand::Memory),
        _ => instruction.try_immediate(operand).ok().map(Operand::Immediate),
    }
}

fn memory(instruction: &Instruction) -> Option<Memory> {
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let optional = |name: Register| match name {
        Register::None => Some(None),
        name if name.is_gpr64() || name.is_gpr32() => register(name).map(Some),
        _ => None,
    };
    let address_size = if base == Register::EIP || base.is_gpr32() || index.is_gpr32() {
        4
    } else {
        8
    };
    // For an operand relative to rip, this is the address itself.
    let displacement = instruction.memory_displacement64();
    Some(Memory {
        base: if matches!(base, Register::RIP | Register::EIP) {
            None
        } else {
            optional(base)?
        },
        index: optional(index)?,
        scale: instruction.memory_index_scale() as u8,
        segment: match instruction.memory_segment() {
            Register::FS => Segment::Fs,
            Register::GS => Segment::Gs,
            _ => Segment::None,
        },
        address_size,
        displacement,
    })
}

/// The number of a general register of 2, 4 or 8 bytes in the kernel's signal frame (r8 .. r15, rdi, rsi, rbp, rbx,
/// rdx, rax, rcx, rsp).
fn register(name: Register) -> Option<u8> {
    if !(name.is_gpr16() || name.is_gpr32() || name.is_gpr64()) {
        return None;
    }
    // rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 .. r15.
    const NUMBERS: [u8; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];
    NUMBERS.get(name.full_register().number()).copied()
}
