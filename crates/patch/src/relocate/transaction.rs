//! xbegin: its operand is the address at which an aborted transaction continues.
//!
//! ```text
//!   xbegin rel16 / rel32     xbegin rel32'                 an abort goes on in the original text
//! ```
//!
//! An operand-size prefix makes the displacement shorter, and does not cut the target. Only Intel's processors have
//! xbegin.

use super::{Original, Relocated};
use crate::assemble::Assembler;
use crate::{Refusal, TargetAddress};

pub(super) fn relocate(code: &mut Assembler, original: Original<'_>) -> Result<Relocated, Refusal> {
    code.external(&[0xc7, 0xf8], TargetAddress(original.instruction.near_branch_target()));
    Ok(Relocated::default())
}
