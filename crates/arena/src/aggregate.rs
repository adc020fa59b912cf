//! Reading aggregations: a thread's hash tables, and its static slots.
//!
//! Entries lie one after the other from the end of the buckets up to `used`, each complete. So the
//! tracer walks them in the order in which they were made. It needs the buckets only to empty a
//! table that the thread has left ([`crate::AggregateTables`]).
//!
//! The thread goes on counting while the tracer reads, but a count and its sum must belong
//! together. So the words of one entry are read until two readings agree, [`TRIES`] times at most.

use crate::error::Corrupt;
use crate::layout::{AGGREGATE_PROBES, AggregateEntry, AggregateTable};
use crate::memory::Memory;
use crate::plan::{ContextPlan, Turn};
use crate::structure::Structure;

/// How often an entry's words are read again. If they change each time, the last reading is taken as it is.
const TRIES: u32 = 8;

/// One aggregation's value for one key, in one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// The hash of the aggregation's id and the key.
    pub hash: u32,
    /// Id of the aggregation variable.
    pub aggregation: u32,
    /// The elements of the key, in their order.
    pub key: Vec<u8>,
    /// Value words, laid out by the contract for each aggregating function.
    pub words: Vec<u64>,
    /// Offset of `words` in the arena.
    pub offset: u64,
}

/// Reads a table of a thread's hash aggregation.
#[derive(Clone, Copy, Debug)]
pub struct AggregateReader {
    table: u64,
    bytes: u64,
    first: u64,
    buckets: u64,
    /// Whether the table no longer changes, because no thread adds to it.
    is_at_rest: bool,
}

impl AggregateReader {
    /// A reader of one of the two tables of the context at offset `context`. A plan without tables
    /// has no entries.
    pub fn new(context: u64, plan: &ContextPlan, table: Turn) -> Self {
        let [first, second] = plan.aggregates;
        let offset = match table {
            Turn::First => first,
            Turn::Second => second,
        };
        Self {
            table: context.wrapping_add(offset),
            bytes: plan.aggregate_bytes,
            first: if plan.aggregate_bytes == 0 {
                0
            } else {
                plan.first_entry()
            },
            buckets: plan.aggregate_buckets,
            is_at_rest: false,
        }
    }

    /// The same reader, for a table that no longer changes: it reads each word only once.
    pub fn at_rest(self) -> Self {
        Self {
            is_at_rest: true,
            ..self
        }
    }

    /// Bytes that entries take now.
    pub fn taken<M: Memory>(&self, memory: &M) -> Result<u64, Corrupt> {
        Ok(self.end(memory)?.saturating_sub(self.first))
    }

    /// Bytes that entries may take.
    pub fn room(&self) -> u64 {
        self.bytes - self.first
    }

    /// The offset in the table at which the entries end.
    fn end<M: Memory>(&self, memory: &M) -> Result<u64, Corrupt> {
        if self.bytes == 0 {
            return Ok(0);
        }
        let end = memory.load_u64(self.table.wrapping_add(USED))?;
        if end > self.bytes || end < self.first || !end.is_multiple_of(8) {
            return Err(self.damaged(USED));
        }
        Ok(end)
    }

    /// The entries that exist now, in order of creation. The iterator ends after the first error.
    pub fn entries<'a, M: Memory>(&self, memory: &'a M) -> Result<AggregateEntries<'a, M>, Corrupt> {
        Ok(AggregateEntries {
            memory,
            reader: *self,
            at: self.first,
            end: self.end(memory)?,
        })
    }

    /// Clears the buckets of all entries; if the entries are damaged, all buckets. No thread uses the
    /// table meanwhile.
    pub(crate) fn clear_buckets<M: Memory>(&self, memory: &M) -> Result<(), Corrupt> {
        let Ok(mut entries) = self.entries(memory) else {
            return self.clear_all_buckets(memory);
        };
        while entries.at < entries.end {
            let at = entries.at;
            match entries.header() {
                Ok((entry, ..)) if self.clear_bucket(memory, entry.hash, at)? => {}
                _ => return self.clear_all_buckets(memory),
            }
        }
        Ok(())
    }

    /// Clears the bucket of the entry at `at`; `false`: no bucket leads to the entry.
    fn clear_bucket<M: Memory>(&self, memory: &M, hash: u32, at: u64) -> Result<bool, Corrupt> {
        for probe in 0..AGGREGATE_PROBES.min(self.buckets) {
            let bucket = self.bucket(u64::from(hash).wrapping_add(probe) & (self.buckets - 1));
            if u64::from(memory.load_u32(bucket)?) == at / 8 {
                memory.store_u32(bucket, 0)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn clear_all_buckets<M: Memory>(&self, memory: &M) -> Result<(), Corrupt> {
        for index in 0..self.buckets {
            memory.store_u32(self.bucket(index), 0)?;
        }
        Ok(())
    }

    fn bucket(&self, index: u64) -> u64 {
        self.table.wrapping_add(AggregateTable::BYTES as u64 + index * 4)
    }

    /// Writes the head of an empty table.
    pub(crate) fn write_head<M: Memory>(&self, memory: &M, head: &AggregateTable) -> Result<(), Corrupt> {
        Ok(memory.write_structure(self.table, head)?)
    }

    fn damaged(&self, offset: u64) -> Corrupt {
        Corrupt::Table {
            table: self.table,
            offset,
        }
    }
}

const USED: u64 = core::mem::offset_of!(AggregateTable, used) as u64;

/// The entries of a hash aggregation.
#[derive(Debug)]
pub struct AggregateEntries<'a, M> {
    memory: &'a M,
    reader: AggregateReader,
    at: u64,
    end: u64,
}

impl<M: Memory> AggregateEntries<'_, M> {
    /// The head of the next entry, and the offset of its key. The position moves on to the entry after it.
    fn header(&mut self) -> Result<(AggregateEntry, u64), Corrupt> {
        let rest = self.end - self.at;
        let header = AggregateEntry::BYTES as u64;
        if rest < header {
            return Err(self.reader.damaged(self.at));
        }
        let start = self.reader.table.wrapping_add(self.at);
        let entry: AggregateEntry = self.memory.structure(start)?;
        let key_bytes = u64::from(entry.key_bytes);
        let value_bytes = u64::from(entry.value_words) * 8;
        if !key_bytes.is_multiple_of(8) || key_bytes + value_bytes > rest - header {
            return Err(self.reader.damaged(self.at));
        }
        self.at += header + key_bytes + value_bytes;
        Ok((entry, start.wrapping_add(header)))
    }

    fn entry(&mut self) -> Result<Aggregate, Corrupt> {
        let (entry, at) = self.header()?;
        let key_bytes = u64::from(entry.key_bytes);
        let key = self.memory.copy(at, key_bytes)?;
        let offset = at.wrapping_add(key_bytes);
        let count = u64::from(entry.value_words);
        let words = if self.reader.is_at_rest {
            words_of(&self.memory.copy(offset, count.saturating_mul(8))?)
        } else {
            read_words(self.memory, offset, count)?
        };
        Ok(Aggregate {
            hash: entry.hash,
            aggregation: entry.aggregation,
            key,
            words,
            offset,
        })
    }
}

impl<M: Memory> Iterator for AggregateEntries<'_, M> {
    type Item = Result<Aggregate, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.at = self.end;
        }
        Some(entry)
    }
}

/// The value words at `offset`. They belong to one moment, unless the thread changed them during
/// each of [`TRIES`] readings.
pub fn read_words<M: Memory>(memory: &M, offset: u64, count: u64) -> Result<Vec<u64>, Corrupt> {
    let mut last = memory.copy(offset, count.saturating_mul(8))?;
    for _ in 0..TRIES {
        let again = memory.copy(offset, count.saturating_mul(8))?;
        let same = again == last;
        last = again;
        if same || count < 2 {
            break;
        }
    }
    Ok(words_of(&last))
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// The static slots of the context at offset `context`: `count` words from `offset`, which counts from the context.
pub fn static_words<M: Memory>(memory: &M, context: u64, offset: u64, count: u64) -> Result<Vec<u64>, Corrupt> {
    read_words(memory, context.wrapping_add(offset), count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;

    fn plan() -> ContextPlan {
        ContextPlan::new(0, 0, 0, 0, 0, 4096, 0).unwrap()
    }

    /// An entry with a key of one word.
    fn add(memory: &Bytes, table: u64, aggregation: u32, key: u64, words: &[u64]) {
        let used = memory.load_u64(table + USED).unwrap();
        let entry = AggregateEntry {
            hash: 1,
            aggregation,
            key_bytes: 8,
            value_words: words.len() as u32,
        };
        memory.write_structure(table + used, &entry).unwrap();
        memory.store_u64(table + used + 16, key).unwrap();
        for (index, word) in words.iter().enumerate() {
            memory.store_u64(table + used + 24 + index as u64 * 8, *word).unwrap();
        }
        memory
            .store_u64(table + USED, used + 24 + words.len() as u64 * 8)
            .unwrap();
    }

    #[test]
    fn entries_come_in_order() {
        let plan = plan();
        let memory = Bytes::zeroed(plan.stride as usize);
        plan.initialise(&memory, 0x10000, 0, 0, 0).unwrap();
        add(&memory, plan.aggregates[0], 7, 42, &[1, 2]);
        add(&memory, plan.aggregates[0], 8, 43, &[u64::MAX]);
        let entries = AggregateReader::new(0, &plan, Turn::First).entries(&memory).unwrap();
        let entries: Vec<Aggregate> = entries.collect::<Result<_, _>>().unwrap();
        let first = plan.aggregates[0] + plan.first_entry() + 24;
        assert_eq!(
            entries,
            [
                Aggregate {
                    hash: 1,
                    aggregation: 7,
                    key: 42_u64.to_le_bytes().to_vec(),
                    words: vec![1, 2],
                    offset: first,
                },
                Aggregate {
                    hash: 1,
                    aggregation: 8,
                    key: 43_u64.to_le_bytes().to_vec(),
                    words: vec![u64::MAX],
                    offset: first + 16 + 24,
                },
            ]
        );
    }

    #[test]
    fn a_size_beyond_the_table_ends_the_walk() {
        let plan = plan();
        let memory = Bytes::zeroed(plan.stride as usize);
        plan.initialise(&memory, 0x10000, 0, 0, 0).unwrap();
        add(&memory, plan.aggregates[0], 7, 42, &[1]);
        memory
            .store_u32(plan.aggregates[0] + plan.first_entry() + 12, u32::MAX)
            .unwrap();
        let mut entries = AggregateReader::new(0, &plan, Turn::First).entries(&memory).unwrap();
        assert!(matches!(entries.next(), Some(Err(Corrupt::Table { .. }))));
        assert!(entries.next().is_none());
        memory.store_u64(plan.aggregates[0] + USED, 1 << 40).unwrap();
        assert!(AggregateReader::new(0, &plan, Turn::First).entries(&memory).is_err());
    }
}
