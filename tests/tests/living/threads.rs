//! Threads that exist, threads that come, threads that go.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table, value};
use nanoprobe_tests::tracer::assert_nothing_lost;

use crate::{traced_from_start, traced_when_attached};

const WORK: &str = "pid$target:a.out:thread_work:entry { @ = count(); }";

live_tests! {
    fn threads_that_come_are_counted(form) {
        let arguments = format!("8 {}", form.scale(1_000_000, 20_000));
        let traced = traced_from_start(form, WORK, &program("threads.c"), &arguments);
        assert_eq!(value(&traced.results), said(&traced.finished.stdout, "calls"));
    }

    fn threads_that_exist_are_counted(form) {
        let arguments = format!("16 {} early", form.scale(500_000, 10_000));
        let (target, traced) = traced_when_attached(form, WORK, &program("threads.c"), &arguments);
        assert_eq!(value(&traced.results), said(&target.stdout, "calls"));
        assert_nothing_lost(&traced.finished.stderr);
    }

    /// More threads than contexts over time: contexts and identities are reused, and counts are not lost.
    fn churning_threads_are_counted(form) {
        let clause = "pid$target:a.out:churned:entry { @[probefunc] = count(); }
                      pid$target:a.out:churned_away:entry { @[probefunc] = count(); }";
        for attached in [false, true] {
            let arguments = format!("{} 24 50", form.scale(10_000, 1_000));
            let program = program("churn.c");
            let (stdout, traced) = if attached {
                let (target, traced) = traced_when_attached(form, clause, &program, &arguments);
                (target.stdout, traced)
            } else {
                let traced = traced_from_start(form, clause, &program, &arguments);
                (traced.finished.stdout.clone(), traced)
            };
            let rows = table(&traced.results);
            assert_eq!(rows["churned"], said(&stdout, "calls"));
            assert_eq!(rows["churned_away"], said(&stdout, "threads"));
            assert_nothing_lost(&traced.finished.stderr);
        }
    }

    fn many_threads_at_once(form) {
        let arguments = format!("300 {}", form.scale(10_000, 200));
        let traced = traced_from_start(form, WORK, &program("threads.c"), &arguments);
        assert_eq!(value(&traced.results), said(&traced.finished.stdout, "calls"));
    }

    fn thread_ids_are_the_threads(form) {
        let clause = "pid$target:a.out:thread_work:entry { @[tid] = count(); }
                      pid$target:a.out:thread_work:entry { self->n++; }
                      pid$target:a.out:thread_work:entry /self->n % 1000 == 0/ { @thousands[tid] = count(); }";
        let arguments = "6 5000 early";
        let (_, traced) = traced_when_attached(form, clause, &program("threads.c"), arguments);
        // Two aggregations with the same keys: each row is there twice, 5000 and 5.
        let mut all: Vec<(i64, i64)> = traced
            .results
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
            })
            .collect();
        all.sort_unstable();
        assert_eq!(all.len(), 14, "{}", traced.results);
        for pair in all.chunks(2) {
            assert_eq!((pair[0].0, pair[0].1, pair[1].1), (pair[1].0, 5, 5000), "{}", traced.results);
        }
    }
}
