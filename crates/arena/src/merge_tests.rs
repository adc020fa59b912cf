use core::mem::offset_of;

use super::*;
use crate::Bytes;
use crate::layout::{Context, RING_SWITCH, RecordHeader};
use crate::plan::ContextPlan;

const SIZE: u64 = 4096;
const HEADER: u64 = size_of::<RecordHeader>() as u64;
/// More records than any test has.
const MANY: usize = 1000;

/// The rings of some contexts that lie one after another, with the simplest possible writer.
struct Rings {
    memory: Bytes,
    plan: ContextPlan,
}

impl Rings {
    fn new(count: u64) -> (Rings, RingMerge) {
        let plan = ContextPlan::new(0, 0, 0, 0, 0, 0, SIZE).unwrap();
        let memory = Bytes::zeroed((plan.stride * count) as usize);
        let mut merge = RingMerge::default();
        for ring in 0..count {
            merge.push(RingReader::new(ring * plan.stride, &plan, RING_SWITCH));
        }
        (Rings { memory, plan }, merge)
    }

    /// Writes a record without payload; `false`: there is no room.
    fn write(&self, ring: u64, tsc: u64, epid: u32) -> bool {
        let context = ring * self.plan.stride;
        let field = |offset: usize| context + offset as u64;
        let head = self.memory.load_u64(field(offset_of!(Context, ring_head))).unwrap();
        let tail = self.memory.load_u64(field(offset_of!(Context, ring_tail))).unwrap();
        if head - tail + HEADER > SIZE - SIZE % HEADER {
            return false;
        }
        let at = context + self.plan.ring + head % SIZE;
        assert!(SIZE - head % SIZE >= HEADER, "the tests stay before the ring's end");
        self.memory.store_u32(at, epid).unwrap();
        self.memory.store_u32(at + 4, HEADER as u32).unwrap();
        self.memory
            .store_u64(at + offset_of!(RecordHeader, tsc) as u64, tsc)
            .unwrap();
        self.memory
            .store_u64(field(offset_of!(Context, ring_head)), head + HEADER)
            .unwrap();
        true
    }
}

fn times(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.tsc).collect()
}

#[test]
fn all_rings_come_in_the_order_of_time() {
    let (rings, mut merge) = Rings::new(3);
    for (ring, tsc) in [(0, 3), (0, 9), (1, 4), (1, 5), (2, 1), (2, 7)] {
        rings.write(ring, tsc, 1);
    }
    assert_eq!(times(&merge.round(&rings.memory, u64::MAX, MANY)), [1, 3, 4, 5, 7, 9]);
}

#[test]
fn a_record_after_the_horizon_waits_for_the_older_ones_of_other_rings() {
    let (rings, mut merge) = Rings::new(2);
    rings.write(0, 3, 1);
    rings.write(1, 11, 1);
    assert_eq!(times(&merge.round(&rings.memory, 10, MANY)), [3]);
    // When ring 0 was read, its writer had not yet published this record.
    rings.write(0, 9, 1);
    rings.write(0, 12, 1);
    assert_eq!(times(&merge.round(&rings.memory, 20, MANY)), [9, 11, 12]);
}

#[test]
fn a_flooded_ring_keeps_no_other_waiting() {
    let (rings, mut merge) = Rings::new(2);
    for tsc in 0..100 {
        rings.write(0, 10 + tsc, 1);
    }
    rings.write(1, 12, 2);
    let first = merge.round(&rings.memory, u64::MAX, 5);
    assert_eq!(times(&first), [10, 11, 12, 12, 13]);
    assert!(first.iter().any(|record| record.epid == 2));
    // Nothing is lost, and the order holds, over many small rounds.
    let mut rest = Vec::new();
    loop {
        let round = times(&merge.round(&rings.memory, u64::MAX, 7));
        if round.is_empty() {
            break;
        }
        rest.extend(round);
    }
    assert_eq!(rest, (14..110).collect::<Vec<u64>>());
}

#[test]
fn without_time_every_ring_has_the_same_share() {
    let (rings, mut merge) = Rings::new(3);
    for _ in 0..100 {
        rings.write(0, 0, 1);
    }
    rings.write(1, 0, 2);
    rings.write(2, 0, 3);
    let first = merge.untimed_round(&rings.memory, 30);
    let of = |epid: u32| first.iter().filter(|record| record.epid == epid).count();
    assert_eq!((of(1), of(2), of(3)), (11, 1, 1));
}

#[test]
fn a_time_that_cannot_be_is_not_waited_for() {
    let (rings, mut merge) = Rings::new(2);
    rings.write(0, u64::MAX, 1);
    rings.write(1, 5, 2);
    assert_eq!(times(&merge.round(&rings.memory, 10, MANY)), [5, u64::MAX]);
}

#[test]
fn damage_in_one_ring_is_counted_and_the_others_are_read() {
    let (rings, mut merge) = Rings::new(2);
    rings
        .memory
        .store_u64(offset_of!(Context, ring_head) as u64, SIZE * 2)
        .unwrap();
    rings.write(1, 5, 2);
    assert_eq!(times(&merge.round(&rings.memory, 10, MANY)), [5]);
    assert_eq!(merge.damaged(), 1);
}
