//! A program, compiled for a process: its types and addresses are those of this process.

use std::rc::Rc;

use nanoprobe_export::profile;
use nanoprobe_lang::options::{Follow, Options};
use nanoprobe_lang::{Diagnostic, Program, Source, Target};
use nanoprobe_session::{Acquired, TracedProgram};
use nanoprobe_target::Process;

use crate::arguments::Arguments;
use crate::cost::hits;
use crate::macros::macro_values;
use crate::output::{message, tell};
use crate::retry::Attempt;
use crate::{compile, interrupt};

/// The compiled program, and the process for which it was compiled.
pub struct ForProcess {
    /// It lives as long as the session, because the types of the compiled program refer to it.
    pub traced: Rc<TracedProgram>,
    pub program: Program,
    pub options: Options,
}

/// Compiles the program. The inner error is one of the text.
pub fn compile_for(
    arguments: &Arguments,
    sources: &[Source],
    acquired: &Acquired,
    now: Attempt,
) -> Result<Result<ForProcess, Vec<Diagnostic>>, anyhow::Error> {
    let mut macros = macro_values(arguments);
    let pid = acquired.root().or(acquired.process().map(Process::pid));
    macros.target = pid.map(i64::from);
    let traced = Rc::new(TracedProgram::new(acquired));
    let target: Rc<dyn Target> = traced.clone();
    let compiled = interrupt::at_once(acquired.command(), || {
        nanoprobe_lang::compile_for(sources, &macros, &target)
    });
    // The error may be true only of the program that the process executed before.
    traced.check_program()?;
    if compiled.is_err() && now.may_wait {
        traced.check_started()?;
    }
    let mut program = match compiled {
        Ok(program) => program,
        Err(diagnostics) => return Ok(Err(diagnostics)),
    };
    let mut options = compile::options(arguments, &program).map_err(anyhow::Error::msg)?;
    if (arguments.listing || options.printing.listing) && now.is_first {
        tell(&nanoprobe_lang::dump::dump(&program));
    }
    if options.tracing.max_cost.is_some() {
        let counted = interrupt::at_once(acquired.command(), || {
            hits::compile(&program, sources, &macros, &target)
        });
        program = counted.map_err(|_| anyhow::Error::msg("maxcost: the hits of these probes cannot be counted"))?;
    }
    if arguments.list {
        options.tracing.allow_unmatched = true;
    }
    // A command is often a script, and what it starts is what is looked for.
    if arguments.command.is_some() && !options.tracing.follow_is_given {
        options.tracing.follow = Follow::All;
    }
    // Children that the members of such a set fork have the members' probes, so nanoprobe cannot attach to the children
    // later.
    if arguments.processes.rule.is_some() {
        options.tracing.follow = match options.tracing.follow {
            Follow::No | Follow::Fork => Follow::Fork,
            Follow::Exec | Follow::All => Follow::All,
        };
    }
    Ok(Ok(ForProcess {
        traced,
        program,
        options,
    }))
}

/// The exit status, after a message, if the program is not to be run.
pub fn refused(
    arguments: &Arguments,
    sources: &[Source],
    program: &Program,
    options: &Options,
) -> Result<Option<u8>, anyhow::Error> {
    if arguments.exit_after_compile {
        return Ok(Some(0));
    }
    if let Some((name, span)) = nanoprobe_lang::check::effects::destructive(program)
        && !options.tracing.destructive
        && !arguments.list
    {
        compile::show(sources, &nanoprobe_lang::check::effects::not_permitted(name, span));
        return Ok(Some(1));
    }
    if let (Some((format, _)), false) = (arguments.profiles.first(), profile::has_stacks(program)) {
        message(format_args!(
            "--{} shows counts and sums by stacks, and there are none: @[ustack()] = count();",
            format.flag
        ));
        return Ok(Some(2));
    }
    // Fail now, before results would be lost.
    for (_, path) in &arguments.profiles {
        profile::check(path)?;
    }
    Ok(None)
}

/// Whether the aggregations and the variables of two programs, which come from one text, are the same.
pub fn has_same_results(one: &Program, other: &Program) -> bool {
    one.aggregations == other.aggregations && one.globals == other.globals && one.clauses.len() == other.clauses.len()
}

pub fn first_of(diagnostics: &[Diagnostic]) -> String {
    let mut diagnostics = diagnostics.iter();
    diagnostics.next().map_or_else(String::new, ToString::to_string)
}
