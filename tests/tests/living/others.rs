//! Other tools on the same program: strace, gdb, a second nanoprobe.

use std::process::Command;
use std::time::Duration;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, value};
use nanoprobe_tests::text::{Snapshot, is_complete, is_patched, maps};
use nanoprobe_tests::tracer::{Form, Traced, Tracer, Tracing, start_waiting, wait_until_armed, wait_until_tracing};
use nix::sys::signal::Signal;

const WORK: &str = "pid$target:a.out:busy_work:entry { @ = count(); }";

/// Lets the target work for a while, then sends Ctrl-C. The length of the time does not matter.
#[track_caller]
pub fn after_some_work(target: &mut Running, tracing: Tracing) -> Traced {
    target.wait_until_worked(Duration::from_millis(200));
    tracing.interrupt()
}

/// Only jumps are tested. When strace attaches or detaches, it swallows signals of a program that traps on purpose. A
/// test program executed 800,000 `int3` of its own while strace attached six times: up to three were never handled. A
/// thread that continues without its signal executes the bytes after the trap.
#[test]
fn strace_comes_and_goes() {
    let form = Form::Default;
    let Some(strace) = need_command("strace on a traced program", "strace") else {
        return;
    };
    let mut busy = start_waiting(&program("busy.c"), "2");
    let tracing = Tracer::new(form).clause(WORK).attach(busy.pid());
    busy.go();
    busy.wait_for("working\n");
    for _ in 0..3 {
        let mut command = Command::new(&strace);
        command.args([
            "-f",
            "-qq",
            "-e",
            "trace=nanosleep,clock_nanosleep",
            "-p",
            &busy.pid().to_string(),
        ]);
        let mut stracing = Running::start(&mut command);
        stracing.wait_until("seeing something", |stracing| !stracing.stderr().is_empty());
        stracing.signal(Signal::SIGINT);
        stracing.finish();
    }
    busy.write("stop\n");
    let target = busy.finish().success();
    assert_eq!(
        value(&tracing.finish().success().results),
        said(&target.stdout, "calls")
    );
}

live_tests! {
    /// A debugger holds the program: we refuse with a reason and touch nothing.
    fn a_program_under_strace_is_refused(form) {
        let Some(strace) = need_command("nanoprobe on a straced program", "strace") else { return };
        let mut busy = start_waiting(&program("busy.c"), "1");
        let snapshot = Snapshot::take(busy.pid());
        let mut command = Command::new(strace);
        command.args(["-f", "-qq", "-o", "/dev/null", "-p", &busy.pid().to_string()]);
        let stracing = Running::start(&mut command);
        busy.wait_until("being straced", |busy| nanoprobe_tests::text::ptracer(busy.pid()).is_some_and(|tracer| tracer != 0));
        let traced = Tracer::new(form).clause(WORK).process(busy.pid()).run();
        assert_eq!(traced.finished.code(), 1, "{}", traced.finished.stderr);
        assert!(traced.finished.stderr.contains("trace"), "{}", traced.finished.stderr);
        snapshot.assert_restored(busy.pid());
        stracing.signal(Signal::SIGINT);
        stracing.finish();
        busy.go();
        busy.write("stop\n");
        busy.finish().success();
    }

    /// As in DTrace, a script that finds in BEGIN that it cannot work sees nothing of the program.
    fn nothing_fires_after_an_exit_in_begin(form) {
        let mut busy = start_waiting(&program("busy.c"), "2");
        busy.go();
        busy.wait_for("working\n");
        let traced = Tracer::new(form)
            .argument("-q")
            .clause("BEGIN { printf(\"usage\\n\"); exit(2); }")
            .clause("pid$target:a.out:busy_recursion:entry { hits++; printf(\"hit\\n\"); } END { printf(\"%d hits\\n\", hits); }")
            .process(busy.pid())
            .run();
        assert_eq!((traced.finished.code(), traced.results.as_str()), (2, "usage\n0 hits\n\n"));
        busy.write("stop\n");
        busy.finish().success();
    }

    /// Two tracers attach at the same moment: one after the other.
    fn two_tracers_at_once(form) {
        let mut busy = start_waiting(&program("busy.c"), "2");
        busy.go();
        busy.wait_for("working\n");
        let snapshot = Snapshot::take(busy.pid());
        for _ in 0..form.scale(4, 2) {
            let tracer = || Tracer::new(form).argument("-v").clause(WORK).start_on(busy.pid());
            let mut both = [tracer(), tracer()];
            for tracing in &mut both {
                wait_until_tracing(&mut tracing.running);
            }
            for tracing in both {
                assert!(value(&after_some_work(&mut busy, tracing).results) > 0);
            }
            snapshot.assert_restored(busy.pid());
        }
        busy.write("stop\n");
        busy.finish().success();
    }

    fn ctrl_c_restores_everything(form) {
        let mut busy = start_waiting(&program("busy.c"), "4");
        busy.go();
        busy.wait_for("working\n");
        let snapshot = Snapshot::take(busy.pid());
        let clause = "pid$target:a.out::entry,pid$target:a.out::return,
                      pid$target:libc:malloc:entry,pid$target:libc:free:entry { @[probefunc] = count(); }";
        let tracing = Tracer::new(form).clause(clause).attach(busy.pid());
        let traced = after_some_work(&mut busy, tracing);
        assert!(!traced.results.trim().is_empty());
        snapshot.assert_identical(busy.pid());
        busy.write("stop\n");
        busy.finish().success();
    }

    /// The watch lasts from before the attach until after the detach.
    fn i7_no_page_is_writable_and_executable_at_any_time(form) {
        let mut busy = start_waiting(&program("busy.c"), "2");
        busy.go();
        busy.wait_for("working\n");
        let pid = busy.pid();
        let mut looks = 0;
        let mut look = || {
            for mapping in maps(pid) {
                let permissions = &mapping.permissions;
                assert!(!(permissions.contains('w') && permissions.contains('x')), "{mapping:#x?}");
            }
            looks += 1;
        };
        let clause = "pid$target:a.out::entry,pid$target:a.out::return { @[probefunc] = count(); }";
        look();
        let mut tracing = Tracer::new(form).clause(clause).start_on(pid);
        tracing.running.wait_until("patching", |_| {
            look();
            is_complete(pid) && is_patched(pid)
        });
        tracing.running.signal(Signal::SIGINT);
        while tracing.running.is_running() {
            look();
        }
        tracing.finish().success();
        look();
        assert!(looks > 2);
        busy.write("stop\n");
        busy.finish().success();
    }

    fn a_stopped_tracer_does_not_stop_the_target(form) {
        let mut busy = start_waiting(&program("busy.c"), "2");
        let mut tracing = Tracer::new(form).clause("pid$target:a.out:busy_work:entry { trace(timestamp); }").argument("-x").argument("bufsize=64k").start_on(busy.pid());
        wait_until_armed(&mut tracing.running, busy.pid());
        tracing.running.signal(Signal::SIGSTOP);
        busy.go();
        busy.wait_for("working\n");
        busy.wait_until_worked(Duration::from_millis(300));
        busy.write("stop\n");
        // The target ends although its ring is not read: it drops records instead of waiting.
        let target = busy.finish().success();
        assert!(said(&target.stdout, "calls") > 0);
        tracing.running.signal(Signal::SIGCONT);
        let traced = tracing.finish();
        assert_eq!(traced.finished.code(), 0, "{}", traced.finished.stderr);
        assert!(traced.finished.stderr.contains("drop"), "drops are not reported:\n{}", traced.finished.stderr);
    }
}

/// Without traps, because gdb takes any trap for its own.
#[test]
fn gdb_comes_and_goes() {
    let form = Form::Default;
    let Some(gdb) = need_command("gdb on a traced program", "gdb") else {
        return;
    };
    let mut busy = start_waiting(&program("busy.c"), "2");
    let tracing = Tracer::new(form).clause(WORK).attach(busy.pid());
    busy.go();
    busy.wait_for("working\n");
    for _ in 0..2 {
        let mut command = Command::new(&gdb);
        command.args([
            "-nx",
            "-batch",
            "-p",
            &busy.pid().to_string(),
            "-ex",
            "thread apply all bt 3",
            "-ex",
            "detach",
        ]);
        command.env_remove("DEBUGINFOD_URLS");
        let finished = run(&mut command);
        assert!(
            finished.stdout.contains("Thread "),
            "gdb saw nothing:\n{}\n{}",
            finished.stdout,
            finished.stderr
        );
    }
    busy.write("stop\n");
    let target = busy.finish().success();
    assert_eq!(
        value(&tracing.finish().success().results),
        said(&target.stdout, "calls")
    );
}

/// gdb's breakpoints do not disturb tracing, neither on an unprobed instruction nor on our jump.
#[test]
fn gdb_has_breakpoints_of_its_own() {
    let Some(gdb) = need_command("gdb's breakpoints in a traced program", "gdb") else {
        return;
    };
    let mut busy = start_waiting(&program("busy.c"), "2");
    let tracing = Tracer::new(Form::Default).clause(WORK).attach(busy.pid());
    busy.go();
    busy.wait_for("working\n");
    let mut command = Command::new(&gdb);
    command.args(["-nx", "-batch", "-p", &busy.pid().to_string()]);
    for order in [
        "break *busy_recursion",
        "continue",
        "delete",
        "break *busy_work",
        "continue",
        "delete",
        "detach",
    ] {
        command.args(["-ex", order]);
    }
    command.env_remove("DEBUGINFOD_URLS");
    let finished = run(&mut command);
    for (number, function) in [(1, "busy_recursion"), (2, "busy_work")] {
        let hit = format!("Breakpoint {number}, ");
        let line = finished.stdout.lines().find(|line| line.contains(&hit));
        assert!(
            line.is_some_and(|line| line.contains(function)),
            "{function}:\n{}\n{}",
            finished.stdout,
            finished.stderr
        );
    }
    busy.write("stop\n");
    let target = busy.finish().success();
    assert_eq!(
        value(&tracing.finish().success().results),
        said(&target.stdout, "calls")
    );
}

/// With traps. A debugger that passes SIGTRAP and detaches may leave threads before a trap of ours, with the signal.
#[test]
fn gdb_passes_traps_on_and_goes() {
    let Some(gdb) = need_command("gdb that passes traps on", "gdb") else {
        return;
    };
    let mut busy = start_waiting(&program("busy.c"), "4");
    let tracing = Tracer::new(Form::Trap).clause(WORK).attach(busy.pid());
    busy.go();
    busy.wait_for("working\n");
    for _ in 0..8 {
        let mut command = Command::new(&gdb);
        command.args(["-nx", "-batch", "-ex", "handle SIGTRAP nostop noprint pass"]);
        command.arg(program("busy.c"));
        command.args(["-p", &busy.pid().to_string(), "-ex", "detach"]);
        command.env_remove("DEBUGINFOD_URLS");
        let finished = run(&mut command);
        assert!(busy.is_running(), "{}\n{}", finished.stdout, finished.stderr);
    }
    busy.write("stop\n");
    let target = busy.finish().success();
    assert_eq!(
        value(&tracing.finish().success().results),
        said(&target.stdout, "calls")
    );
}
