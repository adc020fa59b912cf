//! The system calls of Linux for x86-64: what they take, and how their arguments are written.
//!
//! ```text
//! prototypes.txt -> prototypes    names and C types of the parameters; what each means
//!                   capture       which memory must be recorded before and after each call: a program in D
//!                   line          a call with its recorded memory -> a line as strace writes it
//!                     values      numbers by name: names.rs has the names, the crate libc their values
//!                     structures  bytes of structures, by the layouts of the crate libc
//!                     sockets, messages, tasks, controls   the arguments of calls that differ from each other
//!                     text        strings with escapes
//!                   signals       a signal with its recorded siginfo -> a line as strace writes it
//! ```
//!
//! Bytes in, text out: nothing here touches a process. What was recorded is hostile: a structure may be cut, and a
//! string may have no end.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "an item whose name says what it is has no comment")]

pub mod capture;
mod controls;
pub mod line;
pub mod made;
pub mod meaning;
mod messages;
mod names;
pub mod prototypes;
pub mod signals;
mod sockets;
mod structures;
mod tasks;
pub mod text;
mod values;

pub use capture::{End, Part};
pub use line::{Line, line};
pub use made::{Interfaces, Made, Outcome};
pub use prototypes::{Call, Parameter, call};
pub use values::{signal as signal_name, signal_number};
