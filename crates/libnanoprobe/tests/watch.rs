//! Watchpoints: every access by every thread is seen, and changes nothing else in the program; what is refused, and
//! how.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::PathBuf;
use std::sync::OnceLock;

use common::Built;
use nanoprobe_tests::left_out::left_out;

/// A program, compiled once.
struct Program {
    source: &'static str,
    built: OnceLock<(Built, PathBuf)>,
}

static WATCH: Program = Program {
    source: "watch.c",
    built: OnceLock::new(),
};
static PROCESS: Program = Program {
    source: "watch_process.c",
    built: OnceLock::new(),
};

/// Checks what a part of a program prints. Where the machine or a sandbox has no debug registers for us, says so and
/// checks nothing.
fn part(program: &Program, name: &str, expected: &str) {
    let (built, program) = program.built.get_or_init(|| {
        let built = Built::new();
        let path = built.compile("cc", program.source);
        (built, path)
    });
    let output = built.run_with(program, &[name]);
    if let Some(reason) = output.strip_prefix("left out: ") {
        return left_out(&format!("breakpoint registers, {name}"), reason.trim());
    }
    assert_eq!(output, expected, "{name}");
}

#[test]
fn writes_reads_and_single_bytes_are_seen_and_nothing_is_changed() {
    let expected = "\
writes: 100 of 100, 0 wrong, value 99
kept: 0 changed, 0 wrong, 1000 ran
reads and writes: 100
a byte: 2
only counted: 100000, 0 missed
";
    part(&WATCH, "kinds", expected);
}

#[test]
fn an_instruction_is_watched_for_execution_and_skipped() {
    let expected = "\
executed: 300, 0 wrong, sums 9900 29900 500
with a probe: 100 and 100
";
    part(&WATCH, "executes", expected);
}

#[test]
fn threads_that_are_there_and_threads_that_come_are_watched() {
    part(&WATCH, "threads", "threads: each, 0 missed\nwithout: none\n");
}

/// Tests invariant I5. Also, if one instruction meets two watchpoints, neither loses an access silently.
#[test]
fn a_hit_in_a_handler_is_missed_and_counted() {
    let expected = "\
nested: 100 ran, 100 hits, 110 missed; probe 10 hits, 100 missed
two at once: 100 ran, 100 and 100 seen
";
    part(&WATCH, "reentry", expected);
}

#[test]
fn a_watchpoint_comes_and_goes_while_it_is_hit() {
    part(&WATCH, "switches", "switched: 0 bad\n");
}

#[test]
fn the_programs_own_perf_events_and_signals_are_its_own() {
    let expected = "\
own events: opened, 102 own traps, data -1 and 4711, 100 ran
lost: 1 hit, 0 missed, 0 own, then 1 own, 1 hit, reported in front of itself 1 own, 1 hit
";
    part(&PROCESS, "own", expected);
}

#[test]
fn a_child_has_its_own_and_closed_descriptors_do_no_harm() {
    let expected = "\
fork: child good, parent 11, 0 missed
closed: 11 hits, enable the system refuses it
closed: unregistered
";
    part(&PROCESS, "forks", expected);
}

#[test]
fn in_a_sandbox_no_hit_makes_a_system_call() {
    part(&PROCESS, "sandboxed", "sandboxed: ended with 7\n");
}

#[test]
fn each_refusal_has_its_type() {
    let expected = "\
twice -6, gone -7, arguments -1 -1 -1 -1 -1 -1 -1 -1
4 taken, then -16 (all debug registers are taken)
overlapping: -18
Permission denied: -20
Operation not supported: -17
No such file or directory: -17
Too many open files: -14
";
    part(&PROCESS, "refusals", expected);
}

#[test]
fn it_is_listed() {
    let expected = "\
listed: w there, enabled 1, 1 hits
listed: w there, enabled 0, 1 hits
";
    part(&PROCESS, "listed", expected);
}
