//! All functions of bash at once, by each tool that can attach to a running program. Measured are the time until the
//! last function is patched, the slow-down of the shell's loop, the time until no function is patched any more, and the
//! additional memory of the process.
//!
//! All tools are observed in the same way, from outside: by the first bytes of the functions in the process's memory.
//! The tools' own reports are not needed. Each tool has its own shell, which runs a copy of bash that belongs to this
//! run: the kernel's probes are on files, and no other shell must be slowed. Each has some seconds. A tool that does
//! not attach, or does not end, in time is shown as such.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::attaching::{frida_command, has_frida};
use super::find;
use super::outside::{Ending, Outside};
use crate::kernel::Group;
use crate::memory::{self, Held};
use crate::report::Row;
use crate::shell::{Shell, Text, function_offsets};
use crate::{interrupt, programs, tracer};

/// How long a tool may take to attach, the loop to finish once, and the tool to end.
const LIMIT: Duration = Duration::from_secs(10);
/// A tool counts as attached when no further function was patched for this long.
const SETTLED: Duration = Duration::from_millis(700);
/// The iterations of the loop in a batch: few, since each takes long with some tools.
const ITERATIONS: u32 = 200;
/// The number of batches whose median is taken.
const BATCHES: usize = 15;

/// The attached tool, and the events that must be removed after it.
struct Attached {
    // The order matters: the tool ends before its events are removed.
    outside: Outside,
    _group: Option<Group>,
}

/// How a tool attaches to all functions of a shell.
type Attach = fn(&Shell, &Text, &Path) -> Result<Attached>;

/// The package of a missing tool.
type Lacks = fn() -> Option<&'static str>;

const TOOLS: [(&str, Lacks, Attach); 7] = [
    ("nanoprobe", || None, nanoprobe),
    ("kernel uprobe (tracefs)", || None, tracefs),
    ("bpftrace", || lacks("bpftrace", "apt-get install bpftrace"), bpftrace),
    ("perf stat", || lacks("perf", "apt-get install linux-perf"), perf),
    ("Frida, C", lacks_frida, |shell, _, _| frida(shell, "c")),
    ("Frida, JavaScript", lacks_frida, |shell, _, _| frida(shell, "js")),
    ("gdb", || lacks("gdb", "apt-get install gdb"), gdb),
];

/// The tools that cannot do this, with the reasons.
const CANNOT: [(&str, &str); 2] = [
    (
        "uftrace",
        "it cannot attach: it starts the program, which must be built for it",
    ),
    ("LTTng-UST", "it cannot attach: its tracepoints are compiled in"),
];

/// The rows of all tools.
pub fn measure(rounds: usize, say: &dyn Fn(&str)) -> Result<Vec<Row>> {
    let bash = programs::folder()?.join("bash");
    std::fs::copy(find("bash").context("bash is not installed")?, &bash).context("copying bash")?;
    let mut rows = Vec::new();
    for (name, lacks, attach) in TOOLS {
        if let Some(install) = lacks() {
            rows.push(super::absent(&format!("all of bash: {name}"), install));
            continue;
        }
        let mut taken = Taken::default();
        for round in 0..rounds {
            say(&format!("round {} of {rounds}: {name}", round + 1));
            taken.round(&bash, attach);
            interrupt::check()?;
            // A tool that has failed is not tried again.
            if taken.has_failed() {
                break;
            }
        }
        rows.extend(taken.rows(name));
    }
    for (name, why) in CANNOT {
        rows.push(Row::not_measurable(&format!("all of bash: {name}"), why));
    }
    Ok(rows)
}

/// The figures of one tool. A failed figure stays failed.
#[derive(Default)]
struct Taken {
    functions: (usize, usize),
    attach: Samples,
    loops: Samples,
    detach: Samples,
    held: Vec<Held>,
}

#[derive(Default)]
struct Samples {
    values: Vec<f64>,
    failure: Option<String>,
}

impl Samples {
    fn take(&mut self, value: Result<f64>) -> bool {
        match value {
            Ok(value) => self.values.push(value),
            Err(error) => self.failure = Some(format!("{error:#}")),
        }
        self.failure.is_none()
    }

    fn row(self, name: &str, unit: &'static str) -> Row {
        match self.failure {
            Some(reason) => Row::not_measurable(name, &reason),
            None => Row::of(name, unit, Ok(self.values)),
        }
    }
}

impl Taken {
    fn has_failed(&self) -> bool {
        [&self.attach, &self.loops, &self.detach]
            .iter()
            .any(|samples| samples.failure.is_some())
    }

    fn round(&mut self, bash: &Path, attach: Attach) {
        if let Err(error) = self.try_round(bash, attach) {
            self.attach.take(Err(error));
        }
    }

    /// An error: the tool did not attach.
    fn try_round(&mut self, bash: &Path, attach: Attach) -> Result<()> {
        let shell = Shell::start(bash, ITERATIONS)?;
        let text = Text::of(shell.pid(), bash)?;
        let plain = shell.median_within(BATCHES, LIMIT)?.context("bash does not run")?;
        let held = Held::by(shell.pid())?;
        let start = Instant::now();
        let mut attached = attach(&shell, &text, bash)?;
        let (patched, last) = come_up(&mut attached.outside, &text, start)?;
        self.functions = (patched, text.functions());
        self.attach.take(Ok(last.as_secs_f64() * 1000.0));
        self.loops.take(slowed(&shell, plain));
        self.held.push(Held::by(shell.pid())?.since(held));
        self.detach.take(go_down(&mut attached.outside, &text));
        // A tool that did not end in time, and was killed, may still have to be waited for; but not while it holds the
        // shell.
        drop(shell);
        drop(attached);
        Ok(())
    }

    fn rows(self, name: &str) -> Vec<Row> {
        let (patched, functions) = self.functions;
        let row = |what: &str| format!("all of bash, {what}: {name}");
        let attach = self.attach.row(&row("attach"), "ms");
        if attach.value.is_err() {
            return vec![attach];
        }
        let mut rows = vec![
            attach.note(format!("{patched} of {functions} functions")),
            self.loops.row(&row("the loop's time"), "x"),
            self.detach.row(&row("detach"), "ms"),
        ];
        rows.extend(memory::added(&row("memory added"), &self.held));
        rows
    }
}

/// Waits until no more functions are patched. Yields the number of patched functions, and the time of the last.
fn come_up(outside: &mut Outside, text: &Text, start: Instant) -> Result<(usize, Duration)> {
    let (mut most, mut last) = (0, start);
    while most == 0 || last.elapsed() < SETTLED {
        interrupt::check()?;
        let patched = text.patched().context("the shell has ended")?;
        if patched > most {
            (most, last) = (patched, Instant::now());
        }
        if let Some(words) = outside.last_words()? {
            bail!("it ended before all was patched ({words})");
        }
        ensure!(
            start.elapsed() < LIMIT || most > 0 && last.elapsed() >= SETTLED,
            "not up in {} s: {most} of {} functions were patched",
            LIMIT.as_secs(),
            text.functions()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok((most, last - start))
}

/// The slow-down of the loop, as a factor.
fn slowed(shell: &Shell, plain: f64) -> Result<f64> {
    let with = shell.median_within(BATCHES, LIMIT)?;
    let with = with.with_context(|| {
        let times = LIMIT.as_micros() as f64 / 2.0 / plain;
        format!(
            "the loop did not come round twice in {} s: more than x {times:.0}",
            LIMIT.as_secs()
        )
    })?;
    Ok(with / plain)
}

/// Asks the tool to end. Yields the time until the text is restored and the tool has ended, in ms.
fn go_down(outside: &mut Outside, text: &Text) -> Result<f64> {
    let start = Instant::now();
    outside.ask_to_end();
    loop {
        interrupt::check()?;
        let patched = text.patched().context("the shell has ended")?;
        if patched == 0 && outside.last_words()?.is_some() {
            return Ok(start.elapsed().as_secs_f64() * 1000.0);
        }
        ensure!(
            start.elapsed() < LIMIT,
            "not gone in {} s: {patched} functions were still patched",
            LIMIT.as_secs()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn lacks(name: &str, install: &'static str) -> Option<&'static str> {
    find(name).is_none().then_some(install)
}

fn lacks_frida() -> Option<&'static str> {
    (!has_frida()).then_some("pip install frida")
}

fn alone(command: Command, ending: Ending) -> Result<Attached> {
    with_group(command, ending, None)
}

fn with_group(command: Command, ending: Ending, group: Option<Group>) -> Result<Attached> {
    Ok(Attached {
        outside: Outside::start(command, "", Duration::ZERO, ending, |_| true)?,
        _group: group,
    })
}

fn nanoprobe(shell: &Shell, _: &Text, _: &Path) -> Result<Attached> {
    let mut command = Command::new(tracer::path()?);
    command.args(["-q", "-n", crate::bash::ALL, "-p", &shell.pid().to_string()]);
    alone(command, Ending::Interrupt)
}

fn group(bash: &Path) -> Result<Group> {
    let bytes = std::fs::read(bash)?;
    let file = object::File::parse(&*bytes)?;
    Group::define(bash, &function_offsets(&file))
}

fn tracefs(_: &Shell, _: &Text, bash: &Path) -> Result<Attached> {
    let group = group(bash)?;
    let mut command = Command::new("sh");
    command.args(["-c", "echo 1 > \"$1\" && read line; echo 0 > \"$1\"", "sh"]);
    command.arg(group.switch());
    with_group(command, Ending::EndOfInput, Some(group))
}

fn perf(shell: &Shell, _: &Text, bash: &Path) -> Result<Attached> {
    let group = group(bash)?;
    let mut command = Command::new("perf");
    command.args(["stat", "-e", &Group::name(), "-p", &shell.pid().to_string()]);
    with_group(command, Ending::Interrupt, Some(group))
}

fn bpftrace(shell: &Shell, text: &Text, bash: &Path) -> Result<Attached> {
    let program = format!("uprobe:{}:* {{ @ = count(); }}", bash.display());
    let mut command = Command::new("bpftrace");
    command.args(["-p", &shell.pid().to_string(), "-e", &program]);
    // By default bpftrace refuses more than some hundred probes.
    command.env("BPFTRACE_MAX_PROBES", (2 * text.functions()).to_string());
    alone(command, Ending::Interrupt)
}

fn frida(shell: &Shell, way: &str) -> Result<Attached> {
    alone(frida_command(shell.pid(), "*", way), Ending::EndOfInput)
}

fn gdb(shell: &Shell, text: &Text, bash: &Path) -> Result<Attached> {
    let script: PathBuf = bash.with_extension("gdb");
    let breakpoints = text
        .addresses()
        .map(|address| format!("break *{address:#x} if ($hits++, 0)\n"));
    let lines = format!(
        "set confirm off\nset pagination off\nset $hits = 0\n{}continue\ndelete\ndetach\n",
        breakpoints.collect::<String>()
    );
    std::fs::write(&script, lines)?;
    let mut command = Command::new("gdb");
    command.args(["-q", "-nx", "-batch", "-p", &shell.pid().to_string(), "-x"]);
    command.arg(&script).stdin(Stdio::null());
    alone(command, Ending::Target(shell.pid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bash() -> PathBuf {
        std::fs::canonicalize("/bin/bash").expect("bash")
    }

    fn says(words: &str) -> Result<Attached> {
        let mut command = Command::new("sh");
        command.args(["-c", words]);
        alone(command, Ending::EndOfInput)
    }

    #[test]
    fn a_tool_that_fails_shows_with_its_last_words() {
        let mut taken = Taken::default();
        taken.round(&bash(), |_, _, _| says("echo no permission; exit 3"));
        assert!(taken.has_failed());
        let rows = taken.rows("a tool");
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].name, "all of bash, attach: a tool");
        let reason = rows[0].value.as_ref().expect_err("it failed");
        assert!(reason.contains("no permission") && reason.contains('3'), "{reason}");
    }

    #[test]
    fn a_tool_that_patches_nothing_counts_as_not_started() {
        let mut taken = Taken::default();
        taken.round(&bash(), |_, _, _| says("read line"));
        let rows = taken.rows("a tool");
        let reason = rows[0].value.as_ref().expect_err("it did nothing");
        assert!(reason.contains("not up in") && reason.contains("0 of "), "{reason}");
    }
}
