//! Taking out of the arena what the target has put there: records, aggregations, counts of what was lost.

use std::mem::offset_of;

use nanoprobe_arena::layout::{Context, Control, RECORD_ERROR};
use nanoprobe_arena::{
    AggregateReader, ControlBlock, Mapping, Memory as _, Record, RingMerge, RingReader, static_words,
};
use nanoprobe_codegen::{ProbeNames, static_key, static_slots};
use nanoprobe_export::{Epoch, Snapshot};
use nanoprobe_lang::Program;
use nanoprobe_lang::layout::{Limits, RECORD_HEADER_BYTES};
use nanoprobe_lang::program::{AggregationId, Statement};

use crate::enable::Enablings;
use crate::error::SessionError;
use crate::layout::ArenaLayout;
use crate::probes::ProbeList;

/// What was lost, by kind; cumulative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Hits whose handlers did not run: handlers were running already in that thread.
    pub missed: u64,
    /// Hits in threads for which there was no context.
    pub missed_without_context: u64,
    /// Hits in threads that could not be told from others.
    pub missed_unknown_thread: u64,
    /// Restartable sequences that met a trap of ours, which no section describes.
    pub aborted: u64,
    /// Returns that were not seen where the return address is replaced: no instance was free, the call was left by longjmp
    /// or an exception, or the address was put back for an unwinder.
    pub missed_returns: u64,
    /// Records that found no room.
    pub drops: u64,
    /// Aggregations that found no room.
    pub aggregation_drops: u64,
    /// Dynamic variables that found no room.
    pub dynamic_drops: u64,
    /// Records that found no room under their speculation.
    pub speculation_drops: u64,
    /// Calls of `speculation()` that found none free.
    pub failed_speculations: u64,
    /// New libraries that the program went on with before they had their probes.
    pub unawaited_libraries: u64,
    /// Faults of ERROR clauses.
    pub errors_in_error: u64,
    /// Samples of threads that found no room.
    pub lost_samples: u64,
    /// Firings of `tick-` and `profile-` that the tracer was too late for.
    pub missed_ticks: u64,
    /// Rings that were found damaged.
    pub damaged: u64,
}

/// Reads all rings.
#[derive(Default)]
pub struct Consumer {
    rings: RingMerge,
}

/// At most so many records are taken in one round, so that a flood cannot keep the tracer from its other duties.
const RECORDS_MAX: usize = 1 << 18;

impl Consumer {
    /// The records of one round: those up to `horizon`, a reading of the clock, in the order of their time. Untimed ones come
    /// thread by thread, those of each in order. See [`RingMerge`].
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

    /// How many rounds it takes at most to read all that the rings can hold.
    pub fn rounds_of_full_rings(&self, layout: &ArenaLayout) -> u64 {
        let records = layout.context.ring_bytes / u64::from(RECORD_HEADER_BYTES) + 1;
        records * self.rings.len() as u64 / RECORDS_MAX as u64 + 2
    }

    /// What was lost so far.
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

/// What says how to read the aggregations.
pub struct Source<'a> {
    /// The arena's layout.
    pub layout: &'a ArenaLayout,
    /// The program.
    pub program: &'a Program,
    /// Sizes.
    pub limits: Limits,
    /// The probes.
    pub probes: &'a ProbeList,
    /// The enablings.
    pub enablings: &'a Enablings,
    /// `pid`, where it is part of a key.
    pub pid: u32,
}

/// Everything that the target's threads have aggregated since the beginning, added to what the tracer's clauses have.
///
/// # Errors
/// The arena is damaged beyond reading. A single damaged entry is left out, and counted in `damaged`.
pub fn snapshot(
    memory: &Mapping,
    source: &Source<'_>,
    mut snapshot: Snapshot,
) -> Result<(Snapshot, u64), SessionError> {
    let Source { layout, program, .. } = *source;
    let mut damaged = 0;
    let contexts = u64::from(ControlBlock::open(memory)?.contexts_in_use()?);
    for index in 0..contexts {
        let reader = AggregateReader::new(context_offset(layout, index), &layout.context);
        // A context that is just being made has no table yet.
        let Ok(entries) = reader.entries(memory) else {
            damaged += 1;
            continue;
        };
        for entry in entries {
            let good = entry.is_ok_and(|entry| snapshot.add(program, entry.aggregation, &entry.key, &entry.words));
            damaged += u64::from(!good);
        }
    }
    damaged += static_values(memory, source, |Static { id, key, words, .. }| {
        Ok(key.is_some_and(|key| snapshot.add(program, id.0, key, words)))
    })?;
    Ok((snapshot, damaged))
}

/// A value in a static slot.
struct Static<'a> {
    id: AggregationId,
    key: Option<&'a [u8]>,
    words: &'a [u64],
    /// Where the words lie.
    offset: u64,
}

/// All values in static slots that were ever touched; yields of how many the visitor said that they were damaged.
fn static_values(
    memory: &Mapping,
    source: &Source<'_>,
    mut visit: impl FnMut(Static<'_>) -> Result<bool, SessionError>,
) -> Result<u64, SessionError> {
    let Source {
        layout,
        program,
        limits,
        probes,
        enablings,
        pid,
    } = *source;
    let mut damaged = 0;
    let contexts = u64::from(ControlBlock::open(memory)?.contexts_in_use()?);
    for found in enablings.slots() {
        let enabling = enablings.get(found.epid);
        let Some(probe) = enabling.and_then(|enabling| probes.get(enabling.probe)) else {
            continue;
        };
        let Some(clause) = program.clauses.get(found.clause) else {
            continue;
        };
        let slots = static_slots(program, found.clause);
        let mut names = None;
        for (number, (statement, slot)) in clause.statements.iter().zip(&slots.statements).enumerate() {
            let (Statement::Aggregate { aggregation, .. }, Some((offset, words))) = (statement, slot) else {
                continue;
            };
            let mut key = None;
            for index in 0..contexts {
                let at = found.base + u64::from(*offset);
                let context = context_offset(layout, index);
                let value = static_words(memory, context, at, u64::from(*words))?;
                // A slot that is all zeros was never hit: its key does not exist.
                if value.iter().all(|word| *word == 0) {
                    continue;
                }
                let names = names.get_or_insert_with(|| ProbeNames {
                    provider: probe.provider.to_string(),
                    module: probe.module.to_string(),
                    function: probe.function.to_string(),
                    name: probe.name().into_owned(),
                    epid: found.epid,
                    probe_id: probe.id,
                    pid,
                });
                let key = key.get_or_insert_with(|| static_key(program, found.clause, number, names, limits));
                let good = visit(Static {
                    id: *aggregation,
                    key: key.as_deref(),
                    words: &value,
                    offset: context.wrapping_add(at),
                })?;
                damaged += u64::from(!good);
            }
        }
    }
    Ok(damaged)
}

/// Tells all threads that extremes begin anew: see `agent/contract.h`, "Value words".
///
/// # Errors
/// The arena is damaged beyond reading.
pub fn begin_epochs(memory: &Mapping, source: &Source<'_>, epochs: &[Epoch]) -> Result<(), SessionError> {
    const WANTED: u64 = 3;
    let begins = |aggregation: u32, key: &[u8]| epochs.iter().any(|epoch| epoch.is_of(aggregation, key));
    let begin = |words: &[u64], offset: u64| -> Result<(), SessionError> {
        if let Some(wanted) = words.get(WANTED as usize) {
            memory.store_u64(offset.wrapping_add(8 * WANTED), wanted.wrapping_add(1))?;
        }
        Ok(())
    };
    let contexts = u64::from(ControlBlock::open(memory)?.contexts_in_use()?);
    for index in 0..contexts {
        let reader = AggregateReader::new(context_offset(source.layout, index), &source.layout.context);
        // What is damaged is counted where it is read for printing.
        let entries = reader.entries(memory).into_iter().flatten().flatten();
        for entry in entries {
            if begins(entry.aggregation, &entry.key) {
                begin(&entry.words, entry.offset)?;
            }
        }
    }
    static_values(memory, source, |Static { id, key, words, offset }| {
        if key.is_some_and(|key| begins(id.0, key)) {
            begin(words, offset)?;
        }
        Ok(true)
    })?;
    Ok(())
}

/// Whether a record reports a fault, and of which enabling it is.
pub fn enabling_of(record: &Record) -> (u32, bool) {
    (record.epid & !RECORD_ERROR, record.epid & RECORD_ERROR != 0)
}

/// Where a context lies.
pub fn context_offset(layout: &ArenaLayout, index: u64) -> u64 {
    layout.contexts_offset + index * layout.context.stride
}

/// The field of the control block that says whether a clause ran `exit()`.
pub fn exit_requested(memory: &Mapping) -> Result<bool, SessionError> {
    Ok(memory.load_u32(offset_of!(Control, exit_requested) as u64)? != 0)
}
