//! Other tracers' breakpoints beside our jumps: kernel uprobes, and an imitation of their writes.

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::{said, value};
use nanoprobe_tests::text::differences;
use nanoprobe_tests::tracer::{Form, Tracer, Tracing, start_waiting};

const CLAUSE: &str = "pid$target:a.out:uprobed_function:entry { @ = count(); }";
const CLAUSE_IN_LIBRARY: &str = "pid$target:uprobed.so:uprobed_function:entry { @ = count(); }";

/// Another program that puts breakpoints on the function in `file`.
fn other(how: &str, target: &Running, file: &Path, times: &str) -> Running {
    let place = target.stdout();
    let place = place
        .lines()
        .find_map(|line| line.strip_prefix("place "))
        .expect("the place of the function");
    let (offset, address) = place.split_once(' ').expect("an offset and an address");
    let mut command = Command::new(program("uprobe.c"));
    command.arg(how).arg(target.pid().to_string()).arg(file);
    Running::start(command.args([offset, address, times]))
}

fn start() -> Running {
    start_waiting(&program("uprobed.c"), "")
}

fn attach(target: &Running) -> Tracing {
    Tracer::new(Form::Default).clause(CLAUSE).attach(target.pid())
}

/// Whether uprobes can be used here. If not, reports that the test is left out.
fn is_there(stdout: &str) -> bool {
    let is_there = !stdout.contains("no uprobes");
    if !is_there {
        left_out("kernel uprobes", stdout.trim());
    }
    is_there
}

fn stop(mut target: Running) -> i64 {
    target.write("stop\n");
    let finished = target.finish().success();
    assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
    said(&finished.stdout, "calls")
}

/// Breakpoints come and go twenty times while the function is called.
fn come_and_go(how: &str) {
    let target = start();
    let tracing = attach(&target);
    beside(target, tracing, &program("uprobed.c"), how);
}

/// The same with the function in a library.
fn come_and_go_in_a_library(how: &str) {
    let Some(library) = need_program("uprobed.c", Build::Library) else {
        return;
    };
    let target = start_waiting(&program("uprobed.c"), &library.display().to_string());
    let tracing = Tracer::new(Form::Default)
        .clause(CLAUSE_IN_LIBRARY)
        .attach(target.pid());
    beside(target, tracing, &library, how);
}

fn beside(mut target: Running, tracing: Tracing, file: &Path, how: &str) {
    target.go();
    let finished = other(how, &target, file, "20").finish().success();
    let traced = tracing.interrupt();
    let left = differences(target.pid());
    assert!(left.is_empty(), "{left:?}");
    let calls = stop(target);
    if is_there(&finished.stdout) {
        let told = &traced.finished.stderr;
        assert!(told.contains("somebody else has put a breakpoint there"), "{told}");
        assert!(told.contains("the probe is back"), "{told}");
        let counted = value(&traced.results);
        assert!(0 < counted && counted <= calls, "{counted} of {calls}");
    }
}

#[test]
fn a_jump_gives_way_to_a_uprobe_and_comes_back() {
    come_and_go("kernel");
}

#[test]
fn a_jump_gives_way_to_a_breakpoint_and_comes_back() {
    come_and_go("imitated");
}

#[test]
fn a_jump_in_a_library_gives_way_to_a_uprobe_and_comes_back() {
    come_and_go_in_a_library("kernel");
}

#[test]
fn a_jump_in_a_library_gives_way_to_a_breakpoint_and_comes_back() {
    come_and_go_in_a_library("imitated");
}

/// The breakpoint exists when the tracer ends, and stays.
#[test]
fn a_uprobe_outlives_the_tracer() {
    let mut target = start();
    let tracing = attach(&target);
    target.go();
    let mut other = other("kernel", &target, &program("uprobed.c"), "0");
    other.wait_until("enabling", |other| {
        other.stdout().contains("enabled") || other.stdout().contains("no uprobes")
    });
    tracing.interrupt();
    if is_there(&other.stdout()) {
        other.write("stop\n");
    }
    other.finish().success();
    stop(target);
}

/// A breakpoint exists before the tracer comes. Its function is refused, and others are traced.
#[test]
fn a_uprobe_that_was_there_first_stays() {
    let mut target = start();
    target.go();
    let mut other = other("kernel", &target, &program("uprobed.c"), "0");
    other.wait_until("enabling", |other| {
        other.stdout().contains("enabled") || other.stdout().contains("no uprobes")
    });
    let is_enabled = is_there(&other.stdout());
    let clause = format!("{CLAUSE} pid$target:a.out:uprobed_other:entry {{ @others = count(); }}");
    let tracing = Tracer::new(Form::Default)
        .argument("-v")
        .clause(&clause)
        .attach(target.pid());
    std::thread::sleep(std::time::Duration::from_millis(100));
    let traced = tracing.interrupt();
    if is_enabled {
        let told = &traced.finished.stderr;
        assert!(told.contains("the text in memory differs from the file"), "{told}");
        other.write("stop\n");
    }
    other.finish().success();
    stop(target);
}
