//! A text kept patched: the images that are mapped in a process, their functions, and the patches in them. A tracing
//! session uses this on another process, and the library on its own.
//!
//! | file | |
//! |---|---|
//! | `modules`, `mapped`, `keeper` | the mapped images, and the files that they show |
//! | `code`, `decoded`, `image` | their functions, decoded, and the surroundings of each |
//! | `ahead` | the work of a second processor meanwhile |
//! | `planning` | functions with points become runs, runs become patches with their detours |
//! | `shims` | the program's own system calls before which the agent must run |
//! | `returns` | where return addresses may be replaced |
//! | `space`, `regions` | memory that is handed out piece by piece |
//! | `live`, `change` | a text that threads execute, another process's or this one's, and how it is changed |
//! | `bytes`, `pieces`, `reader`, `groups`, `moves` | what a change writes and compares, and how it moves threads |
//! | `patch`, `origins`, `together` | patches with their detours, and which of them share bytes |

#![allow(missing_docs, reason = "an item whose name says what it is has no comment")]

mod ahead;
pub mod bytes;
pub mod calls;
pub mod change;
pub mod code;
mod decoded;
pub mod groups;
mod image;
mod keeper;
pub mod live;
mod mapped;
pub mod modules;
pub mod moves;
mod origins;
mod patch;
pub mod pieces;
pub mod planning;
pub mod reader;
mod regions;
pub mod returns;
pub mod shims;
pub mod space;
pub mod together;

pub use ahead::{Ahead, in_halves, read_functions};
pub use image::Image;
pub use keeper::{Keeper, Read};
pub use origins::{origins, origins_of, redirects};
pub use patch::Patch;
pub use regions::{NearMemory, map_missing, without};
pub use returns::ReturnRefusal;
