//! The trait [`Sink`], which every format of output implements in its own file.
//!
//! A sink gets one call for each event, in order. It writes those events for which its format has a form.
//! The default of every method does nothing.
//!
//! ```text
//! list_begins  listed ...                       -l
//! matched  refused                              before the first record, and when a library is loaded
//! record_begins  action ...  record_ends        for each record, through Printer
//! fault  warning  losses  rested                between records
//! exited                                        the process has ended
//! interrupted | ended                           nothing more is recorded
//! aggregations                                  those that no action has printed
//! losses  unplaced  nothing_seen  finish        at the end
//! ```
//!
//! [`Printer`](crate::Printer) carries out the other effects of a record (`clear()`, `system()`,
//! `setopt()`) once, whatever the format.

use nanoprobe_lang::Program;
use nanoprobe_lang::interpret::{ClauseFault, Value};
use nanoprobe_lang::layout::RecordField;
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::RecordKind;

use crate::Error;
use crate::console::Console;
use crate::date::LocalTime;
use crate::event::{Event, ProbeName};
use crate::printf::Context;
use crate::stack::Symbolizer;
use crate::table::AggregateTable;

/// The data that a sink can use when it prints an action.
pub struct View<'a> {
    /// The D program.
    pub program: &'a Program,
    /// The current options, which `setopt()` changes.
    pub options: &'a Options,
    /// The local time, in which dates are printed.
    pub local: LocalTime,
    /// All aggregations.
    pub aggregations: &'a AggregateTable,
    /// Names for addresses.
    pub symbolizer: &'a mut dyn Symbolizer,
}

impl View<'_> {
    pub(crate) fn context(&mut self) -> Context<'_> {
        Context {
            options: self.options,
            local: self.local,
            symbolizer: &mut *self.symbolizer,
        }
    }
}

/// A value of a record, with its field.
pub type Recorded<'a> = (&'a RecordField, Value);

/// An action that prints something.
#[derive(Clone, Copy)]
pub struct Action<'a> {
    pub kind: &'a RecordKind,
    /// The values that the action has recorded.
    pub recorded: &'a [&'a Recorded<'a>],
}

/// The result of matching a program of the command line with the existing probes.
#[derive(Clone, Debug)]
pub struct Matched {
    /// The kind of program: `script` or `description`.
    pub of: &'static str,
    /// The script's name, or the text up to its body.
    pub text: String,
    /// The number of probes that the program matches.
    pub probes: usize,
}

/// A place that could not be probed, or whose probe fires too early.
#[derive(Clone, Debug)]
pub struct Unplaced {
    /// Module and function.
    pub function: String,
    /// The instruction's address, if it is known.
    pub site: Option<u64>,
    pub reason: String,
    /// Whether the place is probed nevertheless, but the probe fires too early: when the function jumps to another
    /// function.
    pub is_early_return: bool,
}

/// Something that was lost.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The kind of loss, in one or two words.
    pub kind: &'static str,
    /// DTrace's tag for this loss. With the option `droptags` the tag precedes the message.
    pub tag: &'static str,
    /// How many were lost since the last report.
    pub count: u64,
    pub text: String,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Status(i32),
    /// A signal ended it.
    Signal {
        number: i32,
        dumped_core: bool,
    },
    /// How the process ended is not known.
    Unknown,
}

/// A format of output. Results go to the given console. A format that writes to its own file opens that
/// file itself.
pub trait Sink {
    /// Only matching probes follow, and nothing will be traced (`-l`).
    ///
    /// # Errors
    /// Here and below: the output cannot be written.
    fn list_begins(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }

    /// A probe of the list.
    fn listed(&mut self, out: &mut dyn Console, probe: &ProbeName) -> Result<(), Error> {
        let _ = (out, probe);
        Ok(())
    }

    /// The types of the arguments of the probe that was listed, as `type name`.
    fn listed_arguments(&mut self, out: &mut dyn Console, types: &[String]) -> Result<(), Error> {
        let _ = (out, types);
        Ok(())
    }

    /// Reports how many probes a program of the command line has matched.
    fn matched(&mut self, out: &mut dyn Console, found: &Matched) -> Result<(), Error> {
        let _ = (out, found);
        Ok(())
    }

    /// Reports places that could not be probed and were not reported before.
    fn refused(&mut self, out: &mut dyn Console, new: &[Unplaced]) -> Result<(), Error> {
        let _ = (out, new);
        Ok(())
    }

    /// The beginning of a record, of a clause that prints something or is empty.
    fn record_begins(&mut self, out: &mut dyn Console, options: &Options, event: &Event<'_>) -> Result<(), Error> {
        let _ = (out, options, event);
        Ok(())
    }

    /// An action of the record that has begun.
    fn action(&mut self, out: &mut dyn Console, view: &mut View<'_>, action: Action<'_>) -> Result<(), Error> {
        let _ = (out, view, action);
        Ok(())
    }

    /// The end of a record: all of its actions are done.
    fn record_ends(&mut self, out: &mut dyn Console, options: &Options, event: &Event<'_>) -> Result<(), Error> {
        let _ = (out, options, event);
        Ok(())
    }

    /// The fault of a clause.
    fn fault(&mut self, out: &mut dyn Console, epid: u32, probe: &ProbeName, fault: &ClauseFault) -> Result<(), Error> {
        let _ = (out, epid, probe, fault);
        Ok(())
    }

    /// All that was recorded so far has been printed.
    fn rested(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }

    /// A warning: something could not be read or placed.
    fn warning(&mut self, out: &mut dyn Console, text: &str) -> Result<(), Error> {
        let _ = (out, text);
        Ok(())
    }

    /// The losses since the last report.
    fn losses(&mut self, out: &mut dyn Console, losses: &[Loss]) -> Result<(), Error> {
        let _ = (out, losses);
        Ok(())
    }

    /// The traced process has ended.
    fn exited(&mut self, out: &mut dyn Console, pid: Option<i32>, how: Ended) -> Result<(), Error> {
        let _ = (out, pid, how);
        Ok(())
    }

    /// Another process than the first one has ended, and how is known.
    fn child_exited(&mut self, out: &mut dyn Console, pid: i32, how: Ended) -> Result<(), Error> {
        let _ = (out, pid, how);
        Ok(())
    }

    /// The user has interrupted the tracing. A terminal now shows `^C`.
    fn interrupted(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }

    /// The last record has been printed.
    fn ended(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }

    /// All aggregations; the sink leaves out those that its actions have printed.
    fn aggregations(&mut self, out: &mut dyn Console, view: &mut View<'_>) -> Result<(), Error> {
        let _ = (out, view);
        Ok(())
    }

    /// No probe could be placed in the process. `first` is the first refusal.
    fn unplaced(&mut self, out: &mut dyn Console, first: &Unplaced) -> Result<(), Error> {
        let _ = (out, first);
        Ok(())
    }

    /// No probe of the process has fired. `text` names the probes, and possible reasons why none fired.
    ///
    /// # Errors
    /// [`Error::Write`].
    fn nothing_seen(&mut self, out: &mut dyn Console, text: &str) -> Result<(), Error> {
        let _ = (out, text);
        Ok(())
    }

    /// The last call. `status` is the exit status of the command.
    fn finish(&mut self, out: &mut dyn Console, status: i32) -> Result<(), Error> {
        let _ = (out, status);
        Ok(())
    }
}
