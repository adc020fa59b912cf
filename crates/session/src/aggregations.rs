//! Takes the target's aggregations out of the arena: each count once.
//!
//! A thread has two tables for keys (`agent/contract/tables.h`). At every `aggrate`, and when its table is more than
//! half full, the tracer asks the thread to change to the other table. The tracer then takes over the table that the
//! thread has left, whose room is free again. A table still in use, and the static slots, are read in place. For these
//! the tracer keeps the words that it has added already ([`Added`]), and adds only the difference. The argument is in
//! docs/design/aggregations.md.

use std::collections::HashMap;
use std::mem::offset_of;
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::Context as ContextLayout;
use nanoprobe_arena::{AggregateReader, AggregateTables, ControlBlock, Mapping, Memory as _, Turn, static_words};
use nanoprobe_codegen::{ProbeNames, is_key_of_process, static_key, static_slots};
use nanoprobe_export::{Epoch, Snapshot};
use nanoprobe_lang::Program;
use nanoprobe_lang::layout::Limits;
use nanoprobe_lang::program::{AggregationId, Statement};
use nanoprobe_patch::TargetAddress;

use crate::clock;
use crate::drain::context_offset;
use crate::enable::Enablings;
use crate::error::SessionError;
use crate::layout::ArenaLayout;
use crate::probes::ProbeList;

/// How often the tracer looks for tables that fill up or were left. The period is this time multiplied by the number of
/// contexts, so that looking takes only a few percent of the tracer's time.
const LOOK_PERIOD: Duration = Duration::from_micros(5);
/// For at most how many ns the tracer takes over tables in one go, because it has other duties too.
const STRETCH_NS: u64 = 20_000_000;

/// The state of reading the aggregations.
pub struct Source<'a> {
    /// The arena's address in the target.
    pub arena: TargetAddress,
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
    /// The process's number, for keys that contain `pid`.
    pub pid: u32,
}

/// The tracer's account of the aggregations.
#[derive(Default)]
pub struct Aggregations {
    /// The values that were added since the last [`Aggregations::take`].
    new: Snapshot,
    contexts: Vec<Context>,
    /// The words that were added from static slots, by the address of the slot.
    slots: HashMap<u64, Box<[u64]>>,
    /// The time at which all threads must leave their tables.
    next_turn: Option<Instant>,
    next_look: Option<Instant>,
    /// The context with which the next look begins.
    first: usize,
    damaged: u64,
}

/// A thread's tables.
struct Context {
    tables: AggregateTables,
    added: [Added; 2],
    /// The thread must leave its table, even if the table holds little.
    is_due: bool,
    /// A sample of the keys that were taken over last: the smallest hashes, ascending.
    sample: Vec<u32>,
    /// The last keys were mostly the same as those before. Then emptying the table early gains nothing, and costs
    /// the thread the time to make its keys anew.
    repeats: bool,
}

/// Which values were already taken from a table that its thread still uses.
#[derive(Default)]
struct Added {
    /// For each entry, the address of its words in the arena, and the index at which their copy begins. Sorted by
    /// address.
    entries: Vec<(u64, usize)>,
    words: Vec<u64>,
}

impl Added {
    fn push(&mut self, offset: u64, words: &[u64]) {
        self.entries.push((offset, self.words.len()));
        self.words.extend_from_slice(words);
    }

    /// The words of an entry as they were last added; `None` if they were never added.
    fn words_at(&self, offset: u64) -> Option<&[u64]> {
        let index = self.entries.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
        let (_, start) = *self.entries.get(index)?;
        let end = self.entries.get(index + 1).map_or(self.words.len(), |(_, end)| *end);
        self.words.get(start..end)
    }
}

/// Tells a thread to begin a minimum or maximum anew: see `agent/contract/tables.h`, "Value words".
fn begin_epoch(memory: &Mapping, words: &mut [u64], offset: u64) -> Result<(), SessionError> {
    const WANTED: usize = 3;
    if let Some(wanted) = words.get_mut(WANTED) {
        *wanted = wanted.wrapping_add(1);
        memory.store_u64(offset.wrapping_add(8 * WANTED as u64), *wanted)?;
    }
    Ok(())
}

impl Aggregations {
    /// The number of entries that were found damaged.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Adds the values that the tracer's own clauses have aggregated.
    pub fn add(&mut self, program: &Program, other: Snapshot) {
        self.new.append(program, other);
    }

    /// The values that were added since the last call.
    pub fn take(&mut self) -> Snapshot {
        std::mem::take(&mut self.new)
    }

    /// Whether the time `aggrate` has passed, so that all threads must leave their tables.
    pub fn is_due(&mut self, now: Instant, period: Duration) -> bool {
        let next = *self.next_turn.get_or_insert(now + period);
        if now < next {
            return false;
        }
        self.next_turn = Some(now + period);
        self.next_look = None;
        for context in &mut self.contexts {
            context.is_due = true;
        }
        true
    }

    /// Takes over the tables that threads have left, and asks threads to leave tables that are due or fill up. Some
    /// tables may be left to the next call.
    ///
    /// # Errors
    /// The arena is damaged beyond reading.
    pub fn turn(&mut self, memory: &Mapping, source: &Source<'_>, now: Instant) -> Result<(), SessionError> {
        if source.program.aggregations.is_empty() || self.next_look.is_some_and(|next| now < next) {
            return Ok(());
        }
        self.know_contexts(memory, source)?;
        let count = self.contexts.len();
        self.next_look = Some(now + LOOK_PERIOD * u32::try_from(count).unwrap_or(u32::MAX));
        let begun = clock::thread_ns();
        for step in 0..count {
            let index = (self.first + step) % count;
            let Some(context) = self.contexts.get_mut(index) else {
                continue;
            };
            let Some(found) = context.turn(memory, source.program, &mut self.new)? else {
                continue;
            };
            self.damaged += found.damaged;
            if clock::thread_ns().saturating_sub(begun) > STRETCH_NS {
                self.first = index + 1;
                self.next_look = None;
                break;
            }
        }
        Ok(())
    }

    /// Adds all new values of all tables and slots. For the minima and maxima read here a new epoch begins; the value
    /// read now is the last one of the old epoch.
    ///
    /// # Errors
    /// The arena is damaged beyond reading. A single damaged entry is left out, and counted.
    pub fn read(&mut self, memory: &Mapping, source: &Source<'_>, epochs: &[Epoch]) -> Result<(), SessionError> {
        if source.program.aggregations.is_empty() {
            return Ok(());
        }
        self.know_contexts(memory, source)?;
        for context in &mut self.contexts {
            for table in context.tables.in_use() {
                let reader = context.tables.reader(table);
                let added = context.add(memory, source.program, table, reader, epochs, &mut self.new)?;
                self.damaged += added.damaged;
            }
        }
        let contexts = 0..u64::from(ControlBlock::open(memory)?.contexts_in_use()?);
        self.read_slots(memory, source, epochs, contexts, |_, _| true, None)
    }

    /// Takes the values that are counted under the process to which these contexts belong. No thread of it has them any
    /// more, so the next owner begins with zeros: a maximum of two processes could not be taken apart.
    ///
    /// # Errors
    /// As for [`Aggregations::read`].
    pub fn take_from(&mut self, memory: &Mapping, source: &Source<'_>, contexts: &[usize]) -> Result<(), SessionError> {
        if !counts_by_process(source.program) {
            return Ok(());
        }
        let contexts = contexts.iter().map(|index| *index as u64);
        let is_of_process = |clause: usize, statement: usize| is_key_of_process(source.program, clause, statement);
        let mut taken = Vec::new();
        self.read_slots(memory, source, &[], contexts, is_of_process, Some(&mut taken))?;
        for (offset, words) in taken {
            self.slots.remove(&offset);
            for word in 0..words as u64 {
                memory.store_u64(offset.wrapping_add(8 * word), 0)?;
            }
        }
        Ok(())
    }

    fn read_slots(
        &mut self,
        memory: &Mapping,
        source: &Source<'_>,
        epochs: &[Epoch],
        contexts: impl Iterator<Item = u64> + Clone,
        is_meant: impl Fn(usize, usize) -> bool,
        mut seen: Option<&mut Vec<(u64, usize)>>,
    ) -> Result<(), SessionError> {
        let Aggregations { new, slots, .. } = self;
        let add = |Static { id, key, words, offset }: Static<'_>| {
            let Some(key) = key else {
                return Ok(false);
            };
            let mut words = words.to_vec();
            if let Some(seen) = &mut seen {
                seen.push((offset, words.len()));
            }
            if epochs.iter().any(|epoch| epoch.is_of(id.0, key)) {
                begin_epoch(memory, &mut words, offset)?;
            }
            let before = slots.get(&offset).map(|before| &**before);
            if before == Some(&*words) {
                return Ok(true);
            }
            let good = new.add_since(source.program, id.0, key, &words, before.unwrap_or_default());
            slots.insert(offset, words.into());
            Ok(good)
        };
        self.damaged += static_values(memory, source, contexts, is_meant, add)?;
        Ok(())
    }

    fn know_contexts(&mut self, memory: &Mapping, source: &Source<'_>) -> Result<(), SessionError> {
        let known = ControlBlock::open(memory)?.contexts_in_use()? as usize;
        while self.contexts.len() < known {
            let offset = context_offset(source.layout, self.contexts.len() as u64);
            let address = source.arena.0.wrapping_add(offset);
            self.contexts.push(Context {
                tables: AggregateTables::new(offset, address, &source.layout.context),
                added: Default::default(),
                is_due: false,
                sample: Vec::new(),
                repeats: false,
            });
        }
        Ok(())
    }
}

/// The result of a walk through a table.
#[derive(Default)]
struct Found {
    hashes: Vec<u32>,
    damaged: u64,
}

/// The smallest of all hashes. Two tables with mostly the same keys have mostly the same sample.
fn sample_of(hashes: &mut Vec<u32>) -> Vec<u32> {
    const SAMPLE: usize = 64;
    hashes.sort_unstable();
    hashes.dedup();
    hashes.iter().take(SAMPLE).copied().collect()
}

impl Context {
    /// Takes over the table that the thread has left, yields its contents, and asks the thread to leave its present
    /// table.
    fn turn(&mut self, memory: &Mapping, program: &Program, new: &mut Snapshot) -> Result<Option<Found>, SessionError> {
        let mut taken_over = None;
        if let Some(left) = self.tables.left(memory)? {
            let reader = self.tables.reader(left).at_rest();
            let mut found = self.add(memory, program, left, reader, &[], new)?;
            self.tables.empty(memory)?;
            *self.added_of(left) = Added::default();
            let sample = sample_of(&mut found.hashes);
            let known = sample.iter().filter(|hash| self.sample.binary_search(hash).is_ok());
            self.repeats = known.count() * 2 > sample.len();
            self.sample = sample;
            taken_over = Some(found);
        }
        let Some(current) = self.tables.current() else {
            return Ok(taken_over);
        };
        let reader = self.tables.reader(current);
        // A context that is just being made has no table yet. It is skipped until it has an entry.
        let taken = reader.taken(memory).unwrap_or(0);
        if taken > 0 && (self.is_due || taken > reader.room() / 2 && !self.repeats) {
            self.tables.turn(memory)?;
        }
        self.is_due = false;
        Ok(taken_over)
    }

    /// Adds the values of a table that were not yet added.
    fn add(
        &mut self,
        memory: &Mapping,
        program: &Program,
        table: Turn,
        reader: AggregateReader,
        epochs: &[Epoch],
        new: &mut Snapshot,
    ) -> Result<Found, SessionError> {
        let mut found = Found::default();
        let Ok(entries) = reader.entries(memory) else {
            return Ok(found);
        };
        let before = std::mem::take(self.added_of(table));
        let mut now = Added::default();
        for entry in entries {
            let Ok(mut entry) = entry else {
                found.damaged += 1;
                break;
            };
            if epochs.iter().any(|epoch| epoch.is_of(entry.aggregation, &entry.key)) {
                begin_epoch(memory, &mut entry.words, entry.offset)?;
            }
            let before = before.words_at(entry.offset);
            found.hashes.push(entry.hash);
            if before != Some(&*entry.words) {
                let before = before.unwrap_or_default();
                let good = new.add_since(program, entry.aggregation, &entry.key, &entry.words, before);
                found.damaged += u64::from(!good);
            }
            now.push(entry.offset, &entry.words);
        }
        *self.added_of(table) = now;
        Ok(found)
    }

    fn added_of(&mut self, table: Turn) -> &mut Added {
        let [first, second] = &mut self.added;
        match table {
            Turn::First => first,
            Turn::Second => second,
        }
    }
}

/// Whether any fixed slot has the process in its key.
fn counts_by_process(program: &Program) -> bool {
    let mut clauses = program.clauses.iter().enumerate();
    clauses.any(|(clause, found)| {
        let slots = static_slots(program, clause);
        let is_it = |number| slots.has(number) && is_key_of_process(program, clause, number);
        (0..found.statements.len()).any(is_it)
    })
}

/// A value in a static slot.
struct Static<'a> {
    id: AggregationId,
    key: Option<&'a [u8]>,
    words: &'a [u64],
    /// The offset of the words in the arena.
    offset: u64,
}

/// Visits the values in static slots that were ever touched, of some contexts, and of the statements that are meant (a
/// clause, and the statement's number in it). Yields how many values the visitor found damaged.
fn static_values(
    memory: &Mapping,
    source: &Source<'_>,
    contexts: impl Iterator<Item = u64> + Clone,
    is_meant: impl Fn(usize, usize) -> bool,
    mut visit: impl FnMut(Static<'_>) -> Result<bool, SessionError>,
) -> Result<u64, SessionError> {
    let Source {
        layout,
        program,
        limits,
        probes,
        enablings,
        pid,
        ..
    } = *source;
    let mut damaged = 0;
    let mut slots_of = HashMap::new();
    for found in enablings.slots() {
        let enabling = enablings.get(found.epid);
        let Some(probe) = enabling.and_then(|enabling| probes.get(enabling.probe)) else {
            continue;
        };
        let Some(clause) = program.clauses.get(found.clause) else {
            continue;
        };
        let slots = slots_of
            .entry(found.clause)
            .or_insert_with(|| static_slots(program, found.clause));
        let mut names = None;
        for (number, (statement, slot)) in clause.statements.iter().zip(&slots.statements).enumerate() {
            let (Statement::Aggregate { aggregation, .. }, Some((offset, words))) = (statement, slot) else {
                continue;
            };
            if !is_meant(found.clause, number) {
                continue;
            }
            let is_of_process = is_key_of_process(program, found.clause, number);
            let mut key = None;
            for index in contexts.clone() {
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
                    target_pid: pid,
                });
                if is_of_process {
                    let pid = memory.load_u32(context + offset_of!(ContextLayout, pid) as u64)?;
                    if pid != names.pid {
                        (names.pid, key) = (pid, None);
                    }
                }
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

#[cfg(test)]
#[path = "aggregations_tests.rs"]
mod tests;
