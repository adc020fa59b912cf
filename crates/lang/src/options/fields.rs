//! The fields of the options, grouped as in the table.

use super::{
    BufferPolicy, Demangle, Encoding, EvaluationTime, Follow, ReturnForm, Rotation, SeccompPolicy, SelfScope,
    StopPolicy,
};

const SECOND_NS: u64 = 1_000_000_000;

/// The default of `printsize`.
pub(super) const PRINT_BYTES: u64 = 8192;

/// The options for how results are printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printing {
    /// `-q`: no header and no columns, only the program's own output.
    pub quiet: bool,
    /// `-F`: entries and returns are indented.
    pub flow_indent: bool,
    /// Bytes are always dumped, even when they look like a string.
    pub raw_bytes: bool,
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
    /// `verbose`: the compiled program is printed (`-S`).
    pub listing: bool,
    /// The number of spaces before a frame.
    pub stack_indent: u32,
    /// Bars are scaled to the longest one and not to their sum.
    pub zoom_distributions: bool,
    /// `agghist`: counts, sums and averages are drawn as bars, one line for each key.
    pub bar_lines: bool,
    /// `aggpack`: a distribution is one line for each key.
    pub packed_lines: bool,
    /// `aggpercpu`: aggregations are also printed for each processor.
    pub by_processor: bool,
    /// The number of processors of the machine, which `aggpercpu` needs. It is not an option.
    pub processors: u32,
    /// `noresolve`: stacks are printed as addresses.
    pub no_names: bool,
    /// `printsize`: how many bytes of a pointer's target `print()` shows.
    pub print_bytes: u64,
    /// The characters of bars.
    pub encoding: Encoding,
    /// Messages about drops carry their tags.
    pub drop_tags: bool,
    /// Whether names are shown as in the sources.
    pub demangle: Demangle,
}

impl Default for Printing {
    fn default() -> Printing {
        Printing {
            quiet: false,
            flow_indent: false,
            raw_bytes: false,
            error_tags: false,
            sort_by_key: false,
            sort_reversed: false,
            sort_position: 0,
            sort_key_position: 0,
            listing: false,
            stack_indent: 14,
            zoom_distributions: false,
            bar_lines: false,
            packed_lines: false,
            by_processor: false,
            processors: 0,
            no_names: false,
            print_bytes: PRINT_BYTES,
            encoding: Encoding::Auto,
            drop_tags: false,
            demangle: Demangle::Auto,
        }
    }
}

/// The options for the records, and for the memory that holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The size of a thread's ring, in bytes.
    pub buffer_bytes: u64,
    /// What to do when the ring is full.
    pub buffer_policy: BufferPolicy,
    /// Records of all threads are sorted by time. If false, no record carries a time.
    pub temporal: bool,
    /// The size of a thread's table of aggregations, in bytes.
    pub aggregation_bytes: u64,
    /// Bytes for associative arrays and `self->` arrays.
    pub dynamic_bytes: u64,
    /// The size of a string with its NUL.
    pub string_bytes: u32,
    /// The number of frames of a `ustack()`.
    pub stack_frames: u32,
    /// `jstackframes`: the number of frames of a `jstack()`.
    pub jstack_frames: u32,
    /// `stackframes`: the number of frames of a `stack()`.
    pub kernel_frames: u32,
    /// `maxframes`: the most frames of any stack.
    pub stack_frames_max: u32,
    /// `scratchsize`: the most bytes that a clause may have reserved with `alloca`, `copyin` and
    /// `copyinstr`. `None`: all of the scratch memory.
    pub scratch_bytes: Option<u64>,
    /// The period at which records are read, in ns.
    pub switch_ns: u64,
    /// `aggmax`: about how many bytes the tracer keeps of the aggregations of all threads and processes.
    pub aggregations_bytes_max: u64,
    /// The period at which aggregations are read, in ns.
    pub aggregation_ns: u64,
    /// The period at which drops are checked, in ns.
    pub status_ns: u64,
    /// Accepted and ignored: dynamic variables need no cleaning here, and speculations are cleaned at once.
    pub clean_ns: u64,
    /// The number of speculations that can be active at a time.
    pub speculations: u64,
    /// The size of the records of one speculation, in bytes.
    pub speculation_bytes: u64,
    /// `rotate`: when the file of `-o` gives way to a new one.
    pub rotation: Option<Rotation>,
    /// `cpu`: only what happens on this processor is traced.
    pub processor: Option<u32>,
}

impl Default for Recording {
    fn default() -> Recording {
        Recording {
            buffer_bytes: 1 << 20,
            buffer_policy: BufferPolicy::Switch,
            temporal: true,
            aggregation_bytes: 1 << 20,
            dynamic_bytes: 1 << 20,
            string_bytes: 256,
            stack_frames: 100,
            jstack_frames: 50,
            kernel_frames: 20,
            stack_frames_max: 2048,
            scratch_bytes: None,
            switch_ns: SECOND_NS,
            aggregations_bytes_max: 1 << 30,
            aggregation_ns: SECOND_NS,
            status_ns: SECOND_NS,
            clean_ns: SECOND_NS / 101,
            speculations: 1,
            speculation_bytes: 32 << 10,
            rotation: None,
            processor: None,
        }
    }
}

/// The options for the D program's permissions, and for the placing of its probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// `-w`: destructive actions are allowed.
    pub destructive: bool,
    /// `-Z`: probe descriptions without a match are not an error.
    pub allow_unmatched: bool,
    /// Missing macro arguments are 0 or "".
    pub default_arguments: bool,
    /// The moment at which a started program is instrumented.
    pub evaluation_time: EvaluationTime,
    /// The name of the patching tactic that is forced; `patch` knows the names.
    pub tactic: Option<String>,
    /// Whether all threads are stopped while probes are written.
    pub stop: StopPolicy,
    /// How return probes detect that a function returns.
    pub return_form: ReturnForm,
    /// Whether `self->` variables belong to goroutines or to threads.
    pub self_scope: SelfScope,
    /// The most calls of one thread whose return addresses are replaced at the same time.
    pub active_calls: u32,
    /// Which children are traced, too.
    pub follow: Follow,
    /// Whether `follow` was given, and is not the default of the command line.
    pub follow_is_given: bool,
    /// The name of the form of the tactic `trap` that is forced; `patch` knows the names.
    pub trap: Option<String>,
    /// The share of one processor's time, in hundredths of a percent, that all probes together may
    /// take. Probes above it are turned off.
    pub max_cost: Option<u32>,
    /// The treatment of a process whose seccomp filters cannot be read.
    pub seccomp: SeccompPolicy,
    /// `syscalls=all`: the provider `syscall` also stands in code that the program makes at run time.
    pub made_calls: bool,
    /// `top`: whether the aggregations are shown on a screen, if there is a terminal. `None`: only tools show them.
    pub top: Option<bool>,
}

impl Default for Tracing {
    fn default() -> Tracing {
        Tracing {
            destructive: false,
            allow_unmatched: false,
            default_arguments: false,
            evaluation_time: EvaluationTime::PreInitialization,
            tactic: None,
            stop: StopPolicy::Auto,
            return_form: ReturnForm::Auto,
            self_scope: SelfScope::Task,
            active_calls: 4096,
            follow: Follow::No,
            follow_is_given: false,
            trap: None,
            max_cost: None,
            seccomp: SeccompPolicy::Check,
            made_calls: false,
            top: None,
        }
    }
}

impl Tracing {
    /// `follow=`
    pub(super) fn set_follow(&mut self, follow: Follow) {
        self.follow = follow;
        self.follow_is_given = true;
    }
}
