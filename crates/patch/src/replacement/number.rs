//! The number of a system call: the value of rax at a `syscall`, as far as the code before it shows.

use std::collections::HashMap;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess, OpKind, Register};

use crate::FunctionMap;
use crate::function::Instruction;

/// The bytes of a `syscall`.
pub(super) const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The most instructions before the `syscall` that are searched for its number.
const WAY_MAX: usize = 40;
/// Bits 8 to 15 of a register.
const HIGH_BYTES: [Register; 4] = [Register::AH, Register::BH, Register::CH, Register::DH];
/// The registers that calls preserve (System V ABI 3.2.1).
const PRESERVED: [Register; 6] = [
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// The value of rax after these instructions, if they determine it. Constants are followed from register to register.
pub(super) fn number<'a>(instructions: impl Iterator<Item = &'a [u8]>) -> Option<u32> {
    let mut known: HashMap<Register, u32> = HashMap::new();
    let mut factory = InstructionInfoFactory::new();
    for bytes in instructions {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        let (to, from) = (instruction.op0_register(), instruction.op1_register());
        let of_registers = instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register;
        let value = match instruction.code() {
            Code::Mov_r32_imm32 => Some(instruction.immediate32()),
            Code::Mov_rm64_imm32 | Code::Mov_r64_imm64 if instruction.op0_kind() == OpKind::Register => {
                Some(instruction.immediate(1) as u32)
            }
            Code::Mov_r32_rm32 | Code::Mov_rm32_r32 | Code::Mov_r64_rm64 | Code::Mov_rm64_r64 if of_registers => {
                known.get(&from.full_register()).copied()
            }
            Code::Xor_r32_rm32 | Code::Xor_rm32_r32 | Code::Sub_r32_rm32 | Code::Sub_rm32_r32
                if of_registers && to == from =>
            {
                Some(0)
            }
            // musl's clone: xor eax, eax; mov al, 56
            Code::Mov_r8_imm8 if !HIGH_BYTES.contains(&to) => {
                let before = known.get(&to.full_register());
                before.map(|value| value & !0xff | u32::from(instruction.immediate8()))
            }
            _ => None,
        };
        if bytes == SYSCALL {
            known.remove(&Register::RAX);
        }
        for used in factory.info(&instruction).used_registers() {
            if !matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            ) {
                known.remove(&used.register().full_register());
            }
        }
        if let Some(value) = value {
            known.insert(to.full_register(), value);
        }
    }
    known.get(&Register::RAX).copied()
}

/// The instructions that are always executed before this one, back to the target of a branch or the return of a call.
/// They may include conditional branches out of the way.
pub(super) fn known_way(map: &FunctionMap, index: usize) -> Option<&[Instruction]> {
    let code = map.code();
    let mut first = index;
    let mut behind = code.get(index)?;
    while let Some(before) = first.checked_sub(1).and_then(|before| code.get(before)) {
        let decoded = Decoder::new(64, map.bytes_of(*before), DecoderOptions::NONE).decode();
        let goes_on = matches!(
            decoded.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch
        ) || map.bytes_of(*before) == SYSCALL;
        let is_joined = map.is_branch_target(map.address(behind.offset));
        if !goes_on || is_joined || before.end() != behind.offset || index - first == WAY_MAX {
            break;
        }
        first -= 1;
        behind = before;
    }
    code.get(first..index)
}

/// The possible numbers, if the straight way loads rax from a register into which the function loads nothing but
/// constants. (A loop of `exit_group` keeps its number in such a register.) The first of these loads stands before
/// every branch, so the register never holds a value of the caller. The function must have no other part.
pub(super) fn kept_numbers(map: &FunctionMap, straight: &[Instruction]) -> Option<Vec<u32>> {
    let decoded = |bytes: &[u8]| Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    let mut factory = InstructionInfoFactory::new();
    let mut writes = |instruction: &iced_x86::Instruction, register: Register| {
        let info = factory.info(instruction);
        let is_write = |access| !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
        let mut used = info.used_registers().iter();
        used.any(|used| used.register().full_register() == register && is_write(used.access()))
    };
    let load = straight
        .iter()
        .rev()
        .map(|instruction| decoded(map.bytes_of(*instruction)));
    let load = load
        .into_iter()
        .find(|instruction| writes(instruction, Register::RAX))?;
    let is_move = matches!(
        load.code(),
        Code::Mov_r32_rm32 | Code::Mov_rm32_r32 | Code::Mov_r64_rm64 | Code::Mov_rm64_r64
    );
    if !is_move || load.op1_kind() != OpKind::Register || load.op0_kind() != OpKind::Register {
        return None;
    }
    let kept = load.op1_register().full_register();
    if !map.is_of_one_piece() {
        return None;
    }
    let mut numbers = Vec::new();
    let mut begins = true;
    for instruction in map.code() {
        let bytes = map.bytes_of(*instruction);
        let instruction = decoded(bytes);
        let flow = instruction.flow_control();
        let calls = matches!(flow, FlowControl::Call | FlowControl::IndirectCall) && bytes != SYSCALL;
        if writes(&instruction, kept) {
            let is_constant = instruction.code() == Code::Mov_r32_imm32 && (begins || !numbers.is_empty());
            numbers.push(is_constant.then(|| instruction.immediate32())?);
        } else if calls && !PRESERVED.contains(&kept) {
            return None;
        }
        begins &= flow == FlowControl::Next;
    }
    (!numbers.is_empty()).then_some(numbers)
}
