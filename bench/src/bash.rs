//! All functions of bash: how long attaching and detaching take and stop it, and what a hit costs a shell loop.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::report::Row;
use crate::shell::{BODY, Shell};
use crate::statistics::{Measured, median};
use crate::tracer::{self, Tracer};

pub const ALL: &str = "pid$target:bash::entry { @ = count(); }";

/// The iterations of the loop between two times.
const ITERATIONS: u32 = 5000;

/// The rows about bash.
pub fn measure(rounds: usize) -> Result<Vec<Row>> {
    let shell = Shell::start(Path::new("bash"), ITERATIONS)?;
    let (mut attach, mut attach_stopped, mut detach, mut detach_stopped) = (vec![], vec![], vec![], vec![]);
    let mut matched = String::new();
    for _ in 0..rounds {
        let tracer = Tracer::attach(shell.pid(), ALL, &[])?;
        std::thread::sleep(Duration::from_millis(50));
        let ended = tracer.detach()?;
        let (all, stopped) = ended.times("attach")?;
        attach.push(all);
        attach_stopped.push(stopped);
        let (all, stopped) = ended.times("detach")?;
        detach.push(all);
        detach_stopped.push(stopped);
        matched = ended
            .stderr
            .lines()
            .find(|line| line.starts_with("nanoprobe: description"))
            .unwrap_or_default()
            .to_owned();
    }
    let row = |name: &str, values: &[f64], reach: f64| -> Result<Row> {
        Ok(Row::new(name, "ms", Measured::of(values).context("nothing was measured")?).reach(reach))
    };
    let mut rows = vec![
        row("all of bash: attach", &attach, 150.0)?.note(matched.trim_start_matches("nanoprobe: ")),
        row("all of bash: stopped by attach", &attach_stopped, 5.0)?,
        row("all of bash: detach", &detach, 50.0)?,
        row("all of bash: stopped by detach", &detach_stopped, 5.0)?,
    ];
    rows.push(per_hit(&shell, rounds)?);
    Ok(rows)
}

/// The shell loop with all functions of bash probed: the additional time, divided by the hits.
fn per_hit(shell: &Shell, rounds: usize) -> Result<Row> {
    // The number of hits per iteration comes from the difference of two lengths, so start and end do not count.
    let hits = |iterations: u64| -> Result<u64> {
        let results = tempfile::NamedTempFile::new()?;
        let script = tempfile::NamedTempFile::new()?;
        writeln!(script.as_file(), "for ((i = 0; i < {iterations}; i++)); do {BODY} done")?;
        let mut command = Command::new(tracer::path()?);
        command.args(["-q", "-n", ALL, "-o"]).arg(results.path());
        command.args(["-c", &format!("bash --norc {}", script.path().display())]);
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        tracer::Ended {
            stdout: std::fs::read_to_string(results.path())?,
            stderr: String::new(),
        }
        .value()
    };
    let per_iteration = (hits(3000)? - hits(1000)?) as f64 / 2000.0;
    let mut costs = Vec::new();
    let mut plain = Vec::new();
    for _ in 0..rounds {
        let before = shell.median_from_now()?;
        let tracer = Tracer::attach(shell.pid(), ALL, &[])?;
        let with = shell.median_from_now()?;
        tracer.detach()?;
        let after = shell.median_from_now()?;
        let without = (before + after) / 2.0;
        plain.push(without / f64::from(ITERATIONS) * 1000.0);
        costs.push((with - without) * 1000.0 / f64::from(ITERATIONS) / per_iteration);
    }
    let iteration = median(&plain).context("nothing was measured")?;
    let note = format!("{per_iteration:.0} hits in an iteration of {iteration:.0} ns");
    let measured = Measured::of(&costs).context("nothing was measured")?;
    Ok(
        Row::new("a shell loop, all of bash probed, per hit", "ns/hit", measured)
            .reach(10.0)
            .note(note),
    )
}
