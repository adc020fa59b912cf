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
//! The defaults are DTrace's, except three. `bufsize` and `aggsize` are per thread here and per CPU
//! in DTrace, so they are smaller (1m instead of 4m). `ustackframes` is 100, as in DTrace on Linux;
//! elsewhere it is 20. A rate without a unit is in hz, as the manual says; illumos takes it for ns.
//! Options of DTrace without a meaning here are accepted and ignored if they cannot change a result
//! (`cleanrate`, `bufresize`), and refused otherwise. Manual: "Options and Tunables".

mod error;
mod interval;
mod table;
mod value;

pub use error::OptionError;
pub use interval::{Interval, IntervalKind, parse_interval};
pub use table::{Row, ignored, refused, rows};

use crate::layout::Limits;

/// What to do when a thread's ring is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferPolicy {
    /// Drop the record and count it; the tracer empties the ring all the time.
    #[default]
    Switch,
    /// The first record without room ends the tracing; what was recorded is printed then.
    Fill,
    /// Overwrite the oldest records; the ring is read once, at the end.
    Ring,
}

/// Whether all threads of a running program are stopped while probes are written into its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StopPolicy {
    /// A few probes are written while a stop is needed for other reasons; all others are written
    /// while the program runs.
    #[default]
    Auto,
    Always,
    /// Never. The first and the last change of signal actions still take a short stop.
    Never,
}

/// When a started program (`-c`) is stopped to be instrumented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvaluationTime {
    /// Right after exec.
    Exec,
    /// Before the libraries' initialisers.
    #[default]
    PreInitialization,
    /// After them.
    PostInitialization,
    Main,
}

/// The characters that draw the bars of aggregations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Bars of ASCII, the lines of `aggpack` in block elements.
    #[default]
    Auto,
    /// ASCII only.
    Ascii,
    /// Block elements everywhere.
    Utf8,
}

/// Whether names of C++ and Rust are shown as in their sources. Descriptions match both forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demangle {
    /// In stacks and wherever an address is printed. The function of a probe is shown as its
    /// description matched it.
    #[default]
    Auto,
    /// Everywhere, including the functions of probes.
    Always,
    Never,
}

/// How return probes detect that a function returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReturnForm {
    /// Every `ret` of the function is probed. At its jumps to other functions (tail calls) the
    /// return address is replaced, so the function returns when those functions do. If not all
    /// exits can be found, the return address is replaced at the entry.
    #[default]
    Auto,
    /// Every exit of the function is probed. As in DTrace, a jump to another function counts as a
    /// return, before the other function runs.
    Exits,
    /// The return address is replaced, as kretprobes do.
    Address,
    /// As `Auto`, but if the place of the return address is not known at such a jump, the return
    /// address is replaced at the entry.
    Value,
}

/// Whose `self->` variables are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelfScope {
    /// The variables belong to goroutines in Go programs, and to threads elsewhere.
    #[default]
    Task,
    /// The thread's.
    Thread,
}

/// The options of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// No header and no columns: only the program's own output (`-q`).
    pub quiet: bool,
    /// Entries and returns indented (`-F`).
    pub flow_indent: bool,
    /// Destructive actions allowed (`-w`).
    pub destructive: bool,
    /// Always dump bytes, even when they look like a string.
    pub raw_bytes: bool,
    /// Probe descriptions without a match are not an error (`-Z`).
    pub allow_unmatched: bool,
    /// Missing macro arguments are 0 or "".
    pub default_arguments: bool,
    /// Error messages carry their tags.
    pub error_tags: bool,
    /// Aggregations sorted by key instead of value.
    pub sort_by_key: bool,
    /// Aggregations sorted in reverse.
    pub sort_reversed: bool,
    /// Index of the aggregation whose values sort a `printa` of several aggregations.
    pub sort_position: usize,
    /// Index of the key element that sorting compares first.
    pub sort_key_position: usize,
    /// The size of a thread's ring.
    pub buffer_bytes: u64,
    /// What to do when the ring is full.
    pub buffer_policy: BufferPolicy,
    /// Records of all threads are sorted by time. If false, no record carries a time.
    pub temporal: bool,
    /// The size of a thread's table of aggregations.
    pub aggregation_bytes: u64,
    /// Bytes for associative arrays.
    pub dynamic_bytes: u64,
    /// The size of a string with its NUL.
    pub string_bytes: u32,
    /// Frames of a `ustack()`.
    pub stack_frames: u32,
    /// `jstackframes`.
    pub jstack_frames: u32,
    /// `maxframes`: the most frames of any stack.
    pub stack_frames_max: u32,
    /// `scratchsize`: the bytes that a clause may take by `alloca`, `copyin` and `copyinstr` at a
    /// time. `None`: all of the scratch memory.
    pub scratch_bytes: Option<u64>,
    /// `verbose`: the compiled program is printed (`-S`).
    pub listing: bool,
    /// The number of spaces before a frame.
    pub stack_indent: u32,
    /// The period at which records are read, in ns.
    pub switch_ns: u64,
    /// The period at which aggregations are read, in ns.
    pub aggregation_ns: u64,
    /// The period at which drops are looked for, in ns.
    pub status_ns: u64,
    /// Accepted and ignored: dynamic variables need no cleaning here, and speculations are cleaned at once.
    pub clean_ns: u64,
    /// How many speculations there may be at a time.
    pub speculations: u64,
    /// The size of the records of one speculation.
    pub speculation_bytes: u64,
    /// Bars are scaled to the longest one and not to their sum.
    pub zoom_distributions: bool,
    /// `agghist`: counts, sums and averages are drawn as bars, one line for each key.
    pub bar_lines: bool,
    /// `aggpack`: a distribution is one line for each key.
    pub packed_lines: bool,
    /// `aggpercpu`: aggregations are also printed for each processor.
    pub by_processor: bool,
    /// The number of processors of the machine, for `aggpercpu`. It is not an option.
    pub processors: u32,
    /// `cpu`: only what happens on this processor is traced.
    pub processor: Option<u32>,
    /// `noresolve`: stacks are addresses.
    pub no_names: bool,
    /// `printsize`: how many bytes `print()` shows of what a pointer points to.
    pub print_bytes: u64,
    /// The characters of bars.
    pub encoding: Encoding,
    /// Messages about drops carry their tags.
    pub drop_tags: bool,
    /// When a started program is instrumented.
    pub evaluation_time: EvaluationTime,
    /// The name of the patching tactic that is forced; `patch` knows the names.
    pub tactic: Option<String>,
    /// Whether all threads are stopped while probes are written.
    pub stop: StopPolicy,
    /// How return probes detect that a function returns.
    pub return_form: ReturnForm,
    /// Whose `self->` variables are.
    pub self_scope: SelfScope,
    /// Whether names are shown as in the sources.
    pub demangle: Demangle,
    /// The most calls of one thread whose return addresses are replaced at the same time.
    pub active_calls: u32,
    /// The name of the form of the tactic `trap` that is forced; `patch` knows the names.
    pub trap: Option<String>,
    /// The share of one processor's time, in hundredths of a percent, that all probes together may
    /// take. Probes above it are turned off.
    pub max_cost: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        const SECOND: u64 = 1_000_000_000;
        Options {
            quiet: false,
            flow_indent: false,
            destructive: false,
            raw_bytes: false,
            allow_unmatched: false,
            default_arguments: false,
            error_tags: false,
            sort_by_key: false,
            sort_reversed: false,
            sort_position: 0,
            sort_key_position: 0,
            buffer_bytes: 1 << 20,
            buffer_policy: BufferPolicy::Switch,
            temporal: true,
            aggregation_bytes: 1 << 20,
            dynamic_bytes: 1 << 20,
            string_bytes: 256,
            stack_frames: 100,
            jstack_frames: 50,
            stack_frames_max: 2048,
            scratch_bytes: None,
            listing: false,
            stack_indent: 14,
            switch_ns: SECOND,
            aggregation_ns: SECOND,
            status_ns: SECOND,
            clean_ns: SECOND / 101,
            speculations: 1,
            speculation_bytes: 32 << 10,
            zoom_distributions: false,
            bar_lines: false,
            drop_tags: false,
            packed_lines: false,
            by_processor: false,
            processors: 0,
            processor: None,
            no_names: false,
            print_bytes: PRINT_BYTES,
            encoding: Encoding::Auto,
            evaluation_time: EvaluationTime::PreInitialization,
            tactic: None,
            stop: StopPolicy::Auto,
            return_form: ReturnForm::Auto,
            self_scope: SelfScope::Task,
            demangle: Demangle::Auto,
            active_calls: 4096,
            trap: None,
            max_cost: None,
        }
    }
}

/// The default of `printsize`.
const PRINT_BYTES: u64 = 8192;

impl Options {
    /// The options that decide the layout of values.
    pub fn limits(&self) -> Limits {
        Limits {
            strsize: self.string_bytes,
            ustackframes: self.stack_frames,
            jstackframes: self.jstack_frames,
            maxframes: self.stack_frames_max,
        }
    }
}

#[cfg(test)]
mod tests;
