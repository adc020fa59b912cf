//! Reading aggregations: a thread's hash table, and its static slots.
//!
//! Entries lie one behind the other from the end of the buckets up to `used`, each complete, so the tracer walks them
//! in order of creation and has no use for the buckets. The thread goes on counting meanwhile: the words of one entry
//! are read until two readings agree, so that a count and its sum belong together, or until [`TRIES`] is spent.

use crate::error::Corrupt;
use crate::layout::{AggregateEntry, AggregateTable};
use crate::memory::Memory;
use crate::plan::ContextPlan;
use crate::structure::Structure;

/// Readings of an entry's words before the last is taken as it is.
const TRIES: u32 = 8;

/// One aggregation's value for one key, in one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// Id of the aggregation variable.
    pub aggregation: u32,
    /// Elements of the key, one behind the other.
    pub key: Vec<u8>,
    /// Value words, as the contract says for each aggregating function.
    pub words: Vec<u64>,
    /// Where these words lie.
    pub offset: u64,
}

/// Reads a thread's hash aggregation.
#[derive(Clone, Copy, Debug)]
pub struct AggregateReader {
    table: u64,
    bytes: u64,
    first: u64,
}

impl AggregateReader {
    /// A reader of the table of the context at offset `context`. A plan without a table has no entries.
    pub fn new(context: u64, plan: &ContextPlan) -> Self {
        Self {
            table: context.wrapping_add(plan.aggregates),
            bytes: plan.aggregate_bytes,
            first: if plan.aggregate_bytes == 0 {
                0
            } else {
                plan.first_entry()
            },
        }
    }

    /// The entries there are now, in order of creation. Ends after the first error.
    pub fn entries<'a, M: Memory>(&self, memory: &'a M) -> Result<AggregateEntries<'a, M>, Corrupt> {
        let end = if self.bytes == 0 {
            0
        } else {
            memory.load_u64(self.table.wrapping_add(USED))?
        };
        if end > self.bytes || end < self.first || !end.is_multiple_of(8) {
            return Err(self.damaged(USED));
        }
        Ok(AggregateEntries {
            memory,
            reader: *self,
            at: self.first,
            end,
        })
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
    fn entry(&mut self) -> Result<Aggregate, Corrupt> {
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
        let key = self.memory.copy(start.wrapping_add(header), key_bytes)?;
        let offset = start.wrapping_add(header + key_bytes);
        let words = read_words(self.memory, offset, u64::from(entry.value_words))?;
        self.at += header + key_bytes + value_bytes;
        Ok(Aggregate {
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

/// The value words at `offset`, as they were at one moment if they could be caught so.
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
    let word = |raw: &[u8]| raw.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
    Ok(last.chunks_exact(8).map(word).collect())
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
        add(&memory, plan.aggregates, 7, 42, &[1, 2]);
        add(&memory, plan.aggregates, 8, 43, &[u64::MAX]);
        let entries = AggregateReader::new(0, &plan).entries(&memory).unwrap();
        let entries: Vec<Aggregate> = entries.collect::<Result<_, _>>().unwrap();
        let first = plan.aggregates + plan.first_entry() + 24;
        assert_eq!(
            entries,
            [
                Aggregate {
                    aggregation: 7,
                    key: 42_u64.to_le_bytes().to_vec(),
                    words: vec![1, 2],
                    offset: first,
                },
                Aggregate {
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
        add(&memory, plan.aggregates, 7, 42, &[1]);
        memory
            .store_u32(plan.aggregates + plan.first_entry() + 12, u32::MAX)
            .unwrap();
        let mut entries = AggregateReader::new(0, &plan).entries(&memory).unwrap();
        assert!(matches!(entries.next(), Some(Err(Corrupt::Table { .. }))));
        assert!(entries.next().is_none());
        memory.store_u64(plan.aggregates + USED, 1 << 40).unwrap();
        assert!(AggregateReader::new(0, &plan).entries(&memory).is_err());
    }
}
