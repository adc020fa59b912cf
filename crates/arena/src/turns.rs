//! The two tables of a thread's hash aggregation, used in turn: see
//! `agent/contract/tables.h`, and docs/design/aggregations.md.
//!
//! ```text
//!   tracer                                             thread
//!                                                      adds to the first table
//!   the second is empty: asks for it     ------->
//!                                                      its next aggregation: uses the second, and says so
//!   copies the entries of the first      <-------
//!   empties the first
//! ```
//!
//! A thread that makes no further aggregation never answers. The tracer then reads the values in the thread's present
//! table.

use core::mem::offset_of;

use crate::aggregate::AggregateReader;
use crate::error::Corrupt;
use crate::layout::Context;
use crate::memory::Memory;
use crate::plan::{ContextPlan, Turn};

/// The tracer's view of a context's tables. Only one statement of the arena is believed: that the thread has
/// switched its table.
#[derive(Clone, Copy, Debug)]
pub struct AggregateTables {
    context: u64,
    /// Address of the context in the target.
    address: u64,
    plan: ContextPlan,
    /// The table that the thread uses, or will use after its switch.
    current: Turn,
    /// Whether the other table still has entries that the tracer has not copied.
    is_leaving: bool,
}

impl AggregateTables {
    /// The tables of the context at offset `context`, which the target has at `address`. The plan must have tables.
    pub fn new(context: u64, address: u64, plan: &ContextPlan) -> Self {
        Self {
            context,
            address,
            plan: *plan,
            current: Turn::First,
            is_leaving: false,
        }
    }

    /// A reader of one of the tables.
    pub fn reader(&self, table: Turn) -> AggregateReader {
        AggregateReader::new(self.context, &self.plan, table)
    }

    /// The tables that may have entries: the table that the thread leaves, then the table to which the thread
    /// switches.
    pub fn in_use(&self) -> impl Iterator<Item = Turn> + use<> {
        let leaving = self.is_leaving.then(|| self.current.other());
        leaving.into_iter().chain([self.current])
    }

    /// The table that the thread uses; `None` while the thread has not yet left the other table.
    pub fn current(&self) -> Option<Turn> {
        (!self.is_leaving).then_some(self.current)
    }

    /// Asks the thread to switch to its other table, which is empty. Does nothing while the thread still uses that
    /// other table.
    ///
    /// # Errors
    /// The table does not lie in the arena.
    pub fn turn<M: Memory>(&mut self, memory: &M) -> Result<(), Corrupt> {
        if self.is_leaving {
            return Ok(());
        }
        let next = self.current.other();
        self.reader(next).write_head(memory, &self.plan.initial_aggregates())?;
        memory.store_u64(
            self.field(offset_of!(Context, aggregates_wanted)),
            self.address_of(next),
        )?;
        self.current = next;
        self.is_leaving = true;
        Ok(())
    }

    /// The table that the thread has left, so that it no longer changes.
    ///
    /// # Errors
    /// The context does not lie in the arena.
    pub fn left<M: Memory>(&self, memory: &M) -> Result<Option<Turn>, Corrupt> {
        if !self.is_leaving {
            return Ok(None);
        }
        let used = memory.load_u64(self.field(offset_of!(Context, aggregates)))?;
        Ok((used == self.address_of(self.current)).then(|| self.current.other()))
    }

    /// Empties the table that the thread has left, after its entries were copied.
    ///
    /// # Errors
    /// The table does not lie in the arena.
    pub fn empty<M: Memory>(&mut self, memory: &M) -> Result<(), Corrupt> {
        if let Some(left) = self.left(memory)? {
            self.reader(left).clear_buckets(memory)?;
            self.is_leaving = false;
        }
        Ok(())
    }

    fn field(&self, field: usize) -> u64 {
        self.context.wrapping_add(field as u64)
    }

    fn address_of(&self, table: Turn) -> u64 {
        let [first, second] = self.plan.aggregates;
        self.address.wrapping_add(match table {
            Turn::First => first,
            Turn::Second => second,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;
    use crate::layout::{AggregateEntry, AggregateTable};
    use crate::structure::Structure as _;

    const ADDRESS: u64 = 0x7000_0000;

    struct Thread {
        memory: Bytes,
        plan: ContextPlan,
    }

    impl Thread {
        fn new() -> (Thread, AggregateTables) {
            let plan = ContextPlan::new(0, 0, 0, 0, 0, 4096, 0).unwrap();
            let memory = Bytes::zeroed(plan.stride as usize);
            plan.initialise(&memory, ADDRESS, 0, 0, 0).unwrap();
            let tables = AggregateTables::new(0, ADDRESS, &plan);
            (Thread { memory, plan }, tables)
        }

        /// Counts as the agent's `np_aggregate` does for `count()` and a key of one word. Yields the address of the
        /// count.
        fn aggregate(&self, key: u64) -> u64 {
            let wanted = self
                .memory
                .load_u64(offset_of!(Context, aggregates_wanted) as u64)
                .unwrap();
            self.memory
                .store_u64(offset_of!(Context, aggregates) as u64, wanted)
                .unwrap();
            let table = wanted - ADDRESS;
            let used = self.memory.load_u64(table + 8).unwrap();
            let entry = AggregateEntry {
                hash: key as u32 * 7,
                aggregation: 1,
                key_bytes: 8,
                value_words: 1,
            };
            self.memory.write_structure(table + used, &entry).unwrap();
            self.memory.store_u64(table + used + 16, key).unwrap();
            self.memory.store_u64(table + used + 24, 0).unwrap();
            let mut bucket = u64::from(entry.hash);
            let mask = self.plan.aggregate_buckets - 1;
            let at = |bucket: u64| table + AggregateTable::BYTES as u64 + (bucket & mask) * 4;
            while self.memory.load_u32(at(bucket)).unwrap() != 0 {
                bucket += 1;
            }
            self.memory.store_u32(at(bucket), (used / 8) as u32).unwrap();
            self.memory.store_u64(table + 8, used + 32).unwrap();
            table + used + 24
        }

        fn count(&self, key: u64) {
            let words = self.aggregate(key);
            self.memory
                .store_u64(words, self.memory.load_u64(words).unwrap() + 1)
                .unwrap();
        }

        fn keys(&self, tables: &AggregateTables, table: Turn) -> Vec<u64> {
            let entries = tables.reader(table).entries(&self.memory).unwrap();
            let key = |entry: Result<crate::Aggregate, Corrupt>| entry.unwrap().key[0].into();
            entries.map(key).collect()
        }

        fn full_buckets(&self, table: Turn) -> usize {
            let start = self.plan.aggregates[table.index()] + AggregateTable::BYTES as u64;
            let bucket = |index: &u64| self.memory.load_u32(start + index * 4).unwrap() != 0;
            (0..self.plan.aggregate_buckets).filter(bucket).count()
        }
    }

    #[test]
    fn a_table_is_left_when_the_thread_has_begun_another_aggregation() {
        let (thread, mut tables) = Thread::new();
        (1..=40).for_each(|key| thread.count(key));
        let held = thread.aggregate(41);
        tables.turn(&thread.memory).unwrap();
        assert_eq!(
            tables.left(&thread.memory),
            Ok(None),
            "it holds an address in the first one"
        );
        assert_eq!(tables.current(), None);
        tables.turn(&thread.memory).unwrap();
        thread.memory.store_u64(held, 9).unwrap();
        thread.count(42);
        assert_eq!(tables.left(&thread.memory), Ok(Some(Turn::First)));
        assert_eq!(thread.keys(&tables, Turn::First), (1..=41).collect::<Vec<_>>());
        assert_eq!(tables.in_use().collect::<Vec<_>>(), [Turn::First, Turn::Second]);
        tables.empty(&thread.memory).unwrap();
        assert_eq!(tables.in_use().collect::<Vec<_>>(), [Turn::Second]);
        assert_eq!(
            (thread.full_buckets(Turn::First), thread.full_buckets(Turn::Second)),
            (0, 1)
        );
        // and back
        tables.turn(&thread.memory).unwrap();
        thread.count(43);
        assert_eq!(tables.left(&thread.memory), Ok(Some(Turn::Second)));
        assert_eq!(thread.keys(&tables, Turn::First), [43]);
        assert_eq!(thread.keys(&tables, Turn::Second), [42]);
    }

    #[test]
    fn a_thread_that_does_not_answer_keeps_its_table() {
        let (thread, mut tables) = Thread::new();
        thread.count(1);
        tables.turn(&thread.memory).unwrap();
        tables.empty(&thread.memory).unwrap();
        assert_eq!(thread.keys(&tables, Turn::First), [1]);
        assert_eq!(thread.full_buckets(Turn::First), 1);
        assert_eq!(tables.left(&thread.memory), Ok(None));
    }

    /// If entries are damaged, all buckets are cleared, because no bucket may lead to a place without an entry.
    #[test]
    fn a_scribbled_table_is_emptied_too() {
        for (offset, value) in [(0, 12345), (12, u32::MAX)] {
            let (thread, mut tables) = Thread::new();
            (1..=40).for_each(|key| thread.count(key));
            tables.turn(&thread.memory).unwrap();
            thread.count(41);
            let third = thread.plan.aggregates[0] + thread.plan.first_entry() + 2 * 32;
            thread.memory.store_u32(third + offset, value).unwrap();
            tables.empty(&thread.memory).unwrap();
            assert_eq!(thread.full_buckets(Turn::First), 0);
        }
        let (thread, mut tables) = Thread::new();
        (1..=40).for_each(|key| thread.count(key));
        tables.turn(&thread.memory).unwrap();
        thread.count(41);
        thread.memory.store_u64(thread.plan.aggregates[0] + 8, 1 << 40).unwrap();
        tables.empty(&thread.memory).unwrap();
        assert_eq!(thread.full_buckets(Turn::First), 0);
        tables.turn(&thread.memory).unwrap();
        thread.count(42);
        assert_eq!(thread.keys(&tables, Turn::First), [42]);
    }
}
