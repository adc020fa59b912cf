//! A run from its first record to its last: the session yields what happened, and the sink prints it.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use nanoprobe_export::{Event, FlameGraph, Printer, Several, Sink};
use nanoprobe_lang::options::Options;
use nanoprobe_lang::{Program, Source};
use nanoprobe_session::{Output, Session};
use nanoprobe_target::Process;

use super::aggregating::{Aggregated, needs_aggregations};
use super::telling::{Told, milliseconds, stood, unplaced};
use crate::arguments::Arguments;
use crate::cost::limit::Limit;
use crate::interrupt;
use crate::output::{Names, Stream, detached, ended, message, printer, probe_name};

/// How often lost records are reported.
const LOSSES_PERIOD: Duration = Duration::from_secs(1);

/// The state of a run.
pub struct Trace<'a> {
    program: &'a Program,
    is_verbose: bool,
    printer: Printer<'a>,
    out: Stream,
    aggregated: Aggregated,
    told: Told<'a>,
    losses_at: Instant,
    /// At least one probe of the target could be placed.
    was_placed: bool,
}

impl<'a> Trace<'a> {
    pub fn new(
        arguments: &'a Arguments,
        sources: &'a [Source],
        options: &Options,
        program: &'a Program,
        session: &Session,
    ) -> std::io::Result<Trace<'a>> {
        Ok(Trace {
            program,
            is_verbose: arguments.verbose,
            printer: printer(program, options, sink(arguments, options, session)),
            out: Stream::open(arguments.output.as_deref())?,
            aggregated: Aggregated::new(options.max_cost.map(Limit::new)),
            told: Told::new(arguments, sources),
            losses_at: Instant::now(),
            was_placed: false,
        })
    }

    pub fn run(mut self, session: &mut Session) -> Result<u8, anyhow::Error> {
        if self.program.clauses.is_empty() {
            self.announce(session)?;
            message("no probes matched");
            session.abandon();
            return Ok(1);
        }
        self.out.set_target(session.process().map(Process::pid));
        let begun = session.begin()?;
        self.verbose(format_args!(
            "attach {:.1} ms, {}, {} sites",
            milliseconds(begun.took),
            stood(&begun.pauses),
            begun.patches
        ));
        let result = self.events(session);
        self.was_placed |= session.has_places();
        let start = Instant::now();
        let taken_back = session.end();
        let gone = match (result, taken_back) {
            (Ok(()), Ok(gone)) => gone,
            (Err(error), taken_back) => {
                if let Ok(gone) = taken_back {
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
            self.print(session, outputs)?;
        }
        self.aggregated.load(session)?;
        self.printer.sink().ended(&mut self.out)?;
        let table = &self.aggregated.table;
        self.printer.finish(&mut self.out, table, &mut Names(session))?;
        self.out.flush()?;
        detached(&gone);
        self.losses(session)?;
        let mut status = session.exit_status().unwrap_or(0);
        // An interruption during planning leaves the probes unplaced, which is not an error.
        let is_without = !self.was_placed && !interrupt::requested();
        let mut refused = session.refused().iter();
        if let Some(first) = refused.find(|refused| is_without && !refused.is_early_return()) {
            self.printer.sink().unplaced(&mut self.out, &unplaced(first))?;
            status = status.max(1);
        }
        self.printer.sink().finish(&mut self.out, status)?;
        self.out.flush()?;
        Ok(status as u8)
    }

    fn events(&mut self, session: &mut Session) -> Result<(), anyhow::Error> {
        while !interrupt::requested() && !session.is_finished() {
            self.was_placed = self.was_placed || session.has_places();
            let outputs = session.step()?;
            if session.is_loaded() {
                self.announce(session)?;
            }
            self.print(session, outputs)?;
            self.out.flush()?;
            self.aggregated.watch_cost(session)?;
            if self.losses_at.elapsed() >= LOSSES_PERIOD {
                self.losses(session)?;
                self.losses_at = Instant::now();
            }
        }
        if interrupt::requested() {
            self.printer.sink().interrupted(&mut self.out)?;
        }
        Ok(())
    }

    fn announce(&mut self, session: &Session) -> Result<(), nanoprobe_export::Error> {
        self.told.announce(session, self.printer.sink(), &mut self.out)
    }

    fn losses(&mut self, session: &Session) -> Result<(), anyhow::Error> {
        self.told.losses(session, self.printer.sink(), &mut self.out)
    }

    fn print(&mut self, session: &mut Session, outputs: Vec<Output>) -> Result<(), anyhow::Error> {
        let mut following = if self.printer.options().flow_indent {
            following(session, &outputs)
        } else {
            Vec::new()
        };
        for output in outputs {
            // The list is in reverse: its last element is for the first output.
            let next = following.pop().flatten();
            match output {
                Output::Record {
                    epid,
                    cpu,
                    thread,
                    bytes,
                } => {
                    self.print_record(session, (epid, cpu, thread), next, &bytes)?;
                }
                Output::Fault { epid, fault } => {
                    if let Some((probe, ..)) = session.enabling(epid) {
                        let probe = probe_name(probe);
                        self.printer.sink().fault(&mut self.out, epid, &probe, &fault)?;
                    }
                }
                Output::Library { sites, pauses } => {
                    self.told.places(session, self.printer.sink(), &mut self.out)?;
                    self.verbose(format_args!("library: {sites} sites, {}", stood(&pauses)));
                }
                Output::Warning(text) => self.printer.sink().warning(&mut self.out, &text)?,
                Output::Exited(exit) => {
                    self.announce(session)?;
                    let pid = session.process().map(Process::pid);
                    self.printer.sink().exited(&mut self.out, pid, ended(exit))?;
                }
            }
        }
        Ok(())
    }

    fn print_record(
        &mut self,
        session: &mut Session,
        (epid, cpu, thread): (u32, u32, u32),
        next: Option<(u32, u32)>,
        bytes: &[u8],
    ) -> Result<(), anyhow::Error> {
        let enabling = session.enabling(epid).map(|(_, enabling, _)| enabling.clause);
        let clause = enabling.and_then(|clause| session.program().clauses.get(clause));
        if clause.is_some_and(needs_aggregations) {
            self.aggregated.load(session)?;
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
        let table = &mut self.aggregated.table;
        let printed = self.printer.record(&mut self.out, &event, table, &mut Names(session));
        let epochs = table.take_epochs();
        if !epochs.is_empty() {
            session.begin_epochs(&epochs)?;
        }
        match printed {
            Ok(_) => Ok(()),
            Err(error @ nanoprobe_export::Error::Damaged { .. }) => {
                message(&error);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn verbose(&self, text: std::fmt::Arguments<'_>) {
        if self.is_verbose {
            message(text);
        }
    }
}

/// The requested format, and the flame graph with it.
fn sink(arguments: &Arguments, options: &Options, session: &Session) -> Box<dyn Sink> {
    let format = arguments.format.sink(options, arguments.verbose);
    let Some(path) = &arguments.flame_graph else {
        return format;
    };
    let title = match (&arguments.command, session.process()) {
        (Some(command), _) => command.clone(),
        (None, Some(process)) => format!("{} (pid {})", process.facts().name, process.pid()),
        (None, None) => String::new(),
    };
    Box::new(Several(vec![format, Box::new(FlameGraph::new(path, title))]))
}

/// For each output, the enabled probe and the probe of its thread's next record, found from the
/// last output to the first. Of several clauses at one return, only the last ends the level (`-F`).
fn following(session: &Session, outputs: &[Output]) -> Vec<Option<(u32, u32)>> {
    let mut later = HashMap::new();
    let of = |output: &Output| match output {
        Output::Record { epid, thread, .. } => {
            let (probe, ..) = session.enabling(*epid)?;
            later.insert(*thread, (*epid, probe.id))
        }
        _ => None,
    };
    outputs.iter().rev().map(of).collect()
}
