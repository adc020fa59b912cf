//! The reader with the simplest possible writer, in Rust. `agent/tests` tests the agent's own writer.

use super::*;
use crate::Bytes;
use crate::layout::{RING_FILL, RING_SWITCH};

const SIZE: u64 = 4096;

struct Ring {
    memory: Bytes,
    plan: ContextPlan,
}

impl Ring {
    fn new() -> Self {
        let plan = ContextPlan::new(0, 0, 0, 0, 0, 0, SIZE).unwrap();
        Self {
            memory: Bytes::zeroed(plan.stride as usize),
            plan,
        }
    }

    fn set(&self, field: usize, value: u64) {
        self.memory.store_u64(field as u64, value).unwrap();
    }

    fn head(&self) -> u64 {
        self.memory.load_u64(offset_of!(Context, ring_head) as u64).unwrap()
    }

    fn tail(&self) -> u64 {
        self.memory.load_u64(offset_of!(Context, ring_tail) as u64).unwrap()
    }

    fn put(&self, position: u64, epid: u32, bytes: u64) {
        let at = self.plan.ring + position % SIZE;
        self.memory.store_u32(at, epid).unwrap();
        self.memory.store_u32(at + 4, bytes as u32).unwrap();
    }

    /// Writes a record whose payload is its epid, `words` times.
    fn write(&self, epid: u32, words: u64) {
        let mut head = self.head();
        let bytes = HEADER + words * 8;
        let to_end = SIZE - head % SIZE;
        if bytes > to_end {
            self.put(head, 0, to_end);
            head += to_end;
        }
        self.put(head, epid, bytes);
        for word in 0..words {
            self.memory
                .store_u64(self.plan.ring + head % SIZE + HEADER + word * 8, u64::from(epid))
                .unwrap();
        }
        self.set(offset_of!(Context, ring_head), head + bytes);
    }

    fn reader(&self, policy: u32) -> RingReader {
        RingReader::new(0, &self.plan, policy)
    }
}

#[test]
fn records_come_in_order_over_many_wraps() {
    let ring = Ring::new();
    let mut reader = ring.reader(RING_SWITCH);
    for epid in 1..500 {
        ring.write(epid, u64::from(epid % 37));
        let record = reader.next(&ring.memory).unwrap().unwrap();
        assert_eq!(record.epid, epid);
        assert_eq!(record.payload, u64::from(epid).to_le_bytes().repeat(epid as usize % 37));
        assert_eq!(reader.next(&ring.memory), Ok(None));
        assert_eq!(ring.tail(), ring.head());
    }
    assert!(ring.head() > SIZE * 10);
    assert_eq!((reader.delivered(), reader.corrupted()), (499, 0));
}

#[test]
fn a_filler_of_eight_bytes() {
    let ring = Ring::new();
    let mut reader = ring.reader(RING_FILL);
    ring.write(1, (SIZE - 8 - HEADER) / 8);
    reader.next(&ring.memory).unwrap().unwrap();
    ring.write(2, 1);
    assert_eq!(reader.next(&ring.memory).unwrap().unwrap().epid, 2);
    assert_eq!(reader.next(&ring.memory), Ok(None));
    assert_eq!(ring.tail(), SIZE + 32);
}

#[test]
fn a_damaged_size_skips_to_the_head_once() {
    for bytes in [0, 4, 16, 20, 4096, u32::MAX] {
        let ring = Ring::new();
        let mut reader = ring.reader(RING_SWITCH);
        ring.write(1, 0);
        ring.write(2, 0);
        ring.put(0, 1, u64::from(bytes));
        assert_eq!(reader.next(&ring.memory), Err(Corrupt::Record { position: 0, bytes }));
        assert_eq!(reader.next(&ring.memory), Ok(None));
        ring.write(3, 0);
        assert_eq!(reader.next(&ring.memory).unwrap().unwrap().epid, 3);
        assert_eq!(reader.corrupted(), 1);
    }
}

#[test]
fn a_filler_that_does_not_reach_the_end_is_damage() {
    let ring = Ring::new();
    let mut reader = ring.reader(RING_SWITCH);
    ring.write(1, 5);
    ring.put(0, 0, 64);
    assert_eq!(
        reader.next(&ring.memory),
        Err(Corrupt::Record { position: 0, bytes: 64 })
    );
}

#[test]
fn a_head_out_of_range_is_damage() {
    for head in [SIZE + 8, u64::MAX - 7, 12] {
        let ring = Ring::new();
        let mut reader = ring.reader(RING_SWITCH);
        ring.set(offset_of!(Context, ring_head), head);
        assert_eq!(reader.next(&ring.memory), Err(Corrupt::RingHead { head, tail: 0 }));
        assert_eq!(ring.tail(), head & !7);
    }
}

#[test]
fn overwritten_records_are_skipped() {
    let ring = Ring::new();
    let mut reader = ring.reader(RING_OVERWRITE);
    for epid in 1..=10 {
        ring.write(epid, 0);
    }
    ring.set(offset_of!(Context, ring_overwritten), 3 * HEADER);
    ring.set(offset_of!(Context, ring_records), 10);
    let mut seen = Vec::new();
    while let Some(record) = reader.next(&ring.memory).unwrap() {
        seen.push(record.epid);
    }
    assert_eq!(seen, [4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(reader.outstanding(&ring.memory), Ok(3));
}

#[test]
fn a_wild_overwritten_position_is_damage() {
    let ring = Ring::new();
    let mut reader = ring.reader(RING_OVERWRITE);
    ring.write(1, 0);
    ring.set(offset_of!(Context, ring_overwritten), 1 << 40);
    assert!(matches!(reader.next(&ring.memory), Err(Corrupt::RingHead { .. })));
}

#[test]
fn room_is_given_back_in_parts_and_when_nothing_is_left() {
    let ring = Ring::new();
    let mut reader = ring.reader(RING_FILL);
    let record = HEADER + 8;
    let records = SIZE / PUBLISHED_PART / record + 2;
    for _ in 0..records {
        ring.write(1, 1);
    }
    reader.next(&ring.memory).unwrap().unwrap();
    assert_eq!(ring.tail(), 0);
    for _ in 2..records {
        reader.next(&ring.memory).unwrap().unwrap();
    }
    let part = ring.tail();
    assert!(part >= SIZE / PUBLISHED_PART && part < ring.head(), "{part}");
    reader.next(&ring.memory).unwrap().unwrap();
    assert_eq!(reader.next(&ring.memory), Ok(None));
    assert_eq!(ring.tail(), ring.head());
}
