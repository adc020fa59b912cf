//! A program that is run once, and who watches it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::experiments::compare::text_of;
use crate::kernel::Everywhere;
use crate::looping::on_all_processors;
use crate::statistics::median;
use crate::{programs, tracer};

/// Who counts the calls in all processes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    Nobody,
    Nanoprobe,
    /// The kernel's uprobe, counted, in all processes.
    Kernel,
}

impl Watcher {
    pub fn name(self) -> &'static str {
        match self {
            Watcher::Nobody => "untraced",
            Watcher::Nanoprobe => "nanoprobe",
            Watcher::Kernel => "kernel uprobe",
        }
    }
}

/// The function that is counted.
pub struct Probed {
    file: PathBuf,
    offset: u64,
    clause: String,
}

impl Probed {
    /// A function of a file, which nanoprobe knows by `module`.
    pub fn new(file: &Path, function: &str, module: &str) -> Result<Probed> {
        Ok(Probed {
            file: file.to_owned(),
            offset: programs::file_offset(file, function)?,
            clause: format!("pid$target:{module}:{function}:entry {{ @[pid] = count(); }}"),
        })
    }
}

/// A run of the program.
pub struct Ran {
    pub seconds: f64,
    /// The calls that the watcher has counted.
    pub count: u64,
    /// The same by process, if the watcher tells them apart.
    by_process: Option<BTreeMap<u32, u64>>,
    stdout: String,
}

impl Ran {
    /// The median of a column of the program's figures.
    pub fn median(&self, column: usize) -> Result<f64> {
        let lines = self.stdout.lines().filter(|line| !line.starts_with("by "));
        let figures = lines.map(|line| line.split(' ').nth(column + 1)?.parse().ok());
        let figures: Option<Vec<f64>> = figures.collect();
        figures
            .and_then(|figures| median(&figures))
            .with_context(|| format!("cannot read {:?}", self.stdout))
    }

    /// Whether the watcher has counted what the program itself says by process, if it says anything.
    pub fn check(&self) -> Result<()> {
        let said: BTreeMap<u32, u64> = self.stdout.lines().filter_map(by_line).collect();
        if said.is_empty() {
            return Ok(());
        }
        let calls: u64 = said.values().sum();
        ensure!(self.count == calls, "{} of {calls} calls were counted", self.count);
        if let Some(counted) = &self.by_process {
            ensure!(*counted == said, "by process {counted:?} was counted, and is {said:?}");
        }
        Ok(())
    }
}

/// `by PID CALLS`.
fn by_line(line: &str) -> Option<(u32, u64)> {
    pair(line.strip_prefix("by ")?)
}

fn pair(line: &str) -> Option<(u32, u64)> {
    let mut words = line.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Runs the words of a command.
pub fn run(watcher: Watcher, probed: &Probed, words: &[&Path]) -> Result<Ran> {
    match watcher {
        Watcher::Nobody => plain(words),
        Watcher::Kernel => {
            let events = Everywhere::attach(&probed.file, probed.offset)?;
            let ran = plain(words)?;
            Ok(Ran {
                count: events.hits()?,
                ..ran
            })
        }
        Watcher::Nanoprobe => nanoprobe(probed, words),
    }
}

fn plain(words: &[&Path]) -> Result<Ran> {
    let (program, arguments) = words.split_first().context("no program")?;
    let mut command = Command::new(program);
    timed(command.args(arguments))
}

fn nanoprobe(probed: &Probed, words: &[&Path]) -> Result<Ran> {
    let results = tempfile::NamedTempFile::new()?;
    let words: Vec<&str> = words.iter().map(|word| text_of(word)).collect::<Result<_>>()?;
    let mut command = Command::new(tracer::path()?);
    command.args(["-q", "-x", "follow=all", "-n", &probed.clause, "-o"]);
    command.arg(results.path()).args(["-c", &words.join(" ")]);
    let ran = timed(&mut command)?;
    let counted = std::fs::read_to_string(results.path()).context("reading the counts")?;
    let by_process: BTreeMap<u32, u64> = counted.lines().filter_map(pair).collect();
    Ok(Ran {
        count: by_process.values().sum(),
        by_process: Some(by_process),
        ..ran
    })
}

fn timed(command: &mut Command) -> Result<Ran> {
    let start = Instant::now();
    let output = on_all_processors(command)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running {command:?}"))?;
    let seconds = start.elapsed().as_secs_f64();
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", output.status, stderr.trim());
    let lost = stderr
        .lines()
        .find(|line| line.contains("drop") || line.contains("missed"));
    ensure!(lost.is_none(), "{}", lost.unwrap_or_default());
    Ok(Ran {
        seconds,
        count: 0,
        by_process: None,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(stdout: &str, count: u64, by_process: &[(u32, u64)]) -> Ran {
        Ran {
            seconds: 1.0,
            count,
            by_process: Some(by_process.iter().copied().collect()),
            stdout: stdout.to_owned(),
        }
    }

    #[test]
    fn figures_are_read_by_column() {
        let ran = ran("by 1 7\nns 10 30\nns 20 50\nns 90 40\n", 7, &[(1, 7)]);
        assert_eq!(ran.median(0).expect("figures"), 20.0);
        assert_eq!(ran.median(1).expect("figures"), 40.0);
        assert!(ran.median(2).is_err());
    }

    #[test]
    fn a_call_that_is_missing_or_in_another_process_is_an_error() {
        let stdout = "by 1 7\nby 2 3\n";
        assert!(ran(stdout, 10, &[(1, 7), (2, 3)]).check().is_ok());
        assert!(ran(stdout, 9, &[(1, 7), (2, 2)]).check().is_err());
        assert!(ran(stdout, 10, &[(1, 6), (2, 4)]).check().is_err());
        assert!(ran("ns 1 2\n", 10, &[]).check().is_ok());
    }

    #[test]
    fn the_kernel_counts_all_processes() {
        // SAFETY: a plain query.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let program = programs::compile("trees").expect("the program");
        let probed = Probed::new(&program, "bench_allocate", "a.out").expect("the function");
        match run(Watcher::Kernel, &probed, &[&program, Path::new("count")]) {
            Ok(ran) => assert_eq!(ran.count, 3001),
            // A kernel without uprobes.
            Err(error) => assert!(
                error.to_string().contains("uprobe") || error.to_string().contains("perf"),
                "{error}"
            ),
        }
    }
}
