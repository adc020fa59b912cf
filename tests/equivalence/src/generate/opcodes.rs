//! Instructions of every code that iced knows, made from their bytes. So meaningless prefixes, unused bits and forms
//! that no assembler chooses occur as well as the usual ones.

use iced_x86::{
    Code, ConstantOffsets, Decoder, DecoderOptions, EncodingKind, Instruction, InstructionInfoFactory, MandatoryPrefix,
    OpCodeInfo, OpCodeOperandKind, OpCodeTableKind, Register,
};

use super::allowed::is_allowed;
use crate::memory::POINTERS as POINTERS_AT;
use crate::random::Random;
use crate::sequence::Item;

/// Registers that point into the data at the start.
const POINTERS: [u8; 6] = [3, 6, 7, 12, 13, 14];
/// Registers that hold a small number at the start.
const INDICES: [u8; 2] = [1, 9];

pub struct Opcodes {
    codes: Vec<Code>,
    factory: InstructionInfoFactory,
}

/// An instruction that may stand in a sequence.
pub struct Generated {
    pub item: Item,
    pub instruction: Instruction,
}

impl Opcodes {
    /// All codes that an ordinary program may use in 64-bit mode.
    pub fn new() -> Opcodes {
        let usable = |code: &Code| {
            let info = code.op_code();
            info.is_instruction()
                && info.mode64()
                && matches!(
                    info.encoding(),
                    EncodingKind::Legacy | EncodingKind::VEX | EncodingKind::EVEX
                )
        };
        Opcodes {
            codes: Code::values().filter(usable).collect(),
            factory: InstructionInfoFactory::new(),
        }
    }

    pub fn codes(&self) -> &[Code] {
        &self.codes
    }

    /// Keeps only some of the codes.
    pub fn retain(&mut self, keep: impl FnMut(&Code) -> bool) {
        self.codes.retain(keep);
    }

    /// Any instruction.
    pub fn any(&mut self, random: &mut Random) -> Generated {
        loop {
            let code = random.pick(&self.codes);
            if let Some(generated) = self.of(code, random) {
                return generated;
            }
        }
    }

    /// An instruction of this code, or of another code if its prefixes change its meaning. `None` if no such
    /// instruction is allowed.
    pub fn of(&mut self, code: Code, random: &mut Random) -> Option<Generated> {
        for _ in 0..6 {
            let bytes = bytes_of(code.op_code(), random);
            if let Some(generated) = self.decode(&bytes, random) {
                return Some(generated);
            }
        }
        None
    }

    /// The first instruction of some bytes. A relative operand is changed so that it refers to the data.
    pub fn decode(&mut self, bytes: &[u8], random: &mut Random) -> Option<Generated> {
        let mut decoder = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if !is_allowed(&mut self.factory, &instruction) {
            return None;
        }
        let mut bytes = bytes.get(..instruction.len())?.to_vec();
        let offsets = decoder.get_constant_offsets(&instruction);
        let item = if instruction.is_ip_rel_memory_operand() {
            let data_offset = 64 + random.below(POINTERS_AT as usize - 128) as u64;
            let alignment = random.pick(&[1, 8, 16, 64]);
            Item::Relative {
                bytes,
                field: offsets.displacement_offset(),
                data_offset: data_offset & !(alignment - 1),
            }
        } else {
            shorten_displacement(&mut bytes, &instruction, &offsets, random);
            Item::Code(bytes)
        };
        Some(Generated { item, instruction })
    }
}

/// Keeps a 32-bit displacement near its base. A displacement from the stack pointer is at least -40, which is inside of
/// the red zone.
fn shorten_displacement(bytes: &mut [u8], instruction: &Instruction, offsets: &ConstantOffsets, random: &mut Random) {
    let by_stack = matches!(instruction.memory_base(), Register::RSP | Register::ESP);
    let lowest = if by_stack { -40 } else { -0x180 };
    let value = lowest + random.below(0x200) as i32;
    let at = offsets.displacement_offset();
    match offsets.displacement_size() {
        4 if !random.once_in(16) || by_stack => bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()),
        1 if by_stack => bytes[at] = value.clamp(if bytes[0] == 0x62 { 0 } else { -40 }, 127) as u8,
        _ => {}
    }
}

/// Bits that go into prefixes.
struct Operands {
    /// The modrm byte and the bytes that belong to it.
    modrm: Vec<u8>,
    r: bool,
    x: bool,
    b: bool,
}

fn operands(info: &OpCodeInfo, random: &mut Random) -> Operands {
    let mut modrm = vec![0; 1];
    let reg = match info.group_index() {
        index @ 0.. => index as u8,
        _ => random.byte() & 7,
    };
    let (mut x, mut b) = (random.once_in(2), random.once_in(2));
    let is_memory_only = (0..info.op_count()).any(|index| {
        use OpCodeOperandKind::*;
        matches!(
            info.op_kind(index),
            mem | mem_offs
                | mem_mpx
                | mem_mib
                | mem_vsib32x
                | mem_vsib64x
                | mem_vsib32y
                | mem_vsib64y
                | mem_vsib32z
                | mem_vsib64z
                | sibmem
        )
    });
    let is_vector_index = (0..info.op_count()).any(|index| {
        use OpCodeOperandKind::*;
        matches!(
            info.op_kind(index),
            mem_vsib32x | mem_vsib64x | mem_vsib32y | mem_vsib64y | mem_vsib32z | mem_vsib64z
        )
    });
    let base = random.pick(&POINTERS);
    let form = random.below(if is_memory_only { 9 } else { 14 });
    let form = if is_vector_index && form < 4 { 4 } else { form };
    match form {
        0..3 => {
            modrm[0] = reg << 3 | 5;
            modrm.extend(random.next().to_le_bytes().get(..4).unwrap_or_default());
        }
        3 => {
            // Through a pointer, or through rsp (12) or rbp (13), whose low bits need more bytes.
            let mode = random.pick(&[0_u8, 1, 2]);
            b = base & 8 != 0;
            let mode = if base & 7 == 5 && mode == 0 { 1 } else { mode };
            modrm[0] = mode << 6 | reg << 3 | base & 7;
            if base & 7 == 4 {
                modrm.push(0x24);
                x = false;
            }
            displace(&mut modrm, mode, random);
        }
        4..7 => {
            let index = if random.once_in(12) || is_vector_index {
                random.byte() & 15
            } else {
                random.pick(&INDICES)
            };
            let mode = if base & 7 == 5 { 1 } else { random.pick(&[0_u8, 1, 2]) };
            (x, b) = (index & 8 != 0, base & 8 != 0);
            modrm[0] = mode << 6 | reg << 3 | 4;
            modrm.push(random.byte() & 0xc0 | (index & 7) << 3 | base & 7);
            displace(&mut modrm, mode, random);
        }
        7 => {
            // By the stack pointer.
            let mode = random.pick(&[0_u8, 1, 2]);
            (x, b) = (false, false);
            modrm[0] = mode << 6 | reg << 3 | 4;
            modrm.push(0x24);
            displace(&mut modrm, mode, random);
        }
        8 => {
            // Absolute, or anything that a SIB byte can say.
            let mode = random.pick(&[0_u8, 0, 1, 2]);
            modrm[0] = mode << 6 | reg << 3 | 4;
            modrm.push(if random.once_in(2) { 0x25 } else { random.byte() });
            displace(&mut modrm, if mode == 0 { 2 } else { mode }, random);
        }
        _ => {
            let rm = match info.rm_group_index() {
                index @ 0.. => index as u8,
                _ => random.byte() & 7,
            };
            modrm[0] = 0xc0 | reg << 3 | rm;
        }
    }
    let r = random.once_in(2);
    Operands { modrm, r, x, b }
}

fn displace(modrm: &mut Vec<u8>, mode: u8, random: &mut Random) {
    let bytes = random.next().to_le_bytes();
    modrm.extend_from_slice(match mode {
        1 => &bytes[..1],
        2 => &bytes[..4],
        _ => &[],
    });
}

fn bytes_of(info: &OpCodeInfo, random: &mut Random) -> Vec<u8> {
    let operands = operands(info, random);
    let mut bytes = Vec::with_capacity(32);
    legacy_prefixes(&mut bytes, info, random);
    let pp = match info.mandatory_prefix() {
        MandatoryPrefix::P66 => 1,
        MandatoryPrefix::PF3 => 2,
        MandatoryPrefix::PF2 => 3,
        _ => 0,
    };
    let map = match info.table() {
        OpCodeTableKind::T0F => 1,
        OpCodeTableKind::T0F38 => 2,
        OpCodeTableKind::T0F3A => 3,
        OpCodeTableKind::MAP5 => 5,
        OpCodeTableKind::MAP6 => 6,
        _ => 0,
    };
    let w = u8::from(if info.is_wig() || info.is_wig32() {
        random.once_in(2)
    } else {
        info.w() != 0
    });
    let l = if info.is_lig() {
        random.byte() & 3
    } else {
        info.l() as u8
    };
    let vvvv = if random.once_in(3) { 15 } else { random.byte() & 15 };
    let inverted = |bit: bool, at: u8| u8::from(!bit) << at;
    let fixed_modrm = info.op_code_len() == 2;
    let [high, low] = [(info.op_code() >> 8) as u8, info.op_code() as u8];
    let opcode = if fixed_modrm { high } else { low };
    match info.encoding() {
        EncodingKind::VEX => {
            bytes.retain(|byte| !matches!(byte, 0x66 | 0xf2 | 0xf3 | 0xf0));
            if map == 1 && w == 0 && !operands.x && !operands.b && random.once_in(2) {
                bytes.extend([0xc5, inverted(operands.r, 7) | vvvv << 3 | (l & 1) << 2 | pp]);
            } else {
                let rxb = inverted(operands.r, 7) | inverted(operands.x, 6) | inverted(operands.b, 5);
                bytes.extend([0xc4, rxb | map, w << 7 | vvvv << 3 | (l & 1) << 2 | pp]);
            }
        }
        EncodingKind::EVEX => {
            bytes.retain(|byte| !matches!(byte, 0x66 | 0xf2 | 0xf3 | 0xf0));
            let rxb = inverted(operands.r, 7) | inverted(operands.x, 6) | inverted(operands.b, 5);
            let (high_r, high_v) = (inverted(random.once_in(4), 4), inverted(random.once_in(4), 3));
            let broadcast = u8::from(random.once_in(4)) << 4;
            let mask = if random.once_in(2) { 0 } else { random.byte() & 7 };
            let zeroing = if mask != 0 && random.once_in(2) { 0x80 } else { 0 };
            bytes.extend([0x62, rxb | high_r | map, w << 7 | vvvv << 3 | 4 | pp]);
            bytes.push(zeroing | (l & 3) << 5 | broadcast | high_v | mask);
        }
        _ => {
            let wide = match info.operand_size() {
                64 => !info.default_op_size64() || random.once_in(4),
                _ => random.once_in(12),
            } || w == 1;
            let rex =
                u8::from(wide) << 3 | u8::from(operands.r) << 2 | u8::from(operands.x) << 1 | u8::from(operands.b);
            if rex != 0 || random.once_in(8) {
                bytes.push(0x40 | rex);
            }
            bytes.extend_from_slice(match map {
                1 => &[0x0f],
                2 => &[0x0f, 0x38],
                3 => &[0x0f, 0x3a],
                _ => &[],
            });
        }
    }
    let in_opcode = (0..info.op_count()).any(|index| {
        use OpCodeOperandKind::*;
        matches!(
            info.op_kind(index),
            r8_opcode | r16_opcode | r32_opcode | r64_opcode | sti_opcode
        )
    });
    bytes.push(if in_opcode {
        opcode & !7 | random.byte() & 7
    } else {
        opcode
    });
    if fixed_modrm {
        bytes.push(low);
    } else if has_modrm(info) {
        bytes.extend_from_slice(&operands.modrm);
    }
    bytes.extend_from_slice(&random.next().to_le_bytes());
    bytes
}

fn has_modrm(info: &OpCodeInfo) -> bool {
    // If the instruction has no modrm byte after all, these bytes count as immediates, which is also a test.
    info.op_count() != 0 || info.group_index() >= 0
}

/// The prefixes that are needed, and rarely others.
fn legacy_prefixes(bytes: &mut Vec<u8>, info: &OpCodeInfo, random: &mut Random) {
    if random.once_in(10) {
        bytes.push(random.pick(&[0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x64, 0x65]));
    }
    let needs_67 = matches!(info.address_size(), 32);
    if needs_67 || random.once_in(24) {
        bytes.push(0x67);
    }
    if info.can_use_lock_prefix() && random.once_in(2) {
        bytes.push(0xf0);
    }
    let repeats = info.can_use_rep_prefix() || info.can_use_repne_prefix();
    match info.mandatory_prefix() {
        MandatoryPrefix::P66 => bytes.push(0x66),
        MandatoryPrefix::PF3 => bytes.push(0xf3),
        MandatoryPrefix::PF2 => bytes.push(0xf2),
        _ if info.operand_size() == 16 || random.once_in(24) => bytes.push(0x66),
        _ if random.once_in(if repeats { 2 } else { 30 }) => bytes.push(random.pick(&[0xf2, 0xf3])),
        _ => {}
    }
    // The order of prefixes has no meaning, except that a later prefix must not override the mandatory prefix.
    if bytes.len() > 1 && random.once_in(3) {
        bytes.rotate_left(1);
    }
}
