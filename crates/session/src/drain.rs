//! Reads the target's records from the arena, and the counts of lost records.

use std::mem::offset_of;

use nanoprobe_arena::layout::{Context, Control, RECORD_ERROR};
use nanoprobe_arena::{ControlBlock, Mapping, Memory as _, Record, RingMerge, RingReader};
use nanoprobe_lang::layout::RECORD_HEADER_BYTES;

use crate::error::SessionError;
use crate::layout::ArenaLayout;

/// How many events were lost since the start, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Hits whose handlers did not run: handlers were running already in that thread.
    pub missed: u64,
    /// The number of hits in threads for which there was no context.
    pub missed_without_context: u64,
    /// The number of hits in threads that could not be distinguished from other threads.
    pub missed_unknown_thread: u64,
    /// Restartable sequences that were aborted by one of our traps, because no section describes them.
    pub aborted: u64,
    /// Returns that were not seen where the return address is replaced. Either no instance was free, or the call
    /// was left by longjmp or an exception, or the address was put back for an unwinder.
    pub missed_returns: u64,
    /// The number of records that found no room in their ring.
    pub drops: u64,
    /// The number of aggregated values that found no room.
    pub aggregation_drops: u64,
    /// The number of stores to dynamic variables that found no room.
    pub dynamic_drops: u64,
    /// The number of records that found no room in their speculation.
    pub speculation_drops: u64,
    /// The number of calls of `speculation()` that found no free speculation.
    pub failed_speculations: u64,
    /// The number of new libraries whose code the program could run before their probes were placed.
    pub unawaited_libraries: u64,
    /// Faults of ERROR clauses.
    pub errors_in_error: u64,
    /// The number of samples that found no room.
    pub lost_samples: u64,
    /// Records of threads' switches for which there was no room.
    pub lost_switches: u64,
    /// The number of firings of `tick-` and `profile-` that were left out because the tracer was late.
    pub missed_ticks: u64,
    /// Rings, and entries of aggregations, that were found damaged.
    pub damaged: u64,
}

/// Reads all rings.
#[derive(Default)]
pub struct Consumer {
    rings: RingMerge,
}

/// How many records are taken in one round at most, so that a flood of records cannot keep the tracer from its other
/// duties.
const RECORDS_MAX: usize = 1 << 18;

impl Consumer {
    /// The records of one round: those up to `horizon`, a reading of the clock, in the order of their time. Records
    /// without a time come thread by thread, in order within each. See [`RingMerge`].
    ///
    /// # Errors
    /// The control block is damaged. Damage in a ring is counted, and what can be read is returned.
    pub fn round(
        &mut self,
        memory: &Mapping,
        layout: &ArenaLayout,
        policy: u32,
        horizon: u64,
    ) -> Result<Vec<Record>, SessionError> {
        let contexts = ControlBlock::open(memory)?.contexts_in_use()?;
        while self.rings.len() < contexts as usize {
            let offset = context_offset(layout, self.rings.len() as u64);
            self.rings.push(RingReader::new(offset, &layout.context, policy));
        }
        Ok(if layout.context.untimed {
            self.rings.untimed_round(memory, RECORDS_MAX)
        } else {
            self.rings.round(memory, horizon, RECORDS_MAX)
        })
    }

    /// The maximal number of rounds that are needed to read all rings when they are full.
    pub fn rounds_of_full_rings(&self, layout: &ArenaLayout) -> u64 {
        let records = layout.context.ring_bytes / u64::from(RECORD_HEADER_BYTES) + 1;
        records * self.rings.len() as u64 / RECORDS_MAX as u64 + 2
    }

    /// How many events were lost so far.
    ///
    /// # Errors
    /// The control block is damaged.
    pub fn losses(&self, memory: &Mapping, layout: &ArenaLayout) -> Result<Losses, SessionError> {
        let control = ControlBlock::open(memory)?.read()?;
        let mut losses = Losses {
            aborted: control.aborted,
            missed_without_context: control.missed_without_context,
            missed_unknown_thread: control.missed_unknown_thread,
            dynamic_drops: control.dynamic_drops,
            failed_speculations: control.speculation_failures,
            speculation_drops: control.speculation_drops,
            unawaited_libraries: control.library_timeouts,
            damaged: self.rings.damaged(),
            ..Losses::default()
        };
        let contexts = ControlBlock::open(memory)?.contexts_in_use()?;
        for index in 0..u64::from(contexts) {
            let context = context_offset(layout, index);
            let load = |field: usize| memory.load_u64(context + field as u64);
            losses.missed = losses.missed.wrapping_add(load(offset_of!(Context, missed))?);
            losses.missed_returns = losses
                .missed_returns
                .wrapping_add(load(offset_of!(Context, returns_missed))?);
            losses.drops = losses.drops.wrapping_add(load(offset_of!(Context, ring_drops))?);
            losses.aggregation_drops = losses
                .aggregation_drops
                .wrapping_add(load(offset_of!(Context, aggregate_drops))?);
        }
        Ok(losses)
    }
}

/// The enabling of a record, and whether the record reports a fault.
pub fn enabling_of(record: &Record) -> (u32, bool) {
    (record.epid & !RECORD_ERROR, record.epid & RECORD_ERROR != 0)
}

/// The offset of a context in the arena.
pub fn context_offset(layout: &ArenaLayout, index: u64) -> u64 {
    layout.contexts_offset + index * layout.context.stride
}

/// The status of an `exit()` that a clause in the process has run.
pub fn exit_requested(memory: &Mapping) -> Result<Option<i32>, SessionError> {
    let load = |field: usize| memory.load_u32(field as u64);
    Ok(match load(offset_of!(Control, exit_requested))? {
        0 => None,
        _ => Some(load(offset_of!(Control, exit_status))? as i32),
    })
}
