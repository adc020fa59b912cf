//! Commands with a time limit, and children that never outlive their test.
//!
//! Output goes to unnamed temporary files, not pipes. So a grandchild that keeps its stdout open
//! cannot hang a test, and the output of a killed program can be read.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::in_time::InTime;
use crate::left_out::has_another_user;

/// The status and the output of a command.
#[derive(Debug)]
pub struct Finished {
    /// The exit status, or the signal that ended the command.
    pub status: ExitStatus,
    /// The command's whole standard output.
    pub stdout: String,
    /// The command's whole standard error.
    pub stderr: String,
}

impl Finished {
    /// The exit code, or `128 + signal` as a shell gives it.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Asserts exit status 0 and returns itself.
    ///
    /// # Panics
    /// With both outputs when the command failed.
    #[track_caller]
    pub fn success(self) -> Self {
        assert!(
            self.status.success(),
            "{}\n--- stdout\n{}\n--- stderr\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }
}

/// A child process in a process group of its own, killed with its group when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: File,
    stderr: File,
    what: String,
    reaped: bool,
}

impl Running {
    /// Starts a command with its outputs captured and its input a pipe.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Running {
        let what = format!("{command:?}");
        let stdout = tempfile::tempfile().expect("a temporary file");
        let stderr = tempfile::tempfile().expect("a temporary file");
        command
            .stdin(Stdio::piped())
            .stdout(stdout.try_clone().expect("a second handle"))
            .stderr(stderr.try_clone().expect("a second handle"));
        let mut child = command
            .spawn_in_group()
            .unwrap_or_else(|error| panic!("cannot start {what}: {error}"));
        let stdin = child.stdin.take();
        Running {
            child,
            stdin,
            stdout,
            stderr,
            what,
            reaped: false,
        }
    }

    /// The child's process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The child's standard output so far.
    pub fn stdout(&self) -> String {
        read_all(&self.stdout)
    }

    /// The child's standard error so far.
    pub fn stderr(&self) -> String {
        read_all(&self.stderr)
    }

    /// Whether the child has not ended yet.
    pub fn is_running(&mut self) -> bool {
        !self.reaped && matches!(self.child.try_wait(), Ok(None))
    }

    /// Writes a line to the child's input. A program that was started with `--wait` waits for this.
    ///
    /// # Panics
    /// When it has ended.
    pub fn go(&mut self) {
        self.write("go\n");
    }

    /// Writes to the child's input.
    ///
    /// # Panics
    /// When it has ended or its input is closed.
    pub fn write(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("the input is open");
        stdin
            .write_all(text.as_bytes())
            .unwrap_or_else(|error| panic!("writing to {}: {error}", self.what));
        stdin.flush().expect("a flush of a pipe");
    }

    /// Closes the child's input.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Sends the child a signal. It is no error if the child has ended.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.pid()), signal);
    }

    /// Waits until a condition on the process holds.
    ///
    /// # Panics
    /// When the condition does not hold within [`crate::LIMIT`], or the process ends first.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, mut condition: impl FnMut(&Running) -> bool) {
        let start = Instant::now();
        loop {
            let ended = !self.is_running();
            if condition(self) {
                return;
            }
            let report = || {
                format!(
                    "{}\n--- stdout\n{}\n--- stderr\n{}",
                    self.what,
                    self.stdout(),
                    self.stderr()
                )
            };
            assert!(!ended, "ended before {what}: {}", report());
            assert!(start.elapsed() < crate::LIMIT, "hung before {what}: {}", report());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the process has used this much processor time from now on, on all processors together. Waiting for
    /// a time to pass would prove nothing on a busy machine.
    ///
    /// # Panics
    /// As [`Running::wait_until`].
    #[track_caller]
    pub fn wait_until_worked(&mut self, time: Duration) {
        let Some(start) = processor_time(self.pid()) else {
            panic!("{} has ended", self.what);
        };
        self.wait_until("working", |running| {
            processor_time(running.pid()).is_some_and(|now| now >= start + time)
        });
    }

    /// Waits until the child's standard output contains a text.
    ///
    /// # Panics
    /// As [`Running::wait_until`].
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(&format!("printing {text:?}"), |running| running.stdout().contains(text));
    }

    /// Waits until the child has ended.
    ///
    /// # Panics
    /// When it has not ended within the limit; it is killed then.
    #[track_caller]
    pub fn finish_within(mut self, limit: Duration) -> Finished {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("waiting for a child") {
                break status;
            }
            if start.elapsed() > limit {
                let state = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
                let state = state
                    .lines()
                    .find(|line| line.starts_with("State"))
                    .unwrap_or("State: ?")
                    .to_owned();
                panic!(
                    "hung for {limit:?}: {} ({state})\n--- stdout\n{}\n--- stderr\n{}",
                    self.what,
                    self.stdout(),
                    self.stderr()
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        self.reaped = true;
        Finished {
            status,
            stdout: self.stdout(),
            stderr: self.stderr(),
        }
    }

    /// [`Running::finish_within`] [`crate::LIMIT`].
    #[track_caller]
    pub fn finish(self) -> Finished {
        self.finish_within(crate::LIMIT)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The whole group is killed: a command of nanoprobe's -c dies with it. The leader may already be reaped while
        // others live on.
        let _ = killpg(Pid::from_raw(self.pid()), Signal::SIGKILL);
        if !self.reaped {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs a command to its end within [`crate::LIMIT`].
///
/// # Panics
/// When it cannot be started or hangs.
#[track_caller]
pub fn run(command: &mut Command) -> Finished {
    let mut running = Running::start(command);
    running.close_input();
    running.finish()
}

/// The processor time that a process has used; `None` if the process is gone.
pub fn processor_time(pid: i32) -> Option<Duration> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both calls write to variables of ours.
    let is_known = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0 && libc::clock_gettime(clock, &raw mut time) == 0
    };
    is_known.then(|| Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// The command, changed so that it runs as an ordinary user (uid 65534, no groups) if we may become that user.
pub fn as_ordinary_user(command: &Command) -> Command {
    if !has_another_user() {
        let mut same = Command::new(command.get_program());
        same.args(command.get_args());
        return same;
    }
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
    wrapped.arg(command.get_program()).args(command.get_args());
    // HOME and the like of root would mislead shells and servers.
    wrapped.env("HOME", "/tmp").current_dir("/tmp");
    wrapped
}

fn read_all(file: &File) -> String {
    // A handle with its own offset: the child writes through the same open file description, whose offset must not
    // move.
    let mut text = Vec::new();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    if let Ok(mut reader) = File::open(path) {
        let _ = reader.rewind();
        let _ = reader.read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}
