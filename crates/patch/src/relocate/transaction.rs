//! xbegin: the address at which an aborted transaction goes on.
//!
//! ```text
//!   xbegin rel16 / rel32     xbegin rel32'                 an abort goes on in the original text
//! ```
//!
//! An operand-size prefix makes the displacement shorter and cuts nothing off; only Intel's processors have it at all.

use super::{Original, Relocated};
use crate::assemble::Assembler;
use crate::{Refusal, TargetAddress};

pub(super) fn relocate(code: &mut Assembler, original: Original<'_>) -> Result<Relocated, Refusal> {
    code.external(&[0xc7, 0xf8], TargetAddress(original.instruction.near_branch_target()));
    Ok(Relocated::default())
}
