//! All functions of bash: how long attaching and detaching take and stop it, and what a hit costs a shell loop.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::report::Row;
use crate::statistics::{Measured, median};
use crate::tracer::{self, Tracer};

const ALL: &str = "pid$target:bash::entry { @ = count(); }";

/// A loop in the shell's own language that says after each batch how many microseconds it took.
const LOOP: &str = "while :; do s=$EPOCHREALTIME; for ((i = 0; i < 5000; i++)); do x=$((x + i)); y=${x#1}; done; \
                    e=$EPOCHREALTIME; echo batch $(( ${e/./} - ${s/./} )); x=0; done";
const LOOP_ITERATIONS: f64 = 5000.0;

/// The rows about bash.
pub fn measure(rounds: usize) -> Result<Vec<Row>> {
    let shell = Shell::start()?;
    let (mut attach, mut attach_stopped, mut detach, mut detach_stopped) = (vec![], vec![], vec![], vec![]);
    let mut matched = String::new();
    for _ in 0..rounds {
        let tracer = Tracer::attach(shell.child.id(), ALL, &[])?;
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

/// The shell loop with all of bash probed: the time it takes longer, over the hits it makes.
fn per_hit(shell: &Shell, rounds: usize) -> Result<Row> {
    // Hits per iteration exactly: the difference of two lengths, so that start and end do not count.
    let hits = |iterations: u64| -> Result<u64> {
        let results = tempfile::NamedTempFile::new()?;
        let script = tempfile::NamedTempFile::new()?;
        writeln!(
            script.as_file(),
            "for ((i = 0; i < {iterations}; i++)); do x=$((x + i)); y=${{x#1}}; done"
        )?;
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
        let tracer = Tracer::attach(shell.child.id(), ALL, &[])?;
        let with = shell.median_from_now()?;
        tracer.detach()?;
        let after = shell.median_from_now()?;
        let without = (before + after) / 2.0;
        plain.push(without / LOOP_ITERATIONS * 1000.0);
        costs.push((with - without) * 1000.0 / LOOP_ITERATIONS / per_iteration);
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

struct Shell {
    child: Child,
    batches: Receiver<f64>,
}

impl Shell {
    fn start() -> Result<Shell> {
        // SAFETY: a plain query.
        let last = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) - 1;
        let mut child = Command::new("taskset")
            .args(["-c", &last.to_string(), "bash", "--norc", "-c", LOOP])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting bash")?;
        let stdout = child.stdout.take().context("its output")?;
        let (sender, batches) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Some(time) = line.strip_prefix("batch ").and_then(|time| time.parse().ok()) else {
                    continue;
                };
                if sender.send(time).is_err() {
                    break;
                }
            }
        });
        let shell = Shell { child, batches };
        shell.median_from_now()?;
        Ok(shell)
    }

    /// Microseconds a batch, from now on.
    fn median_from_now(&self) -> Result<f64> {
        while self.batches.try_recv().is_ok() {}
        let mut taken = Vec::new();
        for index in 0..11 {
            let time = self
                .batches
                .recv_timeout(Duration::from_secs(60))
                .context("bash stopped")?;
            if index > 0 {
                taken.push(time);
            }
        }
        median(&taken).context("no batch")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
