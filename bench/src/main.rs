//! The measured comparison: what a probe costs, in one run, against a hand-made floor and the kernel's uprobes.
//!
//!     cargo run --release -p nanoprobe-bench [-- --rounds N] [--json FILE] [--quick] [--only WORD]
//!
//! Method. The measured program ([`looping`]) calls a small function for ever, pinned to a processor, and says every
//! few milliseconds what a call cost. Tracers attach to it while it runs, so that no start-up is in any figure. A round
//! goes through all configurations in turn; each takes batches without the probe, with it, and again without: its
//! overhead is the median with minus the median of both without (paired: a machine that changes its speed between
//! configurations does not change the figure). What is reported is the median over the rounds and the median absolute
//! deviation. Figures in ns are this machine's; the ratios to the kernel's uprobe in the same run are what to quote.
//!
//! What cannot be measured here is a row that says why.

mod bash;
mod floor;
mod instructions;
mod kernel;
mod looping;
mod memory;
mod programs;
mod report;
mod statistics;
mod tactics;
mod tracer;
mod traps;

use anyhow::{Context, Result, bail};

use crate::report::{Report, Row};

/// What the command line asks for.
struct Options {
    rounds: usize,
    json: Option<String>,
    only: Option<String>,
}

fn options() -> Result<Options> {
    let mut options = Options {
        rounds: 7,
        json: None,
        only: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--rounds" => options.rounds = value()?.parse().context("--rounds needs a number")?,
            "--json" => options.json = Some(value()?),
            "--only" => options.only = Some(value()?),
            "--quick" => options.rounds = 3,
            _ => bail!("unknown argument {argument}; there are --rounds N, --quick, --only WORD, --json FILE"),
        }
    }
    Ok(options)
}

fn main() -> Result<()> {
    let options = options()?;
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let mut report = Report::new(&tracer::version());
    looping::leave_the_last_processor();

    if wanted("call") {
        let (floor_row, plain) = floor::measure(options.rounds)?;
        report.unprobed_ns = plain;
        report.rows.push(floor_row);
        report.rows.extend(looping::measure_all(options.rounds)?);
    }
    if wanted("tactics") {
        report.rows.extend(tactics::measure(options.rounds.min(3)));
    }
    if wanted("traps") {
        report.rows.extend(traps::measure(options.rounds.min(3)));
    }
    if wanted("threads") {
        report.rows.extend(looping::measure_threads(options.rounds)?);
    }
    if wanted("bash") {
        report.rows.extend(or_row("bash", bash::measure(options.rounds)));
    }
    if wanted("memory") {
        report.rows.extend(or_row("memory", memory::measure()));
    }
    print!("{}", report.text());
    if let Some(path) = &options.json {
        std::fs::write(path, report.json()).with_context(|| format!("writing {path}"))?;
    }
    Ok(())
}

/// A group that could not be measured becomes one row that says why; the others go on.
fn or_row(name: &str, rows: Result<Vec<Row>>) -> Vec<Row> {
    rows.unwrap_or_else(|error| vec![Row::not_measurable(name, &format!("{error:#}"))])
}
