//! A live process other than ours: its map, its threads, its memory, and system calls made in it.
//!
//! # Theory of operation
//!
//! ```text
//!   Process::open(pid)      checks without touching; says why not         AttachError
//!     .map()                what lies where; holes for near memory        Map, Hole
//!     .memory()             read; write_text through /proc/PID/mem        MemoryError
//!     .synchronise()        every processor has seen the text             Pauses: how long threads stood for it
//!     .stop()               every thread stands still                     Stopped (dropping it lets all go)
//!        .registers(tid)    ... of one thread; set_registers moves it
//!        .remote(tid)       system calls made by that thread              Remote (dropping it restores the thread)
//!     .sampler(period)      what its threads execute, now and then        Sampler
//!   Process::spawn(words) the same, standing before the first instruction of a new program
//! ```
//!
//! Three rules hold everywhere:
//!
//! * **The target goes on as if nothing had happened.** A thread is stopped by `PTRACE_SEIZE` and `PTRACE_INTERRUPT`,
//!   never by a signal. A signal that a thread receives meanwhile is delivered exactly once. An interrupted system
//!   call is restarted, even if Linux would fail it with `EINTR` ([`stop`](Process::stop)). Job control is respected:
//!   a stopped job stays stopped.
//! * **The tracer may die at any instruction.** The kernel then detaches every thread *as it is at that moment*. So a
//!   thread whose registers we borrow for a system call always stands in code that was made for it and that restores
//!   its state (see `homing`).
//! * **Data from the target are hostile, and already outdated.** The files in /proc are parsed leniently, every field
//!   may be missing, and a process that vanishes in the middle is an ordinary result.
//!
//! The kernel accepts ptrace requests only from the *thread* that seized: [`Stopped`] and [`Remote`] are not `Send`.
//! Nothing else here is tied to a thread. `PTRACE_O_EXITKILL` is never set.

#![allow(missing_docs, reason = "an item whose name says what it is has no comment")]

mod at_start;
mod attach;
mod chain;
mod child;
mod claim;
mod ending;
mod error;
pub mod executing;
mod filter;
mod holes;
mod homing;
mod images;
mod limits;
mod locks;
mod map;
mod memory;
mod perf;
pub mod precise;
pub mod proc_file;
mod process;
mod processor;
mod raw;
mod remote;
mod remote_calls;
mod restart;
mod sampling;
mod sandbox;
mod shared;
mod shared_file;
mod sharing;
mod spawn;
mod status;
mod stop;
mod synchronise;
mod threads;
mod trial;
mod unused;
mod urgency;
mod way_home;

pub use attach::Facts;
pub use chain::Doubt;
pub use claim::Claim;
pub use ending::{Ending, Exit};
pub use error::{AttachError, MemoryError, RemoteError, SpawnError, StopError};
pub use holes::{Hole, HoleRules};
pub use images::Image;
pub use locks::{is_file_locked, is_locked};
pub use map::{Map, Mapping, MappingKind, Permissions};
pub use memory::Memory;
pub use process::Process;
pub use raw::Registers;
pub use remote::Remote;
pub use remote_calls::{Protection, SignalAction};
pub use sampling::events::Event;
pub use sampling::firings::TracepointError;
pub use sampling::kernel::{KernelStackError, check_kernel_stacks};
pub use sampling::opening::SamplingError;
pub use sampling::switching::{Asleep, Switch, SwitchWatch, Turn};
pub use sampling::system::{Missing, Reach, SystemSampler};
pub use sampling::waking::{Discard, DiscardWatch, Succession, SuccessionWatch, WakeWatch, Waking};
pub use sampling::{Sample, Sampler, Stacks, UserState};
pub use sandbox::Sandbox;
pub use shared::SharedMemory;
pub use shared_file::SharedFile;
pub use spawn::Spawned;
pub use status::{Seccomp, Stat};
pub use stop::Stopped;
pub use synchronise::Pauses;
pub use trial::Answer;
pub use way_home::WayHome;

/// The kernel's number of a process, as the tracer sees it.
pub type ProcessId = i32;
/// The kernel's number of a thread, as the tracer sees it.
pub type ThreadId = i32;
