//! Old signal frames on the stack of a thread that waits do not keep our memory in the process.

use std::process::Command;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::table;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer};

const CLAUSE: &str = "pid$target:a.out:called:entry { @[copyinstr(arg0)] = count(); }";

/// The remains of a signal that was handed on, and those of a fault in a clause, lie in the frame of a function
/// that waits. Both tracers leave nothing.
#[test]
fn of_frames_that_are_done_nothing_is_waited_for() {
    for form in [Form::Default, Form::Trap] {
        let mut target = Running::start(&mut Command::new(program("remains.c")));
        target.wait_for("working\n");
        let snapshot = Snapshot::take(target.pid());
        for word in ["read", "handled"] {
            let tracing = Tracer::new(form).clause(CLAUSE).trace(target.pid());
            target.go();
            target.wait_for(&format!("{word}\n"));
            let traced = tracing.interrupt();
            let told = &traced.finished.stderr;
            assert!(!told.contains("still inside"), "{word}: {told}");
            assert_eq!(table(&traced.results)["name"], 1, "{word}: {told}");
            // The bad address is an error of the clause.
            assert_eq!(told.contains("invalid address (0x8)"), word == "read", "{told}");
            snapshot.assert_restored(target.pid());
        }
        target.go();
        assert!(target.finish().success().stdout.ends_with("OK\n"));
    }
}
