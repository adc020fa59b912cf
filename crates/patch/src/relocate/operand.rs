//! Instructions that are made from another one's operand, with the stack pointer somewhere else.

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, OpKind, Register};

use super::Original;
use crate::assemble::Assembler;
use crate::{Refusal, TargetAddress};

/// Encodes an instruction whose memory operand was written for a stack pointer `shift` bytes higher than it is now.
pub(super) fn encode_with_stack_shift(
    code: &mut Assembler,
    original: Original<'_>,
    mut instruction: Instruction,
    shift: u64,
) -> Result<(), Refusal> {
    let has_memory = (0..instruction.op_count()).any(|index| instruction.op_kind(index) == OpKind::Memory);
    if has_memory && instruction.memory_base() == Register::ESP {
        return Err(original.unmovable("it refers to memory by the 32-bit stack pointer"));
    }
    if has_memory && instruction.memory_base() == Register::RSP {
        let displacement = (instruction.memory_displacement64() as i64).checked_add_unsigned(shift);
        let displacement = displacement.filter(|displacement| i32::try_from(*displacement).is_ok());
        let Some(displacement) = displacement else {
            return Err(original.unmovable("its stack offset is too large"));
        };
        instruction.set_memory_displacement64(displacement as u64);
        instruction.set_memory_displ_size(8);
    }
    let mut encoder = Encoder::new(64);
    if encoder.encode(&instruction, original.instruction.ip()).is_err() {
        return Err(original.unmovable("its operand cannot be encoded"));
    }
    let offsets = encoder.get_constant_offsets();
    let bytes = encoder.take_buffer();
    if has_memory && instruction.is_ip_rel_memory_operand() {
        let target = TargetAddress(instruction.ip_rel_memory_address());
        code.external_within(&bytes, offsets.displacement_offset(), target);
    } else {
        code.bytes(&bytes);
    }
    Ok(())
}

/// Appends `mov r15, operand`: where a near indirect jump would go. All registers but rsp hold the program's values;
/// rsp is `shift` bytes lower.
pub(crate) fn load_branch_target(code: &mut Assembler, original: Original<'_>, shift: u64) -> Result<(), Refusal> {
    let jump = original.instruction;
    if jump.code() != Code::Jmp_rm64 {
        return Err(Refusal::NoSuchEdge {
            site: original.address(),
            edge: "leaving",
        });
    }
    let load = match jump.op0_kind() {
        OpKind::Register if jump.op0_register() != Register::RSP => {
            Instruction::with2(Code::Mov_r64_rm64, Register::R15, jump.op0_register())
        }
        OpKind::Memory => {
            let segment = match jump.segment_prefix() {
                prefix @ (Register::FS | Register::GS) => prefix,
                _ => Register::None,
            };
            let memory = MemoryOperand::new(
                jump.memory_base(),
                jump.memory_index(),
                jump.memory_index_scale(),
                jump.memory_displacement64() as i64,
                jump.memory_displ_size(),
                false,
                segment,
            );
            Instruction::with2(Code::Mov_r64_rm64, Register::R15, memory)
        }
        _ => return Err(original.unmovable("it jumps to the stack pointer")),
    };
    let load = load.map_err(|_| original.unmovable("its operand cannot be encoded"))?;
    encode_with_stack_shift(code, original, load, shift)
}
