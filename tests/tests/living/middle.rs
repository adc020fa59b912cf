//! No torn instruction (I1): a thread that arrives in the middle of a run executes the right instruction.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Tracer, start_waiting};

use crate::traced_from_start;

const ENTRIES: &str = "pid$target:a.out:middle_twos:entry,pid$target:a.out:middle_ones:entry,
                       pid$target:a.out:middle_frame:entry,pid$target:a.out:middle_relative:entry,
                       pid$target:a.out:middle_loop:entry";

live_tests! {
    fn calls_into_the_middle(form) {
        let clause = format!("{ENTRIES} {{ @[probefunc] = count(); }}");
        let arguments = format!("calls {}", form.scale(2000, 200));
        let traced = traced_from_start(form, &clause, &program("middle.c"), &arguments);
        let rows = table(&traced.results);
        for name in ["twos", "ones", "frame", "relative", "loop"] {
            let right = said(&traced.finished.stdout, name);
            assert_eq!(rows[&format!("middle_{name}")], right, "{name}: only arrivals at the start are entries");
        }
    }

    /// Return probes patch the ends of the same functions, so these runs adjoin those of the entries.
    fn calls_into_the_middle_with_returns(form) {
        let clause = format!("{ENTRIES},{} {{ @[probename] = count(); }}", ENTRIES.replace(":entry", ":return"));
        traced_from_start(form, &clause, &program("middle.c"), "calls 200");
    }

    /// A thread that spins inside the run and one that sleeps in a system call inside it, at attach and at detach.
    fn threads_parked_in_the_run(form) {
        let mut target = start_waiting(&program("middle.c"), "parked");
        target.go();
        target.wait_for("parked\n");
        let snapshot = Snapshot::take(target.pid());
        let clause = "pid$target:a.out:middle_spin:entry,pid$target:a.out:middle_sleep:entry,
                      pid$target:a.out:middle_sleep:return { @[probefunc] = count(); }";
        for _ in 0..30 {
            let tracing = Tracer::new(form).clause(clause).attach(target.pid());
            target.wait_until_worked(std::time::Duration::from_millis(20));
            let traced = tracing.interrupt();
            // The spinning thread executes its first instruction all the time.
            assert!(table(&traced.results).get("middle_spin").is_some_and(|&hits| hits > 10), "{}", traced.results);
            snapshot.assert_identical(target.pid());
        }
        // The sleeping thread is woken while it is traced, and returns from its system call into a run.
        let tracing = Tracer::new(form).clause(clause).attach(target.pid());
        target.go();
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
        tracing.finish().success();
    }
}
