//! The last counts of unregistered probes. The caller may read them after the removal, when they are final.

use std::collections::{HashMap, VecDeque};

use super::Engine;
use crate::hit;
use crate::hit::PROBES_MAX;

/// The counts of at most this many unregistered probes are kept.
const ENDED_MAX: usize = PROBES_MAX;

/// The last counts of one probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often the probe's handlers ran.
    pub hits: u64,
    /// How often the handlers were left out.
    pub missed: u64,
    /// For a return probe: how many calls ended without a return.
    pub abandoned: u64,
}

/// The counts by the address of the caller's structure.
#[derive(Default)]
pub struct Ended {
    counts: HashMap<usize, (u64, Counts)>,
    /// The structures in the order in which they were unregistered, each with its number.
    order: VecDeque<(usize, u64)>,
    number: u64,
}

impl Ended {
    fn keep(&mut self, owner: usize, counts: Counts) {
        self.number += 1;
        self.counts.insert(owner, (self.number, counts));
        self.order.push_back((owner, self.number));
        while self.order.len() > ENDED_MAX {
            let Some((owner, number)) = self.order.pop_front() else {
                break;
            };
            if self.counts.get(&owner).is_some_and(|(kept, _)| *kept == number) {
                self.counts.remove(&owner);
            }
        }
    }

    /// Drops the old counts of a structure that is registered again.
    pub fn forget(&mut self, owner: usize) {
        self.counts.remove(&owner);
    }
}

impl Engine {
    /// Keeps the final counts of a member when no thread is in its handler any more. Called before
    /// [`Engine::reclaim`].
    pub fn end(&mut self, owner: usize, index: u32, abandoned: u64) {
        let (hits, missed) = hit::counts(index);
        let counts = Counts {
            hits,
            missed,
            abandoned,
        };
        if !self.spots.contains_key(&owner) {
            self.ended.keep(owner, counts);
        }
    }

    /// The last counts of the structure at this address.
    pub fn counts(&self, owner: usize) -> Counts {
        match self.spots.get(&owner) {
            Some(spot) => {
                let (hits, missed) = hit::counts(spot.index);
                Counts {
                    hits,
                    missed,
                    abandoned: 0,
                }
            }
            None => self
                .ended
                .counts
                .get(&owner)
                .map(|(_, counts)| *counts)
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_no_more() {
        let mut ended = Ended::default();
        let counts = |hits| Counts {
            hits,
            ..Counts::default()
        };
        for round in 0..3 {
            for owner in 0..ENDED_MAX + 10 {
                ended.keep(owner, counts(round));
            }
        }
        assert!(ended.counts.len() <= ENDED_MAX && ended.order.len() <= ENDED_MAX);
        assert_eq!(
            ended.counts.get(&(ENDED_MAX + 9)).map(|(_, counts)| *counts),
            Some(counts(2))
        );
        assert!(!ended.counts.contains_key(&0));
        ended.forget(ENDED_MAX + 9);
        assert!(!ended.counts.contains_key(&(ENDED_MAX + 9)));
    }
}
