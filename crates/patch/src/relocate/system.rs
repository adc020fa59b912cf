//! `syscall` and `int 0x80`. After a `syscall`, rcx has the address after it: the processor puts it there.
//!
//! ```text
//!   syscall                  syscall                       rcx: after the copy
//!                     here:  lea rcx, [rip + d]            after the original; leaves the flags alone
//! ```
//!
//! An `int 0x80` changes neither register: its copy has nothing after it.
//!
//! A call that is interrupted and restarted starts again at the copy, whose length is the same. After `clone`, `fork`
//! and `vfork` the child, too, comes to *here*. A thread that is stopped in the call stands there: it may be moved
//! after the original.

use super::{Original, Relocated};
use crate::assemble::Assembler;
use crate::{Refusal, TargetAddress};

/// `int n`.
pub(super) fn interrupt(code: &mut Assembler, original: Original<'_>) -> Relocated {
    code.bytes(original.bytes);
    Relocated {
        returns_to: Some(code.here()),
        ..Relocated::default()
    }
}

/// `syscall`.
pub(super) fn relocate(code: &mut Assembler, original: Original<'_>) -> Result<Relocated, Refusal> {
    code.bytes(original.bytes);
    let returns_to = code.here();
    code.external(&[0x48, 0x8d, 0x0d], TargetAddress(original.instruction.next_ip())); // lea rcx, [rip + d]
    Ok(Relocated {
        returns_to: Some(returns_to),
        ..Relocated::default()
    })
}
