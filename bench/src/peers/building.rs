//! Tools that need a program of their own: uftrace, which patches functions built for it and must start them;
//! LTTng-UST, whose tracepoints are compiled in.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{LTTNG, absent, find, need};
use crate::experiments::compare::text_of;
use crate::looping::Looping;
use crate::programs;
use crate::report::Row;
use crate::statistics::{median, paired};

/// The rows of both tools.
pub fn measure(rounds: usize, say: &dyn Fn(&str)) -> Vec<Row> {
    let mut rows = Vec::new();
    const UFTRACE: &str = "entry and return, recorded: uftrace";
    if find("uftrace").is_some() {
        say(UFTRACE);
        let samples = (0..rounds).map(|_| uftrace()).collect();
        rows.push(Row::of(UFTRACE, "ns/call", samples).note("a function built with -fpatchable-function-entry"));
    } else {
        rows.push(absent("uftrace", "apt-get install uftrace"));
    }
    say(LTTNG);
    let row = Row::of(LTTNG, "ns/call", lttng(rounds));
    rows.push(row.note("over the same program with tracing stopped"));
    rows
}

/// Paired like the others (without, with, without); each measurement is a run of the program.
fn uftrace() -> Result<f64> {
    let program = programs::compile("traced")?;
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let plain = || batches(&mut Command::new(&program));
    let before = plain()?;
    let mut command = Command::new("uftrace");
    command.args([
        "record",
        "-P",
        "bench_traced",
        "--no-libcall",
        "-d",
        text_of(&data)?,
        text_of(&program)?,
    ]);
    let with = batches(&mut command)?;
    let after = plain()?;
    let mut report = Command::new("uftrace");
    report.args(["report", "-d", text_of(&data)?]);
    let output = report.output().context("running uftrace report")?;
    ensure!(
        String::from_utf8_lossy(&output.stdout).contains("bench_traced"),
        "uftrace recorded nothing"
    );
    Ok(paired(before, with, after))
}

/// The median of the batches that a whole run prints.
fn batches(command: &mut Command) -> Result<f64> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let costs: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("batch 0 ")?.parse().ok())
        .collect();
    median(&costs).with_context(|| {
        format!(
            "{command:?} printed nothing: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

const SESSION: &str = "nanoprobe-bench";

/// LTTng's session daemon while this lives, with a session that overwrites its oldest records.
struct Lttng(Child);

impl Lttng {
    fn start(folder: &std::path::Path) -> Result<Lttng> {
        let child = Command::new("lttng-sessiond")
            .args(["--no-kernel"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting lttng-sessiond")?;
        let daemon = Lttng(child);
        std::thread::sleep(Duration::from_millis(700));
        daemon.tell(&["create", SESSION, "--snapshot", "-o", text_of(folder)?])?;
        daemon.tell(&[
            "enable-channel",
            "--userspace",
            "--session",
            SESSION,
            "--overwrite",
            "ring",
        ])?;
        let event = [
            "enable-event",
            "--userspace",
            "--session",
            SESSION,
            "--channel",
            "ring",
            "nanoprobe_bench:*",
        ];
        daemon.tell(&event)?;
        Ok(daemon)
    }

    fn tell(&self, words: &[&str]) -> Result<()> {
        let output = Command::new("lttng")
            .arg("--no-sessiond")
            .args(words)
            .output()
            .context("running lttng")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        ensure!(
            output.status.success(),
            "lttng {}: {}",
            words.join(" "),
            super::outside::last_line(&text)
        );
        Ok(())
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        let _ = self.tell(&["destroy", SESSION]);
        // SAFETY: a signal to a child of ours that has not been waited for.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
        let _ = self.0.wait();
    }
}

fn lttng(rounds: usize) -> Result<Vec<f64>> {
    need("lttng-sessiond", "apt-get install lttng-tools")?;
    need("cc", "apt-get install gcc")?;
    let folder = programs::folder()?;
    let program = folder.join("lttng");
    std::fs::write(folder.join("lttng.c"), include_str!("../../programs/lttng.c"))?;
    std::fs::write(folder.join("batches.h"), include_str!("../../programs/batches.h"))?;
    std::fs::write(
        folder.join("lttng_provider.h"),
        include_str!("../../programs/lttng_provider.h"),
    )?;
    let mut compile = Command::new("cc");
    compile
        .args(["-O2", "-g", "-I.", "-o", "lttng", "lttng.c", "-llttng-ust", "-ldl"])
        .current_dir(&folder);
    let output = compile.output().context("running cc")?;
    ensure!(
        output.status.success(),
        "a program with a tracepoint does not compile; `apt-get install liblttng-ust-dev` installs what it needs"
    );
    let daemon = Lttng::start(&folder.join("lttng-trace"))?;
    let mut command = Command::new(&program);
    command.env("LTTNG_UST_REGISTER_TIMEOUT", "5000");
    let running = Looping::spawn(command, 1)?;
    let once = || -> Result<f64> {
        let before = running.median_from_now()?;
        daemon.tell(&["start", SESSION])?;
        let with = running.median_from_now()?;
        daemon.tell(&["stop", SESSION])?;
        let after = running.median_from_now()?;
        ensure!(with > after, "the tracepoint was not enabled");
        Ok(paired(before, with, after))
    };
    (0..rounds).map(|_| once()).collect()
}
