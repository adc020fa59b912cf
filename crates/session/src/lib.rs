//! One tracing session: resolve, place, consume, take back.
//!
//! The files in the order of a session's life:
//!
//! | file | |
//! |---|---|
//! | `acquire` | the process: opened, or started |
//! | `session` | the whole, in the order of its life: Compiled, Prepared, Attached, Ended |
//! | `names`, `probes` | what the descriptions match in the modules ([`nanoprobe_text::modules`]) |
//! | `calls`, `call_arguments` | system calls as probes, and the types of their arguments |
//! | `perf_map`, `made_code` | code that the target makes at run time: with names, and without |
//! | `unseen_calls` | system calls that no probe sees |
//! | `statics`, `semaphores` | static probes, their operands, and the words that say that they are enabled |
//! | `foreign` | names of code in processes that have no session, for samples of the whole system |
//! | `kept_files` | what is known of files, for the other processes of a run |
//! | `debug`, `types`, `inlined` | what debug information says: types, lines, inlined copies |
//! | `enable` | clauses at probes, their handlers |
//! | `layout` | what lies where in the arena, and how much of it there is |
//! | `placement`, `returns` | which bytes go where, and how returns are seen: pure |
//! | `coverage` | all of a module planned without a process |
//! | `attachment`, `signals`, `shims`, `ranges`, `unwinding`, `heartbeat` | kept up to date in the target |
//! | `followed` | children of the target that record, too |
//! | `arming` | patches into the text and out of it, while it is executed |
//! | `consume`, `world` | what comes out; the clauses that fire in the tracer |
//! | `detach` | taking everything back, also after a tracer that was killed |

mod acquire;
mod aggregations;
mod apart;
mod arena_memory;
mod arming;
mod attachment;
mod beside;
mod call_arguments;
mod calls;
mod clock;
mod coverage;
mod debug;
mod detach;
mod drain;
mod enable;
mod error;
mod followed;
mod foreign;
mod function_arguments;
mod goroutines;
mod heartbeat;
mod held;
mod holders;
mod identity;
mod inlined;
mod interpreted;
mod interpreter_world;
pub mod interrupt;
mod javascript;
mod kept_files;
mod kernel_names;
mod layout;
mod lost_pages;
mod made_calls;
mod made_code;
mod mounts;
mod names;
mod occupied;
mod others;
pub mod perf_map;
mod placement;
mod probes;
mod programs;
pub mod progress;
mod ranges;
mod records;
mod rehearsed_others;
mod returns;
mod sampled;
mod semaphores;
mod session;
mod shims;
mod signals;
mod site_table;
mod small_stack;
mod spare;
mod stack;
mod statics;
mod thread_key;
mod threads;
mod tracer_state;
mod types;
mod unseen_calls;
mod unwinding;

pub use acquire::Acquired;
pub use arming::Armed;
pub use call_arguments::argument_types;
pub use calls::End;
pub use coverage::{Class, Coverage, Wanted, plan_all};
pub use detach::{Carried, Detached, Standing, has_abandoned_arena, rehearse_restore, restore, survey};
pub use drain::Losses;
pub use enable::Enabling;
pub use error::SessionError;
pub use heartbeat::Heartbeat;
pub use names::NameError;
pub use nanoprobe_patch::{Tactic, TrapForm};
pub use nanoprobe_text::Patch;
pub use placement::{Changes, Placement, Refused, RefusedBecause};
pub use probes::{Place, Probe, ProbeIndex, Spot};
pub use programs::{Came, Programs};
pub use rehearsed_others::{ToldOfOthers, rehearse_others};
pub use session::{Attached, Begun, Compiled, Ended, Known, Listed, Output, Prepared, Stripped, Tracing};
pub use types::TracedProgram;
