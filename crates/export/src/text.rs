//! DTrace's text.
//!
//! ```text
//! CPU     ID                    FUNCTION:NAME
//!  13  75978                     strlen:entry           3479933
//! ```
//!
//! The header comes before the first record, the columns before each record, and a new line after each
//! record. Quiet output has none of them. Everything that is not a result is a message to the user.

use std::collections::BTreeSet;
use std::io::Write;

use nanoprobe_lang::interpret::{ClauseFault, Value};
use nanoprobe_lang::layout::RecordField;
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::{AggregationId, IntegerType, RecordKind};

use crate::Error;
use crate::bytes;
use crate::console::Console;
use crate::event::{Event, ProbeName};
use crate::flow::Flow;
use crate::function_names::with_function_names;
use crate::message::error_message;
use crate::pointed;
use crate::printa;
use crate::printf::{self, Context, formatted, integer_type};
use crate::sink::{Action, Ended, Loss, Matched, Recorded, Sink, Unplaced, View};
use crate::typed;

/// The state of the output.
pub struct Text {
    /// Whether the command line asks for no messages (`-q`). The next field says whether the command line asks for all
    /// messages (`-v`).
    is_quiet: bool,
    is_verbose: bool,
    /// Whether the option `droptags` is set.
    has_drop_tags: bool,
    heading_printed: bool,
    flow: Flow,
    printed: BTreeSet<AggregationId>,
}

impl Text {
    /// The state before the first line. `options`: the options at the beginning of the tracing.
    pub fn new(options: &Options, is_verbose: bool) -> Text {
        Text {
            is_quiet: options.printing.quiet,
            is_verbose,
            has_drop_tags: options.printing.drop_tags,
            heading_printed: false,
            flow: Flow::default(),
            printed: BTreeSet::new(),
        }
    }
}

impl Sink for Text {
    fn list_begins(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        let (id, provider, module, function) = ("ID", "PROVIDER", "MODULE", "FUNCTION");
        Ok(writeln!(
            out,
            "{id:>5} {provider:>10} {module:>17} {function:>33} NAME"
        )?)
    }

    fn listed(&mut self, out: &mut dyn Console, probe: &ProbeName) -> Result<(), Error> {
        let ProbeName {
            id,
            provider,
            module,
            function,
            name,
            ..
        } = probe;
        Ok(writeln!(
            out,
            "{id:>5} {provider:>10} {module:>17} {function:>33} {name}"
        )?)
    }

    /// In the form of dtrace's `-lv`.
    fn listed_arguments(&mut self, out: &mut dyn Console, types: &[String]) -> Result<(), Error> {
        writeln!(out, "\n\tArgument Types")?;
        for (index, of) in types.iter().enumerate() {
            writeln!(out, "\t\targs[{index}]: {of}")?;
        }
        if types.is_empty() {
            writeln!(out, "\t\tNone")?;
        }
        Ok(writeln!(out)?)
    }

    fn matched(&mut self, out: &mut dyn Console, found: &Matched) -> Result<(), Error> {
        if !self.is_quiet {
            let Matched { of, text, probes } = found;
            let plural = if *probes == 1 { "" } else { "s" };
            out.tell(&format!("{of} '{text}' matched {probes} probe{plural}"));
        }
        Ok(())
    }

    /// Prints each of the places with `-v`, otherwise only their number.
    fn refused(&mut self, out: &mut dyn Console, new: &[Unplaced]) -> Result<(), Error> {
        if self.is_verbose {
            for refused in new {
                let site = refused.site.map_or_else(String::new, |site| format!("{site:#x} "));
                let what = if refused.is_early_return { "" } else { "refused: " };
                out.tell(&format!("{site}{}: {what}{}", refused.function, refused.reason));
            }
            return Ok(());
        }
        let early = new.iter().filter(|refused| refused.is_early_return).count();
        let count = new.len() - early;
        let plural = if count == 1 { "" } else { "s" };
        if count != 0 {
            out.tell(&format!(
                "{count} place{plural} could not be probed (-v says which and why)"
            ));
        }
        let plural = if early == 1 { "" } else { "s" };
        if early != 0 {
            out.tell(&format!(
                "{early} function{plural} with tail calls: return fires when they jump, not when the callee has returned (-v \
                 says which and why)"
            ));
        }
        Ok(())
    }

    fn record_begins(&mut self, out: &mut dyn Console, options: &Options, event: &Event<'_>) -> Result<(), Error> {
        let Event { cpu, probe, .. } = event;
        let heading = !std::mem::replace(&mut self.heading_printed, true);
        if options.printing.flow_indent {
            if heading {
                writeln!(out, "{:>3} {:<41}", "CPU", "FUNCTION")?;
            }
            let function = self.flow.column(event.thread, event.epid, probe, event.next);
            write!(out, "{cpu:>3} {function:<41} ")?;
        } else if !options.printing.quiet {
            if heading {
                writeln!(out, "{:>3} {:>6} {:>32}", "CPU", "ID", "FUNCTION:NAME")?;
            }
            let name = format!("{}:{}", probe.shown, probe.name);
            write!(out, "{cpu:>3} {:>6} {name:>32} ", probe.id)?;
        }
        Ok(())
    }

    fn action(&mut self, out: &mut dyn Console, view: &mut View<'_>, action: Action<'_>) -> Result<(), Error> {
        let Action { kind, recorded } = action;
        let named = with_function_names(kind, recorded, view.symbolizer);
        let named: Option<Vec<&Recorded<'_>>> = named.as_ref().map(|named| named.iter().collect());
        let recorded = named.as_deref().unwrap_or(recorded);
        match kind {
            RecordKind::Trace(_) | RecordKind::Stack(_) => {
                for (field, value) in recorded {
                    trace(out, &mut view.context(), field, value)?;
                }
            }
            RecordKind::TraceName { of, .. } => {
                for (field, value) in recorded {
                    trace(out, &mut view.context(), field, &printf::of_enumeration(of, value))?;
                }
            }
            RecordKind::Symbol { kind, .. } => {
                let address = recorded.first().map_or(0, |(_, value)| value.as_integer());
                printa::symbol(out, &mut view.context(), address as u64, *kind)?;
            }
            RecordKind::TraceMemory(_) => {
                let shown = bytes::traced(recorded.iter().map(|(_, value)| value));
                bytes::bytes(out, shown, 0, view.options.printing.quiet, true)?;
            }
            RecordKind::Printf { format, .. } => {
                formatted(out, &mut view.context(), format, &mut recorded.iter().copied())?;
            }
            RecordKind::Print { shown, .. } => {
                for (_, value) in recorded {
                    typed::print(out, shown, value)?;
                }
            }
            RecordKind::PrintAt { shown, .. } => {
                if let [(_, address), (_, value)] = recorded {
                    let limit = view.options.printing.print_bytes;
                    pointed::print(out, shown, address.as_integer() as u64, value, limit)?;
                }
            }
            RecordKind::Printa { format, aggregations } => {
                if format.is_none() {
                    writeln!(out)?;
                }
                let (program, table) = (view.program, view.aggregations);
                let format = format.as_ref();
                let printed = printa::print(out, &mut view.context(), program, table, aggregations, format)?;
                self.printed.extend(printed);
            }
            _ => {}
        }
        Ok(())
    }

    fn record_ends(&mut self, out: &mut dyn Console, options: &Options, _: &Event<'_>) -> Result<(), Error> {
        if !options.printing.quiet {
            writeln!(out)?;
        }
        Ok(())
    }

    fn fault(&mut self, out: &mut dyn Console, epid: u32, probe: &ProbeName, fault: &ClauseFault) -> Result<(), Error> {
        out.flush()?;
        out.tell(&error_message(epid, probe, fault));
        Ok(())
    }

    fn warning(&mut self, out: &mut dyn Console, text: &str) -> Result<(), Error> {
        out.tell(text);
        Ok(())
    }

    fn losses(&mut self, out: &mut dyn Console, losses: &[Loss]) -> Result<(), Error> {
        for Loss { tag, text, .. } in losses {
            if self.has_drop_tags && !tag.is_empty() {
                out.tell(&format!("[{tag}] {text}"));
            } else {
                out.tell(text);
            }
        }
        Ok(())
    }

    fn exited(&mut self, out: &mut dyn Console, pid: Option<i32>, how: Ended) -> Result<(), Error> {
        let how = match how {
            Ended::Status(0) | Ended::Unknown => String::new(),
            Ended::Status(status) => format!(" (status {status})"),
            Ended::Signal { number, .. } => format!(" (killed by signal {number})"),
        };
        if let (Some(pid), false) = (pid, self.is_quiet) {
            out.tell(&format!("pid {pid} has exited{how}"));
        }
        Ok(())
    }

    /// As in DTrace, the output continues after the line with the terminal's `^C`.
    fn interrupted(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        Ok(writeln!(out)?)
    }

    /// As in DTrace, and also in quiet mode, the remaining aggregations begin on a new line.
    fn ended(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        Ok(writeln!(out)?)
    }

    fn aggregations(&mut self, out: &mut dyn Console, view: &mut View<'_>) -> Result<(), Error> {
        let rows = view.aggregations.rest(view.program, &self.printed);
        let program = view.program;
        Ok(printa::print_rest(out, &mut view.context(), program, rows)?)
    }

    fn unplaced(&mut self, out: &mut dyn Console, first: &Unplaced) -> Result<(), Error> {
        let Unplaced { function, reason, .. } = first;
        out.tell(&format!("none of the places could be probed: {function}: {reason}"));
        Ok(())
    }

    fn nothing_seen(&mut self, out: &mut dyn Console, text: &str) -> Result<(), Error> {
        out.tell(text);
        Ok(())
    }
}

/// Prints a value for `trace()` or `ustack()`.
fn trace(out: &mut dyn Write, context: &mut Context<'_>, field: &RecordField, value: &Value) -> Result<(), Error> {
    const WIDTH: i64 = -33;
    let quiet = context.options.printing.quiet;
    match value {
        Value::Integer(value) => integer(out, *value, integer_type(field), quiet)?,
        Value::String(text) => context.string(out, text, WIDTH, quiet)?,
        Value::Bytes { bytes, .. } => bytes::bytes(out, bytes, WIDTH, quiet, context.options.printing.raw_bytes)?,
        Value::Stack(frames) => context.stack(out, frames)?,
    }
    Ok(())
}

/// Prints an integer in the column of its type. As in DTrace on Linux, the column has room for the longest number of
/// the type. For small types it has no room for the sign.
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
