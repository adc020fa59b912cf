//! Every call of a program as a line of text in a file: `nanoprobe tool strace` beside strace, perf trace and bpftrace.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::peers::outside::{Ending, Outside};
use crate::peers::{absent, find};
use crate::report::Row;
use crate::tracer::Tracer;
use crate::{interrupt, programs};

/// A second of an untraced run.
const CALLS: u64 = 200_000;
/// The goal: at most this many times the time of an untraced run.
const REACH: f64 = 2.0;
/// The call of which the lines are counted: a sixth of all.
const COUNTED: (&str, u64) = ("getppid(", 6);

/// The ways to trace, by the name of the row.
#[derive(Clone, Copy)]
enum Way {
    None,
    Nanoprobe,
    Strace,
    PerfTrace,
    Bpftrace,
}

const WAYS: [(Way, &str, &str); 5] = [
    (Way::None, "untraced", ""),
    (Way::Nanoprobe, "nanoprobe", ""),
    (Way::Strace, "strace", "apt-get install strace"),
    (Way::PerfTrace, "perf", "apt-get install linux-perf"),
    (Way::Bpftrace, "bpftrace", "apt-get install bpftrace"),
];

/// One run: how long the program took, and what the tracer's file says of it.
struct Ran {
    nanoseconds: f64,
    lines: u64,
    lost: u64,
}

pub fn measure(rounds: usize, say: &dyn Fn(&str)) -> Result<Vec<Row>> {
    let name = |tool: &str| format!("lines in a file: {tool}");
    let mut taken: Vec<Result<Vec<Ran>>> = WAYS.iter().map(|_| Ok(Vec::new())).collect();
    for round in 0..rounds {
        for ((way, tool, _), taken) in WAYS.iter().zip(&mut taken) {
            interrupt::check()?;
            // A failed way is not tried again.
            let Ok(before) = taken else { continue };
            if matches!(way, Way::Strace | Way::PerfTrace | Way::Bpftrace) && find(tool).is_none() {
                continue;
            }
            say(&format!("round {}: {}", round + 1, name(tool)));
            match run(*way) {
                Ok(ran) => before.push(ran),
                Err(error) => *taken = Err(error),
            }
        }
    }
    let seconds = |ran: &Ran| ran.nanoseconds / 1e9;
    let mut rows = Vec::new();
    let mut untraced: Vec<f64> = Vec::new();
    for ((way, tool, install), taken) in WAYS.iter().zip(taken) {
        let row = match (way, taken) {
            (_, Err(error)) => Row::not_measurable(&name(tool), &format!("{error:#}")),
            (Way::None, Ok(runs)) => {
                untraced = runs.iter().map(seconds).collect();
                Row::of(&name(tool), "s", Ok(untraced.clone()))
            }
            (_, Ok(runs)) if runs.is_empty() => absent(&name(tool), install),
            (_, Ok(runs)) => {
                let times = runs.iter().zip(&untraced).map(|(ran, plain)| seconds(ran) / plain);
                let row = Row::of(&name(tool), "x untraced", Ok(times.collect()));
                let (lines, lost) = runs
                    .iter()
                    .fold((0, 0), |(lines, lost), ran| (lines + ran.lines, lost + ran.lost));
                let made = CALLS.div_ceil(COUNTED.1) * runs.len() as u64;
                let row = row.note(format!(
                    "{lines} of {made} lines of a call; {lost} records lost, as reported"
                ));
                if matches!(way, Way::Nanoprobe) {
                    row.reach(REACH)
                } else {
                    row
                }
            }
        };
        rows.push(row);
    }
    Ok(rows)
}

/// The program, which waits for a line before it makes its calls.
struct Waiting(Child);

impl Waiting {
    fn start() -> Result<Waiting> {
        let mut command = Command::new(programs::compile("calls")?);
        command.args(["run", &CALLS.to_string()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let started = Waiting(child.context("starting the measured program")?);
        // It measures the processor's speed first.
        std::thread::sleep(Duration::from_millis(300));
        Ok(started)
    }

    fn go(mut self) -> Result<f64> {
        let mut stdin = self.0.stdin.take().context("its input")?;
        stdin.write_all(b"go\n")?;
        let stdout = self.0.stdout.take().context("its output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let took = line.strip_prefix("ran ").and_then(|word| word.trim().parse().ok());
        let took = took.with_context(|| format!("the measured program said {line:?}"))?;
        ensure!(self.0.wait()?.success(), "the measured program failed");
        Ok(took)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(way: Way) -> Result<Ran> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("calls");
    let program = Waiting::start()?;
    let pid = program.0.id().to_string();
    let path = file.to_str().context("a path that is not UTF-8")?;
    let settle = Duration::from_millis(1500);
    let outside = |name: &str, arguments: &[&str], ready: &str| {
        let mut command = Command::new(name);
        command.args(arguments);
        Outside::start(command, ready, settle, Ending::Interrupt, |_| true)
    };
    let (nanoseconds, lost) = match way {
        Way::None => (program.go()?, 0),
        Way::Nanoprobe => {
            let arguments = ["tool", "strace", "-v", "-o", path, "-p", &pid];
            let tracer = Tracer::start(&arguments, "nanoprobe: attach ")?;
            let nanoseconds = program.go()?;
            (nanoseconds, tracer.wait()?.lost())
        }
        Way::Strace => {
            let tracer = outside("strace", &["-f", "-o", path, "-p", &pid], "attached")?;
            (program.go()?, lost_of(&tracer.wait()?))
        }
        Way::PerfTrace => {
            let tracer = outside("perf", &["trace", "-o", path, "-p", &pid], "")?;
            (program.go()?, lost_of(&tracer.wait()?) + lost_of(&text(&file)))
        }
        Way::Bpftrace => {
            let program_text = format!(
                "tracepoint:raw_syscalls:sys_enter /pid == {pid}/ {{ @number[tid] = args->id; @first[tid] = args->args[0]; }} \
                 tracepoint:raw_syscalls:sys_exit /pid == {pid}/ {{ printf(\"%s(%d) = %d\\n\", \
                 @number[tid] == 110 ? \"getppid\" : \"call\", @first[tid], args->ret); }}"
            );
            let tracer = outside("bpftrace", &["-o", path, "-e", &program_text], "")?;
            let nanoseconds = program.go()?;
            (nanoseconds, lost_of(&tracer.finish()?) + lost_of(&text(&file)))
        }
    };
    let lines = text(&file).lines().filter(|line| line.contains(COUNTED.0)).count() as u64;
    Ok(Ran {
        nanoseconds,
        lines,
        lost,
    })
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// `Lost 5 events`, `LOST 5 events!`.
fn lost_of(text: &str) -> u64 {
    let lines = text.lines().filter(|line| line.to_lowercase().contains("lost "));
    lines
        .filter_map(|line| line.split_whitespace().find_map(|word| word.parse::<u64>().ok()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::lost_of;

    #[test]
    fn what_tools_lose_is_read() {
        assert_eq!(lost_of("Lost 12 events\nLOST 30 events!\nnothing else\n"), 42);
        assert_eq!(lost_of("getppid() = 1\n"), 0);
    }
}
