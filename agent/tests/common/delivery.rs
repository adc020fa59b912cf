//! Calls the agent's signal handlers as the kernel does: on a signal frame.
//!
//! ```text
//!   room       the handler's stack
//!   back       where the handler returns to
//!   context    struct ucontext; a handler of the program's is entered with the stack pointer at `back`, too
//!   saved      the caller's stack pointer
//! ```

use core::mem::offset_of;

#[repr(C, align(16))]
struct Frame {
    room: [u8; 32 << 10],
    /// The stack pointer is at an odd multiple of eight when a function begins.
    odd: u64,
    back: u64,
    context: libc::ucontext_t,
    saved: u64,
}

/// Has the handler at `handler` handle a signal, and yields the context that it leaves.
///
/// # Safety
/// `handler` is the agent's, for a target in this process, and nothing that the context names is executed.
pub unsafe fn deliver(
    handler: u64,
    signal: i32,
    information: &mut libc::siginfo_t,
    context: libc::ucontext_t,
) -> libc::ucontext_t {
    // SAFETY: integers only, for which zero is a value.
    let mut frame: Box<Frame> = unsafe { Box::new(core::mem::zeroed()) };
    frame.context = context;
    // SAFETY: the handler, and the program's handler after it, run on the frame's room, and return to label 2 with the
    // stack pointer at the context. They may change all registers; rbx and rbp are saved on the caller's stack.
    unsafe {
        core::arch::asm!(
            "push rbx",
            "push rbp",
            "mov [rdx + {saved}], rsp",
            "lea rax, [rip + 2f]",
            "mov [rdx - 8], rax",
            "lea rsp, [rdx - 8]",
            "jmp rcx",
            "2:",
            "mov rsp, [rsp + {saved}]",
            "pop rbp",
            "pop rbx",
            saved = const offset_of!(Frame, saved) - offset_of!(Frame, context),
            in("edi") signal,
            in("rsi") core::ptr::from_mut(information),
            in("rdx") &raw mut frame.context,
            in("rcx") handler,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("C"),
        );
    }
    frame.context
}
