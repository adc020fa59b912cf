//! The measurements that a process makes on itself, with libnanoprobe's probes: plain and jumper
//! probes with handlers in C.
//!
//! The measured process is this program, started again (`nanoprobe-bench --own NAME`), so
//! that nothing need be compiled where the comparison runs. It prints one line a sample,
//! which the parent reads:
//!
//! ```text
//! sample <tab> ROW <tab> FIGURE        ns a call over the calls just before and after, or what the experiment says
//! failed <tab> ROW <tab> REASON
//! fact   <tab> ROW <tab> COLUMN <tab> TEXT
//! ```

mod calls;
mod functions;
mod library;
mod methods;
mod scaling;

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::report::Row;
use crate::statistics::Measured;

/// Runs one of the experiments in this process, and prints its results.
///
/// # Errors
/// An unknown name, or the output's reader has ended.
pub fn child(name: &str, rounds: usize, out: &mut dyn Write) -> Result<()> {
    match name {
        "gtod" => methods::run(&methods::gtod(), rounds, out),
        "record" => methods::run(&methods::record(), rounds, out),
        "booster" => methods::run(&methods::booster(), rounds, out),
        "spin" => methods::run(&methods::spin(), rounds, out),
        "scaling" => scaling::run(rounds, out),
        "library" => library::run(rounds, out),
        "functions" => functions::run(out),
        _ => bail!("no such experiment: {name}"),
    }
}

/// The rows of the experiment `library` that have a goal.
pub const EMPTY: &str = "empty pre-handler";
/// The same without the flag: the proof shows that nothing needs to be saved.
pub const EMPTY_PROVEN: &str = "empty pre-handler, SIMD safe by proof";
/// A handler that uses a vector register: the live ones are saved.
pub const EMPTY_SIMD: &str = "pre-handler that uses SIMD, saved";
/// A return probe.
pub const EXITS: &str = "return probe by the exits";
/// A return probe that replaces the return address.
pub const ADDRESS: &str = "return probe by the return address";

/// One thread, and one on every processor (two if there is only one).
pub fn one_and_all() -> [usize; 2] {
    [1, crate::processors().max(2)]
}

/// The name of a row on this many threads.
pub fn on_threads(name: &str, threads: usize) -> String {
    match threads {
        1 => format!("{name}: 1 thread"),
        _ => format!("{name}: {threads} threads, each"),
    }
}

/// An error as one cell of a line.
fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").replace(['\n', '\t'], " ")
}

/// The rows that a child has printed.
#[derive(Clone, Debug, Default)]
struct Printed {
    name: String,
    samples: Vec<f64>,
    failed: Option<String>,
}

/// Rows of an experiment, in the order in which the child first named them.
pub fn measure(name: &str, rounds: usize, unit: &'static str) -> Result<Vec<Row>> {
    let text = run(name, rounds.max(crate::SAMPLES))?;
    let printed = parse(&text)?;
    ensure!(!printed.is_empty(), "the measured process printed nothing");
    let row = |printed: Printed| match (printed.failed, Measured::of(&printed.samples)) {
        (None, Some(measured)) => Row::new(&printed.name, unit, measured),
        (Some(reason), _) => Row::not_measurable(&printed.name, &reason),
        (None, None) => Row::not_measurable(&printed.name, "no sample"),
    };
    Ok(printed.into_iter().map(row).collect())
}

/// The facts of an experiment: row, column, text.
pub fn facts(name: &str) -> Result<Vec<(String, String, String)>> {
    let text = run(name, 1)?;
    let fact = |line: &str| -> Option<(String, String, String)> {
        let mut words = line.strip_prefix("fact\t")?.split('\t').map(str::to_owned);
        Some((words.next()?, words.next()?, words.next()?))
    };
    Ok(text.lines().filter_map(fact).collect())
}

fn run(name: &str, rounds: usize) -> Result<String> {
    let program = std::env::current_exe().context("the path of this program")?;
    let output = Command::new(program)
        .args(["--own", name, "--rounds", &rounds.to_string()])
        .stdin(Stdio::null())
        .output()
        .context("starting the measured process")?;
    ensure!(
        output.status.success(),
        "the measured process ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn parse(text: &str) -> Result<Vec<Printed>> {
    let mut rows: Vec<Printed> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let [kind, name, value] = words[..] else {
            bail!("cannot read {line:?}")
        };
        let index = rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            rows.push(Printed {
                name: name.to_owned(),
                ..Printed::default()
            });
            rows.len() - 1
        });
        let row = &mut rows[index];
        match kind {
            "sample" => row
                .samples
                .push(value.parse().with_context(|| format!("cannot read {line:?}"))?),
            "failed" => row.failed = Some(value.to_owned()),
            _ => bail!("cannot read {line:?}"),
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_gathered_by_row_and_a_failure_wins() {
        let rows = parse("sample\ta\t1.5\nsample\tb\t2\nsample\ta\t2.5\nfailed\tb\tno room\n").expect("lines");
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].name.as_str(), &rows[0].samples[..]), ("a", &[1.5, 2.5][..]));
        assert_eq!(rows[1].failed.as_deref(), Some("no room"));
        assert!(parse("sample\ta\tx\n").is_err());
        assert!(parse("hello\n").is_err());
    }
}
