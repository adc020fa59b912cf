//! What a format of output is: one trait, [`Sink`], and a file that implements it.
//!
//! A sink is told what happens, in the order in which it happens. It writes what its format has to say about that, and
//! passes over what the format has no words for: every method has a default that does nothing.
//!
//! ```text
//! list_begins  listed ...                       -l
//! matched  refused                              before the first record, and when a library comes
//! record_begins  action ...  record_ends        for each record, by way of Printer
//! fault  warning  losses                        between records
//! exited                                        the process has ended
//! interrupted | ended                           nothing more is recorded
//! aggregations                                  what no action has printed
//! losses  unplaced  finish                      the last
//! ```
//!
//! What a record asks for besides (`clear()`, `system()`, `setopt()`) is done once, whatever the
//! format, by [`Printer`](crate::Printer).

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

/// What there is to be seen when something is printed.
pub struct View<'a> {
    /// The program that is traced by.
    pub program: &'a Program,
    /// The options as they are now: `setopt()` changes them.
    pub options: &'a Options,
    /// Dates are in this time.
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

/// A value of a record, with its place there.
pub type Recorded<'a> = (&'a RecordField, Value);

/// An action that leaves something to be printed.
#[derive(Clone, Copy)]
pub struct Action<'a> {
    /// The action.
    pub kind: &'a RecordKind,
    /// What it has recorded.
    pub recorded: &'a [&'a Recorded<'a>],
}

/// A program of the command line has been matched with the probes that there are.
#[derive(Clone, Debug)]
pub struct Matched {
    /// `script` or `description`.
    pub of: &'static str,
    /// The script's name, or the text up to its body.
    pub text: String,
    /// How many probes it matches.
    pub probes: usize,
}

/// A place that could not be probed.
#[derive(Clone, Debug)]
pub struct Unplaced {
    /// Module and function.
    pub function: String,
    /// The instruction's address, as far as it is known.
    pub site: Option<u64>,
    /// Why.
    pub reason: String,
    /// It is probed nevertheless, but fires too early: when the function jumps to another one.
    pub is_early_return: bool,
}

/// Something that was lost.
#[derive(Clone, Debug)]
pub struct Loss {
    /// What, in one or two words.
    pub kind: &'static str,
    /// DTrace's word for it, which stands in front of the message where the option `droptags` asks for it.
    pub tag: &'static str,
    /// How many since the last time.
    pub count: u64,
    /// The message.
    pub text: String,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Status(i32),
    /// By a signal.
    Signal(i32),
    /// Nobody knows.
    Unknown,
}

/// A format of output. Results go to the console given; what a format writes to a file of its own it opens itself.
pub trait Sink {
    /// Nothing is traced: what comes is the probes that match (`-l`).
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

    /// What a program of the command line has matched.
    fn matched(&mut self, out: &mut dyn Console, found: &Matched) -> Result<(), Error> {
        let _ = (out, found);
        Ok(())
    }

    /// Places that could not be probed, and were not told of before.
    fn refused(&mut self, out: &mut dyn Console, new: &[Unplaced]) -> Result<(), Error> {
        let _ = (out, new);
        Ok(())
    }

    /// A record begins: of a clause that prints something, or is empty.
    fn record_begins(&mut self, out: &mut dyn Console, options: &Options, event: &Event<'_>) -> Result<(), Error> {
        let _ = (out, options, event);
        Ok(())
    }

    /// An action of the record.
    fn action(&mut self, out: &mut dyn Console, view: &mut View<'_>, action: Action<'_>) -> Result<(), Error> {
        let _ = (out, view, action);
        Ok(())
    }

    /// All actions of the record are done.
    fn record_ends(&mut self, out: &mut dyn Console, options: &Options, event: &Event<'_>) -> Result<(), Error> {
        let _ = (out, options, event);
        Ok(())
    }

    /// A clause failed.
    fn fault(&mut self, out: &mut dyn Console, epid: u32, probe: &ProbeName, fault: &ClauseFault) -> Result<(), Error> {
        let _ = (out, epid, probe, fault);
        Ok(())
    }

    /// Something could not be read, or placed.
    fn warning(&mut self, out: &mut dyn Console, text: &str) -> Result<(), Error> {
        let _ = (out, text);
        Ok(())
    }

    /// What was lost since the last time.
    fn losses(&mut self, out: &mut dyn Console, losses: &[Loss]) -> Result<(), Error> {
        let _ = (out, losses);
        Ok(())
    }

    /// The traced process has ended.
    fn exited(&mut self, out: &mut dyn Console, pid: Option<i32>, how: Ended) -> Result<(), Error> {
        let _ = (out, pid, how);
        Ok(())
    }

    /// The user has interrupted the tracing: a terminal shows `^C` now.
    fn interrupted(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }

    /// The last record has been printed.
    fn ended(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }

    /// All that was aggregated; the sink leaves out what its actions have printed.
    fn aggregations(&mut self, out: &mut dyn Console, view: &mut View<'_>) -> Result<(), Error> {
        let _ = (out, view);
        Ok(())
    }

    /// No probe had a place in the process. This is the first that was refused.
    fn unplaced(&mut self, out: &mut dyn Console, first: &Unplaced) -> Result<(), Error> {
        let _ = (out, first);
        Ok(())
    }

    /// The last of all: the status with which the command ends.
    fn finish(&mut self, out: &mut dyn Console, status: i32) -> Result<(), Error> {
        let _ = (out, status);
        Ok(())
    }
}
