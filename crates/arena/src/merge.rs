//! Merges the records of all rings in the order of their time.
//!
//! A round takes the records up to a moment, its *horizon*: the time at which the round began. Newer records wait for
//! the next round, because a ring that was read earlier in this round may have got older records since. So the order
//! holds across rounds, too:
//!
//! ```text
//!   ring 0   3   9   |           ahead[0] = 12         the horizon stands at 10
//!   ring 1   4   5   | 11        ahead[1] = 11
//!   ring 2           |           nothing
//!            3 4 5 9 |           this round yields these four
//! ```
//!
//! One record of each ring is read ahead. A heap holds their times; the earliest comes first. A
//! thread may lose its processor between reading the clock and publishing the record. That record
//! comes late, in the round that finds it.
//!
//! A round is bounded. The records of a flooded ring come in the order of their time, like all others. So a flooded
//! ring delays other records only by the records that precede them in time. If records carry no time, each round
//! takes the same share from every ring, and the next round begins with the ring after the last one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::memory::Memory;
use crate::ring::{Record, RingReader};

/// A record whose time is later than the horizon by more than this has a wrong time. The merge does not wait for
/// that time.
const AHEAD_MAX: u64 = 1 << 33;

/// Reads many rings as one sequence of records.
#[derive(Default)]
pub struct RingMerge {
    rings: Vec<RingReader>,
    /// For each ring, the record that was read and not yet returned.
    ahead: Vec<Option<Record>>,
    /// Time and ring of all records in `ahead`.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    /// The ring with which a round of untimed records begins.
    first: usize,
    damaged: u64,
}

impl RingMerge {
    /// Adds a ring.
    pub fn push(&mut self, ring: RingReader) {
        self.rings.push(ring);
        self.ahead.push(None);
    }

    pub fn len(&self) -> usize {
        self.rings.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rings.is_empty()
    }

    /// How often a ring was found damaged.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// One round: at most `most` records whose time is not after `horizon`, in the order of their time.
    pub fn round<M: Memory>(&mut self, memory: &M, horizon: u64, most: usize) -> Vec<Record> {
        for ring in 0..self.rings.len() {
            if self.ahead.get(ring).is_some_and(Option::is_none) {
                self.read_ahead(memory, ring);
            }
        }
        let mut records = Vec::new();
        while records.len() < most {
            let Some(&Reverse((time, ring))) = self.order.peek() else {
                break;
            };
            if time > horizon && time - horizon <= AHEAD_MAX {
                break;
            }
            self.order.pop();
            records.extend(self.ahead.get_mut(ring).and_then(Option::take));
            self.read_ahead(memory, ring);
        }
        records
    }

    /// One round of records without a time: the threads one after another, and the records of each thread in order.
    pub fn untimed_round<M: Memory>(&mut self, memory: &M, most: usize) -> Vec<Record> {
        let rings = self.rings.len();
        let share = most / rings.max(1) + 1;
        let mut records = Vec::new();
        for turn in 0..rings {
            let ring = (self.first + turn) % rings;
            let before = records.len();
            while records.len() - before < share {
                let Some(record) = self.next_of(memory, ring) else {
                    break;
                };
                records.push(record);
            }
        }
        self.first = (self.first + 1) % rings.max(1);
        records
    }

    fn read_ahead<M: Memory>(&mut self, memory: &M, ring: usize) {
        let next = self.next_of(memory, ring);
        if let (Some(record), Some(ahead)) = (next, self.ahead.get_mut(ring)) {
            self.order.push(Reverse((record.tsc, ring)));
            *ahead = Some(record);
        }
    }

    fn next_of<M: Memory>(&mut self, memory: &M, ring: usize) -> Option<Record> {
        match self.rings.get_mut(ring)?.next(memory) {
            Ok(record) => record,
            Err(_) => {
                self.damaged += 1;
                None
            }
        }
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
