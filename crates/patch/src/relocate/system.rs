//! `syscall`: the kernel remembers the address after it, and the processor puts it into rcx for the program.
//!
//! ```text
//!   syscall                  syscall                       rcx: after the copy
//!                     here:  lea rcx, [rip + d]            after the original; leaves the flags alone
//! ```
//!
//! A call that is interrupted and restarted starts again at the copy, whose length is the same. After `clone`, `fork`
//! and `vfork` the child, too, comes to *here*. A thread that is stopped in the call stands there: it may be moved
//! after the original.

use super::{Original, Relocated};
use crate::assemble::Assembler;
use crate::{Refusal, TargetAddress};

pub(super) fn relocate(code: &mut Assembler, original: Original<'_>) -> Result<Relocated, Refusal> {
    code.bytes(original.bytes);
    let returns_to = code.here();
    code.external(&[0x48, 0x8d, 0x0d], TargetAddress(original.instruction.next_ip())); // lea rcx, [rip + d]
    Ok(Relocated {
        returns_to: Some(returns_to),
        ..Relocated::default()
    })
}
