//! The trap in its three forms, the kernel's uprobe on the same instruction, and the floor: an `int3` with an empty
//! handler.

use anyhow::Result;

use crate::instructions::{self, How, INSTRUCTIONS, Way};
use crate::looping::Looping;
use crate::report::Row;

/// The function that executes an `int3`.
const FLOOR: usize = 8;

const fn way(name: &'static str, how: How) -> Way {
    Way { name, how, reach: None }
}

const WAYS: [Way; 4] = [
    way(
        "trap, emulated",
        How::Forced(&["-x", "tactic=trap", "-x", "trap=emulate"]),
    ),
    way("trap, boosted", How::Forced(&["-x", "tactic=trap", "-x", "trap=boost"])),
    way("trap, stepped", How::Forced(&["-x", "tactic=trap", "-x", "trap=step"])),
    way("kernel uprobe", How::Kernel),
];

/// One row for each instruction and form. The first row is the floor: the cost of any trap.
pub fn measure(rounds: usize, say: &dyn Fn(&str)) -> Result<Vec<Row>> {
    let mut rows = vec![instructions::row(
        "a trap's floor: int3, handler, return",
        floor(rounds),
    )];
    rows.extend(instructions::measure(&INSTRUCTIONS, &WAYS, rounds, say)?);
    Ok(rows)
}

/// The cost of a call with an `int3`; the call itself is a two-thousandth of it.
fn floor(rounds: usize) -> Result<Vec<f64>> {
    let running = Looping::start(1, FLOOR)?;
    let samples: Result<Vec<Vec<f64>>> = (0..rounds).map(|_| running.samples_from_now()).collect();
    Ok(samples?.concat())
}
