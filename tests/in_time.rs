//! Children that a test waits for, each with a time limit.
//!
//! A test that waits for a child without limit hangs as soon as the child does, and reports
//! nothing. So all test code waits through this file or through [`crate::command`]:
//! `output_in_time` replaces `output`, `status_in_time` `status`, `spawn_in_group` `spawn`,
//! `wait_in_time` `wait`. A read of a child's pipe needs a [`TimeLimit`].
//!
//! A process that runs out of time is killed with its group, and the test fails: with a message
//! that has the child's output up to then, or because the pipe that is read ends.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, killpg, sigaction};
use nix::unistd::Pid;

use crate::LIMIT;

/// [`Command`] with a time limit.
pub trait InTime {
    /// As [`Command::output`], within [`LIMIT`]; standard input is empty.
    ///
    /// # Errors
    /// The command cannot be started.
    ///
    /// # Panics
    /// With the output up to then, when the command hangs.
    fn output_in_time(&mut self) -> io::Result<Output>;

    /// As [`Command::status`], within [`LIMIT`]; standard input is empty.
    ///
    /// # Errors
    /// The command cannot be started.
    ///
    /// # Panics
    /// When the command hangs.
    fn status_in_time(&mut self) -> io::Result<ExitStatus>;

    /// [`InTime::status_in_time`] within another limit.
    ///
    /// # Errors
    /// The command cannot be started.
    ///
    /// # Panics
    /// When the command hangs.
    fn status_within(&mut self, limit: Duration) -> io::Result<ExitStatus>;

    /// As [`Command::spawn`], but in a process group of its own, which can be killed as a whole. No
    /// signal is ignored or blocked, whatever the caller has inherited: under nohup, or as a
    /// background job of a shell, a test is started with SIGHUP, SIGINT or SIGQUIT ignored. The
    /// caller waits for the child under a [`TimeLimit`].
    ///
    /// # Errors
    /// The command cannot be started.
    fn spawn_in_group(&mut self) -> io::Result<Child>;
}

impl InTime for Command {
    fn output_in_time(&mut self) -> io::Result<Output> {
        // Output goes to files, not pipes. So a grandchild that keeps a file open causes no hang, and the output before
        // a hang can be read.
        let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        self.stdin(Stdio::null());
        self.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        let mut child = self.spawn_in_group()?;
        let status = wait_within(&mut child, LIMIT, || {
            let (stdout, stderr) = (written(&mut stdout), written(&mut stderr));
            format!(
                "{self:?}\n--- stdout\n{}\n--- stderr\n{}",
                String::from_utf8_lossy(&stdout),
                String::from_utf8_lossy(&stderr)
            )
        })?;
        Ok(Output {
            status,
            stdout: written(&mut stdout),
            stderr: written(&mut stderr),
        })
    }

    fn status_in_time(&mut self) -> io::Result<ExitStatus> {
        self.status_within(LIMIT)
    }

    fn status_within(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let mut child = self.stdin(Stdio::null()).spawn_in_group()?;
        wait_within(&mut child, limit, || format!("{self:?}"))
    }

    fn spawn_in_group(&mut self) -> io::Result<Child> {
        // SAFETY: the closure makes system calls and allocates nothing.
        unsafe { self.pre_exec(default_signals) };
        self.process_group(0).spawn()
    }
}

/// [`Child`] with a time limit.
pub trait EndsInTime {
    /// As [`Child::wait`], within [`LIMIT`]. A hanging child is killed.
    ///
    /// # Errors
    /// As [`Child::wait`].
    fn wait_in_time(&mut self) -> io::Result<ExitStatus>;

    /// As [`Child::wait_with_output`], within [`LIMIT`]. A hanging child is killed.
    ///
    /// # Errors
    /// As [`Child::wait_with_output`].
    fn wait_with_output_in_time(self) -> io::Result<Output>;
}

impl EndsInTime for Child {
    fn wait_in_time(&mut self) -> io::Result<ExitStatus> {
        let _limit = TimeLimit::new(self.id().cast_signed(), "its end is waited for");
        self.wait()
    }

    fn wait_with_output_in_time(self) -> io::Result<Output> {
        let _limit = TimeLimit::new(self.id().cast_signed(), "its output and its end are waited for");
        self.wait_with_output()
    }
}

/// Kills a process, and the group that it leads, unless this is dropped within [`LIMIT`]. A test holds it while it
/// waits for a line or for the end of the process.
#[derive(Debug)]
pub struct TimeLimit {
    /// The watching thread ends when this is dropped.
    _end: Sender<()>,
}

impl TimeLimit {
    /// Starts the limit. `what` is printed when the time has run out.
    pub fn new(pid: i32, what: &'static str) -> TimeLimit {
        let (end, ended) = channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                eprintln!("process {pid} is killed: {what}, for {LIMIT:?}");
                kill_group(pid);
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        });
        TimeLimit { _end: end }
    }
}

/// The wait status of a child that was forked without [`Command`].
///
/// # Panics
/// When it is no child of the caller.
#[track_caller]
pub fn status_of_forked(pid: i32) -> i32 {
    let _limit = TimeLimit::new(pid, "the end of a forked child is waited for");
    let mut status = 0;
    loop {
        // SAFETY: `status` is the caller's own.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } {
            found if found == pid => return status,
            _ => assert_eq!(Errno::last(), Errno::EINTR, "waiting for {pid}"),
        }
    }
}

/// Kills the process group that a process leads, if there is one.
fn kill_group(pid: i32) {
    // 0 would be the caller's own group.
    if pid > 1 {
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// No signal is blocked, and those that end a program do so. For a child, before it executes a program.
pub(crate) fn default_signals() -> io::Result<()> {
    let usual = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGPIPE,
    ] {
        // SAFETY: no handler is installed.
        unsafe { sigaction(signal, &usual) }?;
    }
    Ok(SigSet::empty().thread_set_mask()?)
}

fn wait_within(child: &mut Child, limit: Duration, mut what: impl FnMut() -> String) -> io::Result<ExitStatus> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > limit {
            kill_group(child.id().cast_signed());
            let _ = child.kill();
            let _ = child.wait();
            panic!("hung for {limit:?}: {}", what());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Everything that was written to a file, by any process that has it open.
fn written(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = file.rewind();
    let _ = file.read_to_end(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hanging_process_is_killed_and_its_output_is_shown() {
        let mut output = tempfile::tempfile().expect("a file");
        let mut command = Command::new("sh");
        command.args(["-c", "echo so far; exec sleep 1000"]);
        let mut child = command
            .stdout(output.try_clone().expect("a handle"))
            .spawn_in_group()
            .expect("a shell");
        while written(&mut output).is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let waits = std::panic::AssertUnwindSafe(|| {
            wait_within(&mut child, Duration::from_millis(1), || {
                String::from_utf8_lossy(&written(&mut output)).into_owned()
            })
        });
        let told = std::panic::catch_unwind(waits).expect_err("it hangs");
        let told = told.downcast_ref::<String>().expect("a message");
        assert!(told.contains("hung for 1ms: so far"), "{told}");
        assert!(matches!(child.try_wait(), Ok(Some(_))));
    }

    #[test]
    fn a_child_ignores_no_signal_that_the_test_ignores() {
        let name = "in_time::tests::a_child_of_one_that_ignores_signals";
        let mut command = Command::new("sh");
        let script = format!("trap '' HUP INT QUIT; exec \"$0\" {name} --ignored --exact --nocapture");
        command.args(["-c", &script]);
        command.arg(std::env::current_exe().expect("this program"));
        let output = command.output_in_time().expect("a shell");
        let told = String::from_utf8_lossy(&output.stdout);
        for mask in ["SigIgn:", "SigBlk:"] {
            let line = told.lines().find_map(|line| line.strip_prefix(mask));
            let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
            // Signals 1, 2, 3 and 15.
            assert_eq!(bits.map(|bits| bits & 0x4007), Some(0), "{told}");
        }
    }

    #[test]
    #[ignore = "started by the test above"]
    fn a_child_of_one_that_ignores_signals() {
        let mut command = Command::new("grep");
        let output = command.args(["Sig", "/proc/self/status"]).output_in_time();
        println!("{}", String::from_utf8_lossy(&output.expect("grep").stdout));
    }

    #[test]
    fn all_output_and_the_status_are_there() {
        let mut command = Command::new("sh");
        let output = command
            .args(["-c", "cat; echo out; echo err >&2; exit 3"])
            .output_in_time();
        let output = output.expect("a shell");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&*output.stdout, &*output.stderr), (&b"out\n"[..], &b"err\n"[..]));
    }
}
