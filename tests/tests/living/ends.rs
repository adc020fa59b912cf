//! Every way in which a program ends: the results are complete, and its exit is its own.

use std::process::Command;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, value};
use nanoprobe_tests::tracer::{Form, Tracer, start_waiting};

const WAYS: [(&str, i32); 10] = [
    ("return", 0),
    ("exit", 3),
    ("_exit", 4),
    ("thread", 0),
    ("group", 0),
    ("main-first", 0),
    ("exec", 0),
    ("abort", 128 + libc::SIGABRT),
    ("kill", 128 + libc::SIGKILL),
    ("segv", 128 + libc::SIGSEGV),
];

live_tests! {
    fn counts_are_complete(form) {
        for (way, code) in WAYS {
            let mut target = start_waiting(&program("exits.c"), &format!("{way} 1234"));
            let clause = "pid$target:a.out:last_calls:entry { @ = count(); }";
            let tracing = Tracer::new(form).clause(clause).attach(target.pid());
            target.go();
            let finished = target.finish();
            assert_eq!(finished.code(), code, "{way}: {}", finished.stdout);
            assert!(finished.stdout.contains("\nOK\n"), "{way}: {}", finished.stdout);
            if way == "exec" {
                assert!(finished.stdout.ends_with("executed\n"), "{}", finished.stdout);
            }
            let traced = tracing.finish().success();
            assert_eq!(value(&traced.results), 1234, "{way}");
        }
    }

    /// Records in the ring at the end are printed, each once, in order.
    fn records_are_complete(form) {
        for (way, _) in WAYS {
            let mut target = start_waiting(&program("exits.c"), &format!("{way} 500"));
            let clause = "pid$target:a.out:last_calls:entry { printf(\"%d\\n\", arg0); }";
            let tracing = Tracer::new(form).argument("-q").clause(clause).attach(target.pid());
            target.go();
            target.finish();
            let traced = tracing.finish().success();
            let found: Vec<i64> = traced.results.lines().filter_map(|line| line.trim().parse().ok()).collect();
            let right: Vec<i64> = (0..500).map(|i| i * 3).collect();
            assert_eq!(found, right, "{way}");
        }
    }

    fn a_command_ends_the_tracing(form) {
        for (way, _) in WAYS {
            let clause = "pid$target:a.out:last_calls:entry { @ = count(); } END { printf(\"the end\\n\"); }";
            let traced = Tracer::new(form).clause(clause).command(&program("exits.c"), way).run().success();
            assert!(traced.results.contains("the end"), "{way}: {}", traced.results);
            assert_eq!(said(&traced.finished.stdout, "calls"), 1000, "{way}");
            let counted: Vec<&str> = traced.results.lines().filter(|line| line.trim() == "1000").collect();
            assert_eq!(counted.len(), 1, "{way}: {}", traced.results);
        }
    }

    fn exit_handlers_are_traced(form) {
        let clause = "pid$target:a.out:at_the_end:entry { @ = count(); }";
        let traced = Tracer::new(form).clause(clause).command(&program("exits.c"), "return").run().complete();
        assert_eq!(value(&traced.results), 1);
    }
}

/// A program that executes another takes its probes with it, which is said; the process is followed to its end.
#[test]
fn an_exec_is_told() {
    let mut target = Running::start(Command::new("/bin/sh").args(["-c", "echo ready; read line; exec cat"]));
    target.wait_for("ready\n");
    let clause = "pid$target:libc:read:entry,pid$target:libc:execve:entry { @ = count(); }";
    let mut tracing = Tracer::new(Form::Default).clause(clause).attach(target.pid());
    target.write("go\n");
    let told = |tracer: &Running| tracer.stderr().contains("cat: its probes are gone");
    tracing.running.wait_until("telling of the exec", told);
    target.close_input();
    target.finish().success();
    let traced = tracing.finish().success();
    assert!(value(&traced.results) >= 1);
    assert_eq!(traced.finished.stderr.matches("its probes are gone").count(), 1);
}
