//! Another tool's process, attached to the measured program.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::experiments::compare::Attached;

/// How long a tool may take to attach, and to end.
const LIMIT: Duration = Duration::from_secs(40);

/// The ways to ask a tool to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Ctrl-C.
    Interrupt,
    /// Close the tool's input.
    EndOfInput,
    /// Ctrl-C for the program that a debugger holds, a child of ours. The debugger gets the signal.
    Target(u32),
}

/// A tool that runs.
pub struct Outside {
    child: Child,
    output: PathBuf,
    ending: Ending,
    check: fn(&str) -> bool,
    _folder: tempfile::TempDir,
}

impl Outside {
    /// Starts a tool, and waits until it has printed `ready` and then for `settle`. If `ready` is empty, waits only for
    /// `settle`. `check` tells from the tool's last output whether it has fired.
    pub fn start(
        mut command: Command,
        ready: &str,
        settle: Duration,
        ending: Ending,
        check: fn(&str) -> bool,
    ) -> Result<Outside> {
        let folder = tempfile::tempdir()?;
        let output = folder.path().join("output");
        let file = File::create(&output)?;
        let child = command
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {:?}", command.get_program()))?;
        let mut outside = Outside {
            child,
            output,
            ending,
            check,
            _folder: folder,
        };
        let start = Instant::now();
        while !outside.said().contains(ready) {
            if let Some(status) = outside.child.try_wait()? {
                bail!("it ended before it attached ({status}): {}", last_line(&outside.said()));
            }
            ensure!(
                start.elapsed() < LIMIT,
                "it did not attach: {}",
                last_line(&outside.said())
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(settle);
        if let Some(status) = outside.child.try_wait()? {
            bail!("it ended at once ({status}): {}", last_line(&outside.said()));
        }
        Ok(outside)
    }

    fn said(&self) -> String {
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(&self.output) {
            let _ = file.take(1 << 20).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Ends the tool, and yields its output.
    pub fn finish(mut self) -> Result<String> {
        self.ask_to_end();
        self.wait()
    }

    /// Asks the tool to end.
    pub fn ask_to_end(&mut self) {
        match self.ending {
            Ending::Interrupt => {
                // SAFETY: a signal to a child of ours that has not been waited for.
                unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
            }
            // SAFETY: a signal to a child of ours that has not been waited for.
            Ending::Target(pid) => unsafe {
                libc::kill(pid.cast_signed(), libc::SIGINT);
            },
            Ending::EndOfInput => drop(self.child.stdin.take()),
        }
    }

    /// The tool's last message if it has ended; `None` while it runs.
    pub fn last_words(&mut self) -> Result<Option<String>> {
        let status = self.child.try_wait()?;
        Ok(status.map(|status| format!("{status}: {}", last_line(&self.said()))))
    }

    /// Waits until the tool ends by itself, and yields its output.
    pub fn wait(mut self) -> Result<String> {
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(start.elapsed() < LIMIT, "it did not end: {}", last_line(&self.said()));
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(self.said())
    }
}

impl Attached for Outside {
    fn end(self: Box<Self>) -> Result<u64> {
        let check = self.check;
        let said = self.finish()?;
        ensure!(check(&said), "it did not say that it fired: {}", last_line(&said));
        Ok(0)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether a tool's output has a number above zero after `label`.
pub fn counted(text: &str, label: &str) -> bool {
    let numbers = text.lines().filter_map(|line| line.trim().strip_prefix(label));
    let mut numbers = numbers.filter_map(|rest| rest.split_whitespace().next()?.replace(',', "").parse::<u64>().ok());
    numbers.any(|number| number > 0)
}

/// A tool's last message, which usually says why it failed.
pub fn last_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .next_back()
        .unwrap_or("(it said nothing)")
        .chars()
        .take(300)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_out_of_what_tools_say() {
        assert!(counted("Attaching 1 probe...\n\n@: 2126126\n", "@:"));
        assert!(!counted("@: 0\n", "@:"));
        assert!(!counted("Attaching\n", "@:"));
        assert_eq!(last_line("a\nb: no\n\n"), "b: no");
    }

    #[test]
    fn a_tool_that_ends_at_once_has_failed_with_its_last_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no permission; exit 3"]);
        let started = Outside::start(command, "ready", Duration::ZERO, Ending::Interrupt, |_| true);
        let error = started.err().expect("it ended").to_string();
        assert!(error.contains("no permission") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_tool_that_never_fired_has_failed() {
        let start = || {
            let mut command = Command::new("sh");
            command.args(["-c", "echo ready; read line; echo hits 0"]);
            let check: fn(&str) -> bool = |text| counted(text, "hits");
            Outside::start(command, "ready", Duration::ZERO, Ending::EndOfInput, check).expect("it starts")
        };
        let error = Attached::end(Box::new(start())).expect_err("no hit").to_string();
        assert!(error.contains("hits 0"), "{error}");
        assert!(start().finish().expect("its words").contains("hits 0"));
    }
}
