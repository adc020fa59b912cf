//! The measured comparison: the cost of a probe, in one run, compared with a hand-made floor, the
//! kernel's uprobes, and other installed tools. `nanoprobe bench` runs it.
//!
//! Method. A measured program ([`looping`]) calls a small function for ever, pinned to a processor. Every few
//! milliseconds it prints the cost of a call, in time of its thread on the processor. Tracers attach to it while it
//! runs, so no start-up is in any figure. A round goes through all configurations in turn. Each takes batches without
//! the probe, with it, and again without, three samples each. An overhead is one sample with the probe, minus the mean
//! of the two samples without it ([`statistics::paired`]: so a machine that changes its speed between configurations
//! does not change the figure). The reported figure is the median over all samples, with the median absolute deviation.
//! Doubtful figures are measured again, and a figure that spreads too widely is marked
//! ([`statistics::Measured::doubt`]). Figures in ns are this machine's; quote the ratios to the kernel's uprobe in the
//! same run.
//!
//! A measurement that is not possible is a row with the reason.
//!
//! | file | |
//! |---|---|
//! | `floor`, `looping`, `instructions`, `tactics`, `traps`, `bash`, `memory` | the groups: what a call costs, by way |
//! | `experiments` | the seeds' experiments, by name |
//! | `own` | measurements of a process on itself, by libnanoprobe |
//! | `interrupt` | a request to end |
//! | `peers` | other tools |
//! | `shell` | bash as a program with many functions, and the number of its patched functions |
//! | `programs`, `tracer`, `kernel` | the measured programs; nanoprobe and the kernel's probes on them |
//! | `statistics`, `machine`, `report` | figures; the machine on which they were taken |
//! | `text`, `page`, `data` | the report for a terminal, as a page, as JSON and CSV |

mod bash;
pub mod data;
mod experiments;
mod floor;
mod instructions;
pub mod interrupt;
mod kernel;
mod looping;
pub mod machine;
mod memory;
mod own;
pub mod page;
mod peers;
mod programs;
pub mod report;
mod shell;
pub mod statistics;
mod tactics;
pub mod text;
mod tracer;
mod traps;

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};

use crate::machine::Machine;
use crate::report::{Report, Row, Section};

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each configuration is attached and measured. Doubtful ones are measured a few times more.
    pub rounds: usize,
    /// Only the experiments whose names contain this.
    pub only: Option<String>,
    /// Whether to run the experiments that take minutes, with or without `only`.
    pub full: bool,
    /// The `nanoprobe` that is measured.
    pub nanoprobe: PathBuf,
}

/// The least number of samples for quick measurements, and for whole runs.
const SAMPLES: usize = 3;

/// The experiments by name, in the order in which they run, with a description.
pub const EXPERIMENTS: &[(&str, &str)] = &[
    (
        "call",
        "what a call of a small function costs more with a probe at its entry",
    ),
    (
        "gtod",
        "seed 000, Lists 4 to 7: gettimeofday in a loop, handlers that do nothing",
    ),
    (
        "record",
        "seed 000, Lists 11 to 14: the same, 64 bytes of an event recorded",
    ),
    (
        "functions",
        "seed 000, List 15: what each kind of probe can do, as tried",
    ),
    (
        "push",
        "seed 001: a function that begins with push, probed at entry and return",
    ),
    ("looper", "seed 002: 100 million calls; what a rate of events costs"),
    (
        "booster",
        "seed 003, Table 1: probes, jumper probes, return probes, with and without booster",
    ),
    ("scaling", "seed 003, Figure 4: hits a second on several threads"),
    ("tactics", "each tactic, by instruction"),
    ("traps", "the trap in its forms, by instruction"),
    ("threads", "a count on several threads"),
    (
        "library",
        "libnanoprobe beside Frida's C listener and the floor, on one thread and on all processors",
    ),
    (
        "cost",
        "what `nanoprobe cost` says that a hit takes, beside what it takes here",
    ),
    ("compile", "from D text to machine code: one-liners and scripts"),
    (
        "syscalls",
        "system calls counted, by name, and as lines; sleeps of a server: beside strace, perf and bpftrace",
    ),
    (
        "trees",
        "whole process trees: forks, programs that are executed, a script, postgres, 200 processes",
    ),
    ("peers", "other tools, on the same function"),
    ("bash", "all functions of bash"),
    (
        "bash-tools",
        "all functions of bash, by each tool: some minutes, so only with --full, or by its name",
    ),
    ("memory", "memory added to the target"),
];

/// The experiments that take minutes. Without a request they are left out.
const LONG: &[&str] = &["bash-tools"];

/// Runs the requested experiments; `say` gets the current step: the experiment, and the step in it.
///
/// # Errors
/// An experiment that does not exist, a nanoprobe that cannot be run, or a request to end. Nothing that was started or
/// written is left then. A failed measurement is no error, but a row.
pub fn run(options: &Options, say: &dyn Fn(&str, &str)) -> Result<Report> {
    let only = options.only.as_deref();
    let wanted: Vec<_> = EXPERIMENTS
        .iter()
        .filter(|(name, _)| is_wanted(name, only, options.full))
        .collect();
    let names: Vec<&str> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
    ensure!(
        !wanted.is_empty(),
        "no experiment {}: there are {}",
        only.unwrap_or_default(),
        names.join(", ")
    );
    tracer::set_path(&options.nanoprobe);
    let mut report = Report::new(&tracer::version(), Machine::here(), options.rounds);
    looping::leave_the_last_processor();
    for (name, title) in wanted {
        say(name, "");
        let mut section = Section {
            name: (*name).to_owned(),
            title: (*title).to_owned(),
            ..Section::default()
        };
        let step = |what: &str| say(name, what);
        let measured = measure(name, options.rounds, &step, &mut section, &mut report);
        if interrupt::asked() {
            programs::remove();
            bail!("interrupted");
        }
        if let Err(error) = measured {
            // If an experiment fails, the other experiments continue.
            section.rows.push(Row::not_measurable(name, &format!("{error:#}")));
        }
        report.sections.push(section);
    }
    programs::remove();
    Ok(report)
}

/// A long experiment must be named whole, or all be requested.
fn is_wanted(name: &str, only: Option<&str>, full: bool) -> bool {
    let may_run = full || !LONG.contains(&name) || only == Some(name);
    may_run && only.is_none_or(|only| name.contains(only))
}

fn measure(name: &str, rounds: usize, say: &dyn Fn(&str), section: &mut Section, report: &mut Report) -> Result<()> {
    match name {
        "call" => {
            say("the hand-made floor");
            match floor::measure(rounds.max(SAMPLES), 1) {
                Ok((row, plain)) => {
                    report.unprobed_ns = plain;
                    section.rows.push(row);
                }
                Err(error) => section
                    .rows
                    .push(Row::not_measurable(report::FLOOR, &format!("{error:#}"))),
            }
            section.rows.extend(looping::measure_all(rounds, say)?);
        }
        "tactics" => section.rows = tactics::measure(rounds.min(3), say)?,
        "traps" => section.rows = traps::measure(rounds.min(3), say)?,
        "threads" => section.rows = looping::measure_threads(rounds)?,
        "peers" => peers::measure(rounds, say, section)?,
        "bash" => section.rows = bash::measure(rounds.max(SAMPLES))?,
        "bash-tools" => section.rows = peers::functions::measure(rounds.max(SAMPLES), say)?,
        "memory" => section.rows = memory::measure()?,
        _ => experiments::measure(name, rounds, say, section)?,
    }
    Ok(())
}

/// Runs one experiment of those that a process makes on itself, in this process, for `--own`.
///
/// # Errors
/// An unknown name.
pub fn own(name: &str, rounds: usize) -> Result<()> {
    own::child(name, rounds, &mut std::io::stdout().lock())
}

/// How many processors there are.
pub fn processors() -> usize {
    // SAFETY: a plain query.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize
}

/// 1, 2, 4, ... and all.
fn thread_counts(processors: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (0..16)
        .map(|power| 1 << power)
        .take_while(|count| *count < processors)
        .collect();
    counts.push(processors);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_end_with_all() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
    }

    #[test]
    fn long_experiments_are_requested_by_name() {
        let wanted = |only, full| -> Vec<&str> {
            let names = EXPERIMENTS.iter().map(|(name, _)| *name);
            names.filter(|name| is_wanted(name, only, full)).collect()
        };
        assert_eq!(wanted(None, true).len(), EXPERIMENTS.len());
        assert_eq!(wanted(None, false).len(), EXPERIMENTS.len() - LONG.len());
        assert_eq!(wanted(Some("bash"), false), ["bash"]);
        assert_eq!(wanted(Some("bash"), true), ["bash", "bash-tools"]);
        assert_eq!(wanted(Some("bash-tools"), false), ["bash-tools"]);
    }

    #[test]
    fn an_experiment_that_does_not_exist_is_named_with_those_that_do() {
        let options = Options {
            rounds: 1,
            only: Some("nothing".into()),
            full: false,
            nanoprobe: PathBuf::from("/nowhere"),
        };
        let error = run(&options, &|_, _| {}).expect_err("no such experiment").to_string();
        assert!(error.contains("nothing") && error.contains("gtod"), "{error}");
    }
}
