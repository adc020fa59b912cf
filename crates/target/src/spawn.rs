//! Starts a program and holds it before its first instruction.
//!
//! The child waits on a pipe until the tracer has seized it, and then executes the program. The kernel reports the
//! execve, and the tracer takes the program from there to the ordinary stop, before it executes an instruction. The
//! first instruction of a dynamic program is the dynamic linker's; of a static program, its own.
//!
//! The child has the tracer's standard files, process group and terminal, so Ctrl-C reaches both.

use std::ffi::{CString, OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::ProcessId;
use crate::child::Words;
use crate::error::SpawnError;
use crate::process::Process;
use crate::raw::{self, Event, Resume};
use crate::stop::{Patience, Stopped};

#[derive(Debug)]
pub struct Spawned {
    /// The process, which is a child of ours. [`Process::try_wait`] says how it ended.
    pub process: Process,
    /// The program's only thread, before its first instruction. Dropping this value lets the program run.
    pub stopped: Stopped,
}

impl Process {
    /// Starts a program with the given environment (`None`: ours). A name without a slash is searched in PATH.
    ///
    /// # Errors
    /// [`SpawnError`]; then no program runs.
    pub fn spawn(words: &[OsString], environment: Option<&[(OsString, OsString)]>) -> Result<Spawned, SpawnError> {
        Process::spawn_with(words, environment, [None; 3])
    }

    /// Starts a program as [`Process::spawn`] does, with the given standard files in place of the tracer's.
    ///
    /// # Errors
    /// As [`Process::spawn`].
    pub fn spawn_with(
        words: &[OsString],
        environment: Option<&[(OsString, OsString)]>,
        files: [Option<BorrowedFd<'_>>; 3],
    ) -> Result<Spawned, SpawnError> {
        let name = words.first().filter(|word| !word.is_empty()).ok_or(SpawnError::Empty)?;
        let command = name.to_string_lossy().into_owned();
        let system = |call| {
            let command = command.clone();
            move |errno: Errno| SpawnError::System { command, call, errno }
        };
        let pipe = || std::io::pipe().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)));
        let (go, mut say_go) = pipe().map_err(system("pipe"))?;
        let (mut failed, failure) = pipe().map_err(system("pipe"))?;
        let plan = prepare(name, words, environment).ok_or_else(|| SpawnError::Nul {
            command: command.clone(),
        })?;
        let pid = plan.fork(go.as_fd(), failure.as_fd(), files).map_err(system("fork"))?;
        let mut child = Unborn { pid, armed: true };
        drop((go, failure));

        raw::seize(pid).map_err(system("PTRACE_SEIZE"))?;
        say_go
            .write_all(&[1])
            .map_err(|error| system("write")(Errno::from_raw(error.raw_os_error().unwrap_or(0))))?;
        if !wait_for_exec(pid) {
            let mut error = [0; 4];
            let wrote = failed.read_exact(&mut error).is_ok();
            return Err(why_not(
                command,
                name,
                wrote.then(|| Errno::from_raw(i32::from_ne_bytes(error))),
            ));
        }
        // The stop is requested before the first instruction can run. Errors mean that the program was killed.
        let _ = raw::interrupt(pid);
        let _ = raw::resume(pid, Resume::Continue, 0);
        let attach = |error| SpawnError::Attach {
            command: command.clone(),
            error,
        };
        let process = Process::open_child(pid).map_err(attach)?;
        let mut stopped = Stopped::new(process.clone(), true);
        stopped.adopt(pid).map_err(|error| SpawnError::Stop {
            command: command.clone(),
            error,
        })?;
        if stopped.threads().next().is_none() {
            return Err(SpawnError::Ended { command });
        }
        child.armed = false;
        process.at_start().begin();
        Ok(Spawned { process, stopped })
    }
}

/// A forked child before its execve. If the execve does not succeed, the child is killed and collected.
struct Unborn {
    pid: ProcessId,
    armed: bool,
}

impl Drop for Unborn {
    fn drop(&mut self) {
        if let (true, Some(pid)) = (self.armed, Pid::from_raw(self.pid)) {
            // The child may already have ended, and even have been collected.
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

/// True at the end of a successful execve, false when the child has ended.
fn wait_for_exec(pid: ProcessId) -> bool {
    let mut patience = Patience::until(Instant::now() + Duration::from_secs(365 * 24 * 3600));
    loop {
        let signal = match raw::poll_event(pid, true) {
            Ok(Some(Event::Executed)) => return true,
            Ok(Some(Event::Ended)) | Err(_) => return false,
            Ok(Some(Event::Signal(signal))) => signal,
            Ok(Some(_)) => 0,
            Ok(None) => {
                patience.pause();
                continue;
            }
        };
        // An error means that the child was killed; the next look at it will show that.
        let _ = raw::resume(pid, Resume::Continue, signal);
    }
}

/// `None` when a word has a NUL byte.
fn prepare(name: &OsStr, words: &[OsString], environment: Option<&[(OsString, OsString)]>) -> Option<Words> {
    let string = |word: &OsStr| CString::new(word.as_bytes()).ok();
    let ours: Vec<(OsString, OsString)>;
    let environment = match environment {
        Some(environment) => environment,
        None => {
            ours = std::env::vars_os().collect();
            &ours
        }
    };
    let variables = environment.iter().map(|(variable, value)| {
        let mut text = variable.clone().into_vec();
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        CString::new(text).ok()
    });
    let variables: Option<Vec<CString>> = variables.collect();
    let arguments: Option<Vec<CString>> = words.iter().map(|word| string(word)).collect();
    Some(Words::new(candidates(name, environment)?, arguments?, variables?))
}

/// The files to which the name may refer, in the order in which they are tried.
fn candidates(name: &OsStr, environment: &[(OsString, OsString)]) -> Option<Vec<CString>> {
    if name.as_bytes().contains(&b'/') {
        return Some(vec![CString::new(name.as_bytes()).ok()?]);
    }
    let path = environment
        .iter()
        .find(|(variable, _)| variable == "PATH")
        .map(|(_, value)| value.as_os_str());
    std::env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin")))
        .map(|directory| {
            // An empty entry is the current directory.
            let directory = if directory.as_os_str().is_empty() {
                Path::new(".")
            } else {
                &directory
            };
            CString::new(directory.join(name).as_os_str().as_bytes()).ok()
        })
        .collect()
}

fn why_not(command: String, name: &OsStr, errno: Option<Errno>) -> SpawnError {
    match errno {
        None => SpawnError::Ended { command },
        Some(Errno::ENOENT) if !name.as_bytes().contains(&b'/') => SpawnError::NotFound { command },
        Some(errno) => {
            let hint = match errno {
                Errno::ENOENT => "; is the path right, and does the interpreter exist that the file names?",
                Errno::EACCES => "; is it an executable file (chmod +x), and the file system not mounted noexec?",
                Errno::ENOEXEC => "; it is neither a program for this machine nor a script that begins with #!",
                _ => "",
            };
            SpawnError::Exec { command, errno, hint }
        }
    }
}
