//! Records as text, and what they ask for besides.
//!
//! ```text
//! CPU     ID                    FUNCTION:NAME
//!  13  75978                     strlen:entry           3479933
//! ```
//!
//! The header comes before the first record, the columns before each, a new line after each; none of them when quiet.

use std::collections::BTreeSet;
use std::io::Write;

use nanoprobe_lang::format::Format;
use nanoprobe_lang::interpret::{Value, read_field};
use nanoprobe_lang::layout::{FieldKind, RecordField, RecordLayout};
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::{AggregationId, Clause, IntegerType, Program, RecordKind, Statement};

use crate::Error;
use crate::bytes;
use crate::console::{Console, Effect};
use crate::date::{LocalTime, utc};
use crate::flow::Flow;
use crate::lines;
use crate::pointed;
use crate::printa;
use crate::printf::{self, Context, Item};
use crate::stack::Symbolizer;
use crate::table::AggregateTable;
use crate::typed;

/// A probe, as the columns and the messages name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeName {
    /// The probe's number.
    pub id: u32,
    /// `pid1234`, `dtrace`, ...
    pub provider: String,
    /// The module.
    pub module: String,
    /// The function.
    pub function: String,
    /// `entry`, `return`, an offset, `BEGIN`, `tick-1s`, ...
    pub name: String,
}

/// A record with what it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The enabled probe.
    pub epid: u32,
    /// The probe.
    pub probe: &'a ProbeName,
    /// The clause that wrote the record.
    pub clause: &'a Clause,
    /// Its layout.
    pub layout: &'a RecordLayout,
    /// The CPU it was written on.
    pub cpu: u32,
    /// The thread that wrote it (for flow indentation).
    pub thread: u32,
    /// The record with its header.
    pub record: &'a [u8],
    /// Enabled probe and probe of the same thread's next record, where there is one already (for flow indentation).
    pub next: Option<(u32, u32)>,
}

/// Prints the records of a session in the order in which they are given.
pub struct Printer<'a> {
    program: &'a Program,
    /// `setopt()` changes them.
    options: Options,
    local: LocalTime,
    heading_printed: bool,
    flow: Flow,
    printed: BTreeSet<AggregationId>,
    json: bool,
}

impl<'a> Printer<'a> {
    /// Nothing is printed yet. Dates are in UTC.
    pub fn new(program: &'a Program, options: &Options) -> Printer<'a> {
        Printer {
            program,
            options: options.clone(),
            local: utc,
            heading_printed: false,
            flow: Flow::default(),
            printed: BTreeSet::new(),
            json: false,
        }
    }

    /// Dates (`%Y`, `%T`) are in this time.
    #[must_use]
    pub fn with_local_time(mut self, local: LocalTime) -> Printer<'a> {
        self.local = local;
        self
    }

    /// JSON lines instead of text.
    #[must_use]
    pub fn with_json(mut self, json: bool) -> Printer<'a> {
        self.json = json;
        self
    }

    /// The options as they are now.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Prints one record, and does to the aggregations what it asks for. Yields the status of an `exit()`.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::Damaged`] for a record that is too short, of which nothing has been printed then.
    pub fn record(
        &mut self,
        out: &mut dyn Console,
        event: &Event<'_>,
        aggregations: &mut AggregateTable,
        symbolizer: &mut dyn Symbolizer,
    ) -> Result<Option<i32>, Error> {
        let Event {
            epid, layout, record, ..
        } = *event;
        let damaged = || Error::Damaged {
            epid,
            bytes: record.len(),
            expected: layout.bytes,
        };
        let values: Option<Vec<Value>> = layout.fields.iter().map(|field| read_field(record, field)).collect();
        let values = values
            .filter(|_| record.len() >= layout.bytes as usize)
            .ok_or_else(damaged)?;
        let fields: Vec<(&RecordField, Value)> = layout.fields.iter().zip(values).collect();
        let is_silent = is_silent(event.clause);
        if !is_silent && !self.json {
            self.columns(out, event)?;
        }
        let mut data = Vec::new();
        let mut exit = None;
        for (index, statement) in event.clause.statements.iter().enumerate() {
            let Statement::Record(action) = statement else { continue };
            let mut recorded = fields.iter().filter(|(field, _)| field.statement == index);
            let mut context = Context {
                options: &self.options,
                local: self.local,
                symbolizer: &mut *symbolizer,
            };
            if self.json {
                let recorded: Vec<_> = fields.iter().filter(|(field, _)| field.statement == index).collect();
                let table = &*aggregations;
                if let Some((found, printed)) =
                    lines::datum(&mut context, (self.program, table), &action.kind, &recorded)?
                {
                    data.extend(found);
                    self.printed.extend(printed);
                    continue;
                }
            }
            let mut integer = || recorded.next().map(|(_, value)| value.as_integer());
            match &action.kind {
                RecordKind::Trace(_) | RecordKind::UserStack { .. } => {
                    for (field, value) in recorded {
                        trace(out, &mut context, field, value)?;
                    }
                }
                RecordKind::TraceName { of, .. } => {
                    for (field, value) in recorded {
                        trace(out, &mut context, field, &printf::of_enumeration(of, value))?;
                    }
                }
                RecordKind::Symbol { kind, .. } => {
                    printa::symbol(out, &mut context, integer().unwrap_or(0) as u64, *kind)?;
                }
                RecordKind::TraceMemory(_) => {
                    let shown = bytes::traced(recorded.map(|(_, value)| value));
                    bytes::bytes(out, shown, 0, self.options.quiet, true)?;
                }
                RecordKind::Printf { format, .. } => {
                    formatted(out, &mut context, format, &mut recorded)?;
                }
                RecordKind::System { format, .. } | RecordKind::Reopen { format, .. } => {
                    let mut text = Vec::new();
                    formatted(&mut text, &mut context, format, &mut recorded)?;
                    let text = String::from_utf8_lossy(&text).into_owned();
                    out.act(match action.kind {
                        RecordKind::System { .. } => Effect::System(text),
                        _ => Effect::Reopen(text),
                    })?;
                }
                RecordKind::TruncateOutput => out.act(Effect::Truncate)?,
                RecordKind::SetOption(_) => {
                    let mut string = || Some(String::from_utf8_lossy(recorded.next()?.1.as_bytes()).into_owned());
                    let (name, value) = (string().unwrap_or_default(), string());
                    if let Err(problem) = set_option(&mut self.options, &name, value.as_deref()) {
                        let place = crate::message::enabled(event.epid, event.probe);
                        out.act(Effect::Complaint(format!("{place}: {problem}")))?;
                    }
                }
                RecordKind::Print { shown, .. } => {
                    for (_, value) in recorded {
                        typed::print(out, shown, value)?;
                    }
                }
                RecordKind::PrintAt { shown, .. } => {
                    if let [(_, address), (_, value)] = *recorded.by_ref().collect::<Vec<_>>().as_slice() {
                        let limit = self.options.print_bytes;
                        pointed::print(out, shown, address.as_integer() as u64, value, limit)?;
                    }
                }
                RecordKind::Stop => out.act(Effect::Signal(SIGSTOP))?,
                RecordKind::Raise(_) => {
                    if let Some(signal) = integer() {
                        out.act(Effect::Signal(signal as i32))?;
                    }
                }
                // Dealt with before it came here.
                RecordKind::Speculate(_) | RecordKind::CommitSpeculation(_) | RecordKind::DiscardSpeculation(_) => {}
                RecordKind::Printa {
                    format,
                    aggregations: ids,
                } => {
                    if format.is_none() {
                        writeln!(out)?;
                    }
                    let format = format.as_ref();
                    let printed = printa::print(out, &mut context, self.program, aggregations, ids, format)?;
                    self.printed.extend(printed);
                }
                RecordKind::Exit(_) => exit = integer().map(|status| status as i32),
                RecordKind::Clear(id) => aggregations.clear(self.program, *id),
                RecordKind::Truncate { aggregation, count } => {
                    let count = count.as_ref().and_then(|_| integer()).unwrap_or(0);
                    aggregations.truncate(self.program, *aggregation, count);
                }
                RecordKind::Normalize { aggregation, .. } => {
                    aggregations.normalize(*aggregation, integer().unwrap_or(1) as u64);
                }
                RecordKind::Denormalize(id) => aggregations.denormalize(*id),
            }
        }
        if self.json && !is_silent {
            writeln!(out, "{}", lines::record(event, data))?;
        } else if !self.json && !self.options.quiet && !is_silent {
            writeln!(out)?;
        }
        Ok(exit)
    }

    /// Prints the aggregations that no `printa` has printed. (`dtrace` writes a new line before; that is the caller's.)
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn finish(
        &mut self,
        out: &mut dyn Write,
        aggregations: &AggregateTable,
        symbolizer: &mut dyn Symbolizer,
    ) -> Result<(), Error> {
        let mut context = Context {
            options: &self.options,
            local: self.local,
            symbolizer,
        };
        let ids = (0..self.program.aggregations.len())
            .filter_map(|id| u32::try_from(id).ok())
            .map(AggregationId);
        let left = ids.filter(|id| !self.printed.contains(id));
        let rows = left
            .flat_map(|id| aggregations.rows(self.program, id))
            .collect::<Vec<_>>();
        if self.json {
            return Ok(lines::rest(out, &mut context, self.program, rows)?);
        }
        Ok(printa::print_rest(out, &mut context, self.program, rows)?)
    }

    fn columns(&mut self, out: &mut dyn Write, event: &Event<'_>) -> Result<(), Error> {
        let Event { cpu, probe, .. } = event;
        let heading = !std::mem::replace(&mut self.heading_printed, true);
        if self.options.flow_indent {
            if heading {
                writeln!(out, "{:>3} {:<41}", "CPU", "FUNCTION")?;
            }
            let function = self.flow.column(event.thread, event.epid, probe, event.next);
            write!(out, "{cpu:>3} {function:<41} ")?;
        } else if !self.options.quiet {
            if heading {
                writeln!(out, "{:>3} {:>6} {:>32}", "CPU", "ID", "FUNCTION:NAME")?;
            }
            let name = format!("{}:{}", probe.function, probe.name);
            write!(out, "{cpu:>3} {:>6} {name:>32} ", probe.id)?;
        }
        Ok(())
    }
}

/// SIGSTOP on Linux.
const SIGSTOP: i32 = 19;

/// Whether a clause records nothing that is printed: it has no line then.
fn is_silent(clause: &Clause) -> bool {
    let mut actions = clause.statements.iter().filter_map(|statement| match statement {
        Statement::Record(action) => Some(&action.kind),
        _ => None,
    });
    !clause.statements.is_empty() && actions.all(RecordKind::is_silent)
}

/// A format with the values that were recorded for it.
pub(crate) fn formatted<'v>(
    out: &mut dyn Write,
    context: &mut Context<'_>,
    format: &Format,
    recorded: &mut dyn Iterator<Item = &'v (&'v RecordField, Value)>,
) -> Result<(), Error> {
    let mut names = format.names.iter();
    Ok(printf::format(out, context, format, &mut |_| {
        let (field, value) = recorded.next()?;
        let of = names.next().and_then(Option::as_ref);
        Some(Item::named(value, integer_type(field), of))
    })?)
}

/// `setopt(name[, value])`, of the options that can change while tracing.
fn set_option(options: &mut Options, name: &str, value: Option<&str>) -> Result<(), String> {
    const CHANGEABLE: [&str; 16] = [
        "agghist",
        "aggpack",
        "aggrate",
        "aggsortkey",
        "aggsortkeypos",
        "aggsortpos",
        "aggsortrev",
        "aggzoom",
        "encoding",
        "flowindent",
        "printsize",
        "quiet",
        "rawbytes",
        "stackindent",
        "statusrate",
        "switchrate",
    ];
    let before = options.clone();
    let result = options.set(name, value).map_err(|error| error.to_string());
    let result = match result {
        Ok(()) if !CHANGEABLE.contains(&name) => Err("Operation illegal when tracing is active".to_owned()),
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

pub(crate) fn integer_type(field: &RecordField) -> IntegerType {
    match field.kind {
        FieldKind::Integer(integer) => integer,
        _ => IntegerType {
            bytes: 8,
            signed: false,
        },
    }
}

/// `trace()` and `ustack()`.
fn trace(out: &mut dyn Write, context: &mut Context<'_>, field: &RecordField, value: &Value) -> Result<(), Error> {
    const WIDTH: i64 = -33;
    let quiet = context.options.quiet;
    match value {
        Value::Integer(value) => integer(out, *value, integer_type(field), quiet)?,
        Value::String(text) => context.string(out, text, WIDTH, quiet)?,
        Value::Bytes { bytes, .. } => bytes::bytes(out, bytes, WIDTH, quiet, context.options.raw_bytes)?,
        Value::Stack(frames) => context.stack(out, frames)?,
    }
    Ok(())
}

/// An integer in the column of its type, which has room for the longest number of the type but for the sign of the
/// small ones: DTrace's on Linux.
fn integer(out: &mut dyn Write, value: i64, integer: IntegerType, quiet: bool) -> Result<(), Error> {
    let width = match (integer.bytes, integer.signed) {
        _ if quiet => 0,
        (1, _) => 3,
        (2, _) => 5,
        (4, _) => 10,
        (_, true) => 19,
        (_, false) => 20,
    };
    let blank = if quiet { "" } else { " " };
    write!(out, "{blank}{:>width$}", printa::in_decimal(value, integer))?;
    Ok(())
}
