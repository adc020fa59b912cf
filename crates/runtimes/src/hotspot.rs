//! HotSpot, the JVM: its exported description of its own structures (`gHotSpotVMStructs`), and the names of its
//! methods.

mod code;
mod functions;
mod layout;
mod lines;
mod method;
mod scopes;
mod step;
mod structures;

pub use code::{CodeCache, JavaFrame, Piece};
pub use layout::Layout;
pub use lines::Lines;
pub use method::{Method, stub};
pub use structures::{SYMBOLS, Structures};
