//! The kinds of losses, one row each, with the remedy.

use nanoprobe_export::{Loss, drop_message};
use nanoprobe_session::Losses;

/// A kind of loss.
struct Row {
    /// The name of the loss in machine-readable outputs.
    kind: &'static str,
    /// DTrace's.
    tag: &'static str,
    count: fn(&Losses) -> u64,
    text: fn(u64) -> String,
}

const fn row(kind: &'static str, tag: &'static str, count: fn(&Losses) -> u64, text: fn(u64) -> String) -> Row {
    Row { kind, tag, count, text }
}

const ROWS: &[Row] = &[
    row(
        "failed speculation",
        "DTRACEDROP_SPECUNAVAIL",
        |losses| losses.failed_speculations,
        |count| {
            let plural = plural(count);
            format!("{count} failed speculation{plural} (no speculative buffer available)")
        },
    ),
    row(
        "principal",
        "DTRACEDROP_PRINCIPAL",
        |losses| losses.drops,
        |count| drops(count, "", "increase bufsize, or record less"),
    ),
    row(
        "aggregation",
        "DTRACEDROP_AGGREGATION",
        |losses| losses.aggregation_drops,
        |count| drops(count, "aggregation", "increase aggsize, or use fewer keys"),
    ),
    row(
        "dynamic variable",
        "DTRACEDROP_DYNAMIC",
        |losses| losses.dynamic_drops,
        |count| drops(count, "dynamic variable", "increase dynvarsize"),
    ),
    row(
        "speculative",
        "DTRACEDROP_SPEC",
        |losses| losses.speculation_drops,
        |count| drops(count, "speculative", "increase specsize"),
    ),
    row(
        "error in ERROR",
        "DTRACEDROP_DBLERROR",
        |losses| losses.errors_in_error,
        |count| format!("{count} error{} in ERROR probe enabling", plural(count)),
    ),
    row(
        "sample",
        "",
        |losses| losses.lost_samples,
        |count| {
            let plural = plural(count);
            format!("{count} sample{plural} lost: profile probes sample faster than they can be read")
        },
    ),
    row(
        "switch",
        "",
        |losses| losses.lost_switches,
        |count| {
            let plural = plural(count);
            format!(
                "{count} record{plural} of sched probes lost: the threads switch faster than the records can be read \
                 (clauses without ustack() need less)"
            )
        },
    ),
    row(
        "missed tick",
        "",
        |losses| losses.missed_ticks,
        |count| {
            let plural = plural(count);
            format!(
                "{count} firing{plural} of tick or profile probes missed: nanoprobe got no processor for more than a second"
            )
        },
    ),
    row(
        "missed",
        "",
        |losses| losses.missed,
        |count| format!("{count} hits missed: a probe was hit while a handler ran in the same thread"),
    ),
    row(
        "missed thread",
        "",
        |losses| losses.missed_without_context,
        |count| {
            format!("{count} hits missed: all places for threads were taken, by threads that run or have just ended")
        },
    ),
    row(
        "missed sequence",
        "",
        |losses| losses.aborted,
        |count| format!("{count} hits missed: a restartable sequence was aborted because it met a trap"),
    ),
    row(
        "missed unknown thread",
        "",
        |losses| losses.missed_unknown_thread,
        |count| {
            format!(
                "{count} hits missed: the thread cannot be distinguished from others (it has no thread pointer of its own, \
                 and the process may make no system calls)"
            )
        },
    ),
    row(
        "missed return",
        "",
        |losses| losses.missed_returns,
        |count| {
            format!(
                "{count} returns missed: more calls at once than maxactive, or they were left by longjmp or an exception"
            )
        },
    ),
    row(
        "library",
        "",
        |losses| losses.unawaited_libraries,
        |count| {
            let plural = plural(count);
            format!(
                "{count} time{plural} the program continued before the probes of a new library were placed: these \
                 probes have missed hits"
            )
        },
    ),
    row(
        "damaged",
        "",
        |losses| losses.damaged,
        |count| format!("{count} times a buffer was found damaged: the process writes into it"),
    ),
];

/// Values whose keys found no room in the tracer.
pub fn beyond_aggmax(count: u64) -> Loss {
    Loss {
        kind: "aggregation",
        tag: "DTRACEDROP_AGGREGATION",
        count,
        text: drops(count, "aggregation", "increase aggmax, use fewer keys, or trunc() them"),
    }
}

/// The losses since the last report.
pub fn losses(before: &Losses, now: &Losses) -> Vec<Loss> {
    let since = |row: &Row| {
        let count = (row.count)(now).saturating_sub((row.count)(before));
        (count > 0).then(|| Loss {
            kind: row.kind,
            tag: row.tag,
            count,
            text: (row.text)(count),
        })
    };
    ROWS.iter().filter_map(since).collect()
}

fn drops(count: u64, what: &str, remedy: &str) -> String {
    format!("{} ({remedy})", drop_message(count, what, ""))
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}
