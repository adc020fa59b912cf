//! One tracing session, from the program to the restored target: types in the order of its life.
//!
//! ```text
//!   Compiled   a program and what follows from it alone; any number of processes may be traced by one
//!      |
//!   Prepared   a process was acquired, its modules are read, probes are matched, clauses are machine code.
//!      |       A running target is not touched.
//!      | begin   attach, BEGIN, patches. From here on probes fire.
//!   Attached   step, repeatedly: events out, timers, new libraries
//!      | end     patches out
//!   Ended      remaining, repeatedly: the last events, END
//! ```
//!
//! | part | what it holds |
//! |---|---|
//! | [`Known`] | the tracer's knowledge of the process: modules, probes, enablings, names. All three stages have it. |
//! | [`Tracing`] | what comes out of the arena, and the clauses that fire in the tracer. From `begin` on. |
//! | `presence` | the things in the target, and the work that keeps them up to date. While attached. |
//! | `timers` | `tick-...` and `profile-...`. While attached. |
//! | `elsewhere` | the processes that samples of the whole system show. Without a process. |

mod attached;
mod compiled;
mod elsewhere;
mod ended;
mod known;
mod output;
mod prepared;
mod presence;
mod rows;
mod sleeps;
mod switches;
mod timer;
mod timers;
mod tracing;

pub use attached::Attached;
pub use compiled::Compiled;
pub use ended::Ended;
pub use known::{Known, Stripped};
pub use output::{Begun, Output};
pub use prepared::{Listed, Prepared};
pub use tracing::Tracing;
