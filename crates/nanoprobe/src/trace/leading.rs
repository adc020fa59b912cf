//! The beginning of a run on a set of processes: who is in it, and whether the program is good for them.

use nanoprobe_lang::Source;
use nanoprobe_session::{Acquired, Prepared, SessionError};

use super::compiling::{first_of, refused};
use super::matches::{texts_of, without_match};
use super::run::Trace;
use super::set::{LOOK_PERIOD, Set, prepare};
use crate::arguments::Arguments;
use crate::macros::macro_values;
use crate::output::message;
use crate::wanted::Listed;
use crate::{compile, interrupt, retry, service};

/// Traces the set that the command line names.
pub fn run(arguments: &Arguments, sources: &[Source]) -> Result<u8, anyhow::Error> {
    if arguments.list {
        message(arguments.processes.refusal("-l lists the probes of one process"));
        return Ok(2);
    }
    raise_file_limit();
    let mut set = Set::new(arguments.processes.rule.clone());
    loop {
        let Some(listed) = first_members(arguments, sources, &set) else {
            return Err(SessionError::Interrupted.into());
        };
        if let Some(status) = prepare_all(arguments, sources, &listed, &mut set)? {
            return Ok(status);
        }
        if !set.ready.is_empty() {
            break;
        }
        // A service waits for others.
        if !arguments.is_service {
            message("none of the processes is traced");
            return Ok(1);
        }
    }
    let Some(first) = set.ready.front() else {
        return Ok(1);
    };
    check_matches(&set)?;
    let root = first.root();
    let leader = Prepared::new(root.compiled.clone(), Acquired::leader())?;
    let mut trace = Trace::new(arguments, sources, &root, leader.known(), None)?;
    trace.lead(&root, set, leader.known())?;
    trace.run(leader)
}

/// Compiles the program for each of the first processes, and finds its matches there. Yields an exit status, after a
/// message, if the program is not to be run.
fn prepare_all(
    arguments: &Arguments,
    sources: &[Source],
    listed: &[Listed],
    set: &mut Set,
) -> Result<Option<u8>, anyhow::Error> {
    set.name(listed);
    for listed in listed {
        if interrupt::requested() {
            return Err(SessionError::Interrupted.into());
        }
        service::alive();
        let first = set.ready.front().map(|ready| ready.compiled.clone());
        let prepared =
            retry::persistently(|now| prepare(arguments, sources, listed, (set.pids(), first.as_deref()), now));
        match prepared {
            Ok(Ok(ready)) => {
                let (program, options) = (ready.compiled.program(), ready.compiled.options());
                if let (None, Some(status)) = (&first, refused(arguments, sources, program, options)?) {
                    return Ok(Some(status));
                }
                set.ready.push_back(ready);
            }
            // The text is wrong, or no process of this kind has the names in it.
            Ok(Err(diagnostics)) if first.is_none() => {
                let _ = compile::shown::<()>(sources, Err(diagnostics));
                return Ok(Some(1));
            }
            Ok(Err(diagnostics)) => set.leave(listed.pid, &first_of(&diagnostics)),
            Err(error) => match error.downcast_ref() {
                Some(SessionError::AtDescription { .. } | SessionError::Interrupted) => return Err(error),
                _ => set.leave(listed.pid, &error),
            },
        }
    }
    Ok(None)
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

/// The processes of `-p`, and those that the rule finds now, of which there must be one. Processes that could not be
/// traced are none of them. `None`: an end was requested before.
fn first_members(arguments: &Arguments, sources: &[Source], set: &Set) -> Option<Vec<Listed>> {
    let wanted = &arguments.processes;
    let mut listed = wanted.listed.clone();
    let Some(rule) = &wanted.rule else {
        return Some(listed);
    };
    let mut is_told = false;
    loop {
        let found = rule.look().unwrap_or_default();
        for pid in found.into_iter().filter(|pid| !set.is_given_up(*pid)) {
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
            told_doubts(arguments, sources);
        }
        if interrupt::requested() {
            return None;
        }
        service::alive();
        service::does(&|| format!("{rule}: waiting for the first process"));
        std::thread::sleep(LOOK_PERIOD);
    }
}

/// Says before a long wait what may be wrong with the program. Only a process shows whether it is, because types are a
/// process's own.
fn told_doubts(arguments: &Arguments, sources: &[Source]) {
    let mut macros = macro_values(arguments);
    macros.target = Some(i64::from(std::process::id()));
    if let Err(diagnostics) = nanoprobe_lang::compile(sources, &macros) {
        message("without a process the program has these errors; those in types and names may be none in the process:");
        let _ = compile::shown::<()>(sources, Err(diagnostics));
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
