//! Each tactic that jumps, on each instruction where it is possible. Two short instructions have no room for a jump of
//! their own; there, the kernel's uprobe on the same instruction is measured too.

use anyhow::Result;

use crate::instructions::{self, How, INSTRUCTIONS, Instruction, Way};
use crate::report::Row;

/// The goal for a count by a jump, in ns.
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

/// The springboard lies in the next instruction, which is displaced for it: each call executes both detours.
const NEIGHBOUR: Instruction = Instruction {
    name: "lea, by way of a neighbour",
    program: "neighbour",
    number: 0,
    function: "bench_neighbour",
    probes: &["8"],
    symbol: "bench_neighbour_site",
};

/// The same where the neighbour's jump and the springboard share bytes: the predictor takes one for the other.
const SHARED: Instruction = Instruction {
    name: "lea, by way of a neighbour of six bytes",
    number: 2,
    function: "bench_shared",
    symbol: "bench_shared_site",
    ..NEIGHBOUR
};

/// Two probes share a run into which a branch leads. A thread that runs into it from above, as here, comes by a jump
/// and hits both.
const LAST_RESORT: Instruction = Instruction {
    name: "mov and dec, two probes, the last resort",
    program: "neighbour",
    number: 1,
    function: "bench_last_resort",
    probes: &["f", "12"],
    symbol: "bench_last_resort_site",
};

const KERNEL: Way = Way {
    name: "kernel uprobe",
    how: How::Kernel,
    reach: None,
};

/// One row for each instruction and tactic. The row says so if the tactic does not fit.
pub fn measure(rounds: usize, say: &dyn Fn(&str)) -> Result<Vec<Row>> {
    let mut rows = instructions::measure(&INSTRUCTIONS, &WAYS, rounds, say)?;
    let evict = way("evict", &["-x", "tactic=evict"]);
    rows.extend(instructions::measure(
        &[NEIGHBOUR, SHARED],
        &[evict, KERNEL],
        rounds,
        say,
    )?);
    let run = way("run", &[]);
    rows.extend(instructions::measure(&[LAST_RESORT], &[run], rounds, say)?);
    Ok(rows)
}
