//! Instructions that do not depend on their address, and operands relative to the instruction pointer.
//!
//! ```text
//!   push rbp                 push rbp                      the same bytes
//!   mov eax, [rip + d]       mov eax, [rip + d']           the same bytes but for the displacement: same address
//!   mov eax, [eip + d]       mov eax, [eip + d']           modulo 4 GiB: reachable from everywhere
//! ```
//!
//! The bytes are copied, never encoded anew, so prefixes and redundant forms survive.

use super::{Original, Relocated, operand};
use crate::Refusal;
use crate::assemble::Assembler;

pub(super) fn relocate(code: &mut Assembler, original: Original<'_>) -> Result<Relocated, Refusal> {
    operand::relative(code, original, original.bytes)?;
    Ok(Relocated::default())
}
