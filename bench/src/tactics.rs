//! Each tactic that jumps, on each instruction that it can be had on.

use anyhow::Result;

use crate::instructions::{self, How, Way};
use crate::report::Row;

/// What a count by a jump is to cost at most, in ns.
const REACH: f64 = 4.0;

const fn way(name: &'static str, options: &'static [&'static str]) -> Way {
    Way {
        name,
        how: How::Forced(options),
        reach: Some(REACH),
    }
}

const WAYS: [Way; 4] = [
    way("jump", &["-x", "tactic=jump"]),
    way("run", &["-x", "tactic=run"]),
    way("pun", &["-x", "tactic=pun"]),
    way("evict", &["-x", "tactic=evict"]),
];

/// One row for each instruction and tactic; what a tactic does not fit says so.
pub fn measure(rounds: usize, say: &dyn Fn(&str)) -> Result<Vec<Row>> {
    instructions::measure(&WAYS, rounds, say)
}
