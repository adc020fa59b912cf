//! I9: the list of a program's own probes is hostile input, too.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use nanoprobe_arena::registry::{
    ENABLED, HEAD_BYTES, Head, Listed, MAGIC, ROW_BYTES, RegistryError, Row, UNCOUNTED, read,
};
use proptest::prelude::*;

const START: u64 = 0x10000;
const ROWS: u32 = 4;
const FIRST: u64 = START + 0x400;
const BLOCKS: [u64; 2] = [START + 0x500, START + 0x800];
const BYTES: usize = 0xc00;

/// A program's memory with the list, the pointer to the first block of counters, and two such blocks.
fn memory(rows: &[Row]) -> Vec<u8> {
    let mut memory = vec![0; BYTES];
    let mut put = |at: u64, bytes: &[u8]| {
        let at = (at - START) as usize;
        memory[at..at + bytes.len()].copy_from_slice(bytes);
    };
    let head = Head {
        rows: ROWS,
        threads: FIRST,
        next_offset: 8,
        counters_offset: 16,
    };
    put(START, &head.to_bytes());
    put(START, &MAGIC.to_le_bytes());
    for (index, row) in rows.iter().enumerate() {
        for (word, value) in [row.address, row.order, row.state].iter().enumerate() {
            let at = HEAD_BYTES + index * ROW_BYTES + word * 8;
            put(START + at as u64, &value.to_le_bytes());
        }
    }
    put(FIRST, &BLOCKS[0].to_le_bytes());
    put(BLOCKS[0] + 8, &BLOCKS[1].to_le_bytes());
    for (index, block) in BLOCKS.iter().enumerate() {
        for row in 0..u64::from(ROWS) {
            put(block + 16 + 16 * row, &(100 * (index as u64 + 1) + row).to_le_bytes());
            put(block + 24 + 16 * row, &row.to_le_bytes());
        }
    }
    memory
}

fn look(memory: &[u8]) -> Result<Vec<Listed>, RegistryError> {
    read(START, 0x400, &|address, into| {
        let at = address.wrapping_sub(START) as usize;
        let found = at.checked_add(into.len()).and_then(|end| memory.get(at..end));
        found.is_some_and(|found| {
            into.copy_from_slice(found);
            true
        })
    })
}

fn row(address: u64, order: u64, state: u64) -> Row {
    Row { address, order, state }
}

#[test]
fn rows_are_sorted_by_address_and_order_with_sums_over_threads() {
    let probe = u64::from(b'k') | 1 << 8 | ENABLED;
    let watch = u64::from(b'w') | UNCOUNTED;
    let rows = [
        row(0, 0, 0),
        row(500, 9, probe),
        row(500, 3, probe),
        row(400, 10, watch),
    ];
    let listed = look(&memory(&rows)).unwrap();
    let told: Vec<_> = listed.iter().map(|one| (one.row, one.counts)).collect();
    let expected = [(rows[3], None), (rows[2], Some((304, 4))), (rows[1], Some((302, 2)))];
    assert_eq!(told, expected);
    assert!(!listed[0].row.is_enabled() && listed[1].row.is_enabled());
    assert_eq!((listed[1].row.kind(), listed[1].row.tactic()), (b'k', 1));
    assert_eq!(look(&memory(&[])), Ok(Vec::new()));
}

#[test]
fn damage_is_reported() {
    let rows = [row(1, 1, u64::from(b'k'))];
    let changed = |at: u64, value: u64| {
        let mut memory = memory(&rows);
        let at = (at - START) as usize;
        memory[at..at + 8].copy_from_slice(&value.to_le_bytes());
        look(&memory)
    };
    assert_eq!(changed(START, 5), Err(RegistryError::Foreign));
    assert_eq!(changed(START + 8, 7 | 4 << 32), Err(RegistryError::Version(7)));
    let many = changed(START + 8, 1 | 0xffff_ffff << 32);
    assert_eq!(many, Err(RegistryError::Damaged("more rows than there is room for")));
    assert_eq!(changed(FIRST, 3), Err(RegistryError::Unreadable(19)));
    let ring = changed(BLOCKS[1] + 8, BLOCKS[0]);
    assert_eq!(ring, Err(RegistryError::Damaged("the threads' blocks have no end")));
}

proptest! {
    /// Whatever the bytes are, reading ends with an answer.
    #[test]
    fn any_byte_may_be_anything(changes in prop::collection::vec((0..BYTES, any::<u8>()), 0..200)) {
        let mut memory = memory(&[row(1, 1, u64::from(b'k') | ENABLED)]);
        for (at, value) in changes {
            memory[at] = value;
        }
        if let Ok(listed) = look(&memory) {
            prop_assert!(listed.len() <= 0x400 / ROW_BYTES);
        }
    }
}
