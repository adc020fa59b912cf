//! A program, compiled for a process: its types and addresses are those of this process.

use std::rc::Rc;

use nanoprobe_export::profile;
use nanoprobe_lang::options::{Follow, Options};
use nanoprobe_lang::program::{AggregatingFunction, Aggregation, KeyType};
use nanoprobe_lang::{Diagnostic, Program, Source, Target};
use nanoprobe_session::{Acquired, TracedProgram};

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
    macros.target = acquired.process().map(|process| i64::from(process.pid()));
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
        options.tracing.follow = Follow::Fork;
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
    if let Some(refusal) = refusal(program, options.tracing.follow, arguments.processes.is_set()) {
        message(refusal);
        return Ok(Some(2));
    }
    Ok(None)
}

/// Why a program cannot be traced in several processes: `clear()` could not tell which of their minima begin anew.
fn refusal(program: &Program, follow: Follow, is_set: bool) -> Option<&'static str> {
    let is_extreme = |found: &&Aggregation| {
        use AggregatingFunction::{Maximum, Minimum};
        matches!(found.function, Minimum | Maximum)
    };
    let extremes = program.aggregations.iter().filter(is_extreme);
    let mut keys = extremes.flat_map(|found| &found.keys);
    let has_addresses = keys.any(|key| matches!(key, KeyType::UserStack { .. } | KeyType::Symbol(_)));
    ((is_set || follow.programs()) && has_addresses).then_some(
        "an address is another function in each program: with several processes, or -x follow=exec or all, \
         min() and max() may not have ustack(), usym(), uaddr() or umod() as a key",
    )
}
