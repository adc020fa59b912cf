//! The memory that an instruction accesses.

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Register, UsedMemory};

/// The addresses that the first of these instructions reads or writes, given the general registers,
/// rsp and rip before it. Vectors of addresses are left out.
pub fn addresses(bytes: &[u8], rip: u64, registers: &[u64; 17], segment_base: u64) -> Vec<u64> {
    let instruction: Instruction = Decoder::with_ip(64, bytes, rip, DecoderOptions::NONE).decode();
    let value = |register: Register, _: usize, _: usize| -> Option<u64> {
        match register {
            Register::FS | Register::GS => return Some(segment_base),
            register if register.is_segment_register() => return Some(0),
            _ => {}
        }
        let index = match register.full_register() {
            Register::RAX => 0,
            Register::RBX => 1,
            Register::RCX => 2,
            Register::RDX => 3,
            Register::RSI => 4,
            Register::RDI => 5,
            Register::RBP => 6,
            Register::R8 => 7,
            Register::R9 => 8,
            Register::R10 => 9,
            Register::R11 => 10,
            Register::R12 => 11,
            Register::R13 => 12,
            Register::R14 => 13,
            Register::R15 => 14,
            Register::RSP => 15,
            _ => return None,
        };
        let word = registers[index];
        Some(if register.is_gpr32() { word & 0xffff_ffff } else { word })
    };
    let mut factory = InstructionInfoFactory::new();
    let used: &[UsedMemory] = factory.info(&instruction).used_memory();
    used.iter()
        .filter_map(|memory| memory.virtual_address(0, value))
        .collect()
}
