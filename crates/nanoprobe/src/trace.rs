//! A tracing session on the command line.

mod aggregating;
mod telling;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nanoprobe_export::{AggregateTable, Event, Json, Printer};
use nanoprobe_lang::interpret::FaultKind;
use nanoprobe_lang::options::Options;
use nanoprobe_lang::{MacroValues, Source, Target};
use nanoprobe_session::{Choice, Losses, Output, Session, SessionError, TracedProgram};
use nanoprobe_target::{Exit, Process};

use self::aggregating::needs_aggregations;
use self::telling::{how, milliseconds, stood, unsampled};
use crate::arguments::Arguments;
use crate::attempts::{self, Attempt};
use crate::cost::hits;
use crate::cost::limit::Limit;
use crate::macros::macro_values;
use crate::output::{Names, Sink, detached, message, print_error, printer, probe_name, tell};
use crate::{compile, interrupt, list, own_probes, words};

/// How often lost records are reported.
const LOSSES_PERIOD: Duration = Duration::from_secs(1);

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
                // As at any other interruption.
                Some(SessionError::Interrupted) => return ExitCode::SUCCESS,
                Some(SessionError::AtDescription { span, error }) => compile::show_at(&sources, *span, error),
                _ => message(format_args!("{error}")),
            }
            ExitCode::FAILURE
        }
    }
}

fn try_run(arguments: &Arguments, sources: &[Source]) -> Result<u8, anyhow::Error> {
    if let (true, true, Some(pid)) = (sources.is_empty(), arguments.list, arguments.pid) {
        let mut out = Sink::open(arguments.output.as_deref())?;
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
    attempts::persistently(|now| attempt(arguments, sources, now))
}

/// Compiles the program, attaches and traces; [`SessionError::Executed`] and [`SessionError::Starting`] before anything is
/// printed.
fn attempt(arguments: &Arguments, sources: &[Source], now: Attempt) -> Result<u8, anyhow::Error> {
    // $target is known only when the command has been started, and a program that does not compile starts nothing: so
    // a command's program is compiled once with a number that stands in for it.
    let mut macros = macro_values(arguments);
    if arguments.command.is_some() {
        macros.target = Some(0);
    }
    let choice = match (&arguments.command, arguments.pid) {
        (Some(command), _) => Choice::Command(words::split(command).map_err(anyhow::Error::msg)?),
        (None, Some(pid)) => Choice::Process(pid),
        (None, None) => Choice::Named,
    };
    // Both live as long as the session: the types of what is compiled read on from them.
    let traced = Rc::new(TracedProgram::new(choice.clone()));
    let target: Rc<dyn Target> = traced.clone();
    let started: OnceCell<Rc<dyn Target>> = OnceCell::new();
    let compiled = interrupt::at_once(None, || nanoprobe_lang::compile_for(sources, &macros, &target));
    // What is wrong may be so of the old program only.
    traced.check_program()?;
    if compiled.is_err() && now.may_wait {
        traced.check_started()?;
    }
    let Some(mut program) = compile::shown(sources, compiled) else {
        return Ok(1);
    };
    let mut options = compile::options(arguments, &program).map_err(anyhow::Error::msg)?;
    if (arguments.listing || options.listing) && now.is_first {
        tell(&nanoprobe_lang::dump::dump(&program));
    }
    let is_limited = options.max_cost.is_some();
    let with_hits = |macros: &MacroValues, target: &Rc<dyn Target>| {
        if is_limited {
            hits::compile(sources, macros, target)
        } else {
            nanoprobe_lang::compile_for(sources, macros, target)
        }
    };
    if is_limited {
        program = with_hits(&macros, &target)
            .map_err(|_| anyhow::Error::msg("maxcost: the hits of these probes cannot be counted"))?;
    }
    if arguments.list {
        options.allow_unmatched = true;
    }
    if arguments.exit_after_compile {
        return Ok(0);
    }
    if let Some((name, span)) = nanoprobe_lang::check::effects::destructive(&program)
        && !options.destructive
        && !arguments.list
    {
        compile::show(sources, &nanoprobe_lang::check::effects::not_permitted(name, span));
        return Ok(1);
    }
    if arguments.flame_graph.is_some() && !nanoprobe_export::has_stacks(&program) {
        message("--flamegraph draws counts and sums by stacks, and there are none: @[ustack()] = count();");
        return Ok(2);
    }
    // Better told now than when the tracing is over.
    if let Some(path) = &arguments.flame_graph {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        file.map_err(|error| anyhow::anyhow!("cannot write {path}: {error}"))?;
    }
    let compile = |process: &Process| {
        let mut macros = macros.clone();
        macros.target = Some(i64::from(process.pid()));
        let target = started.get_or_init(|| Rc::new(traced.started(process)));
        let compiled = interrupt::at_once(Some(process.pid()), || with_hits(&macros, target));
        compile::shown(sources, compiled).ok_or(SessionError::Program)
    };
    let mut session = Session::open(program, options.clone(), choice, &compile)?;
    // Types and addresses are those of the program that is now to be traced.
    traced.check_program()?;
    if arguments.list {
        let mut out = Sink::open(arguments.output.as_deref())?;
        session.load()?;
        if arguments.json {
            list::print_json(&session, &mut out)?;
        } else {
            list::print(&session, &mut out)?;
        }
        if arguments.verbose && !arguments.json {
            list::print_plan(&mut session, &mut out)?;
        }
        out.flush()?;
        let unmatched = session.unmatched();
        for description in &unmatched {
            message(format_args!(
                "failed to match {description}: No probe matches description"
            ));
        }
        let found = session.probes().next().is_some();
        session.abandon();
        return Ok(u8::from(!found || !unmatched.is_empty()));
    }
    if let Some(refusal) = unsampled(&session) {
        message(refusal);
        return Ok(1);
    }
    let mut trace = Trace::new(arguments, sources, &options)?;
    if session.program().clauses.is_empty() {
        trace.announce(&session)?;
        message("no probes matched");
        session.abandon();
        return Ok(1);
    }
    trace.run(&mut session)
}

/// For each output, from the last to the first, the enabling and the probe of its thread's next record among them: of
/// several clauses at one return only the last ends the level (`-F`).
fn following(session: &Session, outputs: &[Output]) -> Vec<Option<(u32, u32)>> {
    let mut behind = HashMap::new();
    let of = |output: &Output| match output {
        Output::Record { epid, thread, .. } => {
            let (probe, ..) = session.enabling(*epid)?;
            behind.insert(*thread, (*epid, probe.id))
        }
        _ => None,
    };
    outputs.iter().rev().map(of).collect()
}

/// The state of a run.
struct Trace<'a> {
    arguments: &'a Arguments,
    sources: &'a [Source],
    options: &'a Options,
    out: Sink,
    aggregations: AggregateTable,
    losses: Losses,
    losses_at: Instant,
    announced: bool,
    /// Some probe of the target had a place.
    was_placed: bool,
    refused_told: usize,
    patches_told: usize,
    /// `-x maxcost`.
    limit: Option<Limit>,
}

impl<'a> Trace<'a> {
    fn new(arguments: &'a Arguments, sources: &'a [Source], options: &'a Options) -> std::io::Result<Trace<'a>> {
        Ok(Trace {
            arguments,
            sources,
            options,
            out: Sink::open(arguments.output.as_deref())?,
            aggregations: AggregateTable::new(),
            losses: Losses::default(),
            losses_at: Instant::now(),
            announced: false,
            was_placed: false,
            refused_told: 0,
            patches_told: 0,
            limit: options.max_cost.map(Limit::new),
        })
    }

    fn run(&mut self, session: &mut Session) -> Result<u8, anyhow::Error> {
        let program = session.program().clone();
        let mut printer = printer(&program, self.options).with_json(self.arguments.json);
        self.out.set_target(session.process().map(Process::pid));
        let begun = session.begin()?;
        self.verbose(format_args!(
            "attach {:.1} ms, {}, {} sites",
            milliseconds(begun.took),
            stood(&begun.pauses),
            begun.patches
        ));
        let result = self.events(session, &mut printer);
        self.was_placed |= session.has_places();
        let start = Instant::now();
        let ended = session.end();
        let gone = match (result, ended) {
            (Ok(()), Ok(gone)) => gone,
            (Err(error), ended) => {
                if let Ok(gone) = ended {
                    detached(&gone);
                }
                return Err(error);
            }
            (Ok(()), Err(error)) => return Err(error.into()),
        };
        self.announce(session)?;
        if session.process().is_some() {
            self.verbose(format_args!(
                "detach {:.1} ms, {}, {} sites, {} return addresses",
                milliseconds(start.elapsed()),
                stood(&gone.pauses),
                gone.restored,
                gone.calls
            ));
        }
        while let Some(outputs) = session.remaining()? {
            self.print(session, &mut printer, outputs)?;
        }
        self.load(session)?;
        // As in DTrace: whatever was traced, in quiet mode, too. What is left of the aggregations begins a line.
        self.end_line()?;
        if !program.aggregations.is_empty() {
            printer.finish(&mut self.out, &self.aggregations, &mut Names(session))?;
        }
        self.out.flush()?;
        self.draw(session)?;
        detached(&gone);
        self.tell_losses(session)?;
        let mut status = session.exit_status().unwrap_or(0);
        // Whoever ends the tracing while it is planned asks for no place.
        let is_without = !self.was_placed && !interrupt::requested();
        if let Some(first) = session
            .refused()
            .iter()
            .find(|refused| is_without && !refused.is_early_return())
        {
            if !self.arguments.json {
                message(format_args!(
                    "none of the places could be probed: {}: {}",
                    first.function, first.reason
                ));
            }
            status = status.max(1);
        }
        if self.arguments.json {
            self.line("exit", vec![("status", Json::from(status))])?;
            self.out.flush()?;
        }
        Ok(status as u8)
    }

    fn events(&mut self, session: &mut Session, printer: &mut Printer<'_>) -> Result<(), anyhow::Error> {
        while !interrupt::requested() && !session.is_finished() {
            self.was_placed = self.was_placed || session.has_places();
            let outputs = session.step()?;
            if session.is_loaded() {
                self.announce(session)?;
            }
            self.print(session, printer, outputs)?;
            self.out.flush()?;
            if self.limit.as_ref().is_some_and(Limit::is_due) {
                self.load(session)?;
                self.limit.as_mut().map_or(Ok(()), |limit| limit.look(session))?;
            }
            if self.losses_at.elapsed() >= LOSSES_PERIOD {
                self.tell_losses(session)?;
                self.losses_at = Instant::now();
            }
        }
        if interrupt::requested() {
            // As in DTrace: behind the terminal's `^C`.
            self.end_line()?;
        }
        Ok(())
    }

    /// Ends a line of text, of which JSON has none.
    fn end_line(&mut self) -> std::io::Result<()> {
        if self.arguments.json {
            return Ok(());
        }
        writeln!(self.out)
    }

    /// A line of JSON.
    fn line(&mut self, kind: &'static str, mut members: Vec<(&'static str, Json)>) -> std::io::Result<()> {
        members.insert(0, ("type", kind.into()));
        writeln!(self.out, "{}", Json::Object(members))
    }

    fn print(
        &mut self,
        session: &mut Session,
        printer: &mut Printer<'_>,
        outputs: Vec<Output>,
    ) -> Result<(), anyhow::Error> {
        let mut following = if printer.options().flow_indent {
            following(session, &outputs)
        } else {
            Vec::new()
        };
        for output in outputs {
            // The last is the first output's.
            let next = following.pop().flatten();
            match output {
                Output::Record {
                    epid,
                    cpu,
                    thread,
                    bytes,
                } => {
                    self.print_record(session, printer, (epid, cpu, thread), next, &bytes)?;
                }
                Output::Fault { epid, fault } => {
                    if let Some((probe, ..)) = session.enabling(epid) {
                        let probe = probe_name(probe);
                        let text = nanoprobe_export::error_message(epid, &probe, &fault);
                        if self.arguments.json {
                            let mut members = nanoprobe_export::probe_members(epid, &probe);
                            members.push(("action", fault.action.into()));
                            members.push(("fault", fault.fault.kind.to_string().into()));
                            if fault.fault.kind == FaultKind::BadAddress {
                                members.push(("address", fault.fault.value.into()));
                            }
                            members.push(("message", text.into()));
                            self.line("error", members)?;
                        } else {
                            self.out.flush()?;
                            message(text);
                        }
                    }
                }
                Output::Library { sites, pauses } => {
                    self.tell_places(session)?;
                    self.verbose(format_args!("library: {sites} sites, {}", stood(&pauses)));
                }
                Output::Warning(text) if self.arguments.json => {
                    self.line("warning", vec![("message", text.into())])?;
                }
                Output::Warning(text) => message(text),
                Output::Exited(exit) if self.arguments.json => {
                    self.announce(session)?;
                    let mut members = Vec::new();
                    members.extend(session.process().map(|process| ("pid", Json::from(process.pid()))));
                    match exit {
                        Exit::Status(status) => members.push(("status", status.into())),
                        Exit::Signal(signal) => members.push(("signal", signal.into())),
                        Exit::Unknown => {}
                    }
                    self.line("exited", members)?;
                }
                Output::Exited(exit) => {
                    if let (Some(process), false) = (session.process(), self.options.quiet) {
                        self.announce(session)?;
                        message(format_args!("pid {} has exited{}", process.pid(), how(exit)));
                    }
                }
            }
        }
        Ok(())
    }

    fn print_record(
        &mut self,
        session: &mut Session,
        printer: &mut Printer<'_>,
        (epid, cpu, thread): (u32, u32, u32),
        next: Option<(u32, u32)>,
        bytes: &[u8],
    ) -> Result<(), anyhow::Error> {
        let enabling = session.enabling(epid).map(|(_, enabling, _)| enabling.clause);
        let clause = enabling.and_then(|clause| session.program().clauses.get(clause));
        if clause.is_some_and(needs_aggregations) {
            self.load(session)?;
        }
        let Some((probe, enabling, layout)) = session.enabling(epid) else {
            return Ok(());
        };
        let Some(clause) = session.program().clauses.get(enabling.clause) else {
            return Ok(());
        };
        let probe = probe_name(probe);
        let event = Event {
            epid,
            probe: &probe,
            clause,
            layout,
            cpu,
            thread,
            record: bytes,
            next,
        };
        let printed = printer.record(&mut self.out, &event, &mut self.aggregations, &mut Names(session));
        let epochs = self.aggregations.take_epochs();
        if !epochs.is_empty() {
            session.begin_epochs(&epochs)?;
        }
        match printed {
            Ok(_) => Ok(()),
            Err(error @ nanoprobe_export::Error::Damaged { .. }) => {
                print_error(&error);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// `--flamegraph`.
    fn draw(&self, session: &Session) -> Result<(), anyhow::Error> {
        let Some(path) = &self.arguments.flame_graph else {
            return Ok(());
        };
        let stacks = nanoprobe_export::folded(session.program(), &self.aggregations, &mut Names(session));
        let title = match (&self.arguments.command, session.process()) {
            (Some(command), _) => command.clone(),
            (None, Some(process)) => format!("{} (pid {})", process.facts().name, process.pid()),
            (None, None) => String::new(),
        };
        let picture = nanoprobe_export::flame_graph(&title, &stacks);
        std::fs::write(path, picture).map_err(|error| anyhow::anyhow!("cannot write {path}: {error}"))
    }

    fn verbose(&self, text: std::fmt::Arguments<'_>) {
        if self.arguments.verbose {
            message(text);
        }
    }
}
