//! System calls that no probe sees are told, once, and change nothing for those that are seen.

use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost, start_waiting};

const CODE: &str = "the program has made code at run time that makes system calls, at 0x";
const RING: &str = "the program has an io_uring";

/// Traces `made_calls` with its second argument; yields what it has said, and nanoprobe's messages. The program goes on
/// when `sign` is among these.
fn traced(form: Form, what: &str, sign: &str) -> (String, String) {
    let mut target = start_waiting(&program("made_calls.c"), &format!("50 {what}"));
    let clause = "syscall::getppid:entry,syscall::getppid:return { @[probename] = count(); }";
    let mut tracing = Tracer::new(form).clause(clause).trace(target.pid());
    tracing
        .running
        .wait_until(sign, |tracer| tracer.stderr().contains(sign));
    target.go();
    let finished = target.finish().success();
    let traced = tracing.finish().success();
    let (rows, right) = (table(&traced.results), said(&finished.stdout, "getppid"));
    assert_eq!((rows["entry"], rows["return"]), (right, right), "{rows:?}");
    assert_nothing_lost(&traced.finished.stderr);
    (finished.stdout, traced.finished.stderr)
}

live_tests! {
    fn made_code_is_told_once(form) {
        let (_, told) = traced(form, "c", CODE);
        assert_eq!(told.matches(CODE).count(), 1, "{told}");
        assert!(!told.contains(RING), "{told}");
    }

    fn a_ring_is_told_once(form) {
        let alone = run(Command::new(program("made_calls.c")).args(["1", "u"]));
        if said(&alone.stdout, "ring") == 0 {
            return left_out("io_uring", "the kernel permits none");
        }
        let (_, told) = traced(form, "u", RING);
        assert_eq!(told.matches(RING).count(), 1, "{told}");
        assert!(!told.contains(CODE), "{told}");
    }
}

/// Nothing is told where nobody asks for system calls.
#[test]
fn other_probes_tell_nothing() {
    let mut target = start_waiting(&program("made_calls.c"), "50 cu");
    let clause = "pid$target:a.out:main:return { @ = count(); }";
    let tracing = Tracer::new(Form::Default).clause(clause).trace(target.pid());
    target.go();
    target.finish().success();
    let told = tracing.finish().success().finished.stderr;
    assert!(!told.contains(CODE) && !told.contains(RING), "{told}");
}
