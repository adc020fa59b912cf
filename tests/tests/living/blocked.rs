//! Signals that we need, sent to a program that blocks them. For senders they stay blocked.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, value};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, start_waiting};

use crate::traced_when_attached;

/// The guarded load makes our handlers necessary with every tactic.
const HANDLED: &str = "pid$target:a.out:handled:entry { copyin(uregs[R_RSP], 8); @ = count(); }";

/// Signals that arrive while it is traced are recorded correctly, and every call is counted.
#[track_caller]
fn traced(form: Form, arguments: &str) {
    let (target, traced) = traced_when_attached(form, HANDLED, &program("blocked.c"), arguments);
    assert_eq!(
        value(&traced.results),
        said(&target.stdout, "calls"),
        "{}",
        traced.finished.stderr
    );
}

live_tests! {
    /// The usual way to handle signals in one thread: sigfillset, then sigwait.
    fn a_thread_that_waits_for_all_signals(form) {
        traced(form, "waiter 400");
    }

    fn held_signals_are_reported_taken_and_delivered(form) {
        traced(form, "pending 960");
    }

    fn blocked_signals_end_waits_under_other_masks(form) {
        traced(form, "masks 400");
    }

    /// Signals that were pending when we attached, and those that came meanwhile, are pending when
    /// we have detached.
    fn pending_signals_are_kept_when_the_tracer_goes(form) {
        let mut target = start_waiting(&program("blocked.c"), "kept");
        let snapshot = Snapshot::take(target.pid());
        let tracing = Tracer::new(form).clause(HANDLED).attach(target.pid());
        target.go();
        target.wait_for("traced");
        let traced = tracing.interrupt().success();
        target.wait_until("the number", |target| target.stdout().ends_with('\n'));
        assert_eq!(value(&traced.results), said(&target.stdout(), "traced"), "{}", traced.finished.stderr);
        snapshot.assert_restored(target.pid());
        target.write("\n");
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
    }
}
