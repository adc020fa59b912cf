//! Instructions that are made from another one's operand, with the stack pointer somewhere else.

use iced_x86::{Code, Decoder, DecoderOptions, Encoder, Instruction, MemoryOperand, OpKind, Register};

use super::Original;
use crate::assemble::Assembler;
use crate::{Refusal, TargetAddress};

/// Appends the instruction of the same opcode group (FF) and operand that has `extension` in its modrm byte: the same
/// bytes, but for prefixes of the operand size. They mean nothing to a near call; to a push they do.
pub(super) fn same_operand(code: &mut Assembler, original: Original<'_>, extension: u8) -> Result<(), Refusal> {
    let bytes = original.bytes;
    let prefixes = bytes.iter().take_while(|byte| is_prefix(**byte)).count();
    let Some((prefixes, [0xff, modrm, rest @ ..])) = bytes.split_at_checked(prefixes) else {
        return Err(original.unmovable("its opcode was not found"));
    };
    let mut copy: Vec<u8> = prefixes.iter().copied().filter(|prefix| *prefix != 0x66).collect();
    copy.extend([0xff, modrm & 0xc7 | extension << 3]);
    copy.extend_from_slice(rest);
    relative(code, original, &copy)
}

/// Prefixes of legacy instructions.
fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

/// Appends an instruction; where its operand is relative to the instruction pointer, with a displacement to the address
/// that the original one refers to. `bytes` may be shorter than the original before that displacement only.
pub(super) fn relative(code: &mut Assembler, original: Original<'_>, bytes: &[u8]) -> Result<(), Refusal> {
    let instruction = original.instruction;
    if !instruction.is_ip_rel_memory_operand() {
        code.bytes(bytes);
        return Ok(());
    }
    // The decoder knows the field's place only of what it decoded last.
    let mut decoder = Decoder::with_ip(64, bytes, instruction.ip(), DecoderOptions::NONE);
    let decoded = decoder.decode();
    let offsets = decoder.get_constant_offsets(&decoded);
    if offsets.displacement_size() != 4 || offsets.displacement_offset() + 4 > bytes.len() {
        return Err(original.unmovable("its displacement was not found"));
    }
    let target = TargetAddress(instruction.ip_rel_memory_address());
    if instruction.memory_base() == Register::EIP {
        // 32 bits, which wrap around: every such address is within reach from everywhere.
        code.external_modulo_within(bytes, offsets.displacement_offset(), target);
    } else {
        code.external_within(bytes, offsets.displacement_offset(), target);
    }
    Ok(())
}

/// Encodes an instruction whose memory operand was written for a stack pointer `shift` bytes higher than it is now.
fn encode_with_stack_shift(
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
    relative(code, original, &encoder.take_buffer())
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
