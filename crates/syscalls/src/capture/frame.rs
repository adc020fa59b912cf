//! The frame of a signal, which rt_sigreturn restores: the mask, and the result of the call that was interrupted.

use super::{End, Part};

/// Where the restored mask is recorded.
pub(crate) const MASK: Part = Part {
    end: End::Entry,
    argument: 0,
    index: 0,
};

/// The restored rax.
pub(crate) const RESTORED: Part = Part { index: 1, ..MASK };

/// From the stack pointer of the call, which is that of the kernel's `struct ucontext`.
const RAX: u32 = 144;
const SIGNALS: u32 = 296;

/// The clause that records both.
pub(super) fn clause() -> String {
    let word = |offset: u32| format!("\ttrace(8);\n\ttracemem(copyin(uregs[R_RSP] + {offset}, 8), 8);\n");
    format!(
        "syscall::rt_sigreturn:entry\n{{\n\ttrace({});\n\ttrace(tid);\n{}{}}}\n\n",
        MASK.number(),
        word(SIGNALS),
        word(RAX)
    )
}
