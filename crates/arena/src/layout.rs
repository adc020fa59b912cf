//! The structures and constants of `agent/contract.h`, mirrored field by field under the same names.
//!
//! The contract header says what each field means; this module repeats what the tracer needs.
//! `core::mem::offset_of!(Context, result)` gives offsets: the structures are `repr(C)`. The
//! test `contract` gives every offset, size and constant below to the C compiler as a static
//! assertion on `contract.h`. It also checks that no field of the header is missing here. So
//! the two cannot drift apart.
//!
//! Addresses are the target's unless a field says `offset` (bytes from the start of the arena).

mod context;
mod control;
mod hotspot;
mod image;
mod runtimes;
mod tables;
mod v8;

pub use context::*;
pub use control::*;
pub use hotspot::*;
pub use image::*;
pub use runtimes::*;
pub use tables::*;
pub use v8::*;

/// "NANOPROB", little endian: begins the control block and the agent image, and ends a live thread table.
pub const MAGIC: u64 = 0x424f_5250_4f4e_414e;

/// Version of everything in this module except the frozen part.
pub const VERSION: u32 = 13;
