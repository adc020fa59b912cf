//! Direct jumps.
//!
//! ```text
//!   jmp rel8 / jmp rel32     jmp rel32'                    bnd and branch-hint prefixes have no meaning any more
//! ```

use super::{Original, Relocated};
use crate::Refusal;
use crate::assemble::Assembler;

pub(super) fn relocate(code: &mut Assembler, original: Original<'_>) -> Result<Relocated, Refusal> {
    code.external(&[0xe9], original.branch_target()?);
    Ok(Relocated::default())
}
