//! HotSpot, the JVM: what it exports about its own structures (`gHotSpotVMStructs`), and the names of its methods.

mod layout;
mod lines;
mod method;
mod structures;

pub use layout::Layout;
pub use lines::Lines;
pub use method::{Method, stub};
pub use structures::{SYMBOLS, Structures};
