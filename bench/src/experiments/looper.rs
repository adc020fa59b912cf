//! Seed 002: the whole command on the seed's own program, and what a rate of events costs.

use std::process::{Command, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::compare::{Method, Subject, compare};
use crate::kernel::Kind;
use crate::report::{Row, Section};
use crate::statistics::median;
use crate::{interrupt, programs, tracer};

const MILLIONS: u64 = 100;
const CALLS: u64 = MILLIONS * 1_000_000;

/// Name, D program, and how many times each call is counted.
const PROGRAMS: [(&str, &str, u64); 4] = [
    (
        "start-up: a probe that is never hit",
        "pid$target:libc:qsort:entry { @ = count(); }",
        0,
    ),
    ("count()", "pid$target:a.out:func:entry { @ = count(); }", 1),
    (
        "@[copyinstr(arg0)] = count()",
        "pid$target:a.out:func:entry { @[copyinstr(arg0)] = count(); }",
        1,
    ),
    (
        "entry and return, both counted",
        "pid$target:a.out:func:entry { @ = count(); } pid$target:a.out:func:return { @ = count(); }",
        2,
    ),
];

pub fn measure(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    section.beside = "seed 002, 100 million calls, Xeon E5530: plain 1.5 s, start-up 1.2 s; count() 62.5 s, 598 ns a probe; \
                      copyinstr 153 s, 1500 ns\nits rule: below 1000 events a second do not worry, above 10,000 noticeable, \
                      above 100,000 painful"
        .to_owned();
    section.rows = whole_runs(rounds.max(crate::SAMPLES), say)?;
    section.rows.extend(rates(rounds, say)?);
    Ok(())
}

fn whole_runs(rounds: usize, say: &dyn Fn(&str)) -> Result<Vec<Row>> {
    let mut plain: Result<Vec<Took>> = Ok(Vec::new());
    let mut seconds: Vec<Result<Vec<Took>>> = PROGRAMS.iter().map(|_| Ok(Vec::new())).collect();
    for round in 0..rounds {
        say(&format!("round {} of {rounds}: plain", round + 1));
        push(&mut plain, unprobed);
        for ((name, program, times), seconds) in PROGRAMS.iter().zip(&mut seconds) {
            interrupt::check()?;
            say(&format!("round {} of {rounds}: {name}", round + 1));
            push(seconds, || probed(program, *times));
        }
    }
    // The cost of a probe as the seed computes it: compared with the run of the same round in which nothing was hit.
    let start_up = seconds
        .first()
        .and_then(|runs| runs.as_ref().ok())
        .cloned()
        .unwrap_or_default();
    let costs: Vec<Row> = PROGRAMS
        .iter()
        .zip(&seconds)
        .skip(1)
        .map(|((name, _, times), runs)| {
            let name = format!("cost of a probe: {name}");
            let hits = (CALLS * times) as f64;
            match runs {
                Ok(runs) => {
                    let costs = runs
                        .iter()
                        .zip(&start_up)
                        .map(|(run, start)| (run.processor - start.processor) * 1e9 / hits);
                    Row::of(&name, "ns/hit", Ok(costs.collect()))
                }
                Err(error) => Row::not_measurable(&name, &format!("{error:#}")),
            }
        })
        .collect();
    let elapsed = |runs: Result<Vec<Took>>| runs.map(|runs| runs.iter().map(|run| run.elapsed).collect());
    let mut rows = vec![Row::of("plain, 100 million calls", "s", elapsed(plain))];
    rows.extend(
        PROGRAMS
            .iter()
            .zip(seconds)
            .map(|((name, ..), runs)| Row::of(name, "s", elapsed(runs))),
    );
    rows.extend(costs);
    Ok(rows)
}

/// A run of a whole command, in seconds.
#[derive(Clone, Copy, Debug)]
struct Took {
    /// The time by the clock on the wall.
    elapsed: f64,
    /// The processor time of the program and the tracer: other processes' work does not count.
    processor: f64,
}

/// Runs a command and waits for it.
fn timed(command: &mut Command) -> Result<(Output, Took)> {
    let (before, start) = (children_seconds(), Instant::now());
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running {command:?}"))?;
    let took = Took {
        elapsed: start.elapsed().as_secs_f64(),
        processor: children_seconds() - before,
    };
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok((output, took))
}

/// The processor time of all processes that we have started and waited for, and of their children.
fn children_seconds() -> f64 {
    // SAFETY: the structure is plain numbers, and the call writes only it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// A failed command is not tried again.
fn push(taken: &mut Result<Vec<Took>>, measure: impl FnOnce() -> Result<Took>) {
    if let Ok(values) = taken {
        match measure() {
            Ok(value) => values.push(value),
            Err(error) => *taken = Err(error),
        }
    }
}

fn unprobed() -> Result<Took> {
    let program = programs::compile("looper")?;
    Ok(timed(Command::new(program).arg(MILLIONS.to_string()))?.1)
}

/// Runs the whole command, whose count must be exact.
fn probed(program: &str, times: u64) -> Result<Took> {
    let looper = programs::compile("looper")?;
    let mut command = Command::new(tracer::path()?);
    command.args(["-q", "-n", program, "-c", &format!("{} {MILLIONS}", looper.display())]);
    let (output, took) = timed(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.split_whitespace().next_back().map_or(Ok(0), str::parse::<u64>);
    let counted = last.with_context(|| format!("cannot read {text:?}"))?;
    ensure!(counted == CALLS * times, "{counted} of {} counted", CALLS * times);
    Ok(took)
}

/// The slow-down by events in a second. The program does work of a fixed length that ends with a call, and measures the
/// time of each piece. The additional time is given as a part of the time from one call to the next.
fn rates(rounds: usize, say: &dyn Fn(&str)) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, rate) in [("1k", 1e3), ("10k", 1e4), ("100k", 1e5), ("1M", 1e6), ("10M", 1e7)] {
        let period = 1e9 / rate;
        let mut subject = Subject::new("seeds", period as usize, "bench_paced")?;
        let methods = [
            Method::nanoprobe(&format!("slow-down at {name} hits/s: jump"), super::COUNT, &[]),
            Method::nanoprobe(
                &format!("slow-down at {name} hits/s: trap"),
                super::COUNT,
                super::EMULATE,
            ),
            Method::kernel(&format!("slow-down at {name} hits/s: kernel uprobe"), Kind::Counted),
        ];
        let results = compare(&mut subject, &methods, rounds, say)?;
        rows.extend(methods.iter().zip(results).map(|(method, result)| {
            let part = |ns: f64| 100.0 * ns / period;
            let overheads: Result<Vec<f64>> = result.map(|all| all.iter().map(|once| once.overhead).collect());
            let hit = overheads.as_ref().ok().and_then(|overheads| median(overheads));
            let slowed = overheads.map(|overheads| overheads.into_iter().map(part).collect());
            let row = Row::of(&method.name, "%", slowed);
            match hit {
                Some(ns) => row.note(format!("{ns:.1} ns a hit")),
                None => row,
            }
        }));
    }
    Ok(rows)
}
