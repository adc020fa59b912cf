//! The process is acquired first: a running one is opened, a command is started, and stops before its first
//! instruction. Then the program is compiled, once, with the number, the types and the addresses of this process
//! (DTrace: grab, create). Nothing is written into a process here, except that what a killed tracer has left is
//! taken back.

use std::ffi::OsString;

use nanoprobe_lang::Program;
use nanoprobe_target::{Process, Sandbox, Seccomp, Stopped};

use crate::detach;
use crate::error::SessionError;
use crate::probes::{DescriptionError, named_process};

/// The process that is to be traced, if there is one by now.
#[derive(Debug, Default)]
pub struct Acquired {
    process: Option<Process>,
    starting: Starting,
}

/// The stop in which a command stands before its first instruction. A command that is given up executes none.
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
        // While the command stands: the drop of `stop` would let it run for a moment.
        if let Some(stopped) = &self.0 {
            stopped.process().kill();
        }
    }
}

impl Acquired {
    /// No process. The program may name one (`pid1234:...`), which the session opens.
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
            starting: Starting::default(),
        })
    }

    /// A command (`-c`). It is killed when this value or the session is dropped, as in DTrace. The processes that
    /// it has started live on.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn started(words: &[OsString]) -> Result<Acquired, SessionError> {
        let spawned = Process::spawn(words, None)?;
        spawned.process.set_kill_on_drop(true);
        Ok(Acquired {
            process: Some(spawned.process),
            starting: Starting(Some(spawned.stopped)),
        })
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

    /// Whether it is a command that stands before its first instruction.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.starting.is_some()
    }

    pub(crate) fn into_parts(self) -> (Option<Process>, Starting) {
        (self.process, self.starting)
    }
}

/// Opens the process that the program names, where none was given.
pub(crate) fn open_named(program: &Program) -> Result<Option<Process>, SessionError> {
    let descriptions = program.clauses.iter().flat_map(|clause| &clause.probes);
    let Some((pid, description)) = named_process(descriptions) else {
        return Ok(None);
    };
    let open = || {
        let process = Process::open(pid)?;
        process.check_sharing()?;
        check_acquired(&process)?;
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

/// Whether a running process may be traced; what a killed tracer has left in it is cleaned up first.
pub(crate) fn check_acquired(process: &Process) -> Result<(), SessionError> {
    match check_sandbox(process).and_then(|()| clean_up(process)) {
        Err(_) if process.has_executed() => Err(SessionError::Executed { pid: process.pid() }),
        other => other,
    }
}

/// Takes back what dead tracers have left in a process; an error when a tracer lives.
pub(crate) fn clean_up(process: &Process) -> Result<(), SessionError> {
    let map = process.map()?;
    if !detach::has_arena(&map) {
        // A live tracer holds the thread, so this is not our work.
        if process.has_way_home(&map)
            && let Ok(mut stopped) = process.stop()
        {
            stopped.clear_way_home()?;
        }
        return Ok(());
    }
    match detach::restore(process) {
        Ok(_) | Err(SessionError::NothingToRestore { .. }) => Ok(()),
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
    let stopped = process.stop()?;
    let sandbox = stopped.sandbox();
    stopped.release();
    match sandbox {
        Sandbox::None | Sandbox::Permits => Ok(()),
        sandbox => Err(SessionError::Sandboxed { pid, sandbox }),
    }
}
