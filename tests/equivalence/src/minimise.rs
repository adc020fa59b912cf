//! Finds smaller sequences that fail, too.

use crate::case::Bench;
use crate::report::{Failure, Shared, Totals};
use crate::sequence::{Sequence, Terminator};

/// Drops items from the last to the first, and repeats this, as long as the sequence still fails in some way.
pub fn minimise(bench: &mut Bench, mut sequence: Sequence, seed: u64, mut failure: Box<Failure>) -> Box<Failure> {
    let shared = Shared::default();
    let mut fails = |sequence: &Sequence| bench.check(sequence, seed, &mut Totals::new(&shared)).err();
    loop {
        let before = sequence.items.len();
        for index in (0..sequence.items.len()).rev() {
            if sequence.items.len() == 1 {
                break;
            }
            let shorter = sequence.without(index);
            if let Some(found) = fails(&shorter) {
                (sequence, failure) = (shorter, found);
            }
        }
        if sequence.items.len() == before {
            break;
        }
    }
    let plain = Sequence {
        terminator: Terminator::Jump,
        padding: Vec::new(),
        ..sequence
    };
    fails(&plain).unwrap_or(failure)
}
