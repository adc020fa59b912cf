//! All aggregations of a session, on the tracer's side.
//!
//! The tracer reads the changes in the target's tables into a [`Snapshot`], each count once, and adds the
//! snapshot to the [`AggregateTable`]. `clear()` sets the words in the table to zero, and `trunc()` removes
//! them. So the removed values are gone everywhere.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use nanoprobe_lang::interpret::{Value, key};
use nanoprobe_lang::program::{AggregatingFunction, Aggregation, AggregationId, KeyType, Program};

use crate::aggregate::{merge, rank, since, update, value_words};
use crate::key_addresses::{AddressUse, addresses_in, symbols_in};
use crate::keys::compare_keys;
use crate::stack::Symbolizer;

type Identity = (u32, Vec<u8>);

/// The aggregation and key of a value, the processor on which it was aggregated, and its words.
type OfProcessor = ((Identity, u32), Vec<u64>);

/// The size of the processor in a key: an integer.
const PROCESSOR_BYTES: usize = 8;

/// The aggregations of threads and enabled probes since the last request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    words: BTreeMap<Identity, Vec<u64>>,
}

impl Snapshot {
    /// A snapshot without values.
    pub fn new() -> Snapshot {
        Snapshot::default()
    }

    /// Adds the value words of one thread (or enabled probe) under a key; missing words are zeros. `false`:
    /// there is no such aggregation, or the key does not fit it. Then the caller reports a damaged arena.
    #[must_use = "false means that the arena is damaged"]
    pub fn add(&mut self, program: &Program, aggregation: u32, key: &[u8], words: &[u64]) -> bool {
        let Some(found) = program.aggregations.get(aggregation as usize) else {
            return false;
        };
        if key::read_key(&found.keys, key).is_none() {
            return false;
        }
        merge(found.function, self.words_of(found, aggregation, key), words);
        true
    }

    /// Adds the change of value words since `before`, which was added earlier (empty: nothing was added). So a key does
    /// not appear again if a new epoch is the only change of its words. `false` as for [`Snapshot::add`].
    #[must_use = "false means that the arena is damaged"]
    pub fn add_since(
        &mut self,
        program: &Program,
        aggregation: u32,
        key: &[u8],
        words: &[u64],
        before: &[u64],
    ) -> bool {
        let found = program.aggregations.get(aggregation as usize);
        found.is_some_and(|found| {
            let new = since(found.function, words, before);
            let is_same = !before.is_empty() && new.iter().all(|word| *word == 0);
            is_same || self.add(program, aggregation, key, &new)
        })
    }

    /// Adds all values of another snapshot.
    pub fn append(&mut self, program: &Program, other: Snapshot) {
        if self.words.is_empty() {
            *self = other;
            return;
        }
        for ((aggregation, key), words) in other.words {
            if let Some(found) = program.aggregations.get(aggregation as usize) {
                merge(found.function, self.words_of(found, aggregation, &key), &words);
            }
        }
    }

    /// Removes the values of one aggregation, and yields them.
    #[must_use]
    pub fn split_off(&mut self, id: AggregationId) -> Snapshot {
        let mut words = self.words.split_off(&(id.0, Vec::new()));
        let mut behind = words.split_off(&(id.0.saturating_add(1), Vec::new()));
        self.words.append(&mut behind);
        Snapshot { words }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether an aggregation has a value under a key.
    pub fn contains(&self, id: AggregationId, key: &[u8]) -> bool {
        self.words.contains_key(&(id.0, key.to_vec()))
    }

    /// `@aggregation[key] = function(value, weight)`, for clauses that the tracer itself runs. `false`: there
    /// is no such aggregation.
    pub fn update(&mut self, program: &Program, id: AggregationId, key: &[u8], value: i64, weight: i64) -> bool {
        let Some(found) = program.aggregations.get(id.0 as usize) else {
            return false;
        };
        update(found.function, self.words_of(found, id.0, key), value, weight);
        true
    }

    /// Merges the keys whose addresses have the same name: for `usym`, addresses in one function; for `umod`,
    /// addresses in one module. As in DTrace, the consumer does this, because the agent knows no names.
    #[must_use]
    pub fn with_symbols(self, program: &Program, symbolizer: &mut dyn Symbolizer) -> Snapshot {
        let is_symbol = |key_type: &KeyType| matches!(key_type, KeyType::Symbol(_));
        if !program.aggregations.iter().flat_map(|found| &found.keys).any(is_symbol) {
            return self;
        }
        let mut merged = Snapshot::new();
        for ((aggregation, mut bytes), words) in self.words {
            let Some(found) = program.aggregations.get(aggregation as usize) else {
                continue;
            };
            for (offset, kind) in symbols_in(&found.keys, &bytes) {
                if let Some(word) = bytes.get_mut(offset..offset + 8)
                    && let Ok(address) = <[u8; 8]>::try_from(&*word)
                {
                    let start = symbolizer.start_of(u64::from_le_bytes(address), kind);
                    word.copy_from_slice(&start.to_le_bytes());
                }
            }
            merge(found.function, merged.words_of(found, aggregation, &bytes), &words);
        }
        merged
    }

    /// Replaces each address in keys by a number. `number` yields it for an address and the address's use: the first
    /// frame of a stack, another frame, or an address outside of stacks.
    #[must_use]
    pub fn with_addresses(self, program: &Program, number: &mut dyn FnMut(u64, AddressUse) -> u64) -> Snapshot {
        let mut merged = Snapshot::new();
        for ((aggregation, mut bytes), words) in self.words {
            let Some(found) = program.aggregations.get(aggregation as usize) else {
                continue;
            };
            replace_addresses(&found.keys, &mut bytes, number);
            merge(found.function, merged.words_of(found, aggregation, &bytes), &words);
        }
        merged
    }

    /// For keys whose last element is the processor: the lines without the processor, and the values of each
    /// processor.
    fn apart(self, program: &Program) -> (Snapshot, Vec<OfProcessor>) {
        let is_apart = |id: u32| program.aggregations.get(id as usize).filter(|found| found.by_processor);
        let mut whole = Snapshot::new();
        let mut parts = Vec::new();
        for ((aggregation, bytes), words) in self.words {
            match (is_apart(aggregation), bytes.split_last_chunk::<PROCESSOR_BYTES>()) {
                (Some(found), Some((shown, processor))) => {
                    merge(found.function, whole.words_of(found, aggregation, shown), &words);
                    let processor = u64::from_le_bytes(*processor) as u32;
                    parts.push((((aggregation, shown.to_vec()), processor), words));
                }
                _ => {
                    whole.words.insert((aggregation, bytes), words);
                }
            }
        }
        (whole, parts)
    }

    fn words_of(&mut self, found: &Aggregation, aggregation: u32, key: &[u8]) -> &mut Vec<u64> {
        let zeros = || vec![0; value_words(found.function)];
        self.words.entry((aggregation, key.to_vec())).or_insert_with(zeros)
    }
}

fn replace_addresses(keys: &[KeyType], bytes: &mut [u8], number: &mut dyn FnMut(u64, AddressUse) -> u64) {
    for (offset, of) in addresses_in(keys, bytes) {
        if let Some(word) = bytes.get_mut(offset..offset + 8)
            && let Ok(address) = <[u8; 8]>::try_from(&*word)
        {
            word.copy_from_slice(&number(u64::from_le_bytes(address), of).to_le_bytes());
        }
    }
}

/// Whether an aggregation has minima or maxima. A `clear()` must then reset the values in the target, too.
fn is_extreme(program: &Program, id: AggregationId) -> bool {
    let found = program.aggregations.get(id.0 as usize).map(|found| found.function);
    matches!(found, Some(AggregatingFunction::Minimum | AggregatingFunction::Maximum))
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    words: Vec<u64>,
    /// The words of each processor, if the key's last element is the processor (`aggpercpu`).
    parts: BTreeMap<u32, Vec<u64>>,
    normal: u64,
}

/// One line of an aggregation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub aggregation: AggregationId,
    /// The elements of the key.
    pub key: Vec<Value>,
    /// The value words since the last `clear()`.
    pub words: Vec<u64>,
    /// The words of each processor that has any (`aggpercpu`).
    pub parts: BTreeMap<u32, Vec<u64>>,
    /// The divisor of the values; 1 without a `normalize()`.
    pub normal: u64,
}

/// The aggregations in the form in which they are printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AggregateTable {
    entries: BTreeMap<Identity, Entry>,
    /// The values that records after the end have truncated (see [`AggregateTable::end`]).
    truncated: BTreeMap<Identity, Entry>,
    has_ended: bool,
    begun: Vec<Epoch>,
    /// About how many bytes `entries` takes.
    bytes: u64,
    /// The most bytes; `None`: any number.
    bytes_max: Option<u64>,
    drops: u64,
}

/// About what an entry takes besides its key and its words: the structures, and the allocator's share.
const ENTRY_BYTES: u64 = 200;

fn bytes_of_entry((_, key): &Identity, words: &[u64]) -> u64 {
    ENTRY_BYTES + key.len() as u64 + 8 * words.len() as u64
}

/// Minima and maxima whose epoch begins again. The owner of their words must reset them
/// (`agent/contract.h`, "Value words").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    aggregation: AggregationId,
    /// The keys that remain after a `trunc()`. If one of them begins again, too, the table still has its extreme.
    kept: BTreeSet<Vec<u8>>,
    /// Whether the processor follows the keys. The actions do not name it.
    by_processor: bool,
}

impl Epoch {
    /// Whether the epoch begins again for this key.
    #[must_use]
    pub fn is_of(&self, aggregation: u32, key: &[u8]) -> bool {
        let key = match self.by_processor {
            true => key
                .split_last_chunk::<PROCESSOR_BYTES>()
                .map_or(key, |(shown, _)| shown),
            false => key,
        };
        self.aggregation.0 == aggregation && !self.kept.contains(key)
    }
}

impl AggregateTable {
    /// An empty table.
    pub fn new() -> AggregateTable {
        AggregateTable::default()
    }

    /// An empty table that keeps about so many bytes. Values of further keys are dropped, and counted.
    pub fn with_limit(bytes_max: u64) -> AggregateTable {
        AggregateTable {
            bytes_max: Some(bytes_max),
            ..AggregateTable::default()
        }
    }

    /// How many values were dropped because their keys found no room.
    pub fn drops(&self) -> u64 {
        self.drops
    }

    /// Adds the values of a snapshot.
    pub fn add(&mut self, program: &Program, snapshot: Snapshot) {
        let (snapshot, parts) = snapshot.apart(program);
        self.add_whole(program, snapshot);
        for ((identity, processor), words) in parts {
            let found = program.aggregations.get(identity.0 as usize);
            if let (Some(found), Some(entry)) = (found, self.entries.get_mut(&identity)) {
                let part = entry.parts.entry(processor);
                merge(found.function, part.or_insert_with(|| zeros(found.function)), &words);
            }
        }
    }

    fn add_whole(&mut self, program: &Program, snapshot: Snapshot) {
        for (identity, words) in snapshot.words {
            let Some(found) = program.aggregations.get(identity.0 as usize) else {
                continue;
            };
            let bytes = bytes_of_entry(&identity, &words);
            match self.entries.entry(identity) {
                btree_map::Entry::Occupied(mut entry) => merge(found.function, &mut entry.get_mut().words, &words),
                btree_map::Entry::Vacant(_) if self.bytes_max.is_some_and(|most| self.bytes + bytes > most) => {
                    self.drops += 1;
                }
                btree_map::Entry::Vacant(place) => {
                    self.bytes += bytes;
                    place.insert(Entry {
                        words,
                        parts: BTreeMap::new(),
                        normal: 1,
                    });
                }
            }
        }
    }

    /// As [`Snapshot::with_addresses`]: so far all values are those of one process, and another one begins.
    pub fn replace_addresses(&mut self, program: &Program, number: &mut dyn FnMut(u64, AddressUse) -> u64) {
        for ((aggregation, mut bytes), entry) in std::mem::take(&mut self.entries) {
            let Some(found) = program.aggregations.get(aggregation as usize) else {
                continue;
            };
            replace_addresses(found.shown_keys(), &mut bytes, number);
            match self.entries.entry((aggregation, bytes)) {
                btree_map::Entry::Vacant(place) => {
                    place.insert(entry);
                }
                btree_map::Entry::Occupied(mut other) => {
                    self.bytes = self.bytes.saturating_sub(bytes_of_entry(other.key(), &entry.words));
                    let other = other.get_mut();
                    merge(found.function, &mut other.words, &entry.words);
                    for (processor, words) in entry.parts {
                        let part = other.parts.entry(processor);
                        merge(found.function, part.or_insert_with(|| zeros(found.function)), &words);
                    }
                }
            }
        }
    }

    /// Called when tracing ends: only END and records in the buffers follow. From now on a `trunc()` affects the
    /// printed text, but no longer the profiles.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// The keys of an aggregation, as bytes, with their words. Includes the keys that were truncated after the end.
    pub(crate) fn profiled(&self, id: AggregationId) -> impl Iterator<Item = (&[u8], &[u64])> {
        let truncated = self.truncated.range((id.0, Vec::new())..);
        let truncated = truncated.take_while(move |((aggregation, _), _)| *aggregation == id.0);
        let all = self.of(id).chain(truncated);
        all.map(|((_, key), entry)| (key.as_slice(), entry.words.as_slice()))
    }

    /// The lines of an aggregation, in the order of their key bytes.
    pub fn rows(&self, program: &Program, id: AggregationId) -> Vec<Row> {
        let Some(found) = program.aggregations.get(id.0 as usize) else {
            return Vec::new();
        };
        self.of(id)
            .filter_map(|((_, bytes), entry)| {
                let part = |(processor, words): (&u32, &Vec<u64>)| {
                    let is_used = match is_extreme(program, id) {
                        true => words.get(1).is_some_and(|updates| *updates != 0),
                        false => words.iter().any(|word| *word != 0),
                    };
                    is_used.then(|| (*processor, words.clone()))
                };
                Some(Row {
                    aggregation: id,
                    key: key::read_key(found.shown_keys(), bytes)?,
                    words: entry.words.clone(),
                    parts: entry.parts.iter().filter_map(part).collect(),
                    normal: entry.normal,
                })
            })
            .collect()
    }

    /// The keys of an aggregation, as bytes, with their words and the divisor of their values.
    pub(crate) fn values(&self, id: AggregationId) -> impl Iterator<Item = (&[u8], &[u64], u64)> {
        self.of(id)
            .map(|((_, key), entry)| (key.as_slice(), entry.words.as_slice(), entry.normal))
    }

    /// The lines of all aggregations except those that have been printed.
    pub(crate) fn rest(&self, program: &Program, printed: &BTreeSet<AggregationId>) -> Vec<Row> {
        let ids = (0..program.aggregations.len()).filter_map(|id| u32::try_from(id).ok());
        let left = ids.map(AggregationId).filter(|id| !printed.contains(id));
        left.flat_map(|id| self.rows(program, id)).collect()
    }

    /// The minima and maxima that were cleared or truncated since the previous call.
    #[must_use]
    pub fn take_epochs(&mut self) -> Vec<Epoch> {
        std::mem::take(&mut self.begun)
    }

    /// `clear(@a)`: values become 0, keys stay.
    pub fn clear(&mut self, program: &Program, id: AggregationId) {
        if is_extreme(program, id) {
            self.begin_epoch(program, id, BTreeSet::new());
        }
        for entry in self.of_mut(id) {
            entry.words.fill(0);
            entry.parts.clear();
        }
    }

    /// `trunc(@a[, count])`: removes keys and values, except the `count` greatest ones, or if `count` is
    /// negative, the `-count` least ones.
    pub fn truncate(&mut self, program: &Program, id: AggregationId, count: i64) {
        let Some(found) = program.aggregations.get(id.0 as usize) else {
            return;
        };
        let mut order: Vec<_> = self
            .of(id)
            .filter_map(|(identity, entry)| {
                Some((
                    rank(found.function, &entry.words),
                    key::read_key(found.shown_keys(), &identity.1)?,
                    identity.clone(),
                ))
            })
            .collect();
        order.sort_by(|(left_rank, left, _), (right_rank, right, _)| {
            let order = left_rank
                .cmp(right_rank)
                .then_with(|| compare_keys(found.shown_keys(), left, right, 0));
            if count < 0 { order } else { order.reverse() }
        });
        let kept = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        if is_extreme(program, id) {
            let kept = order.iter().take(kept).map(|(_, _, (_, key))| key.clone()).collect();
            self.begin_epoch(program, id, kept);
        }
        for (_, _, identity) in order.iter().skip(kept) {
            let removed = self.entries.remove(identity);
            if let Some(entry) = &removed {
                let bytes = bytes_of_entry(identity, &entry.words);
                self.bytes = self.bytes.saturating_sub(bytes);
            }
            let Some(entry) = removed.filter(|_| self.has_ended) else {
                continue;
            };
            match self.truncated.entry(identity.clone()) {
                btree_map::Entry::Occupied(mut before) => {
                    merge(found.function, &mut before.get_mut().words, &entry.words);
                }
                btree_map::Entry::Vacant(place) => {
                    place.insert(entry);
                }
            }
        }
    }

    fn begin_epoch(&mut self, program: &Program, id: AggregationId, kept: BTreeSet<Vec<u8>>) {
        let found = program.aggregations.get(id.0 as usize);
        self.begun.push(Epoch {
            aggregation: id,
            kept,
            by_processor: found.is_some_and(|found| found.by_processor),
        });
    }

    /// `normalize(@a, factor)`: the present values are printed divided by the factor; 0 means 1.
    pub fn normalize(&mut self, id: AggregationId, factor: u64) {
        self.of_mut(id).for_each(|entry| entry.normal = factor.max(1));
    }

    /// `denormalize(@a)`.
    pub fn denormalize(&mut self, id: AggregationId) {
        self.normalize(id, 1);
    }

    fn of(&self, id: AggregationId) -> impl Iterator<Item = (&Identity, &Entry)> {
        let range = self.entries.range((id.0, Vec::new())..);
        range.take_while(move |((aggregation, _), _)| *aggregation == id.0)
    }

    fn of_mut(&mut self, id: AggregationId) -> impl Iterator<Item = &mut Entry> {
        let range = self.entries.range_mut((id.0, Vec::new())..);
        range
            .take_while(move |((aggregation, _), _)| *aggregation == id.0)
            .map(|(_, entry)| entry)
    }
}

/// The words of a value that was never updated.
pub(crate) fn zeros(function: AggregatingFunction) -> Vec<u64> {
    vec![0; value_words(function)]
}
