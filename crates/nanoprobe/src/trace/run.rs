//! A run from its first record to its last: the session yields events, and the sink prints them.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use nanoprobe_export::{Event, Printer, Several, Sink, Strace};
use nanoprobe_lang::options::Options;
use nanoprobe_lang::{Program, Source};
use nanoprobe_session::{Attached, Detached, Ended, Known, Losses, Output, Patch, Prepared, Tracing};
use nanoprobe_target::Process;

use super::aggregating::{Aggregated, needs_aggregations};
use super::anew::Root;
use super::members::Members;
use super::nothing::{Seen, has_places};
use super::others::Others;
use super::reporting::{Told, milliseconds, stood, unplaced};
use super::set::Set;
use crate::arguments::Arguments;
use crate::cost::limit::Limit;
use crate::losses::beyond_aggmax;
use crate::output::{Names, Stream, detached, ended, message, printer, probe_name};
use crate::places::AllNames;
use crate::screen::Screen;
use crate::screen::files::Files;
use crate::{interrupt, memory, progress, service};

/// How often lost records are reported.
const LOSSES_PERIOD: Duration = Duration::from_secs(1);

/// The state of a run.
pub struct Trace<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) program: &'a Program,
    is_verbose: bool,
    pub(super) printer: Printer<'a>,
    pub(super) out: Stream,
    pub(super) aggregated: Aggregated,
    told: Told<'a>,
    losses_at: Instant,
    /// How many values beyond `aggmax` were reported.
    told_drops: u64,
    /// Whether at least one probe of the target was placed.
    pub(super) was_placed: bool,
    pub(super) seen: Seen,
    pub(super) sources: &'a [Source],
    /// The processes beside the first one, or all of a set.
    pub(super) members: Option<Members<'a>>,
    /// Whether a set of processes is traced.
    pub(super) is_set: bool,
    /// The status of an `exit()` in one of these.
    pub(super) exit_status: Option<i32>,
    /// The screen on which a terminal shows the aggregations, if there is one.
    pub(super) screen: Option<Screen>,
    /// The standard files of a command while a screen is shown.
    pub(super) files: Option<Files>,
}

impl<'a> Trace<'a> {
    pub fn new(
        arguments: &'a Arguments,
        sources: &'a [Source],
        root: &'a Root,
        known: &Known,
        files: Option<Files>,
    ) -> std::io::Result<Trace<'a>> {
        let (program, options) = (root.compiled.program(), root.compiled.options());
        let members = Members::of(root, known, None);
        let limit = options.tracing.max_cost.map(Limit::new);
        let aggregated = Aggregated::new(limit, options.recording.aggregations_bytes_max);
        Ok(Trace {
            arguments,
            program,
            is_verbose: arguments.verbose,
            printer: printer(program, options, sink(arguments, options, known)),
            out: Stream::open(
                arguments.output.as_deref(),
                options.recording.rotation,
                service::is_on(),
            )?,
            aggregated,
            told: Told::new(arguments, sources),
            losses_at: Instant::now(),
            told_drops: 0,
            was_placed: false,
            seen: Seen::new(program),
            sources,
            members,
            is_set: false,
            exit_status: None,
            screen: None,
            files,
        })
    }

    /// Makes this the run of a set of processes.
    pub fn lead(&mut self, root: &Root, set: Set, leader: &Known) -> Result<(), anyhow::Error> {
        let known: Vec<&Known> = std::iter::once(leader).chain(set.known()).collect();
        self.told.announce_matches(&known, self.printer.sink(), &mut self.out)?;
        self.is_set = true;
        self.members = Members::of(root, leader, Some(set));
        self.aggregated.begin_merging(leader);
        Ok(())
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
        let result = if self.is_set {
            self.begin_set(&mut attached)
        } else {
            self.told_begin(begun.took, &stood(&begun.pauses), begun.patches);
            Ok(())
        };
        self.open_screen(attached.known());
        // Whatever becomes of the terminal, the probes are removed.
        let result = result
            .and_then(|()| self.events(&mut attached))
            .and(self.close_screen());
        self.seen.look_now();
        self.look(&attached);
        let result = result.and(self.end_members(&mut attached));
        self.was_placed |= attached.has_places();
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

    /// Prints the last records and the aggregations.
    fn finish(mut self, ended: &mut Ended, gone: &Detached) -> Result<u8, anyhow::Error> {
        self.aggregated.table.end();
        while let Some(outputs) = ended.remaining()? {
            self.print(ended.tracing_mut(), outputs, &mut Others::default())?;
        }
        self.aggregated.load(ended.tracing_mut())?;
        let tracing = ended.tracing();
        self.printer.sink().ended(&mut self.out)?;
        let Aggregated { table, places, .. } = &self.aggregated;
        let names = Names(tracing.known());
        self.printer
            .finish(&mut self.out, table, &mut AllNames { places, names })?;
        self.out.flush()?;
        detached(gone);
        self.losses(tracing)?;
        self.seen.note(tracing.known());
        // Descriptions that matched in none of several processes are told there.
        let unmatched = match self.tells_unmatched_of_all() {
            true => Vec::new(),
            false => tracing.known().unmatched(),
        };
        if interrupt::requested() {
            let known = tracing.known();
            self.told_interrupted(known.process().is_some() && has_places(known.program()));
        }
        let mut status = tracing.exit_status().or(self.exit_status).unwrap_or(0);
        status = status.max(self.finish_members(tracing.known())?);
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
            && let Some(nothing) = self.seen.nothing(unmatched)
        {
            self.printer.sink().nothing_seen(&mut self.out, &nothing)?;
        }
        if self.was_placed
            && !self.printer.options().tracing.follow_is_given
            && let Some(children) = self.seen.untraced_children()
        {
            self.printer.sink().warning(&mut self.out, &children)?;
        }
        self.printer.sink().finish(&mut self.out, status)?;
        self.out.flush()?;
        self.show_files()?;
        Ok(status as u8)
    }

    /// Says that the probes are in place.
    pub(super) fn told_begin(&self, took: Duration, stood: &str, sites: usize) {
        self.verbose(format_args!(
            "attach {:.1} ms, {stood}, {sites} sites",
            milliseconds(took)
        ));
        progress::begun(sites);
    }

    fn events(&mut self, attached: &mut Attached) -> Result<(), anyhow::Error> {
        while !interrupt::requested() && !self.is_finished(attached) {
            self.was_placed = self.was_placed || attached.has_places();
            self.look(attached);
            self.round(attached)?;
            self.printer.sink().rested(&mut self.out)?;
            self.out.flush()?;
            self.watch_cost(attached)?;
            self.show(attached)?;
            self.serve()?;
            if self.losses_at.elapsed() >= LOSSES_PERIOD {
                self.losses(attached.tracing())?;
                self.losses_of_members()?;
                self.give_back_memory();
                self.losses_at = Instant::now();
            }
        }
        service::stopping();
        if interrupt::requested() {
            self.printer.sink().interrupted(&mut self.out)?;
        }
        Ok(())
    }

    /// Gives back what was known of processes that have ended.
    fn give_back_memory(&mut self) {
        let Some(members) = &mut self.members else { return };
        if !std::mem::take(&mut members.have_ended) {
            return;
        }
        memory::trim();
        let traced = members.list.len();
        if let Some(bytes) = memory::in_use() {
            self.verbose(format_args!(
                "memory in use with {traced} processes: {} KiB",
                bytes >> 10
            ));
        }
    }

    /// What a service does besides tracing.
    fn serve(&mut self) -> Result<(), anyhow::Error> {
        service::alive();
        service::does(&|| {
            let traced = self.members.as_ref().map_or(0, |members| members.list.len());
            let set = self.members.as_ref().and_then(|members| members.set.as_ref());
            let began = set.map_or(0, |set| set.began);
            let title = self.arguments.processes.title();
            let noun = if traced == 1 { "process" } else { "processes" };
            format!("tracing {traced} {noun} of {title}; {began} since the start")
        });
        if interrupt::take_reopening() {
            self.out.reopen()?;
        }
        Ok(())
    }

    /// Looks for children that are not traced, while nothing is seen.
    fn look(&mut self, first: &Attached) {
        let members = self.members.iter().flat_map(|members| &members.list);
        let members = members.map(|member| member.session.known());
        self.seen.look(std::iter::once(first.known()).chain(members));
    }

    /// Says what an interruption has left undone. `has_places`: a process is traced by probes in its text.
    fn told_interrupted(&self, has_places: bool) {
        let set = self.members.as_ref().and_then(|members| members.set.as_ref());
        let (began, left) = set.map_or((0, 0), |set| (set.began, set.ready.len()));
        if !self.was_placed && (has_places || self.is_set) {
            message("interrupted before the probes were in place: nothing was traced, and nothing is left behind");
        } else if left > 0 {
            message(format_args!(
                "interrupted: {began} of {} processes were traced; nothing was done to the others",
                began + left
            ));
        }
    }

    /// Whether there is nothing more to wait for, in executed programs either.
    fn is_finished(&self, attached: &Attached) -> bool {
        let are_busy = self.members.as_ref().is_some_and(Members::are_busy);
        let goes_on = are_busy && attached.has_ended() && attached.tracing().exit_status().is_none();
        self.exit_status.is_some() || attached.is_finished() && !goes_on || self.is_set && !are_busy
    }

    pub(super) fn announce(&mut self, known: &Known, patches: &[Patch]) -> Result<(), nanoprobe_export::Error> {
        self.told.announce(known, patches, self.printer.sink(), &mut self.out)
    }

    fn losses(&mut self, tracing: &Tracing) -> Result<(), anyhow::Error> {
        let drops = self.aggregated.table.drops();
        let new = drops - std::mem::replace(&mut self.told_drops, drops);
        if new > 0 {
            self.printer.sink().losses(&mut self.out, &[beyond_aggmax(new)])?;
        }
        self.told.losses(tracing, self.printer.sink(), &mut self.out)
    }

    /// Prints what a session has recorded. A member's values were taken after these records.
    pub(super) fn print(
        &mut self,
        tracing: &mut Tracing,
        outputs: Vec<Output>,
        others: &mut Others<'_, 'a>,
    ) -> Result<(), anyhow::Error> {
        if tracing.known().process().is_some() {
            self.out.set_target(tracing.known().process().map(Process::pid));
        }
        let mut following = if self.printer.options().printing.flow_indent {
            following(tracing.known(), &outputs)
        } else {
            Vec::new()
        };
        for output in outputs {
            // The list is in reverse order: its last element belongs to the first output.
            let next = following.pop().flatten();
            match output {
                Output::Record {
                    epid,
                    cpu,
                    thread,
                    bytes,
                } => {
                    self.print_record((tracing, &mut *others), (epid, cpu, thread), next, &bytes)?;
                }
                Output::Fault { epid, fault } => {
                    if let Some((probe, ..)) = tracing.known().enabling(epid) {
                        self.seen.fired(probe);
                        let probe = probe_name(tracing.known(), probe);
                        self.printer.sink().fault(&mut self.out, epid, &probe, &fault)?;
                    }
                }
                Output::Library { sites, pauses } => {
                    self.verbose(format_args!("library: {sites} sites, {}", stood(&pauses)));
                }
                Output::Child { pid } => self.verbose(format_args!("process {pid} is traced, too")),
                Output::Warning(text) => {
                    let pid = tracing.known().process().map(Process::pid).filter(|_| self.is_set);
                    let text = pid.map_or_else(|| text.clone(), |pid| format!("process {pid}: {text}"));
                    self.printer.sink().warning(&mut self.out, &text)?;
                }
                Output::ChildExited { pid, exit } => {
                    let pid = pid.cast_signed();
                    self.printer.sink().child_exited(&mut self.out, pid, ended(exit))?;
                }
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
        (tracing, others): (&mut Tracing, &mut Others<'_, 'a>),
        (epid, cpu, thread): (u32, u32, u32),
        next: Option<(u32, u32)>,
        bytes: &[u8],
    ) -> Result<(), anyhow::Error> {
        let enabling = tracing.known().enabling(epid).map(|(_, enabling, _)| enabling.clause);
        let clause = enabling.and_then(|clause| self.program.clauses.get(clause));
        if clause.is_some_and(needs_aggregations) {
            others.load(&mut self.aggregated)?;
            // A member's own values were taken already.
            if !tracing.known().is_member() {
                self.aggregated.load(tracing)?;
            }
        }
        let known = tracing.known();
        let Some((probe, enabling, layout)) = known.enabling(epid) else {
            return Ok(());
        };
        self.seen.fired(probe);
        let Some(clause) = known.program().clauses.get(enabling.clause) else {
            return Ok(());
        };
        let probe = probe_name(known, probe);
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
        let Aggregated { table, places, .. } = &mut self.aggregated;
        let names = Names(known);
        let names = &mut AllNames { places, names };
        let printed = self.printer.record(&mut self.out, &event, table, names);
        let epochs = table.take_epochs();
        if !epochs.is_empty() {
            tracing.begin_epochs(&epochs)?;
            others.begin_epochs(&epochs)?;
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

    pub(super) fn verbose(&self, text: std::fmt::Arguments<'_>) {
        if self.is_verbose {
            message(text);
        }
    }
}

/// The sink of the requested format, with those of the profiles.
fn sink(arguments: &Arguments, options: &Options, known: &Known) -> Box<dyn Sink> {
    let format: Box<dyn Sink> = match arguments.tool.strace {
        Some(style) => Box::new(Strace::new(style, options, arguments.verbose)),
        None => arguments.format.sink(options, arguments.verbose),
    };
    if arguments.profiles.is_empty() {
        return format;
    }
    let title = subject(arguments, known);
    let profiles = arguments
        .profiles
        .iter()
        .map(|(format, path)| format.sink(path, &title));
    Box::new(Several(std::iter::once(format).chain(profiles).collect()))
}

/// The traced process or processes, in words.
pub(super) fn subject(arguments: &Arguments, known: &Known) -> String {
    match (&arguments.command, known.process()) {
        (Some(command), _) => command.clone(),
        _ if arguments.processes.is_set() => arguments.processes.title(),
        (None, Some(process)) => format!("{} (pid {})", process.facts().name, process.pid()),
        (None, None) => String::new(),
    }
}

/// For each output, the enabled probe and the probe of its thread's next record, computed from the last output to the
/// first. For `-F`: of several clauses at one return, only the last ends the level of indentation.
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
