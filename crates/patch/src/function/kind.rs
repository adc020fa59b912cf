//! An instruction's control flow, which is all that planning needs to know of it.

use iced_x86::{Code, FlowControl, Mnemonic};

/// Control flow of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Execution continues after the instruction.
    Plain,
    /// Execution continues after the instruction, which has no effect. A nop that is only padding may be dropped.
    Nop,
    /// jcc, loop, jrcxz: continues after itself or at a constant target.
    Conditional,
    /// Near direct jump.
    Jump,
    /// Near jump through a register or memory.
    IndirectJump,
    /// Far jump, or a return to another privilege or mode: execution does not come back.
    FarJump,
    /// Near or far return.
    Return,
    /// Near call: the return address must stay the original one, so no other instruction of the run may follow.
    Call,
    /// Enters the kernel, or a transaction. The kernel, or the processor, remembers the address after it.
    System,
    /// hlt, ud2: execution does not continue.
    Stop,
    /// int3.
    Breakpoint,
}

impl Kind {
    pub fn of(instruction: &iced_x86::Instruction) -> Kind {
        match instruction.code() {
            Code::Int3 => return Kind::Breakpoint,
            Code::Hlt => return Kind::Stop,
            Code::Retfw | Code::Retfd | Code::Retfq | Code::Retfw_imm16 | Code::Retfd_imm16 | Code::Retfq_imm16 => {
                return Kind::Return;
            }
            _ => {}
        }
        match instruction.flow_control() {
            FlowControl::Next if instruction.mnemonic() == Mnemonic::Nop => Kind::Nop,
            FlowControl::Next => Kind::Plain,
            FlowControl::ConditionalBranch => Kind::Conditional,
            FlowControl::UnconditionalBranch => {
                if instruction.is_jmp_short_or_near() {
                    Kind::Jump
                } else {
                    Kind::FarJump
                }
            }
            FlowControl::IndirectBranch => {
                if instruction.is_jmp_near_indirect() {
                    Kind::IndirectJump
                } else {
                    Kind::FarJump
                }
            }
            FlowControl::Return => {
                if instruction.mnemonic() == Mnemonic::Ret {
                    Kind::Return
                } else {
                    Kind::FarJump
                }
            }
            FlowControl::Call | FlowControl::IndirectCall => {
                if instruction.is_call_near() || instruction.is_call_near_indirect() {
                    Kind::Call
                } else {
                    Kind::System
                }
            }
            FlowControl::Interrupt => Kind::System,
            FlowControl::XbeginXabortXend => {
                if instruction.mnemonic() == Mnemonic::Xbegin {
                    Kind::System
                } else {
                    Kind::Plain
                }
            }
            FlowControl::Exception => Kind::Stop,
        }
    }

    /// Whether no other instruction may follow this one in a run that is executed.
    pub fn is_last(self) -> bool {
        !matches!(self, Kind::Plain | Kind::Nop | Kind::Conditional)
    }

    /// Whether execution never continues after the instruction: the next bytes are padding, or reached from elsewhere.
    pub fn is_transfer(self) -> bool {
        matches!(
            self,
            Kind::Jump | Kind::IndirectJump | Kind::FarJump | Kind::Return | Kind::Stop
        )
    }
}
