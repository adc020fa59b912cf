//! Instructions that are probed one by one, and the cost of each probe: by a forced tactic, by a form of the trap, by
//! the kernel.

use anyhow::{Context, Result, ensure};

use crate::kernel::{self, Kind};
use crate::looping::Looping;
use crate::report::Row;
use crate::statistics::{self, Measured};
use crate::tracer::Tracer;
use crate::{interrupt, programs};

/// A probed instruction.
pub struct Instruction {
    pub name: &'static str,
    /// The measured program, and the function for its loop.
    pub program: &'static str,
    pub number: usize,
    /// The function that the program calls, and the names of the probes in this function. Each probe is hit once in a
    /// call.
    pub function: &'static str,
    pub probes: &'static [&'static str],
    /// The symbol at the instruction, for the kernel.
    pub symbol: &'static str,
}

/// The first instruction of a function of `loop`.
const fn instruction(name: &'static str, number: usize, function: &'static str) -> Instruction {
    Instruction {
        name,
        program: "loop",
        number,
        function,
        probes: &["entry"],
        symbol: function,
    }
}

/// The instructions on which the kernel's uprobes are compared.
pub const INSTRUCTIONS: [Instruction; 7] = [
    instruction("push", 0, "bench_function"),
    instruction("nop", 3, "bench_nop1"),
    instruction("5-byte nop", 1, "bench_nop"),
    instruction("mov", 4, "bench_mov"),
    instruction("sub rsp", 5, "bench_sub"),
    instruction("ret", 6, "bench_ret"),
    instruction("endbr64", 7, "bench_endbr"),
];

/// How an instruction is probed.
#[derive(Clone, Copy)]
pub enum How {
    /// `@ = count()` with these options.
    Forced(&'static [&'static str]),
    /// The kernel's uprobe, counted.
    Kernel,
}

/// A way to probe: its name, and the goal for a hit, in ns.
pub struct Way {
    pub name: &'static str,
    pub how: How,
    pub reach: Option<f64>,
}

/// A row for each instruction and each way to probe it. Each round goes through the ways of an instruction in turn.
pub fn measure(instructions: &[Instruction], ways: &[Way], rounds: usize, say: &dyn Fn(&str)) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for instruction in instructions {
        let mut figures: Vec<Result<Vec<f64>>> = ways.iter().map(|_| Ok(Vec::new())).collect();
        for round in 0..statistics::most(rounds) {
            for (way, figures) in ways.iter().zip(&mut figures) {
                // A failed way is not tried again, and a good one is not repeated.
                let Ok(taken) = figures else { continue };
                if !statistics::another(taken, round, rounds) {
                    continue;
                }
                interrupt::check()?;
                say(&format!("{} on {}", way.name, instruction.name));
                match once(way.how, instruction) {
                    Ok(samples) => taken.extend(samples),
                    Err(error) => *figures = Err(error),
                }
            }
        }
        for (way, figures) in ways.iter().zip(figures) {
            let mut row = row(&format!("{}: {}", way.name, instruction.name), figures);
            row.reach = way.reach;
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The row of some figures.
pub fn row(name: &str, figures: Result<Vec<f64>>) -> Row {
    match figures.and_then(|figures| Measured::of(&figures).context("nothing was measured")) {
        Ok(measured) => Row::new(name, "ns/call", measured),
        Err(error) => Row::not_measurable(name, &format!("{error:#}")),
    }
}

/// The samples of one attachment: the overhead in ns a call.
fn once(how: How, instruction: &Instruction) -> Result<Vec<f64>> {
    let running = Looping::start_program(instruction.program, 1, instruction.number)?;
    let before = running.samples_from_now()?;
    let with = match how {
        How::Forced(options) => {
            let probe = |name: &&str| format!("pid$target:a.out:{}:{name}", instruction.function);
            let probes: Vec<String> = instruction.probes.iter().map(probe).collect();
            let clause = format!("{} {{ @ = count(); }}", probes.join(","));
            let tracer = Tracer::attach(running.pid(), &clause, options)?;
            let with = running.samples_from_now()?;
            let ended = tracer.detach()?;
            ensure!(ended.lost() == 0, "hits were lost");
            // If a forced tactic does not fit, the instruction has no probe.
            ensure!(ended.value().is_ok_and(|count| count > 0), "cannot be had there");
            with
        }
        How::Kernel => {
            let program = programs::compile(instruction.program)?;
            let offset = programs::file_offset(&program, instruction.symbol)?;
            let probe = kernel::attach(Kind::Counted, running.pid(), &program, offset)?;
            let with = running.samples_from_now()?;
            ensure!(probe.hits()? > 0, "the kernel's probe did not fire");
            with
        }
    };
    let after = running.samples_from_now()?;
    Ok(statistics::paired_samples(&before, &with, &after))
}
