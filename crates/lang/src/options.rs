//! Options: `-x name[=value]` on the command line, `#pragma D option name[=value]` in a program.
//!
//! One table ([`rows`]) and one typed result ([`Options`]); the same rules for both ways in. Values
//! are of five kinds:
//!
//! ```text
//! switch   nothing, yes/no, enable/disable, enabled/disabled, true/false, on/off, set/unset; a number is "on"
//! size     bytes: digits with a suffix k, m, g or t (powers of 1024)
//! rate     digits with a suffix: ns us ms s m h d (and nsec usec msec sec min hour day), or hz; none is hz
//! number   decimal, 0octal or 0xhexadecimal
//! word     one of a few
//! ```
//!
//! Defaults are DTrace's, but for `bufsize`, which is a thread's here and a CPU's there (1m instead of 4m), `aggsize`
//! likewise, and `ustackframes` (100, as DTrace on Linux; 20 elsewhere). A rate without a unit is in hz, as the manual
//! says; illumos takes it for ns. Options of DTrace that mean nothing here are taken and ignored when they cannot
//! change a result (`cleanrate`, `bufresize`), refused otherwise. Manual: "Options and Tunables".

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

/// Whether all threads of a running program stand still while probes are written into its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StopPolicy {
    /// Few probes together with what needs a stop anyway, all others while the program runs.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never. Signal actions still take a short stop, the first and the last time.
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
    /// At main.
    Main,
}

/// What the bars of aggregations are drawn with.
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

/// Whether names of C++ and Rust are shown as their sources have them. Descriptions match them either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demangle {
    /// In stacks and wherever an address is printed; a probe's function is shown as its description matched it.
    #[default]
    Auto,
    /// Also the functions of probes.
    Always,
    /// Nowhere.
    Never,
}

/// How return probes see that a function returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReturnForm {
    /// Every `ret` of the function is probed, and at its jumps to other functions (tail calls) the
    /// return address is replaced: it returns when these do. Where its ways out cannot all be
    /// found, the address is replaced at the entry.
    #[default]
    Auto,
    /// Every way out of the function is probed: at a jump to another function it returns before
    /// that does, as in DTrace.
    Exits,
    /// The return address is replaced, as kretprobes do.
    Address,
    /// As `Auto`, but where nobody can tell at such a jump where the return address is, it is replaced at the entry.
    Value,
}

/// Whose `self->` variables are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelfScope {
    /// In programs of Go the goroutine's, elsewhere the thread's.
    #[default]
    Task,
    /// The thread's.
    Thread,
}

/// The options of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// No header, no columns, no messages but the program's own output (`-q`).
    pub quiet: bool,
    /// Entries and returns indented (`-F`).
    pub flow_indent: bool,
    /// Destructive actions allowed (`-w`).
    pub destructive: bool,
    /// Always dump bytes, even when they look like a string.
    pub raw_bytes: bool,
    /// Unmatched probe descriptions are no error (`-Z`).
    pub allow_unmatched: bool,
    /// Missing macro arguments are 0 or "".
    pub default_arguments: bool,
    /// Error messages carry their tags.
    pub error_tags: bool,
    /// Aggregations sorted by key instead of value.
    pub sort_by_key: bool,
    /// Aggregations sorted in reverse.
    pub sort_reversed: bool,
    /// Index of the aggregation by whose values a `printa` of several is sorted.
    pub sort_position: usize,
    /// Index of the key element by which sorting starts.
    pub sort_key_position: usize,
    /// Bytes of a thread's ring.
    pub buffer_bytes: u64,
    /// What to do when it is full.
    pub buffer_policy: BufferPolicy,
    /// Records are put into the order of their time, whichever thread they are from; else none carries a time.
    pub temporal: bool,
    /// Bytes of a thread's table of aggregations.
    pub aggregation_bytes: u64,
    /// Bytes for associative arrays.
    pub dynamic_bytes: u64,
    /// Bytes of a string with its NUL.
    pub string_bytes: u32,
    /// Frames of a `ustack()`.
    pub stack_frames: u32,
    /// `jstackframes`.
    pub jstack_frames: u32,
    /// `maxframes`: the most frames of any stack.
    pub stack_frames_max: u32,
    /// `scratchsize`: bytes that a clause may take by `alloca`, `copyin` and `copyinstr` at a time;
    /// all there are when not given.
    pub scratch_bytes: Option<u64>,
    /// `verbose`: the compiled program is printed (`-S`).
    pub listing: bool,
    /// Spaces in front of a frame.
    pub stack_indent: u32,
    /// How often records are read, in ns.
    pub switch_ns: u64,
    /// How often aggregations are read, in ns.
    pub aggregation_ns: u64,
    /// How often drops are looked for, in ns.
    pub status_ns: u64,
    /// Taken and ignored: dynamic variables are never cleaned here, and speculations at once.
    pub clean_ns: u64,
    /// How many speculations there may be at a time.
    pub speculations: u64,
    /// Bytes of the records of one speculation.
    pub speculation_bytes: u64,
    /// Bars that are scaled to the longest of them rather than to their sum.
    pub zoom_distributions: bool,
    /// `agghist`: counts, sums and averages as bars, one line for each key.
    pub bar_lines: bool,
    /// `aggpack`: distributions in one line for each key.
    pub packed_lines: bool,
    /// `aggpercpu`: aggregations are printed for each processor, too.
    pub by_processor: bool,
    /// Of so many processors there is a line then; not an option, but the machine's.
    pub processors: u32,
    /// `cpu`: what is traced happens on this processor.
    pub processor: Option<u32>,
    /// `noresolve`: stacks are addresses.
    pub no_names: bool,
    /// `printsize`: bytes of what a pointer given to `print()` points to.
    pub print_bytes: u64,
    /// The characters of bars.
    pub encoding: Encoding,
    /// Messages about drops carry their tags.
    pub drop_tags: bool,
    /// When a started program is instrumented.
    pub evaluation_time: EvaluationTime,
    /// The tactic of patching that is forced, by name; `patch` knows the names.
    pub tactic: Option<String>,
    /// Whether all threads stand still while probes are written.
    pub stop: StopPolicy,
    /// How return probes see that a function returns.
    pub return_form: ReturnForm,
    /// Whose `self->` variables are.
    pub self_scope: SelfScope,
    /// Whether names are shown as the sources have them.
    pub demangle: Demangle,
    /// Calls of one thread whose return addresses may be replaced at the same time.
    pub active_calls: u32,
    /// The form of the tactic `trap` that is forced, by name; `patch` knows the names.
    pub trap: Option<String>,
    /// What all probes together may take of a processor's time, in hundredths of a percent; those
    /// over it are turned off.
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

/// `printsize` when nobody says otherwise.
const PRINT_BYTES: u64 = 8192;

impl Options {
    /// What the layout of values depends on.
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
