//! Programs call the library, end threads, start processes and leave stacks inside of probed functions and handlers.
//! Each C program is a list of statements that must hold.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::Built;

fn all_hold(source: &str, count: usize) {
    let built = Built::new();
    let program = built.compile("cc", source);
    let names = built.run(&program);
    assert_eq!(names.lines().count(), count, "{names}");
    for name in names.lines() {
        // With any tactic, with any tactic and no SIMD registers saved, and with breakpoints.
        for flags in ["0", "2", "4"] {
            assert_eq!(built.run_with(&program, &[name, flags]), "holds\n", "{name} {flags}");
        }
    }
}

#[test]
fn handlers_that_ask_the_library_are_refused_and_nothing_waits() {
    all_hold("within.c", 12);
}

#[test]
fn threads_processes_and_stacks_begin_and_end_inside() {
    all_hold("threads.c", 4);
    all_hold("forks.c", 3);
    all_hold("stacks.c", 4);
}

#[test]
fn handlers_may_be_left_by_siglongjmp_from_a_signal_handler() {
    all_hold("left.c", 4);
}

/// Arguments, places and functions of all kinds: each is refused with the right error, or works.
#[test]
fn hostile_calls_do_no_harm() {
    all_hold("hostile.c", 13);
}

/// A handler must catch what it throws. An exception that passes through a probed function still reaches the
/// program's own code. (The form by exits sees the 50 returns. The form by address sees none, since an unwinder has
/// run during each of the calls.)
#[test]
fn handlers_catch_what_they_throw() {
    let built = Built::new();
    let program = built.compile("c++", "thrown.cpp");
    for flags in ["0", "4"] {
        assert_eq!(
            built.run_with(&program, &[flags]),
            "600 before, 600 behind, 200 entered, 50 left, 100 through, sum 19900\n"
        );
    }
}
