//! Instructions that are derived from the operand of another instruction, while the stack pointer has another value.

use iced_x86::{Code, Decoder, DecoderOptions, OpKind, Register};

use super::Original;
use crate::assemble::Assembler;
use crate::{Refusal, TargetAddress};

/// Appends the instruction of the same opcode group (FF) with the same operand, and `extension` in its modrm byte. Its
/// bytes are the same except for operand-size prefixes: a near call ignores them, a push does not.
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

/// The prefix of 32-bit addresses.
const ADDRESS_SIZE: u8 = 0x67;
/// In modrm: a displacement of 32 bits follows.
const DISPLACEMENT_32: u8 = 0x80;

/// Prefixes of legacy instructions.
fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

/// Appends an instruction. If its operand is relative to the instruction pointer, the displacement is changed so that
/// it refers to the same address as the original. `bytes` may be shorter than the original only before that
/// displacement.
pub(super) fn relative(code: &mut Assembler, original: Original<'_>, bytes: &[u8]) -> Result<(), Refusal> {
    let instruction = original.instruction;
    if !instruction.is_ip_rel_memory_operand() {
        code.bytes(bytes);
        return Ok(());
    }
    // The decoder knows the place of the displacement only for the instruction that it decoded last.
    let mut decoder = Decoder::with_ip(64, bytes, instruction.ip(), DecoderOptions::NONE);
    let decoded = decoder.decode();
    let offsets = decoder.get_constant_offsets(&decoded);
    if offsets.displacement_size() != 4 || offsets.displacement_offset() + 4 > bytes.len() {
        return Err(original.unmovable("its displacement was not found"));
    }
    let target = TargetAddress(instruction.ip_rel_memory_address());
    if instruction.memory_base() == Register::EIP {
        // A 32-bit address that wraps around is within reach from everywhere.
        code.external_modulo_within(bytes, offsets.displacement_offset(), target);
    } else {
        code.external_within(bytes, offsets.displacement_offset(), target);
    }
    Ok(())
}

/// Appends `mov r15, operand` with the target of a near indirect jump. All registers but rsp hold the program's values;
/// rsp is `shift` bytes lower. The bytes of the operand are the jump's own:
///
/// ```text
///   jmp [r8+rax*8+16]         41 ff 64 c0 10        REX.B   ff /4  SIB  displacement
///   mov r15, [r8+rax*8+16]    4d 8b 7c c0 10        REX.WRB 8b /7  the same
/// ```
pub(crate) fn load_branch_target(code: &mut Assembler, original: Original<'_>, shift: u64) -> Result<(), Refusal> {
    let jump = original.instruction;
    if jump.code() != Code::Jmp_rm64 {
        return Err(Refusal::NoSuchEdge {
            site: original.address(),
            edge: "leaving",
        });
    }
    let prefixes = original.bytes.iter().take_while(|byte| is_prefix(**byte)).count();
    let Some((prefixes, [0xff, modrm, rest @ ..])) = original.bytes.split_at_checked(prefixes) else {
        return Err(original.unmovable("its opcode was not found"));
    };
    let mut load = Vec::new();
    match jump.segment_prefix() {
        Register::FS => load.push(0x64),
        Register::GS => load.push(0x65),
        _ => {}
    }
    load.extend(prefixes.iter().find(|prefix| **prefix == ADDRESS_SIZE));
    // The processor ignores a REX prefix that another prefix follows.
    let rex = prefixes.last().filter(|prefix| matches!(prefix, 0x40..=0x4f));
    let index_and_base = rex.map_or(0, |rex| rex & 0b11);
    load.extend([0x4c | index_and_base, 0x8b]);
    let modrm = modrm & 0xc7 | 7 << 3;
    match (jump.op0_kind(), jump.op0_register(), jump.memory_base()) {
        (OpKind::Register, Register::RSP, _) => Err(original.unmovable("it jumps to the stack pointer")),
        (OpKind::Memory, _, Register::ESP) => {
            Err(original.unmovable("it refers to memory by the 32-bit stack pointer"))
        }
        (OpKind::Memory, _, Register::RSP) => {
            let displacement = (jump.memory_displacement64() as i64).checked_add_unsigned(shift);
            let displacement = displacement.and_then(|displacement| i32::try_from(displacement).ok());
            let Some((displacement, sib)) = displacement.zip(rest.first()) else {
                return Err(original.unmovable("its stack offset is too large"));
            };
            load.extend([modrm & 0x3f | DISPLACEMENT_32, *sib]);
            load.extend(displacement.to_le_bytes());
            code.bytes(&load);
            Ok(())
        }
        _ => {
            load.push(modrm);
            load.extend_from_slice(rest);
            relative(code, original, &load)
        }
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::Instruction;

    use super::*;

    const IP: u64 = 0x7000_1000;
    const SHIFT: u64 = 0x98;

    fn decoded(bytes: &[u8], ip: u64) -> Instruction {
        Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode()
    }

    fn loaded(bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
        let instruction = decoded(bytes, IP);
        assert_eq!((instruction.code(), instruction.len()), (Code::Jmp_rm64, bytes.len()));
        let mut code = Assembler::default();
        load_branch_target(
            &mut code,
            Original {
                instruction: &instruction,
                bytes,
            },
            SHIFT,
        )?;
        code.finish()?.link(TargetAddress(IP + 0x1_0000))
    }

    /// The memory that the load reads, and the memory that the jump reads: register, base, index, scale,
    /// displacement, segment.
    fn compare(bytes: &[u8]) {
        let jump = decoded(bytes, IP);
        let Ok(load) = loaded(bytes) else {
            let refused = jump.memory_base() == Register::ESP || jump.op0_register() == Register::RSP;
            assert!(refused, "{bytes:x?} is refused");
            return;
        };
        let read = decoded(&load, IP + 0x1_0000);
        let shown = format!("{bytes:x?}: {jump:?} became {load:x?}: {read:?}");
        assert_eq!((read.code(), read.len()), (Code::Mov_r64_rm64, load.len()), "{shown}");
        assert_eq!(read.op0_register(), Register::R15, "{shown}");
        assert_eq!(read.op1_kind(), jump.op0_kind(), "{shown}");
        if jump.op0_kind() == OpKind::Register {
            assert_eq!(read.op1_register(), jump.op0_register(), "{shown}");
            return;
        }
        let operand = |instruction: &Instruction| {
            let base = instruction.memory_base();
            let index = (instruction.memory_index(), instruction.memory_index_scale());
            // All other segments begin at 0.
            let segment = instruction.memory_segment();
            (
                base,
                index,
                [Register::FS, Register::GS].contains(&segment).then_some(segment),
            )
        };
        assert_eq!(operand(&read), operand(&jump), "{shown}");
        let shift = if jump.memory_base() == Register::RSP { SHIFT } else { 0 };
        let expected = jump.memory_displacement64().wrapping_add(shift);
        assert_eq!(read.memory_displacement64(), expected, "{shown}");
    }

    #[test]
    fn a_load_has_the_operand_of_every_form_of_jump() {
        let prefixes: [&[u8]; 9] = [
            &[],
            &[0x64],
            &[0x65],
            &[0x67],
            &[0x3e],
            &[0xf2],
            &[0x65, 0x67],
            &[0x67, 0x64],
            &[0x66, 0xf3],
        ];
        for prefixes in prefixes {
            for rex in std::iter::once(None).chain((0x40..=0x4f).map(Some)) {
                // Repeats this with a prefix after REX, which makes REX meaningless.
                for late in [None, Some(0x64)] {
                    for modrm in (0..=255_u8).filter(|modrm| modrm >> 3 & 7 == 4) {
                        for sib in [0x00, 0x24, 0x25, 0x64, 0xc0, 0xe5, 0xfc] {
                            let mut bytes = prefixes.to_vec();
                            bytes.extend(rex);
                            bytes.extend(late);
                            bytes.extend([0xff, modrm]);
                            let (mode, register) = (modrm >> 6, modrm & 7);
                            let has_sib = mode != 3 && register == 4;
                            bytes.extend(has_sib.then_some(sib));
                            let wide = mode == 2 || mode == 0 && (register == 5 || has_sib && sib & 7 == 5);
                            let displacement: &[u8] = match mode {
                                _ if wide => &[0x80, 0x10, 0x20, 0x00],
                                1 => &[0xf0],
                                _ => &[],
                            };
                            bytes.extend(displacement);
                            if bytes.len() <= 15 && decoded(&bytes, IP).code() == Code::Jmp_rm64 {
                                compare(&bytes);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_stack_offset_that_does_not_fit_is_refused() {
        // jmp [rsp + 0x7fffff80]
        let refused = loaded(&[0xff, 0xa4, 0x24, 0x80, 0xff, 0xff, 0x7f]);
        assert!(matches!(refused, Err(Refusal::Unmovable { .. })), "{refused:?}");
    }
}
