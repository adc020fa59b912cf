//! `nanoprobe restore`: takes away what killed tracers have left.

use std::process::ExitCode;

use nanoprobe_session::{Detached, SessionError};
use nanoprobe_target::Process;

use crate::output::{self, message};
use crate::traced;

pub const USAGE: &str = "usage: nanoprobe restore PID|NAME | --all";

const HELP: &str = "
Takes away what a tracer that was killed has left in a process: its patches and
its memory.

--all does so in every process whose tracer is dead, of those that you may trace.
A process whose tracer lives is left alone. The exit status is 0 if nothing
failed, also if there was nothing to do.
";

pub fn help() -> String {
    format!("{USAGE}\n{HELP}")
}

/// `restore PID`
pub fn one(pid: i32) -> ExitCode {
    let result = Process::open(pid).map_err(Into::into);
    match result.and_then(|process| nanoprobe_session::restore(&process)) {
        Ok(detached) => {
            say(pid, &detached);
            ExitCode::SUCCESS
        }
        Err(error) => {
            message(error);
            ExitCode::FAILURE
        }
    }
}

/// `restore --all`
pub fn all() -> ExitCode {
    let Some(Counts { restored, live, failed }) = of_all() else {
        return ExitCode::FAILURE;
    };
    message(format_args!(
        "processes restored: {restored}; failed: {failed}; left alone, because their tracers live: {live}"
    ));
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Takes away what killed tracers have left, and says so if there was something.
pub fn dead() {
    of_all();
}

struct Counts {
    restored: usize,
    live: usize,
    failed: usize,
}

/// Restores all processes whose tracers are dead. `None`: they cannot be listed.
fn of_all() -> Option<Counts> {
    let found = match traced::all() {
        Ok(found) => found,
        Err(error) => {
            message(format_args!("cannot list the processes: /proc: {error}"));
            return None;
        }
    };
    let (mut restored, mut live) = (0, 0);
    let mut failed = found.failed.len();
    for error in &found.failed {
        message(error);
    }
    for traced in &found.traced {
        if traced.carried.is_live || traced.carried.is_needed {
            live += 1;
            continue;
        }
        let result = traced::open(traced.pid).map_err(Into::into);
        match result.and_then(|process| nanoprobe_session::restore(&process)) {
            Ok(detached) => {
                restored += 1;
                say(traced.pid, &detached);
            }
            // A tracer has come meanwhile.
            Err(SessionError::TracerLives { .. }) => live += 1,
            // Another `restore` was quicker, or the process has ended.
            Err(SessionError::NothingToRestore { .. }) => {}
            Err(_) if !traced::has_arena(traced.pid) => {}
            Err(error) => {
                failed += 1;
                message(error);
            }
        }
    }
    Some(Counts { restored, live, failed })
}

fn say(pid: i32, detached: &Detached) {
    output::detached(detached);
    message(format_args!(
        "process {pid}: {} sites restored; {} had other bytes than nanoprobe's",
        detached.restored, detached.foreign
    ));
}
