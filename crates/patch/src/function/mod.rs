//! Analysis of one function: instruction starts, direct branches, ways out.

mod decode;
mod depth;
mod exits;
mod find_padding;
mod fixed;
mod follow;
mod instruction;
mod kind;
mod map;
mod padding;
mod restartable;
mod return_address;
mod shown;
mod stack;
mod surroundings;
mod tables;

pub use decode::analyze;
pub use depth::frameless_jumps;
pub use exits::Exit;
pub use follow::follow;
pub(crate) use instruction::Instruction;
pub(crate) use kind::Kind;
pub use map::{CodeView, FunctionExtent, FunctionMap};
pub use padding::Padding;
pub use restartable::Restartable;
pub use return_address::ReturnAddressUse;
pub use surroundings::Surroundings;
