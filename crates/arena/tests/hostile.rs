//! Whatever the bytes are, every reader gives an answer or an error; it never panics or loops forever.
//!
//! Random bytes alone seldom pass the first check. So the test builds an arena that has everything in it, and
//! replaces words in it by values that are likely to do harm.

#![allow(clippy::unwrap_used, reason = "test code")]

use core::mem::offset_of;

use nanoprobe_arena::layout::{Context, Control, RING_OVERWRITE, RING_SWITCH, Region, Site};
use nanoprobe_arena::{
    AggregateTables, Bytes, ContextPlan, ControlBlock, DynamicVariables, Memory, RingReader, Structure, Turn,
};
use proptest::prelude::*;

const CONTEXT: u64 = 4096;
const DYNAMIC: u64 = 32768;
const DYNAMIC_BYTES: u64 = 2048;
const BYTES: usize = 40960;

fn plan() -> ContextPlan {
    ContextPlan::new(64, 0, 0, 64, 64, 4096, 4096).unwrap()
}

fn arena() -> Bytes {
    let memory = Bytes::zeroed(BYTES);
    let control = Control {
        magic: nanoprobe_arena::layout::MAGIC,
        version: 1,
        site_count: 2,
        site_capacity: 4,
        sites_offset: 1024,
        region_count: 1,
        region_capacity: 2,
        regions_offset: 2048,
        context_capacity: 1,
        context_count: 1,
        ..Control::default()
    };
    memory.write_structure(0, &control).unwrap();
    for site in 0..2 {
        let value = Site {
            address: 0x1000,
            length: 5,
            ..Site::default()
        };
        memory
            .write_structure(1024 + site * Site::BYTES as u64, &value)
            .unwrap();
    }
    memory.write_structure(2048, &Region::default()).unwrap();
    plan().initialise(&memory, 0x10_0000, CONTEXT, 0, RING_SWITCH).unwrap();
    let variables = DynamicVariables::new(DYNAMIC, DYNAMIC_BYTES);
    variables.initialise(&memory).unwrap();
    for key in 0..8_u64 {
        variables
            .store(&memory, 1, &key.to_le_bytes(), 8, Some(&[7; 8]))
            .unwrap();
    }
    // Records of 24 bytes, and entries with a key and a value of one word.
    for record in 0..20 {
        memory
            .store_u64(CONTEXT + plan().ring + record * 24, (24 << 32) | 1)
            .unwrap();
    }
    memory
        .store_u64(CONTEXT + offset_of!(Context, ring_head) as u64, 480)
        .unwrap();
    let table = CONTEXT + plan().aggregates[0];
    for entry in 0..5 {
        let at = table + plan().first_entry() + entry * 32;
        memory.store_u64(at, 1 << 32).unwrap();
        memory.store_u64(at + 8, (1 << 32) | 8).unwrap();
    }
    memory.store_u64(table + 8, plan().first_entry() + 5 * 32).unwrap();
    memory
}

/// How many elements each reader found.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    sites: usize,
    regions: usize,
    records: usize,
    entries: usize,
    variables: usize,
}

fn read_everything(memory: &Bytes, policy: u32) -> Found {
    let block = ControlBlock::open(memory);
    let sites = block
        .as_ref()
        .map_or(0, |block| block.sites().map_or(0, |sites| sites.len()));
    let regions = block
        .as_ref()
        .map_or(0, |block| block.regions().map_or(0, |regions| regions.len()));
    if let Ok(block) = block {
        let _ = (
            block.read(),
            block.exit_status(),
            block.contexts_in_use(),
            block.library_events(),
        );
    }
    let mut ring = RingReader::new(CONTEXT, &plan(), policy);
    // Every call consumes a record or finds damage, and 4096 bytes hold less than 200 records.
    let records = (0..1000).filter(|_| matches!(ring.next(memory), Ok(Some(_)))).count();
    assert!(records < 200, "{records}");
    let _ = (ring.drops(memory), ring.outstanding(memory));
    let mut tables = AggregateTables::new(CONTEXT, 0x10_0000 + CONTEXT, &plan());
    let entries = tables.reader(Turn::First).entries(memory);
    let entries = entries.map_or(0, |entries| entries.filter(|entry| entry.is_ok()).count());
    // The tables are switched, read and emptied, whatever the arena says about them.
    for _ in 0..3 {
        let _ = (tables.turn(memory), tables.left(memory));
        for table in tables.in_use() {
            let reader = tables.reader(table);
            let taken = reader.taken(memory);
            assert!(taken.is_err() || taken.is_ok_and(|taken| taken <= reader.room()));
            let found = reader.entries(memory).map_or(0, Iterator::count);
            assert!(found <= 4096 / 16, "{found}");
        }
        let _ = tables.empty(memory);
    }
    let variables = DynamicVariables::new(DYNAMIC, DYNAMIC_BYTES);
    let _ = variables.get(memory, 1, &[0; 8], 8);
    let _ = variables.store(memory, 1, &[9; 8], 8, Some(&[1; 8]));
    let _ = variables.store(memory, 1, &[0; 8], 8, None);
    let variables = variables.values(memory).map_or(0, |values| values.len());
    Found {
        sites,
        regions,
        records,
        entries,
        variables,
    }
}

#[test]
fn an_undamaged_arena_is_read_in_full() {
    // There are eight variables, because one was added and one was removed.
    let found = Found {
        sites: 2,
        regions: 1,
        records: 20,
        entries: 5,
        variables: 8,
    };
    assert_eq!(read_everything(&arena(), RING_SWITCH), found);
    assert_eq!(read_everything(&arena(), RING_OVERWRITE), found);
}

fn nasty() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        Just(0),
        Just(u64::MAX),
        (0..64_u32).prop_map(|bit| 1 << bit),
        (0..64_u32).prop_map(|bit| (1_u64 << bit).wrapping_neg()),
        0..10_000_u64,
        (0..10_000_u64, 0..10_000_u64).prop_map(|(high, low)| (high << 32) | low),
    ]
}

/// Offsets of words in the arena that the readers use.
fn place() -> impl Strategy<Value = u64> {
    let at = |start: u64, words: u64| (0..words).prop_map(move |word| start + word * 8);
    prop_oneof![
        at(0, BYTES as u64 / 8),
        at(0, 80),
        at(CONTEXT, 80),
        at(CONTEXT + plan().ring, 60),
        at(CONTEXT + plan().aggregates[0], 4),
        at(CONTEXT + plan().aggregates[0] + plan().first_entry(), 20),
        at(CONTEXT + plan().aggregates[1], 4),
        at(CONTEXT + plan().aggregates[1] + plan().first_entry(), 20),
        at(DYNAMIC, 60),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn i9_a_scribbled_arena_is_survived(
        scribbles in prop::collection::vec((place(), nasty()), 1..12), overwrite: bool,
    ) {
        let memory = arena();
        for (offset, value) in scribbles {
            memory.store_u64(offset, value).unwrap();
        }
        read_everything(&memory, if overwrite { RING_OVERWRITE } else { RING_SWITCH });
    }

    #[test]
    fn i9_random_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..BYTES), overwrite: bool) {
        let memory = Bytes::from(bytes.as_slice());
        read_everything(&memory, if overwrite { RING_OVERWRITE } else { RING_SWITCH });
    }
}
