//! The fires at the return of a function whose return address was replaced (`agent/returns.h`).
//!
//! The thunk has pushed the same words as a detour, below two words of its own, so handlers find the usual frame:
//!
//! ```text
//!   context->target_rsp ->  the slot: the thunk's address      as at the function's entry
//!                           the real address, the instance
//!                           rax, r15
//!   context->frame  ->      flags
//! ```

use super::fires::{Frame, StackPointer, check_counters, emit_fires};
use super::frame;
use super::runtime::Runtime;
use crate::assemble::Assembler;
use crate::{Fire, Refusal, TargetAddress};

/// The two words of the thunk.
const THUNK_WORDS: u64 = 16;

/// The addresses to which a stub leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnExits {
    /// `np_return_leave`.
    pub with_context: TargetAddress,
    /// `np_return_leave_bare`.
    pub without_context: TargetAddress,
}

/// Builds the stub of a function, which finds the thread's context, fires and leaves. It can run at any address.
///
/// # Errors
/// A counter's offset is too large for an instruction.
pub fn build_return_stub(
    fires: &[Fire],
    full_frame: bool,
    runtime: &Runtime,
    exits: ReturnExits,
) -> Result<Vec<u8>, Refusal> {
    check_counters(fires)?;
    let mut code = Assembler::default();
    let mut rare = Vec::new();
    let leave = code.label();
    frame::emit_find_context(&mut code, &mut rare, runtime, leave);
    emit_fires(
        &mut code,
        &mut rare,
        fires,
        Frame {
            stack_pointer: StackPointer::Above(frame::LIGHT_FRAME + THUNK_WORDS),
            full: full_frame,
            own_stack: false,
        },
    );
    let with_context = code.literal(exits.with_context.0);
    code.local(&[0xff, 0x25], with_context); // jmp [rip + with_context]
    code.bind(leave);
    let without_context = code.literal(exits.without_context.0);
    code.local(&[0xff, 0x25], without_context); // jmp [rip + without_context]
    for path in rare {
        frame::emit_rare(&mut code, runtime, path);
    }
    code.finish()?.link(TargetAddress(0))
}
