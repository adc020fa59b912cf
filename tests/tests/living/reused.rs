//! Ten thousands of short-lived threads: later threads reuse the places of earlier ones.

use std::path::Path;

use nanoprobe_tests::command::{Finished, run};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::said;
use nanoprobe_tests::tracer::{Form, Traced, Tracer, Tracing, assert_nothing_lost, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

/// `self->calls` begins at 0 in each thread. So in no thread is it larger than the number of the thread's calls.
const EVERYTHING: &str = "pid$target:a.out:short_work:entry { @calls[\"calls\"] = count(); @by_thread[tid] = count(); }
    pid$target:a.out:short_work:entry { self->calls++; @most[\"most\"] = max(self->calls); }
    pid$target:a.out:short_work:entry /self->calls == 1/ { printf(\"first of %d\\n\", tid); }
    pid$target:a.out:batch_done:entry { printf(\"batch %d\\n\", arg0); }
    END { printa(\"%s %@d\\n\", @calls); printa(\"%s %@d\\n\", @most); printa(\"thread %d %@d\\n\", @by_thread); }";

/// Follows a program that starts its threads in batches. The program starts the next batch when the tracer has reported
/// the last one, and so has looked for places of ended threads. So at most 400 threads start between two such looks.
fn follow(form: Form, program: &Path, arguments: &str) -> (Finished, Traced) {
    let mut target = start_waiting(program, arguments);
    let mut tracing = tracer(form).clause(EVERYTHING).trace(target.pid());
    target.go();
    let mut batch = 0;
    while is_told(&mut tracing, batch, &mut || target.is_running()) {
        target.write("\n");
        batch += 1;
    }
    let finished = target.finish();
    (finished, tracing.finish())
}

fn tracer(form: Form) -> Tracer {
    Tracer::new(form)
        .argument("-q")
        .argument("-x")
        .argument("switchrate=1ms")
}

/// Waits until the tracer reports a batch, or the program has ended.
fn is_told(tracing: &mut Tracing, batch: u64, is_running: &mut dyn FnMut() -> bool) -> bool {
    let wanted = format!("batch {batch}\n");
    let mut told = false;
    let start = std::time::Instant::now();
    loop {
        let runs = is_running();
        told |= tracing.results().contains(&wanted);
        if told || !runs {
            return told;
        }
        assert!(
            start.elapsed() < nanoprobe_tests::LIMIT,
            "hung: {}",
            tracing.running.stderr()
        );
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
}

#[track_caller]
fn assert_exact(target: &Finished, traced: &Traced, calls_each: i64) {
    assert!(target.stdout.lines().any(|line| line == "OK"), "{}", target.stdout);
    let (threads, calls) = (said(&target.stdout, "threads"), said(&target.stdout, "calls"));
    assert_nothing_lost(&traced.finished.stderr);
    let results = &traced.results;
    assert_eq!(said(results, "calls"), calls, "by a count");
    assert_eq!(
        said(results, "most"),
        calls_each,
        "a thread's own variable began with another's"
    );
    let by_thread = results.lines().filter_map(|line| line.strip_prefix("thread "));
    let sum: i64 = by_thread
        .map(|line| {
            line.rsplit(' ')
                .next()
                .and_then(|count| count.parse::<i64>().ok())
                .expect("a count")
        })
        .sum();
    assert_eq!(sum, calls, "by thread");
    let firsts = results.lines().filter(|line| line.starts_with("first of ")).count();
    assert_eq!(firsts as i64, threads, "by records");
}

live_tests! {
    /// No thread pointer occurs twice, so each thread needs its own place.
    fn threads_whose_pointers_never_come_twice_are_all_counted(form) {
        let program = program("short_threads.c");
        for (at_once, calls) in [(1, 1), (200, 10)] {
            let threads = form.scale(20_000, 4_000);
            let (target, traced) = follow(form, &program, &format!("{threads} {at_once} {calls} raw"));
            assert_exact(&target, &traced, calls);
        }
    }

    fn threads_of_the_c_library_are_all_counted(form) {
        let musl = need_program("short_threads.c", Build::Musl);
        for program in [Some(program("short_threads.c")), musl].into_iter().flatten() {
            for (at_once, calls) in [(1, 1), (200, 10)] {
                let threads = form.scale(20_000, 4_000);
                let (target, traced) = follow(form, &program, &format!("{threads} {at_once} {calls}"));
                assert_exact(&target, &traced, calls);
            }
        }
    }

    /// Threads for which there is no room miss their hits; the misses are counted, and the message about them is right.
    fn more_threads_at_once_than_there_is_room_for_are_missed_and_counted(form) {
        let clause = "pid$target:a.out:short_work:entry { @[\"calls\"] = count(); }
                      pid$target:a.out:batch_done:entry { printf(\"batch %d\\n\", arg0); }
                      END { printa(\"%s %@d\\n\", @); }";
        let mut target = start_waiting(&program("short_threads.c"), "2400 1200 1 raw");
        let mut tracing = tracer(form).clause(clause).trace(target.pid());
        target.go();
        let mut batch = 0;
        while is_told(&mut tracing, batch, &mut || target.is_running()) {
            target.write("\n");
            batch += 1;
        }
        let (target, traced) = (target.finish(), tracing.finish());
        assert!(target.stdout.lines().any(|line| line == "OK"), "{}", target.stdout);
        let missed: i64 = traced.finished.stderr.lines().filter_map(|line| {
            let (count, _) = line.strip_prefix("nanoprobe: ")?.split_once(" hits missed: all places for threads were taken")?;
            count.parse::<i64>().ok()
        }).sum();
        let counted = said(&traced.results, "calls");
        // The scheduler decides whether places are free when the next batch begins; another test checks that they
        // become free.
        assert!(missed > 0 && counted > 1000, "{}", traced.finished.stderr);
        assert_eq!(counted + missed, said(&target.stdout, "calls"), "{}", traced.finished.stderr);
    }

    /// A tracer that is killed while places change hands leaves a program that runs on, and that `restore` cleans.
    fn a_tracer_may_die_while_threads_come_and_go(form) {
        for delay in [0, 3, 10, 30] {
            let mut target = start_waiting(&program("short_threads.c"), "20000 50 2 raw");
            let tracing = tracer(form).clause(EVERYTHING).trace(target.pid());
            target.write(&"\n".repeat(100));
            std::thread::sleep(std::time::Duration::from_millis(delay));
            tracing.running.signal(Signal::SIGKILL);
            tracing.finish();
            if target.is_running() {
                let restored = run(std::process::Command::new(nanoprobe()).args(["restore", &target.pid().to_string()]));
                assert!(restored.code() == 0 || !target.is_running(), "{}", restored.stderr);
            }
            let finished = target.finish();
            assert!(finished.stdout.lines().any(|line| line == "OK"), "{} {}", finished.stdout, finished.stderr);
        }
    }
}
