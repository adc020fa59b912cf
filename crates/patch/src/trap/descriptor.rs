//! `struct np_emulation` of the agent's contract, emitted into a detour.

use std::ops::Range;

use crate::TargetAddress;
use crate::assemble::{Assembler, Label};

/// Bytes of `struct np_emulation`.
pub(super) const BYTES: u64 = 64;
const NO_REGISTER: u8 = 255;

/// A flag in [`crate::Redirect::to`] (`NP_REDIRECT_EMULATION`): the rest is the address of a `struct np_emulation`.
pub const REDIRECT_EMULATION: u64 = 1 << 63;

pub(super) const FLAG_CALLS: u8 = 1;
pub(super) const FLAG_TOUCHES_MEMORY: u8 = 2;
pub(super) const FLAG_STACK_OF_CALLS: u8 = 4;
pub(super) const FLAG_STEPS: u8 = 8;

pub(super) const CONDITION_LOOP: u8 = 16;
pub(super) const CONDITION_LOOPE: u8 = 17;
pub(super) const CONDITION_LOOPNE: u8 = 18;
pub(super) const CONDITION_JCXZ: u8 = 19;

/// `enum np_operation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Nop = 0,
    Push = 1,
    Pop = 2,
    Leave = 3,
    Call = 4,
    Jump = 5,
    Branch = 6,
    Return = 7,
    Move = 8,
    Lea = 9,
    Add = 10,
    Sub = 11,
    And = 12,
    Or = 13,
    Xor = 14,
    Cmp = 15,
    Test = 16,
    /// The instruction can only be single-stepped.
    Other = 17,
}

/// The place of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Register(u8),
    Immediate(u64),
    Memory(Memory),
}

/// A memory operand; registers by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub base: Option<u8>,
    pub index: Option<u8>,
    pub scale: u8,
    pub segment: Segment,
    /// The size of the address in bytes: 4 or 8.
    pub address_size: u8,
    pub displacement: u64,
}

/// `enum np_segment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    None = 0,
    Fs = 1,
    Gs = 2,
}

/// The addresses to which a descriptor refers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    pub fires: Option<Label>,
    pub fires_leaving: Option<Label>,
    pub fires_taken: Option<Label>,
    pub detour: Option<Label>,
    pub copy: Option<Label>,
    pub copy_end: Option<Label>,
}

/// Appends the descriptor; returns its number of 8-byte words.
pub(super) fn emit(
    code: &mut Assembler,
    emulation: &super::Emulation,
    site: TargetAddress,
    length: usize,
    flags: u8,
    places: Places,
    inside: &[Range<TargetAddress>],
) -> u64 {
    let (kind, source, memory, immediate) = match emulation.source {
        Operand::Register(register) => (0, register, None, 0),
        Operand::Immediate(value) => (1, NO_REGISTER, None, value),
        Operand::Memory(memory) => (2, NO_REGISTER, Some(memory), 0),
    };
    let register = |number: Option<u8>| number.unwrap_or(NO_REGISTER);
    code.bytes(&[
        emulation.operation as u8,
        kind,
        emulation.size,
        emulation.condition,
        emulation.destination,
        source,
        register(memory.and_then(|memory| memory.base)),
        register(memory.and_then(|memory| memory.index)),
        memory.map_or(1, |memory| memory.scale),
        memory.map_or(0, |memory| memory.segment as u8),
        memory.map_or(8, |memory| memory.address_size),
        flags,
        length as u8,
        0,
    ]);
    code.bytes(&(inside.len() as u16).to_le_bytes());
    let words = [memory.map_or(0, |memory| memory.displacement), immediate, site.0];
    code.bytes(&words.map(u64::to_le_bytes).concat());
    let places = [
        places.fires,
        places.fires_leaving,
        places.fires_taken,
        places.detour,
        places.copy,
        places.copy_end,
    ];
    for place in places {
        match place {
            Some(label) => code.local(&[], label),
            None => code.bytes(&[0; 4]),
        }
    }
    for range in inside {
        code.bytes(&range.start.0.to_le_bytes());
        code.bytes(&range.end.0.to_le_bytes());
    }
    BYTES / 8 + 2 * inside.len() as u64
}
