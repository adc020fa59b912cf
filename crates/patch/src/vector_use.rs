//! Proofs about the vector registers that code uses, so that the others need not be saved around a call of it. Some
//! code leaves the vector, mask and x87 registers and MXCSR alone. Code that is compiled for any x86-64 touches only
//! MXCSR and the lower 128 bits of the first sixteen vector registers: instructions in the legacy encoding leave the
//! upper parts as they are.
//!
//! All that a call can execute is followed from its first instruction, through every direct branch and into every
//! function that is called directly. The proof fails at the first instruction that
//!
//! - belongs neither to the general instruction sets nor to SSE up to 4.2, or has a register of another kind as an
//!   operand;
//! - has a target that is not part of the instruction: indirect calls and jumps (a call of another module is one,
//!   through its table), system calls, interrupts;
//! - returns from a depth of the stack other than the entry's, or may return to an overwritten address: `push rax; ret`
//!   and a retpoline's `mov [rsp], rax; ret` are indirect jumps in disguise.
//!
//! ```text
//!   state at an instruction     rsp, rbp: relative to the return address of the function that it is in
//!     entry                     rsp = 0, rbp unknown
//!     push rbp; mov rbp, rsp    rsp = -8, rbp = -8
//!     leave                     rsp = 0, rbp unknown
//!     ret                       only with rsp = 0
//! ```
//!
//! Like compilers, the proof assumes that functions preserve rbp and that no write leaves its object.

use std::collections::HashMap;

use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, InstructionInfo,
    InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use crate::TargetAddress;

/// The limit of examined instructions, which bounds the time.
pub const PROOF_INSTRUCTIONS_MAX: usize = 512;

/// The registers besides general ones that code may provably touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VectorUse {
    /// No register. The code writes only to its stack and to variables that its instructions name. So it also leaves
    /// errno alone, whose address comes from the thread pointer or a call.
    Local,
    /// No register, but possibly any memory.
    Nothing,
    /// xmm0-15 and MXCSR. The upper parts of these registers, the other vector registers, masks and x87 are left alone.
    Xmm,
    /// Any register: nothing is proven.
    Anything,
}

/// The vector, mask and x87 registers, and MXCSR, that a call of the function at `entry` touches.
///
/// `text` yields the bytes at an address, at least 15 if there are so many, or none if the code may change.
pub fn vector_use(entry: TargetAddress, text: &mut dyn FnMut(TargetAddress) -> Vec<u8>) -> VectorUse {
    let mut proof = Proof {
        states: HashMap::new(),
        pending: Vec::new(),
        info: InstructionInfoFactory::new(),
        found: VectorUse::Local,
    };
    match proof.reach(entry.0, State::ENTRY).and_then(|()| proof.run(text)) {
        Some(()) => proof.found,
        None => VectorUse::Anything,
    }
}

/// The positions of stack and frame, in bytes from the return address; `None` if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    stack: i64,
    frame: Option<i64>,
}

impl State {
    const ENTRY: State = State { stack: 0, frame: None };
}

struct Proof {
    states: HashMap<u64, State>,
    pending: Vec<u64>,
    info: InstructionInfoFactory,
    found: VectorUse,
}

impl Proof {
    /// Notes that an instruction is reached in a state. `None` if it was reached in another state before.
    fn reach(&mut self, address: u64, state: State) -> Option<()> {
        let Some(known) = self.states.get_mut(&address) else {
            self.states.insert(address, state);
            self.pending.push(address);
            return Some(());
        };
        if known.stack != state.stack {
            return None;
        }
        if known.frame.is_some() && known.frame != state.frame {
            known.frame = None;
            self.pending.push(address);
        }
        Some(())
    }

    fn run(&mut self, text: &mut dyn FnMut(TargetAddress) -> Vec<u8>) -> Option<()> {
        while let Some(address) = self.pending.pop() {
            if self.states.len() > PROOF_INSTRUCTIONS_MAX {
                return None;
            }
            let state = *self.states.get(&address)?;
            let bytes = text(TargetAddress(address));
            let instruction = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE).decode();
            if instruction.is_invalid() {
                return None;
            }
            let info = self.info.info(&instruction);
            if writes_elsewhere(info, state) {
                self.found = self.found.max(VectorUse::Nothing);
            }
            if !is_general(&instruction) {
                if !is_legacy_sse(&instruction) {
                    return None;
                }
                self.found = VectorUse::Xmm;
            }
            let mut used = info.used_registers().iter().map(|used| used.register());
            if !used.all(|register| is_plain(register) || self.found == VectorUse::Xmm && is_xmm(register))
                || overwrites_return(info, state)
            {
                return None;
            }
            let after = behind(&instruction, info, state)?;
            let next = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::Next => self.reach(next, after)?,
                FlowControl::ConditionalBranch => {
                    self.reach(instruction.near_branch_target(), state)?;
                    self.reach(next, state)?;
                }
                FlowControl::UnconditionalBranch => self.reach(instruction.near_branch_target(), state)?,
                FlowControl::Call if instruction.code() == Code::Call_rel32_64 => {
                    self.reach(instruction.near_branch_target(), State::ENTRY)?;
                    self.reach(next, state)?;
                }
                FlowControl::Return if instruction.code() == Code::Retnq && state.stack == 0 => {}
                _ => return None,
            }
        }
        Some(())
    }
}

/// Whether an instruction belongs to the instruction sets that use general registers only.
fn is_general(instruction: &Instruction) -> bool {
    use CpuidFeature::*;
    let is_known = |feature: &CpuidFeature| {
        matches!(
            feature,
            INTEL8086
                | INTEL186
                | INTEL286
                | INTEL386
                | INTEL486
                | X64
                | ADX
                | BMI1
                | BMI2
                | CET_IBT
                | CMOV
                | CMPXCHG16B
                | CPUID
                | CX8
                | LZCNT
                | MOVBE
                | MULTIBYTENOP
                | PAUSE
                | POPCNT
                | PREFETCHW
                | RDPID
                | RDRAND
                | RDSEED
                | RDTSCP
                | TSC
        )
    };
    match instruction.mnemonic() {
        Mnemonic::Lfence | Mnemonic::Mfence | Mnemonic::Sfence => true,
        Mnemonic::Prefetcht0 | Mnemonic::Prefetcht1 | Mnemonic::Prefetcht2 | Mnemonic::Prefetchnta => true,
        Mnemonic::Wait => false,
        // The operand's address is computed after the change of the stack pointer.
        Mnemonic::Pop => instruction.op0_kind() == OpKind::Register,
        _ => instruction.cpuid_features().iter().all(is_known),
    }
}

/// Whether an instruction belongs to SSE up to SSE4.2, in the encoding that does not change the upper parts of vector
/// registers. MMX is excluded, because it shares the registers of x87. (Operands are checked elsewhere.)
fn is_legacy_sse(instruction: &Instruction) -> bool {
    use CpuidFeature::*;
    let is_known = |feature: &CpuidFeature| matches!(feature, SSE | SSE2 | SSE3 | SSSE3 | SSE4_1 | SSE4_2);
    // These instructions may switch x87 to MMX even if their operand is memory.
    let turns_to_mmx = matches!(
        instruction.mnemonic(),
        Mnemonic::Cvtpi2ps
            | Mnemonic::Cvtpi2pd
            | Mnemonic::Cvtps2pi
            | Mnemonic::Cvttps2pi
            | Mnemonic::Cvtpd2pi
            | Mnemonic::Cvttpd2pi
            | Mnemonic::Fisttp
    );
    instruction.encoding() == EncodingKind::Legacy && !turns_to_mmx && instruction.cpuid_features().iter().all(is_known)
}

fn is_xmm(register: Register) -> bool {
    register.is_xmm() && register.number() < 16
}

fn is_plain(register: Register) -> bool {
    register.is_gpr() || register.is_segment_register() || register == Register::RIP
}

/// Whether the instruction may write to memory other than the stack and addresses that it names.
fn writes_elsewhere(info: &InstructionInfo, state: State) -> bool {
    let mut memory = info.used_memory().iter().filter(|used| !is_read(used));
    memory.any(|used| {
        let is_own = match (used.base(), used.index()) {
            (Register::RSP, _) => true,
            (Register::RBP, _) => state.frame.is_some(),
            (Register::None | Register::RIP, Register::None) => true,
            _ => false,
        };
        !is_own || matches!(used.segment(), Register::FS | Register::GS)
    })
}

fn is_read(used: &UsedMemory) -> bool {
    matches!(
        used.access(),
        OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
    )
}

/// Whether the instruction may overwrite the return address.
fn overwrites_return(info: &InstructionInfo, state: State) -> bool {
    let mut memory = info.used_memory().iter();
    memory.any(|used| {
        let base = match used.base() {
            Register::RSP => Some(state.stack),
            Register::RBP => state.frame,
            _ => None,
        };
        base.is_some_and(|base| {
            let from = base.saturating_add(used.displacement() as i64);
            let bytes = used.memory_size().size() as i64;
            // We assume that an index register is not negative, and that the access stays in its object. So the index
            // is ignored.
            !is_read(used) && from < 8 && from.saturating_add(bytes.max(1)) > 0
        })
    })
}

/// The positions of stack and frame after an instruction; `None` if unknown, or above the return address.
fn behind(instruction: &Instruction, info: &InstructionInfo, state: State) -> Option<State> {
    let writes = |register: Register| {
        let mut used = info.used_registers().iter();
        used.any(|used| {
            used.register().full_register() == register
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None)
        })
    };
    if instruction.flow_control() != FlowControl::Next {
        return Some(state);
    }
    let operands = (instruction.op0_register(), instruction.op1_register());
    let mnemonic = instruction.mnemonic();
    let displacement = instruction.memory_displacement64() as i64;
    let is_plain_address = instruction.memory_index() == Register::None;
    let stack = if !writes(Register::RSP) {
        state.stack
    } else if mnemonic == Mnemonic::Leave {
        state.frame?.checked_add(8)?
    } else if instruction.is_stack_instruction() && !matches!(operands.0, Register::RSP | Register::SP) {
        state
            .stack
            .checked_sub(-i64::from(instruction.stack_pointer_increment()))?
    } else {
        match (mnemonic, operands) {
            (Mnemonic::Mov, (Register::RSP, Register::RBP)) => state.frame?,
            (Mnemonic::Lea, (Register::RSP, _)) if is_plain_address => match instruction.memory_base() {
                Register::RSP => state.stack.checked_add(displacement)?,
                Register::RBP => state.frame?.checked_add(displacement)?,
                _ => return None,
            },
            (Mnemonic::Add, (Register::RSP, Register::None)) if is_immediate(instruction) => {
                state.stack.checked_add(instruction.immediate(1) as i64)?
            }
            (Mnemonic::Sub, (Register::RSP, Register::None)) if is_immediate(instruction) => {
                state.stack.checked_sub(instruction.immediate(1) as i64)?
            }
            _ => return None,
        }
    };
    if stack > 0 {
        return None;
    }
    let frame = match (mnemonic, operands) {
        (Mnemonic::Mov, (Register::RBP, Register::RSP)) => Some(state.stack),
        _ if writes(Register::RBP) => None,
        _ => state.frame,
    };
    Some(State { stack, frame })
}

fn is_immediate(instruction: &Instruction) -> bool {
    matches!(instruction.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64)
}

#[cfg(test)]
mod tests;
