//! kprobes for a program's own code: the C library `libnanoprobe` and its Rust face. `include/nanoprobe.h` is the
//! interface, and this crate implements it.
//!
//! | | |
//! |---|---|
//! | [`api`] | the C functions: check, ask the engine, answer |
//! | [`engine`] | the registered probes; the text that follows from them |
//! | [`own`] | this process as a target: modules, memory, barriers, the agent's image |
//! | [`hit`] | the hit path: C and assembly, what runs in the program's own threads |
//! | [`c`] | the header's types |
//! | `fork` | what is done around fork |
//! | `tsan` | what ThreadSanitizer is told |
//! | [`error`] | typed errors, and their codes |

pub mod api;
pub mod c;
pub mod engine;
pub mod error;
mod fork;
pub mod hit;
pub mod self_process;
mod tsan;
