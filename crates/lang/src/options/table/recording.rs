//! How much is recorded, where the data are kept, and when they are read.

use super::Kind::{Number, Rate, Room, Size, Switch, Word};
use super::{Row, row};
use crate::options::BufferPolicy;

/// More processors than any machine has.
const PROCESSORS_MAX: u64 = 65_535;
/// The size of a clause's scratch memory.
const SCRATCH_MAX: u64 = 64 << 10;
/// Frames of a stack.
const FRAMES_MAX: u64 = 2048;

pub(super) const ROWS: &[Row] = &[
    row(
        "aggrate",
        "1s",
        Rate(|options, ns| options.recording.aggregation_ns = ns),
        "how often the keys of aggregations are taken over from the threads, whose room is free again then",
    )
    .changeable(),
    row(
        "aggsize",
        "1m",
        Room(|options, bytes| options.recording.aggregation_bytes = bytes),
        "room for the keys that a *thread* uses within one `aggrate`; in DTrace of a CPU. As there, it is there \
         twice: one is used while the other is emptied",
    ),
    row(
        "bufpolicy",
        "switch",
        Word(&[
            ("switch", |options| {
                options.recording.buffer_policy = BufferPolicy::Switch
            }),
            ("fill", |options| options.recording.buffer_policy = BufferPolicy::Fill),
            ("ring", |options| options.recording.buffer_policy = BufferPolicy::Ring),
        ]),
        "`switch`: drop when full; `fill`: record until the first buffer is full, which ends the tracing; \
         `ring`: keep the latest. What `fill` and `ring` hold is printed at the end, and ERROR fires for the \
         faults among it; what the tracer's own clauses (`BEGIN`, `tick`) record, at once",
    ),
    row(
        "bufresize",
        "auto",
        Word(&[("auto", |_| {}), ("manual", |_| {})]),
        "taken and ignored: nothing is resized here",
    ),
    row(
        "bufsize",
        "1m",
        Room(|options, bytes| options.recording.buffer_bytes = bytes),
        "ring of a *thread*; in DTrace of a CPU, 4m. Of this, `aggsize` and `dynvarsize` there is at least a \
         page",
    ),
    row(
        "cleanrate",
        "101hz",
        Rate(|options, ns| options.recording.clean_ns = ns),
        "taken and ignored: dynamic variables need no cleaning here, and speculations are free at once",
    ),
    row(
        "cpu",
        "none",
        Number(0, PROCESSORS_MAX, |options, number| {
            options.recording.processor = Some(number as u32)
        }),
        "only what happens on this processor is recorded; `cpu` of BEGIN, END and `tick-` is that, too",
    ),
    row(
        "dynvarsize",
        "1m",
        Room(|options, bytes| options.recording.dynamic_bytes = bytes),
        "room for associative arrays and `self->` arrays",
    ),
    row(
        "jstackframes",
        "50",
        Number(1, FRAMES_MAX, |options, frames| {
            options.recording.jstack_frames = frames as u32
        }),
        "frames of a `jstack()`",
    ),
    row(
        "maxframes",
        "2048",
        Number(1, FRAMES_MAX, |options, frames| {
            options.recording.stack_frames_max = frames as u32
        }),
        "the most frames of any stack, whatever `ustack()`, `ustackframes` or `jstackframes` ask for; also of \
         `ustackdepth`",
    ),
    row(
        "nspec",
        "1",
        Number(0, 256, |options, number| options.recording.speculations = number),
        "speculations at a time",
    ),
    row(
        "scratchsize",
        "64k",
        Size(0, SCRATCH_MAX, |options, bytes| {
            options.recording.scratch_bytes = Some(bytes)
        }),
        "bytes that one `alloca`, `copyin` or `copyinstr` may take, at most 64k: a larger constant is refused \
         (`D_ALLOCA_SIZE`), another value is out of scratch space. In DTrace it is the room of a whole clause; \
         here that is always 64k",
    ),
    row(
        "specsize",
        "32k",
        Size(0, 4 << 30, |options, bytes| options.recording.speculation_bytes = bytes),
        "bytes of the records of one speculation; in DTrace of each CPU's",
    ),
    row(
        "statusrate",
        "1s",
        Rate(|options, ns| options.recording.status_ns = ns),
        "how often drops are looked for",
    )
    .changeable(),
    row(
        "strsize",
        "256",
        Size(2, 1 << 16, |options, bytes| {
            options.recording.string_bytes = bytes as u32
        }),
        "bytes of a string with its NUL",
    ),
    row(
        "switchrate",
        "1s",
        Rate(|options, ns| options.recording.switch_ns = ns),
        "how often records are read",
    )
    .changeable(),
    row(
        "temporal",
        "on",
        Switch(|options, on| options.recording.temporal = on),
        "records of all threads come in the order of their time. `temporal=no`: each thread's in their order, \
         one thread after another, at every reading; no record then carries a time, and none takes the time to \
         read the clock (a program that speculates is timed anyway)",
    ),
    row(
        "ustackframes",
        "100",
        Number(1, FRAMES_MAX, |options, frames| {
            options.recording.stack_frames = frames as u32
        }),
        "frames of a `ustack()`",
    ),
];
