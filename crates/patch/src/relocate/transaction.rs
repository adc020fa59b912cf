//! xbegin: the address at which an aborted transaction goes on.
//!
//! ```text
//!   xbegin rel16 / rel32     xbegin rel32'                 an abort goes on in the original text
//! ```

use super::Original;
use crate::Refusal;
use crate::assemble::Assembler;

pub(super) fn relocate(code: &mut Assembler, original: Original<'_>) -> Result<(), Refusal> {
    code.external(&[0xc7, 0xf8], original.branch_target()?);
    Ok(())
}
