//! Options: `-x name[=value]` on the command line, `#pragma D option name[=value]` in a program.
//!
//! One table ([`rows`]) and one typed result ([`Options`]) serve both the command line and the
//! pragmas. Values are of five kinds:
//!
//! ```text
//! switch   nothing, yes/no, enable/disable, enabled/disabled, true/false, on/off, set/unset; a number is "on"
//! size     bytes: digits with a suffix k, m, g or t (powers of 1024)
//! rate     digits with a suffix: ns us ms s m h d (and nsec usec msec sec min hour day), or hz; none is hz
//! number   decimal, 0octal or 0xhexadecimal
//! word     one of a few
//! ```
//!
//! The defaults are DTrace's, with three exceptions. `bufsize` and `aggsize` are smaller (1m instead
//! of 4m), because they are per thread here and per CPU in DTrace. `ustackframes` is 100, as in DTrace
//! on Linux; elsewhere it is 20. A rate without a unit is in hz, as the manual says; illumos reads it
//! as ns. Options of DTrace without a meaning here are accepted and ignored if they cannot change a
//! result (`cleanrate`, `bufresize`), and refused otherwise. Manual: "Options and Tunables".

mod error;
mod fields;
mod interval;
mod table;
mod value;

pub use error::OptionError;
pub use fields::{Printing, Recording, Tracing};
pub use interval::{Interval, IntervalKind, parse_interval};
pub use table::{Row, ignored, refused, rows};

use crate::layout::Limits;

/// What to do when a thread's ring is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferPolicy {
    /// Drop the record and count it; the tracer empties the ring all the time.
    #[default]
    Switch,
    /// The first record that finds no room ends the tracing. The records up to then are printed.
    Fill,
    /// Overwrite the oldest records; the ring is read once, at the end.
    Ring,
}

/// Whether all threads of a running program are stopped while probes are written into its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StopPolicy {
    /// A few probes are written during a stop that is needed for other reasons; all others are
    /// written while the program runs.
    #[default]
    Auto,
    Always,
    /// Never. The first and the last change of signal actions still take a short stop.
    Never,
}

/// The treatment of a process whose seccomp filters cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeccompPolicy {
    /// The process is traced only if it is certain that no filter kills it for our system calls.
    #[default]
    Check,
    /// The process is traced nevertheless.
    Try,
}

/// The moment at which a started program (`-c`) is stopped to be instrumented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvaluationTime {
    /// Right after exec.
    Exec,
    /// Before the libraries' initialisers.
    #[default]
    PreInitialization,
    /// After the libraries' initialisers.
    PostInitialization,
    Main,
}

/// The characters that draw the bars of aggregations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// ASCII for bars, block elements for the lines of `aggpack`.
    #[default]
    Auto,
    /// ASCII only.
    Ascii,
    /// Block elements everywhere.
    Utf8,
}

/// Whether names of C++ and Rust are shown as in their sources. Descriptions match both forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Demangle {
    /// In stacks and wherever an address is printed. The function of a probe is shown as its
    /// description matched it.
    #[default]
    Auto,
    /// Everywhere, including the functions of probes.
    Always,
    Never,
}

/// How return probes detect that a function has returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReturnForm {
    /// Every `ret` of the function is probed. At its jumps to other functions (tail calls) the
    /// return address is replaced, so `return` fires when the other function returns. If not all
    /// exits can be found, the return address is replaced at the entry.
    #[default]
    Auto,
    /// Every exit of the function is probed. As in DTrace, a jump to another function counts as a
    /// return, which happens before the other function runs.
    Exits,
    /// The return address is replaced, as kretprobes do.
    Address,
    /// As `Auto`; but if a function jumps to another function where the place of the return address is not known, the
    /// address is replaced at the entry.
    Value,
}

/// Which children of the target are traced, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// None.
    #[default]
    No,
    /// The children that `fork` creates, until they execute another program.
    Fork,
    /// The programs that the target and its children execute.
    Exec,
    /// Both.
    All,
}

impl Follow {
    /// Whether forked processes are traced.
    #[must_use]
    pub fn forks(self) -> bool {
        matches!(self, Follow::Fork | Follow::All)
    }

    /// Whether executed programs are traced.
    #[must_use]
    pub fn programs(self) -> bool {
        matches!(self, Follow::Exec | Follow::All)
    }
}

/// When the file of the output gives way to a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The most bytes of a file.
    pub bytes_max: u64,
    /// How many old files are kept.
    pub kept: u32,
}

/// Whether `self->` variables belong to goroutines or to threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelfScope {
    /// The variables belong to goroutines in Go programs, and to threads elsewhere.
    #[default]
    Task,
    /// The variables always belong to threads.
    Thread,
}

/// The options of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub printing: Printing,
    pub recording: Recording,
    pub tracing: Tracing,
}

impl Options {
    /// The options that decide the layout of values.
    pub fn limits(&self) -> Limits {
        Limits {
            strsize: self.recording.string_bytes,
            ustackframes: self.recording.stack_frames,
            jstackframes: self.recording.jstack_frames,
            stackframes: self.recording.kernel_frames,
            maxframes: self.recording.stack_frames_max,
        }
    }
}

#[cfg(test)]
mod tests;
