//! How much is recorded, where the data are kept, and when they are read.

use super::Kind::{Number, Rate, Room, Size, Switch, Word};
use super::{Row, row};
use crate::options::BufferPolicy;

/// More processors than any machine has.
const PROCESSORS_MAX: u64 = 65_535;
/// The size of a clause's scratch memory.
const SCRATCH_MAX: u64 = 64 << 10;
/// The most frames of a stack.
const FRAMES_MAX: u64 = 2048;

pub(super) const ROWS: &[Row] = &[
    row(
        "aggmax",
        "1g",
        Size(4096, u64::MAX, |options, bytes| {
            options.recording.aggregations_bytes_max = bytes
        }),
        "nanoprobe's own: about how much memory the tracer uses for the keys and values of all threads and processes \
         together. A key that finds no room is dropped, and the drop is reported; `trunc()` makes room",
    ),
    row(
        "aggrate",
        "1s",
        Rate(|options, ns| options.recording.aggregation_ns = ns),
        "how often the keys of aggregations are read from the threads, which frees the threads' room",
    )
    .changeable(),
    row(
        "aggsize",
        "1m",
        Room(|options, bytes| options.recording.aggregation_bytes = bytes),
        "room for the keys that a *thread* uses within one `aggrate`; in DTrace of a CPU. As in \
         DTrace, there are two of them: one is used while the other is emptied",
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
         `ring`: keep the latest. The records of `fill` and `ring` are printed at the end, and ERROR fires for the \
         faults among them. Records of the tracer's own clauses (`BEGIN`, `tick`) are printed at once",
    ),
    row(
        "bufresize",
        "auto",
        Word(&[("auto", |_| {}), ("manual", |_| {})]),
        "accepted and ignored: nothing is resized here",
    ),
    row(
        "bufsize",
        "1m",
        Room(|options, bytes| options.recording.buffer_bytes = bytes),
        "size of a *thread*'s ring; in DTrace of a CPU's, 4m. It is at least a page, and so are `aggsize` and \
         `dynvarsize`",
    ),
    row(
        "cleanrate",
        "101hz",
        Rate(|options, ns| options.recording.clean_ns = ns),
        "accepted and ignored: dynamic variables need no cleaning here, and speculations are free at once",
    ),
    row(
        "cpu",
        "none",
        Number(0, PROCESSORS_MAX, |options, number| {
            options.recording.processor = Some(number as u32)
        }),
        "only events on this processor are recorded; in BEGIN, END and `tick-` clauses, too, `cpu` is this number",
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
        "the most frames of any stack, whatever `ustack()`, `stack()` or options ask for; also of \
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
        "bytes that one `alloca`, `copyin` or `copyinstr` may take, at most 64k. A larger constant is refused \
         (`D_ALLOCA_SIZE`); any other larger value is out of scratch space. In DTrace the option limits a whole \
         clause, which here always has 64k",
    ),
    row(
        "specsize",
        "32k",
        Size(0, 4 << 30, |options, bytes| options.recording.speculation_bytes = bytes),
        "bytes of the records of one speculation; in DTrace of each CPU's",
    ),
    row(
        "stackframes",
        "20",
        Number(1, FRAMES_MAX, |options, frames| {
            options.recording.kernel_frames = frames as u32
        }),
        "frames of a `stack()`; the kernel gives `/proc/sys/kernel/perf_event_max_stack` at most, which is 127 by default",
    ),
    row(
        "statusrate",
        "1s",
        Rate(|options, ns| options.recording.status_ns = ns),
        "how often drops are checked",
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
        "records of all threads are printed in the order of their time. With `temporal=no` each reading prints one \
         thread after another, and each thread's records in their order. Then records carry no time, which saves \
         reading the clock (except in programs with speculations)",
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
