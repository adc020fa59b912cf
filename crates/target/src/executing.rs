//! Threads that are about to execute another program, and the program that a thread has begun to execute.
//!
//! The thread is seized, but not stopped. The kernel then reports a successful execve, in which the new program stands
//! before its first instruction. The tracer takes the program from there to the ordinary stop, as it does for a program
//! that it has started itself ([`Process::spawn`]).

mod file;

use std::time::{Duration, Instant};

use nix::errno::Errno;

pub use file::{Looked, Path, look};

use crate::process::Process;
use crate::raw::{self, Event, Resume};
use crate::status::Status;
use crate::stop::{Patience, Stopped, hide_interruption};
use crate::{ProcessId, ThreadId};

/// How long the end waits until the threads that are still held are let go.
const LAST_MOMENTS: Duration = Duration::from_secs(2);

/// A thread that is held by ptrace until it executes another program.
#[derive(Debug)]
pub struct Executing {
    tid: ThreadId,
    pid: ProcessId,
    /// Whether the process is a child of ours, whose end other code collects.
    keeps_end: bool,
    since: Instant,
    is_leaving: bool,
}

/// The outcome for a held thread.
#[derive(Debug)]
pub enum Execution {
    /// It has not executed the program yet.
    Pending,
    /// It has. The program stands before its first instruction; dropping the stop lets it run.
    Executed(Box<(Process, Stopped)>),
    /// It has, and the program runs on untraced, for this reason.
    Untraceable(String),
    /// It has ended, or is no longer held.
    Gone,
}

impl Executing {
    /// Seizes a thread. `tid` and `pid` come from the target: they must belong together, and to our pid namespace.
    ///
    /// # Errors
    /// Why the thread cannot be held.
    pub fn seize(tid: ThreadId, pid: ProcessId) -> Result<Executing, String> {
        let status = Status::of(tid).map_err(|_| "it has ended".to_owned())?;
        if status.process != Some(pid) || status.namespace_ids.len() > 1 {
            return Err("it is in another pid namespace".to_owned());
        }
        if status.tracer != 0 {
            return Err(format!("process {} traces it", status.tracer));
        }
        raw::seize(tid).map_err(|errno| match errno {
            Errno::EPERM => {
                "it may not be traced by this user, or only by its ancestors (kernel.yama.ptrace_scope)".to_owned()
            }
            errno => errno.desc().to_owned(),
        })?;
        let parent = match tid == pid {
            true => status.parent,
            false => Status::of(pid).map_or(0, |status| status.parent),
        };
        Ok(Executing {
            tid,
            pid,
            keeps_end: u32::try_from(parent) == Ok(std::process::id()),
            since: Instant::now(),
            is_leaving: false,
        })
    }

    /// The process of the thread. The program that it executes has this number.
    pub fn pid(&self) -> ProcessId {
        self.pid
    }

    /// For how long the thread has been held.
    pub fn held_for(&self) -> Duration {
        self.since.elapsed()
    }

    /// Lets the thread go as soon as it can be stopped for that. Later looks see when it is gone.
    pub fn ask_to_leave(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            // An error means that the thread has ended, which the next look shows.
            let _ = raw::interrupt(self.tid);
        }
    }

    /// Looks once whether the thread has executed the program.
    pub fn look(&mut self) -> Execution {
        // A thread that is not the first of its process takes over the first thread's number when it executes a
        // program.
        let (event, tid) = match raw::poll_event(self.tid, self.keeps_end(self.tid)) {
            Err(Errno::ECHILD) if self.tid != self.pid => {
                (raw::poll_event(self.pid, self.keeps_end(self.pid)), self.pid)
            }
            event => (event, self.tid),
        };
        match event {
            Ok(None) => return Execution::Pending,
            Ok(Some(Event::Executed)) => return self.executed(),
            Ok(Some(Event::Ended)) | Err(_) => return Execution::Gone,
            // A stop of job control, too: the kernel keeps the thread stopped after the detachment.
            Ok(Some(Event::Interrupted)) => {
                hide_interruption(tid);
                let _ = raw::resume(tid, Resume::Detach, 0);
                return Execution::Gone;
            }
            Ok(Some(Event::Signal(signal))) => {
                let how = if self.is_leaving {
                    Resume::Detach
                } else {
                    Resume::Continue
                };
                let _ = raw::resume(tid, how, signal);
                if self.is_leaving {
                    return Execution::Gone;
                }
            }
            Ok(Some(Event::SystemCall | Event::Other(_))) => {
                let _ = raw::resume(tid, Resume::Continue, 0);
            }
        }
        Execution::Pending
    }

    fn keeps_end(&self, tid: ThreadId) -> bool {
        self.keeps_end && tid == self.pid
    }

    /// The program stands at the end of its execve.
    fn executed(&self) -> Execution {
        let process = match Process::open_tracee(self.pid) {
            Ok(process) if !self.is_leaving => process,
            other => {
                let _ = raw::resume(self.pid, Resume::Detach, 0);
                return other.map_or_else(
                    |error| Execution::Untraceable(error.to_string()),
                    |_| Execution::Untraceable("its execve took too long".to_owned()),
                );
            }
        };
        // The stop is requested before the first instruction can run. Errors mean that the program was killed.
        let _ = raw::interrupt(self.pid);
        let _ = raw::resume(self.pid, Resume::Continue, 0);
        let mut stopped = Stopped::new(process.clone(), true);
        match stopped.adopt(self.pid) {
            Ok(()) if stopped.threads().next().is_some() => {
                process.at_start().begin();
                Execution::Executed(Box::new((process, stopped)))
            }
            Ok(()) => Execution::Gone,
            Err(error) => Execution::Untraceable(error.to_string()),
        }
    }

    /// Lets the thread go, and waits for that.
    pub fn let_go(mut self) {
        self.ask_to_leave();
        let mut patience = Patience::until(Instant::now() + LAST_MOMENTS);
        while matches!(self.look(), Execution::Pending) && patience.pause() {}
    }
}
