//! A tracing session on the command line.

mod aggregating;
mod anew;
mod compiling;
mod costs;
mod early;
mod following;
mod leading;
mod matches;
mod members;
mod nothing;
mod others;
mod reporting;
mod run;
mod set;
mod showing;

use std::io::Write as _;
use std::process::ExitCode;

use nanoprobe_lang::Source;
use nanoprobe_session::{Acquired, Compiled, Prepared, SessionError};

use self::anew::Root;
use self::compiling::{ForProcess, compile_for, refused};
use self::run::Trace;
use crate::arguments::Arguments;
use crate::output::{Stream, is_closed_pipe, message};
use crate::retry::{self, Attempt};
use crate::screen::files::Files;
use crate::{compile, interrupt, list, own_probes, service, words};

/// Runs the command line.
pub fn run(arguments: Arguments) -> ExitCode {
    let sources = match compile::sources(&arguments) {
        Ok(sources) => sources,
        Err(error) => {
            message(error);
            return ExitCode::FAILURE;
        }
    };
    match try_run(&arguments, &sources) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            match error.downcast_ref() {
                // The status is the same as after any other interruption.
                Some(SessionError::Interrupted) => {
                    message(interrupt::UNCHANGED);
                    return ExitCode::SUCCESS;
                }
                _ if is_closed_pipe(&error) => return ExitCode::SUCCESS,
                Some(SessionError::AtDescription { span, error }) => compile::show_at(&sources, *span, error),
                _ => message(format_args!("{error}")),
            }
            ExitCode::FAILURE
        }
    }
}

fn try_run(arguments: &Arguments, sources: &[Source]) -> Result<u8, anyhow::Error> {
    if let (true, true, Some(pid)) = (sources.is_empty(), arguments.list, arguments.processes.pid()) {
        let mut out = Stream::open(arguments.output.as_deref(), None, false)?;
        let status = own_probes::print(pid, &mut out)?;
        out.flush()?;
        return Ok(status);
    }
    if sources.is_empty() && arguments.exit_after_compile {
        return Ok(0);
    }
    if sources.is_empty() {
        message("no probes specified: give a program by -n or -s (nanoprobe --help tells more)");
        return Ok(if std::env::args_os().len() == 1 { 2 } else { 1 });
    }
    interrupt::install();
    if arguments.is_service {
        service::start();
    }
    if arguments.processes.is_set() {
        return leading::run(arguments, sources);
    }
    retry::persistently(|now| attempt(arguments, sources, now))
}

/// Acquires the process, compiles the program, attaches and traces. It fails with [`SessionError::Executed`] and
/// [`SessionError::Starting`] only before it prints anything.
fn attempt(arguments: &Arguments, sources: &[Source], now: Attempt) -> Result<u8, anyhow::Error> {
    let files = Files::wanted(arguments).then(Files::new).transpose()?;
    let acquired = match (&arguments.command, arguments.processes.pid()) {
        (Some(command), _) => {
            let words = words::split(command).map_err(anyhow::Error::msg)?;
            Acquired::started_with(&words, files.as_ref().map_or([None; 3], Files::standard))?
        }
        (None, Some(pid)) => Acquired::running(pid)?,
        (None, None) => Acquired::none(),
    };
    if let Some(listed) = arguments.processes.one() {
        listed.check().map_err(anyhow::Error::msg)?;
    }
    let compiled = compile_for(arguments, sources, &acquired, now)?;
    let Some(ForProcess {
        traced,
        program,
        options,
    }) = compile::shown(sources, compiled)
    else {
        return Ok(1);
    };
    if let Some(status) = refused(arguments, sources, &program, &options)? {
        return Ok(status);
    }
    let compiled = Compiled::new(program, options)?;
    let prepared = Prepared::new(compiled.clone(), acquired)?;
    // Types and addresses are valid only if the process still executes the same program.
    traced.check_program()?;
    if arguments.list {
        return print_list(arguments, &compiled, prepared);
    }
    let root = Root {
        compiled,
        asks: traced.was_asked(),
    };
    Trace::new(arguments, sources, &root, prepared.known(), files)?.run(prepared)
}

/// `-l`
fn print_list(arguments: &Arguments, compiled: &Compiled, prepared: Prepared) -> Result<u8, anyhow::Error> {
    let mut out = Stream::open(arguments.output.as_deref(), None, false)?;
    let listed = prepared.load()?;
    let mut sink = arguments.format.sink(compiled.options(), arguments.verbose);
    list::print(listed.known(), arguments.verbose, &mut *sink, &mut out)?;
    if arguments.verbose && arguments.format.is_for_people {
        list::print_plan(&listed, &mut out)?;
    }
    out.flush()?;
    let unmatched = listed.known().unmatched();
    for description in &unmatched {
        message(format_args!(
            "failed to match {description}: No probe matches description"
        ));
    }
    let found = listed.known().probes().next().is_some();
    Ok(u8::from(!found || !unmatched.is_empty()))
}
