//! A run from its first record to its last: the session yields what happened, and the sink prints it.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use nanoprobe_export::{Event, FlameGraph, Printer, Several, Sink};
use nanoprobe_lang::options::Options;
use nanoprobe_lang::{Program, Source};
use nanoprobe_session::{Attached, Compiled, Detached, Ended, Known, Losses, Output, Patch, Prepared, Tracing};
use nanoprobe_target::Process;

use super::aggregating::{Aggregated, needs_aggregations};
use super::nothing::Seen;
use super::reporting::{Told, milliseconds, stood, unplaced};
use crate::arguments::Arguments;
use crate::cost::limit::Limit;
use crate::output::{Names, Stream, detached, ended, message, printer, probe_name};
use crate::{interrupt, progress};

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
    seen: Seen,
}

impl<'a> Trace<'a> {
    pub fn new(
        arguments: &'a Arguments,
        sources: &'a [Source],
        compiled: &'a Compiled,
        known: &Known,
    ) -> std::io::Result<Trace<'a>> {
        let (program, options) = (compiled.program(), compiled.options());
        Ok(Trace {
            program,
            is_verbose: arguments.verbose,
            printer: printer(program, options, sink(arguments, options, known)),
            out: Stream::open(arguments.output.as_deref())?,
            aggregated: Aggregated::new(options.tracing.max_cost.map(Limit::new)),
            told: Told::new(arguments, sources),
            losses_at: Instant::now(),
            was_placed: false,
            seen: Seen::new(program),
        })
    }

    pub fn run(mut self, prepared: Prepared) -> Result<u8, anyhow::Error> {
        if self.program.clauses.is_empty() {
            self.announce(prepared.known(), &[])?;
            message("no probes matched");
            return Ok(1);
        }
        self.out.set_target(prepared.known().process().map(Process::pid));
        let (mut attached, begun) = prepared.begin()?;
        self.seen.begin();
        self.verbose(format_args!(
            "attach {:.1} ms, {}, {} sites",
            milliseconds(begun.took),
            stood(&begun.pauses),
            begun.patches
        ));
        progress::begun(begun.patches);
        let result = self.events(&mut attached);
        self.was_placed |= attached.has_places();
        self.seen.look(attached.known());
        let start = Instant::now();
        let (mut ended, gone) = match (result, attached.end()) {
            (Ok(()), ended) => ended?,
            (Err(error), ended) => {
                if let Ok((_, gone)) = ended {
                    detached(&gone);
                }
                return Err(error);
            }
        };
        self.announce(ended.tracing().known(), ended.patches())?;
        if ended.tracing().known().process().is_some() {
            self.verbose(format_args!(
                "detach {:.1} ms, {}, {} sites, {} return addresses",
                milliseconds(start.elapsed()),
                stood(&gone.pauses),
                gone.restored,
                gone.calls
            ));
        }
        self.finish(&mut ended, &gone)
    }

    /// What was recorded last, and what was aggregated.
    fn finish(mut self, ended: &mut Ended, gone: &Detached) -> Result<u8, anyhow::Error> {
        while let Some(outputs) = ended.remaining()? {
            self.print(ended.tracing_mut(), outputs)?;
        }
        self.aggregated.load(ended.tracing_mut())?;
        let tracing = ended.tracing();
        self.printer.sink().ended(&mut self.out)?;
        let table = &self.aggregated.table;
        self.printer.finish(&mut self.out, table, &mut Names(tracing.known()))?;
        self.out.flush()?;
        detached(gone);
        self.losses(tracing)?;
        let mut status = tracing.exit_status().unwrap_or(0);
        // An interruption during planning leaves the probes unplaced, which is not an error.
        let is_without = !self.was_placed && !interrupt::requested();
        let mut refused = tracing.known().refused().iter();
        if let Some(first) = refused.find(|refused| is_without && !refused.is_early_return()) {
            self.printer.sink().unplaced(&mut self.out, &unplaced(first))?;
            status = status.max(1);
        }
        self.seen
            .counted(self.aggregated.is_any || tracing.losses()? != Losses::default());
        if self.was_placed
            && let Some(nothing) = self.seen.nothing(tracing.known())
        {
            self.printer.sink().nothing_seen(&mut self.out, &nothing)?;
        }
        self.printer.sink().finish(&mut self.out, status)?;
        self.out.flush()?;
        Ok(status as u8)
    }

    fn events(&mut self, attached: &mut Attached) -> Result<(), anyhow::Error> {
        while !interrupt::requested() && !attached.is_finished() {
            self.was_placed = self.was_placed || attached.has_places();
            self.seen.look(attached.known());
            let outputs = attached.step()?;
            if attached.known().is_loaded() {
                self.announce(attached.known(), attached.patches())?;
            }
            self.print(attached.tracing_mut(), outputs)?;
            self.out.flush()?;
            self.aggregated.watch_cost(attached)?;
            if self.losses_at.elapsed() >= LOSSES_PERIOD {
                self.losses(attached.tracing())?;
                self.losses_at = Instant::now();
            }
        }
        if interrupt::requested() {
            self.printer.sink().interrupted(&mut self.out)?;
        }
        Ok(())
    }

    fn announce(&mut self, known: &Known, patches: &[Patch]) -> Result<(), nanoprobe_export::Error> {
        self.told.announce(known, patches, self.printer.sink(), &mut self.out)
    }

    fn losses(&mut self, tracing: &Tracing) -> Result<(), anyhow::Error> {
        self.told.losses(tracing, self.printer.sink(), &mut self.out)
    }

    fn print(&mut self, tracing: &mut Tracing, outputs: Vec<Output>) -> Result<(), anyhow::Error> {
        let mut following = if self.printer.options().printing.flow_indent {
            following(tracing.known(), &outputs)
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
                    self.print_record(tracing, (epid, cpu, thread), next, &bytes)?;
                }
                Output::Fault { epid, fault } => {
                    if let Some((probe, ..)) = tracing.known().enabling(epid) {
                        self.seen.fired(probe);
                        let probe = probe_name(probe);
                        self.printer.sink().fault(&mut self.out, epid, &probe, &fault)?;
                    }
                }
                Output::Library { sites, pauses } => {
                    self.verbose(format_args!("library: {sites} sites, {}", stood(&pauses)));
                }
                Output::Warning(text) => self.printer.sink().warning(&mut self.out, &text)?,
                Output::Exited(exit) => {
                    let pid = tracing.known().process().map(Process::pid);
                    self.printer.sink().exited(&mut self.out, pid, ended(exit))?;
                }
            }
        }
        Ok(())
    }

    fn print_record(
        &mut self,
        tracing: &mut Tracing,
        (epid, cpu, thread): (u32, u32, u32),
        next: Option<(u32, u32)>,
        bytes: &[u8],
    ) -> Result<(), anyhow::Error> {
        let enabling = tracing.known().enabling(epid).map(|(_, enabling, _)| enabling.clause);
        let clause = enabling.and_then(|clause| self.program.clauses.get(clause));
        if clause.is_some_and(needs_aggregations) {
            self.aggregated.load(tracing)?;
        }
        let known = tracing.known();
        let Some((probe, enabling, layout)) = known.enabling(epid) else {
            return Ok(());
        };
        self.seen.fired(probe);
        let Some(clause) = self.program.clauses.get(enabling.clause) else {
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
        let printed = self.printer.record(&mut self.out, &event, table, &mut Names(known));
        let epochs = table.take_epochs();
        if !epochs.is_empty() {
            tracing.begin_epochs(&epochs)?;
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
fn sink(arguments: &Arguments, options: &Options, known: &Known) -> Box<dyn Sink> {
    let format = arguments.format.sink(options, arguments.verbose);
    let Some(path) = &arguments.flame_graph else {
        return format;
    };
    let title = match (&arguments.command, known.process()) {
        (Some(command), _) => command.clone(),
        (None, Some(process)) => format!("{} (pid {})", process.facts().name, process.pid()),
        (None, None) => String::new(),
    };
    Box::new(Several(vec![format, Box::new(FlameGraph::new(path, title))]))
}

/// For each output, the enabled probe and the probe of its thread's next record, found from the
/// last output to the first. Of several clauses at one return, only the last ends the level (`-F`).
fn following(known: &Known, outputs: &[Output]) -> Vec<Option<(u32, u32)>> {
    let mut later = HashMap::new();
    let of = |output: &Output| match output {
        Output::Record { epid, thread, .. } => {
            let (probe, ..) = known.enabling(*epid)?;
            later.insert(*thread, (*epid, probe.id))
        }
        _ => None,
    };
    outputs.iter().rev().map(of).collect()
}
