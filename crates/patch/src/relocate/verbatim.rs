//! Everything that does not care where it is, and operands relative to the instruction pointer.
//!
//! ```text
//!   push rbp                 push rbp                      the same bytes
//!   mov eax, [rip + d]       mov eax, [rip + d']           the same bytes but for the displacement: same address
//! ```
//!
//! The bytes are copied, never encoded anew, so prefixes and redundant forms survive.

use iced_x86::{Decoder, DecoderOptions};

use super::Original;
use crate::assemble::Assembler;
use crate::{Refusal, TargetAddress};

pub(super) fn relocate(code: &mut Assembler, original: Original<'_>) -> Result<(), Refusal> {
    let Original { instruction, bytes } = original;
    if !instruction.is_ip_rel_memory_operand() {
        code.bytes(bytes);
        return Ok(());
    }
    // The decoder knows the field's place only of what it decoded last.
    let mut decoder = Decoder::with_ip(64, bytes, instruction.ip(), DecoderOptions::NONE);
    let instruction = &decoder.decode();
    let offsets = decoder.get_constant_offsets(instruction);
    if offsets.displacement_size() != 4 || offsets.displacement_offset() + 4 > bytes.len() {
        return Err(original.unmovable("its displacement was not found"));
    }
    let target = TargetAddress(instruction.ip_rel_memory_address());
    code.external_within(bytes, offsets.displacement_offset(), target);
    Ok(())
}
