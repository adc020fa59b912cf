//! Reads records, passes their content to a [`Sink`], and carries out the other effects of actions.

use nanoprobe_lang::Program;
use nanoprobe_lang::format::Format;
use nanoprobe_lang::interpret::{ClauseFault, Value, read_field};
use nanoprobe_lang::options::{self, Options};
use nanoprobe_lang::program::{Clause, RecordKind, Statement};

use crate::Error;
use crate::console::{Console, Effect};
use crate::date::{LocalTime, utc};
use crate::event::{Event, ProbeName};
use crate::printf::formatted;
use crate::sink::{Action, Recorded, Sink, View};
use crate::stack::Symbolizer;
use crate::table::AggregateTable;

/// Prints the records of a session in the order in which they are given.
pub struct Printer<'a> {
    program: &'a Program,
    /// The current options, which `setopt()` changes.
    options: Options,
    local: LocalTime,
    sink: Box<dyn Sink>,
}

impl<'a> Printer<'a> {
    /// A printer that has printed nothing yet. Dates are in UTC.
    pub fn new(program: &'a Program, options: &Options, sink: Box<dyn Sink>) -> Printer<'a> {
        Printer {
            program,
            options: options.clone(),
            local: utc,
            sink,
        }
    }

    /// The printer with dates (`%Y`, `%T`) in this local time.
    #[must_use]
    pub fn with_local_time(mut self, local: LocalTime) -> Printer<'a> {
        self.local = local;
        self
    }

    /// The options as they are now.
    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn sink(&mut self) -> &mut dyn Sink {
        &mut *self.sink
    }

    /// Prints one record and carries out its effects. Yields the status of an `exit()`.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::Damaged`] for a record that is too short. Nothing of such a record is
    /// printed.
    pub fn record(
        &mut self,
        out: &mut dyn Console,
        event: &Event<'_>,
        aggregations: &mut AggregateTable,
        symbolizer: &mut dyn Symbolizer,
    ) -> Result<Option<i32>, Error> {
        let fields = fields(event)?;
        let is_silent = is_silent(event.clause);
        if !is_silent {
            self.sink.record_begins(out, &self.options, event)?;
        }
        let mut exit = None;
        for (index, statement) in event.clause.statements.iter().enumerate() {
            let Statement::Record(action) = statement else { continue };
            let recorded: Vec<&Recorded<'_>> = fields.iter().filter(|(field, _)| field.statement == index).collect();
            let kind = &action.kind;
            let integer = recorded.first().map(|(_, value)| value.as_integer());
            match kind {
                RecordKind::Exit(_) => exit = integer.map(|status| status as i32),
                RecordKind::Clear(id) => aggregations.clear(self.program, *id),
                RecordKind::Truncate { aggregation, count } => {
                    let count = count.as_ref().and(integer).unwrap_or(0);
                    aggregations.truncate(self.program, *aggregation, count);
                }
                RecordKind::Normalize { aggregation, .. } => {
                    aggregations.normalize(*aggregation, integer.unwrap_or(1) as u64);
                }
                RecordKind::Denormalize(id) => aggregations.denormalize(*id),
                RecordKind::System { format, .. } => {
                    let command = self.text(format, &recorded, aggregations, symbolizer)?;
                    out.act(Effect::System(command))?;
                }
                RecordKind::Reopen { format, .. } => {
                    let path = self.text(format, &recorded, aggregations, symbolizer)?;
                    out.act(Effect::Reopen(path))?;
                }
                RecordKind::TruncateOutput => out.act(Effect::Truncate)?,
                RecordKind::SetOption(_) => self.set_option(out, event, &recorded)?,
                RecordKind::Stop => out.act(Effect::Signal(SIGSTOP))?,
                RecordKind::Raise(_) => {
                    if let Some(signal) = integer {
                        out.act(Effect::Signal(signal as i32))?;
                    }
                }
                // The caller has already handled these actions.
                RecordKind::Speculate(_) | RecordKind::CommitSpeculation(_) | RecordKind::DiscardSpeculation(_) => {}
                RecordKind::Trace(_)
                | RecordKind::TraceName { .. }
                | RecordKind::TraceMemory(_)
                | RecordKind::Stack(_)
                | RecordKind::Symbol { .. }
                | RecordKind::Printf { .. }
                | RecordKind::Print { .. }
                | RecordKind::PrintAt { .. }
                | RecordKind::Printa { .. } => {
                    let action = Action {
                        kind,
                        recorded: &recorded,
                    };
                    let (sink, mut view) = self.viewing(aggregations, symbolizer);
                    sink.action(out, &mut view, action)?;
                }
            }
        }
        if !is_silent {
            self.sink.record_ends(out, &self.options, event)?;
        }
        Ok(exit)
    }

    /// Reports the fault of a clause.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn fault(
        &mut self,
        out: &mut dyn Console,
        epid: u32,
        probe: &ProbeName,
        fault: &ClauseFault,
    ) -> Result<(), Error> {
        self.sink.fault(out, epid, probe, fault)
    }

    /// Prints the aggregations that no action has printed.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn finish(
        &mut self,
        out: &mut dyn Console,
        aggregations: &AggregateTable,
        symbolizer: &mut dyn Symbolizer,
    ) -> Result<(), Error> {
        let (sink, mut view) = self.viewing(aggregations, symbolizer);
        sink.aggregations(out, &mut view)
    }

    fn viewing<'v>(
        &'v mut self,
        aggregations: &'v AggregateTable,
        symbolizer: &'v mut dyn Symbolizer,
    ) -> (&'v mut dyn Sink, View<'v>) {
        let view = View {
            program: self.program,
            options: &self.options,
            local: self.local,
            aggregations,
            symbolizer,
        };
        (&mut *self.sink, view)
    }

    /// The text of an action that uses its text instead of printing it.
    fn text(
        &mut self,
        format: &Format,
        recorded: &[&Recorded<'_>],
        aggregations: &AggregateTable,
        symbolizer: &mut dyn Symbolizer,
    ) -> Result<String, Error> {
        let (_, mut view) = self.viewing(aggregations, symbolizer);
        let mut text = Vec::new();
        formatted(&mut text, &mut view.context(), format, &mut recorded.iter().copied())?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Carries out `setopt(name[, value])`.
    fn set_option(
        &mut self,
        out: &mut dyn Console,
        event: &Event<'_>,
        recorded: &[&Recorded<'_>],
    ) -> Result<(), Error> {
        let mut strings = recorded
            .iter()
            .map(|(_, value)| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let (name, value) = (strings.next().unwrap_or_default(), strings.next());
        if let Err(problem) = set_option(&mut self.options, &name, value.as_deref()) {
            let place = crate::message::enabled(event.epid, event.probe);
            out.flush()?;
            out.tell(&format!("{place}: {problem}"));
        }
        Ok(())
    }
}

/// The values of a record, by the layout.
fn fields<'e>(event: &Event<'e>) -> Result<Vec<Recorded<'e>>, Error> {
    let Event {
        epid, layout, record, ..
    } = *event;
    let values: Option<Vec<Value>> = layout.fields.iter().map(|field| read_field(record, field)).collect();
    let values = values.filter(|_| record.len() >= layout.bytes as usize);
    let values = values.ok_or(Error::Damaged {
        epid,
        bytes: record.len(),
        expected: layout.bytes,
    })?;
    Ok(layout.fields.iter().zip(values).collect())
}

/// SIGSTOP on Linux.
const SIGSTOP: i32 = 19;

/// Whether a clause records only actions that print nothing. Such a clause has no line.
fn is_silent(clause: &Clause) -> bool {
    let mut actions = clause.statements.iter().filter_map(|statement| match statement {
        Statement::Record(action) => Some(&action.kind),
        _ => None,
    });
    !clause.statements.is_empty() && actions.all(RecordKind::is_silent)
}

/// Sets an option by `setopt(name[, value])`, if it can change during tracing.
fn set_option(options: &mut Options, name: &str, value: Option<&str>) -> Result<(), String> {
    let before = options.clone();
    let result = options.set(name, value).map_err(|error| error.to_string());
    let result = match result {
        Ok(()) if !is_changeable(name) => Err("Operation illegal when tracing is active".to_owned()),
        result => result,
    };
    result.map_err(|reason| {
        *options = before;
        format!(
            "couldn't set option \"{name}\" to \"{}\": {reason}",
            value.unwrap_or("1")
        )
    })
}

fn is_changeable(name: &str) -> bool {
    options::rows().any(|row| row.name == name && row.is_changeable)
}
