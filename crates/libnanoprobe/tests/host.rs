//! The library does not harm its host: a program that blocks signals,
//! forks, hooks, leaves handlers, has little of everything, or is debugged.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{Built, text};
use nanoprobe_tests::left_out::left_out;

/// The most time that a program here may take. It is enough on a machine that is twenty times too busy.
const SECONDS: &str = "240";

fn limited(built: &Built, program: &Path, arguments: &[&str]) -> Command {
    let mut command = built.command(Path::new("timeout"));
    command.args(["-s", "KILL", SECONDS]).arg(program).args(arguments);
    command.stdin(Stdio::null());
    command
}

fn holds(built: &Built, program: &Path, flags: &[&str]) {
    let names = text(&limited(built, program, &[]).output().unwrap());
    assert!(!names.is_empty());
    for name in names.lines() {
        for flags in flags {
            let output = limited(built, program, &[name, flags]).output().unwrap();
            assert_eq!(text(&output), "holds\n", "{name} {flags}");
        }
    }
}

/// The flags of all probes: any tactic, or breakpoints.
const FLAGS: [&str; 2] = ["0", "4"];

#[test]
fn threads_that_block_all_signals_are_named_or_work_on() {
    let built = Built::new();
    holds(&built, &built.compile("cc", "blocked.c"), &["0", "4", "8"]);
}

#[test]
fn children_that_are_forked_in_the_first_registration_register_too() {
    let built = Built::new();
    let program = built.compile("cc", "first_fork.c");
    for _ in 0..10 {
        holds(&built, &program, &["0"]);
    }
}

#[test]
fn hooks_and_probes_stand_together_and_callers_keep_what_they_rely_on() {
    let built = Built::new();
    holds(&built, &built.compile("cc", "hooks.c"), &FLAGS);
}

#[test]
fn exceptions_go_through_hooks() {
    let built = Built::new();
    let program = built.compile("c++", "hooks_thrown.cpp");
    let output = limited(&built, &program, &[]).output().unwrap();
    assert_eq!(text(&output), "50 caught, 50 caught, 50 returned\n");
}

#[test]
fn a_thread_that_has_left_a_handler_calls_the_library_as_before() {
    let built = Built::new();
    holds(&built, &built.compile("cc", "left_calls.c"), &FLAGS);
}

#[test]
fn counts_outlive_their_probe_and_names_are_never_guessed() {
    let built = Built::new();
    let twin = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/ends_twin.c");
    let program = built.compile_with("cc", "ends.c", "program", &[twin.to_str().unwrap()]);
    holds(&built, &program, &FLAGS);
}

#[test]
fn the_smallest_resource_limits_end_no_program() {
    let built = Built::new();
    holds(&built, &built.compile("cc", "limits.c"), &["0"]);
}

/// A debugger takes any SIGTRAP for a signal of its own breakpoints. So the library's own work must raise none.
#[test]
fn a_program_that_registers_probes_ends_well_in_a_debugger() {
    let built = Built::new();
    let program = built.compile("cc", "first.c");
    let gdb = limited(
        &built,
        Path::new("gdb"),
        &["-nx", "-batch", "-ex", "run", "-ex", "backtrace"],
    )
    .args([
        "-iex",
        "set debuginfod enabled off",
        "-iex",
        "set startup-with-shell off",
    ])
    .arg(&program)
    .output()
    .unwrap();
    let (printed, told) = (
        String::from_utf8_lossy(&gdb.stdout),
        String::from_utf8_lossy(&gdb.stderr),
    );
    if told.contains("failed to run command") || told.contains("ptrace: Operation not permitted") {
        return left_out("a program in a debugger", told.trim());
    }
    assert!(printed.contains("exited normally"), "{printed}\n{told}");
    assert!(printed.contains("2 good NULL placed"), "{printed}\n{told}");
}
