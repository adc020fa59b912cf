//! A text kept patched: what is mapped in a process, where its functions lie, and the patches in them. What a tracing
//! session does to another process and what the library does to its own both follow from here.
//!
//! | file | |
//! |---|---|
//! | `modules`, `mapped` | what is mapped, and the very files that it shows |
//! | `code`, `decoded`, `image` | the functions in it, decoded, and what lies around them |
//! | `ahead` | what a second processor does meanwhile |
//! | `shims` | the program's own system calls that the agent must stand in front of |
//! | `returns` | where return addresses may be replaced |
//! | `space`, `regions` | memory that is handed out bit by bit |
//! | `patch`, `origins`, `together` | patches with their detours, and which of them share bytes |

mod ahead;
pub mod code;
mod decoded;
mod image;
mod mapped;
pub mod modules;
mod origins;
mod patch;
mod regions;
pub mod returns;
pub mod shims;
pub mod space;
pub mod together;

pub use ahead::{Ahead, in_halves};
pub use image::Image;
pub use origins::{origins, origins_of};
pub use patch::Patch;
pub use regions::without;
pub use returns::ReturnRefusal;
