//! What the clauses that fire in the tracer keep, and what they ask of a process that has no session.

use std::collections::HashMap;

use nanoprobe_export::Snapshot;
use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::program::{Scope, SymbolKind, VariableId};
use nanoprobe_target::Memory;

/// A variable of the tracer's own thread, or of a thread that has no context.
pub(crate) type Own = (Scope, VariableId, Option<Vec<u8>>);

/// The state of the tracer's clauses that lasts from one firing to the next.
#[derive(Default)]
pub struct TracerState {
    /// The processor for which a clause fires; `None`: the processor on which the tracer runs.
    pub processor: Option<u32>,
    /// The only processor that is traced (the option `cpu`). The tracer's own clauses show this number, too.
    pub only: Option<u32>,
    /// Thread-local and clause-local variables of the tracer's own thread.
    pub(crate) locals: HashMap<Own, Value>,
    /// The values that the tracer's clauses have aggregated since these were last taken.
    pub aggregates: Snapshot,
    /// How many bytes these aggregations take, if every string has its greatest length.
    pub aggregated_bytes: u64,
    /// The number of records that were longer than a buffer.
    pub drops: u64,
    /// The number of aggregated values that found no room.
    pub aggregation_drops: u64,
    /// The number of stores that found no room.
    pub dynamic_drops: u64,
    /// The number of calls of `speculation()` that found no free speculation.
    pub failed_speculations: u64,
    /// The number of records that found no room in their speculation.
    pub speculation_drops: u64,
    /// Faults of ERROR clauses.
    pub errors_in_error: u64,
    /// This process and its ancestors. They are read when they are first needed.
    pub(crate) ancestors: Vec<u32>,
}

impl TracerState {
    /// The state of a tracer. `only`: the only processor that is traced.
    pub fn on(only: Option<u32>) -> TracerState {
        TracerState {
            only,
            ..TracerState::default()
        }
    }

    /// Drops the variables of a thread that has ended.
    pub fn forget_thread(&mut self, tid: u32) {
        let number = tid.to_le_bytes();
        self.locals.retain(|(scope, _, key), _| {
            let is_its = key.as_deref().is_some_and(|key| key == number);
            *scope != Scope::ThreadLocal || !is_its
        });
    }

    /// `cpu` in a clause of the tracer's own.
    pub fn processor(&self) -> u32 {
        let told = self.processor.or(self.only);
        told.unwrap_or_else(|| rustix::thread::sched_getcpu() as u32)
    }
}

/// A process that has no session. Numbers stand for the names of its code, since an address is another place in each
/// process ([`crate::foreign`]).
pub trait Elsewhere {
    /// The addresses of the thread's frames, innermost first.
    fn addresses(&self) -> &[u64];

    /// The numbers that stand for the frames.
    fn frames(&self) -> &[u64];

    /// The process's memory, if it can be read.
    fn memory(&self) -> Option<&Memory>;

    /// The number of an address that is printed as a name.
    fn symbol(&self, address: u64, kind: SymbolKind) -> u64;
}
