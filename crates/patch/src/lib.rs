//! x86-64 patching as a pure function: bytes in, bytes out. No process, no I/O, no unsafe.
//!
//! # Theory of operation
//!
//! A probe is placed by writing a 5-byte `jmp rel32` over a *run* of whole instructions. The jump leads to a *detour*:
//! generated code that fires the handlers, executes a relocated copy of the run, and jumps back after it.
//!
//! ```text
//!   before                        after
//!   f:   55        push rbp       f:   e9 37 d1 c6 06   jmp detour     detour: fire the handlers of f
//!   f+1: 48 89 e5  mov rbp,rsp    f+5: 53               (unchanged)            push rbp
//!   f+4: 41 54     push r12                                                    mov rbp,rsp
//!   f+6: 53        push rbx                                                    push r12
//!                                                                              jmp f+6
//! ```
//!
//! The bytes of the jump fall onto places at which instructions used to start: the *boundaries*, here f+1 and f+4. A
//! thread may still arrive there: by a branch through an unknown table, from a signal frame, from a return address, or
//! because it stood there when the patch was written. So the detour's address is *chosen* such that the displacement
//! byte at every boundary (0x37 and 0x06 above) is one that traps: `int3`, or an opcode that is invalid in 64-bit mode.
//! The trap is redirected to the relocated copy of the very instruction that used to start there. Correctness rests on
//! that alone (invariant I1). Known branch targets are used only to keep hot paths off the trap.
//!
//! Where a known branch leads to a following instruction, only the one to four bytes before it can be displaced. The
//! jump's last bytes may then be *punned*: they equal the first bytes of the following instructions, so a thread that
//! arrives there sees no difference. These bytes fix the top of the displacement. The detour executes copies of those
//! instructions.
//!
//! A call should stay in place. Before one, two bytes are enough for a short jump to a *springboard*: a jump to the
//! detour, in padding nearby. That is an `evict`. The springboard may also lie in the rear of a displaced
//! instruction. A third kind of `evict` is a jump whose last bytes are the first bytes of another jump, for which the
//! next instruction is displaced.
//!
//! The steps are types of their own, so that each can be tested alone:
//!
//! 1. [`analyze`]: bytes of one function -> [`FunctionMap`]: where instructions start, which direct branches there are,
//!    where the function is left ([`FunctionMap::exits`]). [`follow`]: control flow through it and its cold parts, so
//!    that data among the code is never taken for code.
//! 2. [`plan()`]: map and [`Point`]s -> [`FunctionPlan`]: a [`RunPlan`] for each patch, a [`Refusal`] for each point
//!    that cannot be placed. Functions may overlap: [`reconcile`] makes the runs of many plans disjoint.
//! 3. [`NearSpace::place_with_fallbacks`]: a run -> the address of its detour, in a hole of the target's address space,
//!    such that all constraints hold; or the next best run, where there is no such address.
//! 4. [`build`]: run and address -> [`Built`]: the bytes to write, and the tables that say which original address
//!    corresponds to which relocated one.
//! 5. [`transition`]: patches that are there, patches that are to be there -> the order in which the bytes may be
//!    written while threads execute them.
//!
//! Beside these: [`vector_use`], which SIMD registers must be saved around the call of a handler;
//! [`thread_local_offset`], where a C library keeps errno.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "an item whose name says what it is has no comment")]

mod address;
mod assemble;
mod constraint;
pub mod consume;
mod detour;
mod function;
mod kept;
mod near;
pub mod order;
mod plan;
mod point;
mod refusal;
mod relocate;
mod replacement;
mod tactic;
mod thread_local;
mod transition;
mod trap;
mod vector_use;

pub use address::{ParseAddressError, TargetAddress};
pub use constraint::{JumpConstraint, TRAPPING_BYTES, is_trapping_byte};
pub use detour::{Built, Move, Origin, Redirect, ReturnExits, Runtime, ThreadKey, build, build_return_stub};
pub use function::{
    CodeView, Exit, FunctionExtent, FunctionMap, Padding, Restartable, ReturnAddressUse, Surroundings, analyze, follow,
    frameless_jumps,
};
pub use kept::{Kept, kept_registers};
pub use near::{NearSpace, Placed};
pub use plan::{
    Displaced, FunctionPlan, Guest, Obstacle, PlanOptions, RunPlan, Shift, Springboard, plan, plan_again, reconcile,
    why_not, why_trap,
};
pub use point::{Fire, FireCondition, Point, Position, Quick};
pub use refusal::Refusal;
pub use replacement::{CallInstruction, MadeCall, REDIRECT_CALL, RESTART, Replacement, SystemCall, is_likely_call};
pub use tactic::Tactic;
pub use thread_local::thread_local_offset;
pub use transition::{BREAKPOINT, Step, Steps, TextRange, instruction_starts, transition};
pub use trap::{REDIRECT_EMULATION, TrapForm};
pub use vector_use::{PROOF_INSTRUCTIONS_MAX, VectorUse, vector_use};
