//! The trap in its three forms, beside the kernel's uprobe on the same instruction, and the floor: an `int3` whose handler
//! does nothing.

use anyhow::{Context, Result, ensure};

use crate::kernel::{self, Kind};
use crate::looping::Looping;
use crate::programs;
use crate::report::Row;
use crate::statistics::Measured;
use crate::tracer::Tracer;

/// Name of the instruction, number of the function that the program loops on, the function that begins with it.
const INSTRUCTIONS: [(&str, usize, &str); 7] = [
    ("push", 0, "bench_function"),
    ("nop", 3, "bench_nop1"),
    ("5-byte nop", 1, "bench_nop"),
    ("mov", 4, "bench_mov"),
    ("sub rsp", 5, "bench_sub"),
    ("ret", 6, "bench_ret"),
    ("endbr64", 7, "bench_endbr"),
];
/// The function that executes an `int3`.
const FLOOR: usize = 8;

/// How an instruction is probed.
#[derive(Clone, Copy)]
enum How {
    Form(&'static str),
    Kernel,
}
const WAYS: [(&str, How); 4] = [
    ("trap, emulated", How::Form("trap=emulate")),
    ("trap, boosted", How::Form("trap=boost")),
    ("trap, stepped", How::Form("trap=step")),
    ("kernel uprobe", How::Kernel),
];

/// One row for each instruction and way, after the floor's.
pub fn measure(rounds: usize) -> Vec<Row> {
    let mut rows = vec![row("a trap's floor: int3, handler, return", floor(rounds))];
    for (instruction, number, function) in INSTRUCTIONS {
        let mut figures: Vec<Result<Vec<f64>>> = WAYS.iter().map(|_| Ok(Vec::new())).collect();
        for _ in 0..rounds {
            for ((name, how), figures) in WAYS.iter().zip(&mut figures) {
                let Ok(taken) = figures else { continue };
                eprintln!("{name} on {instruction}");
                match once(*how, number, function) {
                    Ok(figure) => taken.push(figure),
                    Err(error) => *figures = Err(error),
                }
            }
        }
        for ((name, _), figures) in WAYS.iter().zip(figures) {
            rows.push(row(&format!("{name}: {instruction}"), figures));
        }
    }
    rows
}

fn row(name: &str, figures: Result<Vec<f64>>) -> Row {
    match figures.and_then(|figures| Measured::of(&figures).context("nothing was measured")) {
        Ok(measured) => Row::new(name, "ns/call", measured),
        Err(error) => Row::not_measurable(name, &format!("{error:#}")),
    }
}

/// What a call with an `int3` costs; the call itself is a two thousandth of it.
fn floor(rounds: usize) -> Result<Vec<f64>> {
    let running = Looping::start(1, FLOOR)?;
    (0..rounds).map(|_| running.median_from_now()).collect()
}

/// The overhead in ns a call.
fn once(how: How, number: usize, function: &str) -> Result<f64> {
    let running = Looping::start(1, number)?;
    let before = running.median_from_now()?;
    let with = match how {
        How::Form(form) => {
            let clause = format!("pid$target:a.out:{function}:entry {{ @ = count(); }}");
            let tracer = Tracer::attach(running.pid(), &clause, &["-x", "tactic=trap", "-x", form])?;
            let with = running.median_from_now()?;
            ensure!(tracer.detach()?.lost() == 0, "hits were lost");
            with
        }
        How::Kernel => {
            let program = programs::compile("loop")?;
            let offset = programs::file_offset(&program, function)?;
            let probe = kernel::attach(Kind::Counted, running.pid(), &program, offset)?;
            let with = running.median_from_now()?;
            ensure!(probe.hits()? > 0, "the kernel's probe did not fire");
            with
        }
    };
    Ok(with - before)
}
