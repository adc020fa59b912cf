//! Detours: what a patch jumps to.
//!
//! ```text
//!   detour:   for each instruction of the run:
//!                 [enter, fires, leave]         where points are in front of it        (frame, fires)
//!                 the relocated instruction                                            (crate::relocate)
//!             jmp start + length                unless the run ends in a transfer
//!             the rare paths: fires on taken edges, threads without a context, hits while handlers run
//!             literals
//! ```
//!
//! The code's length does not depend on its address: see [`crate::assemble`].

mod build;
mod built;
mod compose;
pub(crate) mod fires;
mod frame;
mod function;
pub(crate) mod rare;
mod returned;
pub(crate) mod runtime;

pub use build::build;
pub(crate) use build::{jump, overwrite, redirect_boundaries, trap_form};
pub use built::{Built, Move, Origin, Redirect};
pub(crate) use compose::{Content, compose};
pub(crate) use frame::emit_rare;
pub use returned::{ReturnExits, build_return_stub};
pub use runtime::{Runtime, ThreadKey};
