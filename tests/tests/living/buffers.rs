//! Buffer policies, and the order of the records that they keep.

use nanoprobe_tests::command::Running;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::values;
use nanoprobe_tests::tracer::{Form, Tracer, Tracing, start_waiting};

/// Traces a program that waits, with buffers of 4 KiB under a policy, and lets it go.
#[track_caller]
fn with_a_small_buffer(form: Form, policy: &str, clause: &str, program: &mut Running) -> Tracing {
    let tracer = Tracer::new(form)
        .argument("-q")
        .argument("-x")
        .argument(format!("bufpolicy={policy}"));
    let tracing = tracer
        .argument("-b")
        .argument("4k")
        .clause(clause)
        .attach(program.pid());
    program.go();
    tracing
}

live_tests! {
    /// The tracer takes records in rounds; the rest of a large buffer at the end takes several rounds.
    fn all_that_a_large_buffer_holds_is_printed(form) {
        let calls = form.scale(600_000, 300_000);
        let mut looper = start_waiting(&program("looper.c"), &calls.to_string());
        let tracer = Tracer::new(form).argument("-q").argument("-x").argument("bufpolicy=ring").argument("-b").argument("64m");
        let tracing = tracer.clause("pid$target:a.out:func:entry { printf(\"%d\\n\", ++n); }").attach(looper.pid());
        looper.go();
        looper.finish().success();
        let traced = tracing.finish().success();
        assert!(values(&traced.results).into_iter().eq(1..=calls as i64), "records are lost");
        assert_eq!(traced.finished.stderr, "");
    }

    /// The flight recorder: nothing is printed while the program runs. At the end, its last records are printed.
    fn the_buffer_policy_ring_keeps_what_came_last(form) {
        let calls = form.scale(20_000, 2000);
        let mut looper = start_waiting(&program("looper.c"), &calls.to_string());
        let clause = "pid$target:a.out:func:entry { printf(\"%d\\n\", ++n); }";
        let tracing = with_a_small_buffer(form, "ring", clause, &mut looper);
        looper.finish().success();
        let traced = tracing.finish().success();
        let found = values(&traced.results);
        let first = calls as i64 - found.len() as i64 + 1;
        assert!((10..1000).contains(&found.len()), "{}", traced.results);
        assert!(found.iter().copied().eq(first..=calls as i64), "{found:?}");
        assert_eq!(traced.finished.stderr, "", "what was overwritten is no drop");
    }

    /// A clause that runs in the tracer ends the tracing, and handlers run on until their probes are gone. Their
    /// records take no room from earlier ones. Handlers that are prevented from running do not count as missed.
    fn the_buffer_policy_ring_keeps_what_came_in_front_of_an_exit(form) {
        let mut looper = start_waiting(&program("looper.c"), "100000000");
        let clause = "pid$target:a.out:func:entry { printf(\"%d\\n\", ++n); } tick-10ms /n > 1000/ { exit(0); }";
        let tracing = with_a_small_buffer(form, "ring", clause, &mut looper);
        let traced = tracing.finish().success();
        let found = values(&traced.results);
        assert!((10..1000).contains(&found.len()), "{}", traced.results);
        assert!(found.is_sorted_by(|one, next| *next == *one + 1), "{found:?}");
        assert_eq!(traced.finished.stderr, "");
        assert!(looper.is_running());
    }

    /// ERROR fires for the faults in the ring when the ring is read, even after an exit(), and its
    /// own clause counts them.
    fn with_the_buffer_policy_ring_error_fires_at_the_end(form) {
        let mut looper = start_waiting(&program("looper.c"), "100000000");
        let clause = "pid$target:a.out:func:entry { n++; trace(*(int *)8); } tick-10ms /n > 1000/ { exit(1); } \
            ERROR { errors++; exit(3); } END { printf(\"%d\\n\", errors > 10); }";
        let tracing = with_a_small_buffer(form, "ring", clause, &mut looper);
        let traced = tracing.finish();
        assert_eq!(traced.finished.code(), 3, "{}", traced.finished.stderr);
        assert_eq!(values(&traced.results), [1]);
        assert!(looper.is_running());
    }

    /// Records are printed in the order of time, whichever thread made them. Without times they are printed thread by
    /// thread, each in its own order.
    fn records_are_in_the_order_of_time_or_of_threads(form) {
        for temporal in ["yes", "no"] {
            let mut threads = start_waiting(&program("threads.c"), "3 2000");
            let clause = "pid$target:a.out:thread_work:entry { printf(\"%d\\n%d\\n\", tid, timestamp); }";
            let tracer = Tracer::new(form).argument("-q").argument("-x").argument("bufpolicy=ring");
            let tracer = tracer.argument("-x").argument(format!("temporal={temporal}"));
            let tracing = tracer.clause(clause).attach(threads.pid());
            threads.go();
            threads.finish().success();
            let found = values(&tracing.finish().success().results);
            let of_threads: Vec<i64> = found.iter().step_by(2).copied().collect();
            let times: Vec<i64> = found.iter().skip(1).step_by(2).copied().collect();
            assert_eq!(of_threads.len(), 4 * 2000);
            if temporal == "yes" {
                assert!(times.is_sorted());
                continue;
            }
            let pieces: Vec<&[i64]> = of_threads.chunk_by(|one, next| one == next).collect();
            assert_eq!(pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>(), [2000; 4]);
            assert!(times.chunks(2000).all(|of_thread| of_thread.is_sorted()));
        }
    }

    /// The tracing ends by itself when the buffer is full, long before the program does.
    fn the_buffer_policy_fill_keeps_what_came_first(form) {
        let mut looper = start_waiting(&program("looper.c"), "100000000");
        let clause = "pid$target:a.out:func:entry { printf(\"%d\\n\", ++n); } END { printf(\"end\\n\"); }";
        let tracing = with_a_small_buffer(form, "fill", clause, &mut looper);
        let traced = tracing.finish().success();
        let found = values(&traced.results);
        assert!((10..1000).contains(&found.len()), "{}", traced.results);
        assert!(found.iter().copied().eq(1..=found.len() as i64), "{found:?}");
        assert!(traced.results.ends_with("end\n\n"), "{}", traced.results);
        assert!(traced.finished.stderr.contains(" drop"), "{}", traced.finished.stderr);
        assert!(looper.is_running());
    }

    fn the_buffer_policy_fill_stops_with_what_it_has(form) {
        let mut looper = start_waiting(&program("looper.c"), "20000");
        let clause = "pid$target:a.out:func:entry { trace(arg0); }";
        let tracer = Tracer::new(form).argument("-q").argument("-x").argument("bufpolicy=fill");
        let tracing = tracer.argument("-x").argument("bufsize=64k").clause(clause).attach(looper.pid());
        looper.go();
        looper.finish().success();
        let traced = tracing.finish().success();
        assert!(!traced.results.trim().is_empty());
    }
}
