use std::collections::BTreeMap;
use std::mem::offset_of;

use nanoprobe_arena::ContextPlan;
use nanoprobe_arena::layout::{AggregateEntry, Context as ContextLayout};
use nanoprobe_export::AggregateTable;
use nanoprobe_lang::program::{AggregatingFunction, Aggregation, IntegerType, KeyType};

use super::*;
use crate::arena_memory::ArenaMemory;

const ADDRESS: u64 = 0x7000_0000;

/// A model of a thread that aggregates under keys of one word, with the agent's tables. The buckets do not matter here.
struct Thread {
    arena: ArenaMemory,
    plan: ContextPlan,
    program: Program,
    context: Context,
    new: Snapshot,
    table: AggregateTable,
    /// For each key, the address of its words in the table that the thread uses.
    places: BTreeMap<u64, u64>,
}

impl Thread {
    fn new(function: AggregatingFunction) -> Thread {
        let plan = ContextPlan::new(0, 0, 0, 0, 0, 8192, 0).expect("a plan");
        let arena = ArenaMemory::private(plan.stride).expect("an arena");
        plan.initialise(arena.memory(), ADDRESS, 0, 0, 0).expect("a context");
        let mut program = Program::default();
        program.aggregations.push(Aggregation {
            name: "@".to_owned(),
            function,
            keys: vec![KeyType::Integer(IntegerType { bytes: 8, signed: true })],
            by_processor: false,
        });
        let context = Context {
            tables: AggregateTables::new(0, ADDRESS, &plan),
            added: Default::default(),
            is_due: false,
            sample: Vec::new(),
            repeats: false,
        };
        Thread {
            arena,
            plan,
            program,
            context,
            new: Snapshot::new(),
            table: AggregateTable::new(),
            places: BTreeMap::new(),
        }
    }

    fn load(&self, offset: u64) -> u64 {
        self.arena.memory().load_u64(offset).expect("in the arena")
    }

    fn store(&self, offset: u64, value: u64) {
        self.arena.memory().store_u64(offset, value).expect("in the arena");
    }

    /// Does what `np_aggregate` does: yields the address of the words.
    fn words(&mut self, key: u64, words: u64) -> u64 {
        let wanted = self.load(offset_of!(ContextLayout, aggregates_wanted) as u64);
        if self.load(offset_of!(ContextLayout, aggregates) as u64) != wanted {
            self.places.clear();
            self.store(offset_of!(ContextLayout, aggregates) as u64, wanted);
        }
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        let table = wanted - ADDRESS;
        let used = self.load(table + 8);
        let bytes = ContextPlan::entry_bytes(8, words);
        assert!(used + bytes <= self.plan.aggregate_bytes, "no room");
        let entry = AggregateEntry {
            hash: key as u32,
            aggregation: 0,
            key_bytes: 8,
            value_words: words as u32,
        };
        self.arena
            .memory()
            .write_structure(table + used, &entry)
            .expect("in the arena");
        self.store(table + used + 16, key);
        (0..words).for_each(|word| self.store(table + used + 24 + word * 8, 0));
        self.store(table + 8, used + bytes);
        self.places.insert(key, table + used + 24);
        table + used + 24
    }

    fn add(&self, at: u64, value: u64) {
        self.store(at, self.load(at).wrapping_add(value));
    }

    /// Updates a `min()` as a handler does.
    fn minimum(&mut self, key: u64, value: u64) {
        let at = self.words(key, 4);
        let (epoch, wanted) = (self.load(at + 16), self.load(at + 24));
        let is_taken = self.load(at + 8) == 0 || epoch != wanted || value < self.load(at);
        self.store(at + 16, wanted);
        if is_taken {
            self.store(at, value);
        }
        self.add(at + 8, 1);
    }

    /// The tracer looks once at the tables.
    fn look(&mut self) {
        let found = self.context.turn(self.arena.memory(), &self.program, &mut self.new);
        assert!(found.expect("a good arena").is_none_or(|found| found.damaged == 0));
    }

    /// Reads all tables, as the tracer does before it prints.
    fn read(&mut self, epochs: &[Epoch]) {
        for table in self.context.tables.in_use() {
            let reader = self.context.tables.reader(table);
            let memory = self.arena.memory();
            let found = self
                .context
                .add(memory, &self.program, table, reader, epochs, &mut self.new);
            assert_eq!(found.expect("a good arena").damaged, 0);
        }
        self.table.add(&self.program, std::mem::take(&mut self.new));
    }

    fn clear(&mut self) {
        self.read(&[]);
        self.table.clear(&self.program, AggregationId(0));
        let epochs = self.table.take_epochs();
        self.read(&epochs);
    }

    fn rows(&mut self) -> BTreeMap<u64, Vec<u64>> {
        let rows = self.table.rows(&self.program, AggregationId(0));
        let row = |row: nanoprobe_export::Row| (row.key.first().map_or(0, |key| key.as_integer() as u64), row.words);
        rows.into_iter().map(row).collect()
    }
}

/// Reads, turns and clears at random moments, also between a handler's lookup and its update.
#[test]
fn every_count_is_added_once() {
    let mut thread = Thread::new(AggregatingFunction::Count);
    let mut random = 1_u64;
    let (mut model, mut cleared, mut fresh) = (BTreeMap::new(), 0, 1000);
    for _ in 0..20_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let choice = random >> 40;
        fresh += choice % 2;
        let key = if choice.is_multiple_of(2) { choice % 5 } else { fresh };
        let at = thread.words(key, 1);
        for _ in 0..2 {
            thread.look();
        }
        match choice % 97 {
            0..=9 => thread.read(&[]),
            10 => thread.context.is_due = true,
            11 => {
                thread.clear();
                cleared += model.values().sum::<u64>();
                model.clear();
            }
            _ => {}
        }
        thread.add(at, 1);
        *model.entry(key).or_insert(0) += 1;
    }
    thread.read(&[]);
    let rows = thread.rows();
    let counted = |key: &u64| rows.get(key).and_then(|words| words.first().copied());
    assert!(model.iter().all(|(key, count)| counted(key) == Some(*count)));
    assert_eq!(rows.values().flatten().sum::<u64>() + cleared, 20_000);
}

#[test]
fn what_was_cleared_or_truncated_does_not_come_back() {
    for turns in [false, true] {
        let mut thread = Thread::new(AggregatingFunction::Minimum);
        thread.minimum(1, 3);
        thread.minimum(2, 30);
        thread.read(&[]);
        thread.context.is_due = turns;
        thread.look();
        thread.clear();
        thread.minimum(1, 8);
        thread.look();
        thread.minimum(1, 9);
        thread.read(&[]);
        let words = |thread: &mut Thread| {
            thread
                .rows()
                .into_iter()
                .map(|(key, words)| (key, words[0], words[1]))
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&mut thread), [(1, 8, 2), (2, 0, 0)], "{turns}");
        thread.table.truncate(&thread.program, AggregationId(0), 0);
        let epochs = thread.table.take_epochs();
        thread.read(&epochs);
        thread.read(&[]);
        assert_eq!(words(&mut thread), []);
        thread.minimum(1, 70);
        thread.read(&[]);
        assert_eq!(words(&mut thread), [(1, 70, 1)]);
    }
}

/// The keys stay the same, so a table that is more than half full is not emptied early.
#[test]
fn keys_that_stay_are_left_where_they_are() {
    let mut thread = Thread::new(AggregatingFunction::Count);
    let keys = thread.context.tables.reader(Turn::First).room() / 32 * 3 / 4;
    let mut moved = 0;
    for _ in 0..50 {
        for key in 0..keys {
            let before = thread.places.len();
            let at = thread.words(key, 1);
            moved += u64::from(thread.places.len() < before);
            thread.add(at, 1);
            thread.look();
        }
        thread.read(&[]);
    }
    assert!((1..=3).contains(&moved), "{moved}");
    assert!(thread.rows().values().all(|words| *words == [50]));
}

/// Keys are ever new, except for some that come again and again, and the tables are read all the time.
#[test]
fn ever_new_keys_are_taken_over_before_the_table_is_full() {
    let mut thread = Thread::new(AggregatingFunction::Count);
    for key in 10..10_000 {
        let at = thread.words(key % 7, 1);
        thread.add(at, 1);
        let at = thread.words(key, 1);
        thread.add(at, 1);
        thread.look();
        if key % 64 == 0 {
            thread.read(&[]);
        }
    }
    thread.read(&[]);
    assert_eq!(thread.rows().len(), 9_990 + 7);
}
