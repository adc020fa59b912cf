//! Calls that wait under their own signal mask: the handler that ends the wait runs under it,
//! and executes traps.

use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, value};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Tracer, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

use crate::traced_when_attached;

const HANDLED: &str = "pid$target:a.out:handled:entry { @ = count(); }";

live_tests! {
    fn a_wait_under_a_mask_of_its_own(form) {
        let (target, traced) = traced_when_attached(form, HANDLED, &program("waits.c"), "each");
        assert_eq!(value(&traced.results), said(&target.stdout, "calls"), "{}", traced.finished.stderr);
    }

    /// When we attach, a thread may sleep under the mask of its call, or be in a handler that will return to such a
    /// mask. The thread does not die of the next trap. A thread that sleeps when we detach finds its own mask where it
    /// was.
    fn sleepers(form) {
        let mut target = start_waiting(&program("waits.c"), "asleep");
        let snapshot = Snapshot::take(target.pid());
        for killed in [true, false] {
            let tracing = Tracer::new(form).clause(HANDLED).attach(target.pid());
            if killed {
                tracing.running.signal(Signal::SIGKILL);
                drop(tracing);
                run(Command::new(nanoprobe()).args(["restore", &target.pid().to_string()])).success();
                snapshot.assert_identical(target.pid());
                continue;
            }
            target.go();
            target.wait_for("traced");
            let traced = tracing.interrupt().success();
            target.wait_until("the number", |target| target.stdout().ends_with('\n'));
            assert_eq!(value(&traced.results), said(&target.stdout(), "traced"), "{}", traced.finished.stderr);
        }
        snapshot.assert_restored(target.pid());
        target.write("\n");
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
    }
}
