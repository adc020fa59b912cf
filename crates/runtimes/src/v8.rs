//! V8: the functions of node's stacks.
//!
//! Node's binary says by its symbols `v8dbg_*` where most fields of V8's objects are. The others are known here for the
//! versions of [`Version::KNOWN`].

mod code;
mod frame;
mod function;
mod heap;
mod layout;
mod list;
mod positions;

pub use frame::{JavaScriptFrame, Place, frame_at};
pub use function::{Function, Reader, Script};
pub use layout::{Constants, Layout, SIZES, Version};
pub use positions::{baseline_offsets, source_positions};
