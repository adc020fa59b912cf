//! The process is acquired first: a running one is opened, a command is started, and stops before its first
//! instruction. Then the program is compiled, once, with the number, the types and the addresses of this process
//! (DTrace: grab, create). This module writes into a process for one purpose only: to remove the remains of a killed
//! tracer.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;

use nanoprobe_lang::Program;
use nanoprobe_lang::options::SeccompPolicy;
use nanoprobe_target::{Process, Sandbox, Seccomp, Stopped};

use crate::detach;
use crate::error::SessionError;
use crate::probes::{DescriptionError, named_process};

/// The process that is to be traced. A program may also have no process, or name it only in its text.
#[derive(Debug, Default)]
pub struct Acquired {
    process: Option<Process>,
    starting: Starting,
    pub(crate) role: Role,
}

/// The part of a session in its run. A run has one output, and may have several sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// The run's only process, or its first.
    #[default]
    First,
    /// It has no process. BEGIN, END and ticks fire here for a set of processes.
    Leader,
    /// One of several processes. Another session fires BEGIN, END and ticks.
    Member {
        /// The process for which the program was compiled: this process, or an earlier one that forked it, or that
        /// executed its program. Descriptions with the number of that process mean this process, too.
        root: i32,
        /// The program is not good for what the process executes. So no description matches there, and only the
        /// programs that it executes in its turn are followed.
        is_bare: bool,
    },
}

/// The stop in which a program stands before its first instruction. A command whose tracing is given up executes no
/// instruction. A program that a traced process has executed runs on.
#[derive(Debug, Default)]
pub(crate) struct Starting(Option<Stopped>);

impl Starting {
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn take(&mut self) -> Option<Stopped> {
        self.0.take()
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // The command is killed while it is stopped: dropping `stop` would let it run for a moment.
        if let Some(stopped) = self.0.as_ref().filter(|stopped| stopped.process().is_child()) {
            stopped.process().kill();
        }
    }
}

impl Role {
    pub(crate) fn root(self) -> Option<i32> {
        match self {
            Role::Member { root, .. } => Some(root),
            Role::First | Role::Leader => None,
        }
    }
}

impl Acquired {
    /// No process was given. The program may name a process (`pid1234:...`), which the session then opens.
    #[must_use]
    pub fn none() -> Acquired {
        Acquired::default()
    }

    /// A running process (`-p`).
    ///
    /// # Errors
    /// The process does not exist, may not be traced, or shares its memory with another process.
    pub fn running(pid: i32) -> Result<Acquired, SessionError> {
        let process = Process::open(pid)?;
        process.check_sharing()?;
        Ok(Acquired {
            process: Some(process),
            ..Acquired::default()
        })
    }

    /// No process: the session in which BEGIN, END and ticks fire for a set of processes.
    #[must_use]
    pub fn leader() -> Acquired {
        Acquired {
            role: Role::Leader,
            ..Acquired::default()
        }
    }

    /// A running process of a set.
    ///
    /// # Errors
    /// As [`Acquired::running`].
    pub fn member(pid: i32) -> Result<Acquired, SessionError> {
        Ok(Acquired {
            role: Role::Member {
                root: pid,
                is_bare: false,
            },
            ..Acquired::running(pid)?
        })
    }

    /// A command (`-c`). The command is killed when this value or the session is dropped, as in DTrace. Processes that
    /// the command has started live on.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn started(words: &[OsString]) -> Result<Acquired, SessionError> {
        Acquired::started_with(words, [None; 3])
    }

    /// As [`Acquired::started`], but the command has these standard files instead of ours.
    ///
    /// # Errors
    /// As [`Acquired::started`].
    pub fn started_with(words: &[OsString], files: [Option<BorrowedFd<'_>>; 3]) -> Result<Acquired, SessionError> {
        let spawned = Process::spawn_with(words, None, files)?;
        spawned.process.set_kill_on_drop(true);
        Ok(Acquired {
            process: Some(spawned.process),
            starting: Starting(Some(spawned.stopped)),
            role: Role::First,
        })
    }

    /// A program that a traced process has executed, before its first instruction. `root`: the process for which
    /// the program was compiled.
    pub(crate) fn executed(process: Process, stopped: Stopped, root: i32) -> Acquired {
        Acquired {
            process: Some(process),
            starting: Starting(Some(stopped)),
            role: Role::Member { root, is_bare: false },
        }
    }

    /// The same process, in which no description is to match.
    #[must_use]
    pub fn without_matches(self) -> Acquired {
        let role = match self.role {
            Role::Member { root, .. } => Role::Member { root, is_bare: true },
            other => other,
        };
        Acquired { role, ..self }
    }

    /// The process for which the program of a member was compiled.
    #[must_use]
    pub fn root(&self) -> Option<i32> {
        self.role.root()
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// The number of the command that must be killed when this process is ended at once.
    #[must_use]
    pub fn command(&self) -> Option<i32> {
        let command = self.process.as_ref().filter(|process| process.is_child());
        command.map(Process::pid)
    }

    /// Whether the process is a command that stands before its first instruction.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.starting.is_some()
    }

    pub(crate) fn into_parts(self) -> (Option<Process>, Starting) {
        (self.process, self.starting)
    }
}

/// Opens the process that the program names, if no process was given.
pub(crate) fn open_named(program: &Program, policy: SeccompPolicy) -> Result<Option<Process>, SessionError> {
    let descriptions = program.clauses.iter().flat_map(|clause| &clause.probes);
    let Some((pid, description)) = named_process(descriptions) else {
        return Ok(None);
    };
    let open = || {
        let process = Process::open(pid)?;
        process.check_sharing()?;
        check_acquired(&process, policy)?;
        Ok(process)
    };
    let opened = match pid {
        0 => Err(DescriptionError::no_process(description).into()),
        _ => open().map_err(|error| SessionError::Grab {
            pid,
            error: Box::new(error),
        }),
    };
    opened.map(Some).map_err(|error| error.at(description))
}

/// Checks that a running process may be traced. First cleans up what a killed tracer may have left in the process.
pub(crate) fn check_acquired(process: &Process, policy: SeccompPolicy) -> Result<(), SessionError> {
    if policy == SeccompPolicy::Try {
        process.insist();
    }
    match check_sandbox(process).and_then(|()| clean_up(process)) {
        Err(_) if process.has_executed() => Err(SessionError::Executed { pid: process.pid() }),
        other => other,
    }
}

/// Takes back what dead tracers have left in a process, except for what a tracer that lives needs.
pub(crate) fn clean_up(process: &Process) -> Result<(), SessionError> {
    let map = process.map()?;
    if !detach::has_arena(&map) {
        // A live tracer holds the thread, so there is nothing that we must clean up.
        if process.has_way_home(&map)
            && let Ok(mut stopped) = process.stop()
        {
            stopped.clear_way_home()?;
        }
        return Ok(());
    }
    match detach::restore(process) {
        Ok(_) | Err(SessionError::NothingToRestore { .. } | SessionError::TracerLives { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the process's seccomp filters, if there are any, allow the system calls that attaching makes in the
/// process.
fn check_sandbox(process: &Process) -> Result<(), SessionError> {
    let pid = process.pid();
    if process.facts().seccomp == Seccomp::Disabled {
        return Ok(());
    }
    process.examine_filters();
    let stopped = process.stop()?;
    let sandbox = stopped.sandbox();
    stopped.release();
    match sandbox {
        Sandbox::None | Sandbox::Permits | Sandbox::SameAsOurs | Sandbox::Insisted => Ok(()),
        sandbox => Err(SessionError::Sandboxed { pid, sandbox }),
    }
}
