//! Signals, alternate stacks, masks, and the program's own handlers for the signals that we use.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::tracer::{Form, Tracer};

use crate::{missed, traced_from_start, traced_when_attached, unprobed};

const BOTH: &str = "pid$target:a.out:worked:entry { @[probefunc] = count(); }
                    pid$target:a.out:handled:entry { @[probefunc] = count(); }";

live_tests! {
    /// A signal that arrives inside a handler of ours calls probed functions: those hits are
    /// missed, and reported.
    fn i5_hits_within_a_handler_are_missed_and_counted(form) {
        let signals = form.scale(5000, 500);
        let (target, traced) = traced_when_attached(form, BOTH, &program("signals.c"), &format!("timers {signals}"));
        let rows = table(&traced.results);
        let counted = rows["worked"] + rows["handled"];
        let right = said(&target.stdout, "worked") + said(&target.stdout, "handled");
        assert_eq!(counted + missed(&traced.finished.stderr), right, "{}", traced.finished.stderr);
    }

    /// A trap in such a handler needs a second signal frame; jumps need none.
    fn handlers_on_the_smallest_stack(form) {
        let frames = form.scale(1, 2);
        let program = program("signals.c");
        let traced = traced_from_start(form, BOTH, &program, &format!("small 1000 {frames}"));
        assert_eq!(table(&traced.results)["handled"], 2000);
        let clause = "pid$target:a.out:handled:entry { @[ustack()] = count(); }
                      pid$target:a.out:handled:return { @q[probefunc] = quantize(arg1); }";
        traced_from_start(form, clause, &program, &format!("small 200 {frames}"));
    }

    fn the_programs_own_fault_handlers(form) {
        let clause = "pid$target:a.out:faulting_load:entry,pid$target:a.out:faulting_divide:entry
                      { @[probefunc] = count(); }";
        for attached in [false, true] {
            let program = program("signals.c");
            let (stdout, traced) = if attached {
                let (target, traced) = traced_when_attached(form, clause, &program, "own-segv 300");
                (target.stdout, traced)
            } else {
                let traced = traced_from_start(form, clause, &program, "own-segv 300");
                (traced.finished.stdout.clone(), traced)
            };
            let rows = table(&traced.results);
            assert_eq!(rows["faulting_load"], said(&stdout, "loads"));
            assert_eq!(rows["faulting_divide"], said(&stdout, "loads"));
        }
    }
}

/// Blocking SIGTRAP around calls: with jumps nothing is trapped, and every call counts.
#[test]
fn jumps_need_no_signal() {
    let traced = traced_from_start(Form::Default, BOTH, &program("signals.c"), "blocked 10000");
    let rows = table(&traced.results);
    assert_eq!((rows["worked"], rows["handled"]), (30000, 100));
}

/// With traps the program must survive, too: by counting, by missing, or by a refusal with the reason.
#[test]
fn traps_under_a_blocked_sigtrap_do_not_kill() {
    let program = program("signals.c");
    let right = unprobed(&program, "blocked 1000").success();
    let traced = Tracer::new(Form::Trap)
        .clause(BOTH)
        .command(&program, "blocked 1000")
        .run();
    assert_eq!(
        crate::without_messages(&traced.finished.stdout),
        right.stdout,
        "{}",
        traced.finished.stderr
    );
}

#[test]
fn the_programs_own_sigtrap_handler_with_jumps() {
    let traced = traced_from_start(Form::Default, BOTH, &program("signals.c"), "own-trap 500");
    assert_eq!(table(&traced.results)["worked"], 500);
}

/// The program replaces our SIGTRAP handler while traps are in place.
#[test]
fn the_programs_own_sigtrap_handler_with_traps() {
    let program = program("signals.c");
    let right = unprobed(&program, "own-trap 100").success();
    let traced = Tracer::new(Form::Trap)
        .clause(BOTH)
        .command(&program, "own-trap 100")
        .run();
    assert_eq!(
        crate::without_messages(&traced.finished.stdout),
        right.stdout,
        "{}",
        traced.finished.stderr
    );
}
