//! The beginning of a run on a set of processes: who is in it, and whether the program is good for them.

use nanoprobe_lang::Source;
use nanoprobe_session::{Acquired, Prepared, SessionError};

use super::compiling::refused;
use super::matches::{texts_of, without_match};
use super::run::Trace;
use super::set::{LOOK_PERIOD, Set, first_of, prepare};
use crate::arguments::Arguments;
use crate::output::message;
use crate::wanted::Listed;
use crate::{compile, interrupt, retry};

/// Traces the set that the command line names.
pub fn run(arguments: &Arguments, sources: &[Source]) -> Result<u8, anyhow::Error> {
    if arguments.list {
        message(arguments.processes.refusal("-l lists the probes of one process"));
        return Ok(2);
    }
    raise_file_limit();
    let Some(listed) = first_members(arguments) else {
        return Err(SessionError::Interrupted.into());
    };
    let pids = listed.iter().map(|listed| listed.pid).collect();
    let mut set = Set::new(pids, arguments.processes.rule.clone());
    for listed in &listed {
        if interrupt::requested() {
            return Err(SessionError::Interrupted.into());
        }
        let first = set.ready.front().map(|ready| ready.compiled.clone());
        let prepared =
            retry::persistently(|now| prepare(arguments, sources, listed, (set.pids(), first.as_deref()), now));
        match prepared {
            Ok(Ok(ready)) => {
                let (program, options) = (ready.compiled.program(), ready.compiled.options());
                if let (None, Some(status)) = (&first, refused(arguments, sources, program, options)?) {
                    return Ok(status);
                }
                set.ready.push_back(ready);
            }
            // The text is wrong, or no process of this kind has the names in it.
            Ok(Err(diagnostics)) if first.is_none() => {
                let _ = compile::shown::<()>(sources, Err(diagnostics));
                return Ok(1);
            }
            Ok(Err(diagnostics)) => set.leave(listed.pid, &first_of(&diagnostics)),
            Err(error) => match error.downcast_ref() {
                Some(SessionError::AtDescription { .. } | SessionError::Interrupted) => return Err(error),
                _ => set.leave(listed.pid, &error),
            },
        }
    }
    let Some(first) = set.ready.front() else {
        message("none of the processes is traced");
        return Ok(1);
    };
    check_matches(&set)?;
    let compiled = first.compiled.clone();
    let leader = Prepared::new(compiled.clone(), Acquired::leader())?;
    let mut trace = Trace::new(arguments, sources, &compiled, leader.known(), None)?;
    trace.lead(&compiled, set, leader.known())?;
    trace.run(leader)
}

/// Each process takes some open files: as many as are permitted, within reason.
fn raise_file_limit() {
    const FILES_MAX: u64 = 65_536;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills in one rlimit of ours.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    limit.rlim_cur = limit.rlim_cur.max(limit.rlim_max.min(FILES_MAX));
    // SAFETY: reads one rlimit of ours. If it fails, the limit stays, and an error names it later.
    let _ = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
}

/// The processes of `-p`, and those that the rule finds now, of which there must be one. `None`: an end was requested
/// before.
fn first_members(arguments: &Arguments) -> Option<Vec<Listed>> {
    let wanted = &arguments.processes;
    let mut listed = wanted.listed.clone();
    let Some(rule) = &wanted.rule else {
        return Some(listed);
    };
    let mut is_told = false;
    loop {
        let found = rule.look().unwrap_or_default();
        for pid in found {
            if listed.iter().all(|other| other.pid != pid) {
                listed.push(Listed { pid, name: None });
            }
        }
        if !listed.is_empty() {
            return Some(listed);
        }
        if !std::mem::replace(&mut is_told, true) {
            message(format_args!(
                "{rule}: there is no such process yet; waiting for the first one"
            ));
        }
        if interrupt::requested() {
            return None;
        }
        std::thread::sleep(LOOK_PERIOD);
    }
}

/// Refuses a description that matches in none of the processes. If further processes may come, this is only reported.
fn check_matches(set: &Set) -> Result<(), SessionError> {
    let known = || set.ready.iter().map(|ready| ready.prepared.known());
    let unmatched = known().map(without_match).reduce(|one, other| &one & &other);
    let unmatched = unmatched.unwrap_or_default();
    let Some(first) = known().next().filter(|_| !unmatched.is_empty()) else {
        return Ok(());
    };
    if set.has_rule() {
        for text in texts_of(first.program(), unmatched.iter()) {
            message(format_args!("{text} matches no probe so far"));
        }
        return Ok(());
    }
    let follows = set
        .ready
        .front()
        .is_some_and(|first| first.compiled.options().tracing.follow.programs());
    if !follows {
        for known in known() {
            known.check_some_match(&|clause, number| unmatched.contains(&(clause, number)))?;
        }
    }
    Ok(())
}
