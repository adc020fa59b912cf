//! The test programs without probes: what other tests expect of them holds.

use std::process::Command;

use nanoprobe_tests::command::{Finished, run};
use nanoprobe_tests::program::{Build, need_program, program, try_program};
use nanoprobe_tests::results::said;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::start_waiting;

#[track_caller]
fn unprobed(name: &str, arguments: &str) -> Finished {
    let finished = run(Command::new(program(name)).args(arguments.split_whitespace()));
    assert!(
        finished.stdout.lines().any(|line| line == "OK"),
        "{name} {arguments}:\n{}",
        finished.stdout
    );
    finished
}

#[test]
fn every_program_is_right_and_repeats_itself() {
    for (name, arguments) in [
        ("looper.c", "100000"),
        ("threads.c", "8 10000"),
        ("threads.c", "8 10000 early"),
        ("churn.c", "500 16 10"),
        ("entry.c", ""),
        ("exceptions.cpp", "20"),
        ("machine.c", "100"),
        ("middle.c", "calls 100"),
        ("numbers.c", ""),
        ("odd.c", "contexts"),
        ("odd.c", "errno"),
        ("odd.c", "fs-base"),
        ("odd.c", "seccomp"),
        ("odd.c", "shared"),
        ("odd.c", "small-stacks"),
        ("odd.c", "undumpable"),
        ("signals.c", "blocked 1000"),
        ("signals.c", "own-segv 100"),
        ("signals.c", "own-trap 100"),
        ("signals.c", "small 100"),
        ("stacks.c", "10"),
        ("staticprog.c", "1000"),
        ("strings.c", "10"),
        ("tails.c", "10"),
    ] {
        let first = unprobed(name, arguments).success();
        assert_eq!(first.stdout, unprobed(name, arguments).stdout, "{name} {arguments}");
    }
    // These programs do as much as they can in a given time. So only their verdict is the same each time.
    unprobed("signals.c", "timers 200").success();
    unprobed("forkstorm.c", "5 100").success();
}

#[test]
fn programs_say_how_often_they_called() {
    assert_eq!(said(&unprobed("looper.c", "1000").stdout, "calls"), 1000);
    assert_eq!(said(&unprobed("threads.c", "3 1000").stdout, "calls"), 4000);
    assert_eq!(said(&unprobed("churn.c", "100 8 7").stdout, "calls"), 700);
    assert_eq!(said(&unprobed("exceptions.cpp", "3").stdout, "bottom_entries"), 30);
}

#[test]
fn exits_end_as_they_say() {
    for (way, code) in [
        ("return", 0),
        ("exit", 3),
        ("_exit", 4),
        ("abort", 128 + libc::SIGABRT),
        ("kill", 128 + libc::SIGKILL),
        ("segv", 128 + libc::SIGSEGV),
        ("thread", 0),
        ("group", 0),
        ("main-first", 0),
        ("exec", 0),
    ] {
        assert_eq!(unprobed("exits.c", &format!("{way} 10")).code(), code, "{way}");
    }
}

#[test]
fn a_plugin_is_loaded_and_unloaded() {
    let plugin = try_program("plugin.c", Build::Library).expect("a shared library");
    let finished = unprobed("dlopen.c", &format!("{} 5 100", plugin.display())).success();
    assert_eq!(said(&finished.stdout, "calls"), 500);
    assert_eq!(said(&finished.stdout, "constructed"), 5);
}

#[test]
fn every_kind_of_link_runs() {
    for build in [
        Build::FixedAddress,
        Build::Static,
        Build::StaticPie,
        Build::Musl,
        Build::MuslStatic,
        Build::Stripped,
    ] {
        let Some(path) = need_program("staticprog.c", build) else {
            continue;
        };
        let finished = run(Command::new(&path).arg("100")).success();
        assert_eq!(said(&finished.stdout, "calls"), 200, "{build:?}");
    }
    if let Some(path) = need_program("goprog.go", Build::Go) {
        assert_eq!(said(&run(&mut Command::new(path)).success().stdout, "calls"), 32000);
    }
}

#[test]
fn a_busy_program_keeps_its_text_and_map() {
    let mut busy = start_waiting(&program("busy.c"), "4");
    let pid = busy.pid();
    busy.go();
    busy.wait_for("working\n");
    let snapshot = Snapshot::take(pid);
    snapshot.assert_identical(pid);
    busy.write("stop\n");
    let finished = busy.finish().success();
    assert!(said(&finished.stdout, "calls") > 0);
}
