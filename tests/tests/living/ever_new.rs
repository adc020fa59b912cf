//! Ever-new keys: reading or truncating them frees their room, and each count is reported once.

use std::collections::BTreeMap;
use std::path::Path;

use nanoprobe_tests::command::Finished;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::said;
use nanoprobe_tests::tracer::{Form, Traced, Tracer, Tracing, start_waiting};

/// Follows a program batch by batch. It continues after the tracer has reported the last batch: by then the tracer has
/// read its tables.
fn follow(tracer: Tracer, program: &Path, arguments: &str) -> (Finished, Traced) {
    let mut target = start_waiting(program, arguments);
    let mut tracing = tracer.trace(target.pid());
    target.go();
    let mut batch = 0;
    while is_told(&mut tracing, batch, &mut || target.is_running()) {
        target.write("\n");
        batch += 1;
    }
    (target.finish(), tracing.finish())
}

/// Waits until the tracer reports a batch, or the program has ended.
fn is_told(tracing: &mut Tracing, batch: u64, is_running: &mut dyn FnMut() -> bool) -> bool {
    let wanted = format!("batch {batch}\n");
    let start = std::time::Instant::now();
    loop {
        let runs = is_running();
        if tracing.results().contains(&wanted) {
            return true;
        }
        if !runs {
            return false;
        }
        assert!(
            start.elapsed() < nanoprobe_tests::LIMIT,
            "hung: {}",
            tracing.running.stderr()
        );
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
}

fn tracer(form: Form, options: &[&str]) -> Tracer {
    let quiet = Tracer::new(form).argument("-q");
    options
        .iter()
        .fold(quiet, |tracer, option| tracer.argument("-x").argument(*option))
}

/// The sum of the numbers before a message's words, over all messages.
fn told(stderr: &str, words: &str) -> i64 {
    let messages = stderr.lines().filter_map(|line| {
        let (number, _) = line.strip_prefix("nanoprobe: ")?.split_once(words)?;
        number.trim().parse::<i64>().ok()
    });
    messages.sum()
}

/// The lines `name key number`, summed by key; and how many lines there are.
fn sums(results: &str, name: &str) -> (BTreeMap<i64, i64>, usize) {
    let mut sums = BTreeMap::new();
    let mut lines = 0;
    let rows = results
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.split_once(' '));
    for (key, number) in rows {
        let (Ok(key), Ok(number)) = (key.parse::<i64>(), number.parse::<i64>()) else {
            panic!("{name} {key} {number}");
        };
        *sums.entry(key).or_default() += number;
        lines += 1;
    }
    (sums, lines)
}

const BOTH: &str = "pid$target:a.out:used:entry { @counts[arg0] = count(); @sums[arg0] = sum(arg1); }";
const BATCHES: &str = "pid$target:a.out:batch_done:entry { printf(\"batch %d\\n\", arg0); }";
const PRINTED: &str = "END { printa(\"count %d %@d\\n\", @counts); printa(\"sum %d %@d\\n\", @sums); }";
const SIGNALS_KEY: i64 = 7;

/// Checks that the printed counts are the program's own counts, minus the reported misses, which are hits of the signal
/// handler.
#[track_caller]
fn assert_exact(stdout: &str, traced: &Traced) {
    assert!(stdout.lines().any(|line| line == "OK"), "{stdout}");
    let stderr = &traced.finished.stderr;
    assert!(!stderr.contains("drop") && !stderr.contains("damaged"), "{stderr}");
    let missed = told(stderr, " hits missed");
    let (counts, count_lines) = sums(&traced.results, "count");
    let (values, value_lines) = sums(&traced.results, "sum");
    assert_eq!(counts.values().sum::<i64>() + missed, said(stdout, "calls"), "{stderr}");
    assert_eq!(values.values().sum::<i64>() + missed, said(stdout, "sum"), "{stderr}");
    assert_eq!(
        (count_lines, value_lines),
        (counts.len(), values.len()),
        "a key is there once"
    );
    let others = counts.keys().filter(|key| **key != SIGNALS_KEY).count();
    assert_eq!(others as i64, said(stdout, "made"), "each key is there");
    let within = counts.get(&SIGNALS_KEY).copied().unwrap_or(0);
    assert_eq!(within + missed, said(stdout, "within"));
}

live_tests! {
    /// Some fifteen times as many keys as there is room for in a thread's table, with and without a trunc().
    fn ever_new_keys_of_many_threads_find_room_and_are_counted_once(form) {
        let batches = form.scale(60, 30);
        let program = program("ever_new.c");
        let options = ["aggsize=64k", "switchrate=1ms", "aggrate=100ms"];
        let (target, traced) = follow(
            tracer(form, &options).clause(BOTH).clause(BATCHES).clause(PRINTED),
            &program,
            &format!("4 {batches} 120"),
        );
        assert_exact(&target.stdout, &traced);

        let clauses = [BOTH, BATCHES, "tick-20ms { trunc(@counts, 20); trunc(@sums, 20); }",
            "END { trunc(@counts, 20); printa(\"count %d %@d\\n\", @counts); }"];
        let tracer = clauses.iter().fold(tracer(form, &options), |tracer, clause| tracer.clause(clause));
        let (target, traced) = follow(tracer, &program, &format!("4 {batches} 120"));
        assert!(target.stdout.contains("OK") && !traced.finished.stderr.contains("drop"), "{}", traced.finished.stderr);
        let (counts, lines) = sums(&traced.results, "count");
        assert_eq!((counts.len(), lines), (20, 20));
    }

    /// A key for each thread, while threads come and go: no room in a context's tables stays taken.
    fn distributions_of_threads_that_come_and_go_find_room(form) {
        let clause = "pid$target:a.out:short_work:entry { @by_thread[tid] = quantize(tid); @calls = count(); }
                      tick-50ms { trunc(@by_thread, 20); }
                      END { printa(\"calls %@d\\n\", @calls); }";
        let threads = form.scale(20_000, 6_000);
        let (target, traced) = follow(
            tracer(form, &["aggsize=8k", "switchrate=1ms"]).clause(clause).clause(BATCHES),
            &program("short_threads.c"),
            &format!("{threads} 100 1 raw"),
        );
        assert!(target.stdout.contains("OK"), "{}", target.stdout);
        let stderr = &traced.finished.stderr;
        assert!(!stderr.contains("drop") && !stderr.contains("hits missed"), "{stderr}");
        assert_eq!(said(&traced.results, "calls"), said(&target.stdout, "calls"));
    }

    /// Values that are added while the tracer prints and clears appear in the next line, once.
    fn values_cleared_under_hits_are_reported_once(form) {
        let clause = "tick-10ms, END { printa(\"count %d %@d\\n\", @counts); printa(\"sum %d %@d\\n\", @sums);
                          clear(@counts); clear(@sums); }";
        let calls = form.scale(200_000, 5_000);
        let traced = tracer(form, &["aggrate=5ms", "switchrate=1ms"])
            .clause(BOTH)
            .clause(clause)
            .command(&program("ever_new.c"), &format!("3 6 {calls} 50"))
            .run()
            .success();
        let (stdout, stderr) = (&traced.finished.stdout, &traced.finished.stderr);
        assert!(stdout.contains("OK") && !stderr.contains("drop"), "{stderr}");
        let missed = told(stderr, " hits missed");
        let sum_of = |name: &str| sums(&traced.results, name).0.values().sum::<i64>();
        assert_eq!(sum_of("count") + missed, said(stdout, "calls"), "{stderr}");
        assert_eq!(sum_of("sum") + missed, said(stdout, "sum"), "{stderr}");
    }

    /// The tables of a thread that is gone or waits, and tables that are about to be left, are read once, however the
    /// program ends.
    fn every_end_of_a_program_reports_its_counts_once(form) {
        for ending in ["exit", "kill", "exec", "fork"] {
            // The forked child makes further calls, which the program does not count.
            let traced = tracer(form, &["aggrate=2ms", "switchrate=1ms", "follow=no"])
                .clause(BOTH)
                .clause(PRINTED)
                .command(&program("ever_new.c"), &format!("4 20 {} 0 {ending}", form.scale(300, 100)))
                .run()
                .success();
            assert_exact(&traced.finished.stdout, &traced);
        }
    }

    /// A count without keys has its own place in memory. It is a second witness where the program itself cannot know
    /// which calls were counted.
    fn detaching_reads_all_counts(form) {
        let clause = "pid$target:a.out:used:entry { @counts[arg0 % 500] = count(); @all = count(); }
                      END { printa(\"count %d %@d\\n\", @counts); printa(\"all %@d\\n\", @all); }";
        let mut target = start_waiting(&program("ever_new.c"), "3 100000000 1000 0");
        let tracer = tracer(form, &["aggrate=2ms", "switchrate=1ms"]).clause(clause).clause(BATCHES);
        let mut tracing = tracer.trace(target.pid());
        target.go();
        for _ in 0..300 {
            target.write("\n");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(is_told(&mut tracing, 0, &mut || target.is_running()));
        let traced = tracing.interrupt();
        let counted = sums(&traced.results, "count").0.values().sum::<i64>();
        assert!(counted > 0 && !traced.finished.stderr.contains("drop"), "{}", traced.finished.stderr);
        assert_eq!(counted, said(&traced.results, "all"));
    }

    /// More keys within one `aggrate` than there is room for: every drop is reported.
    fn entries_without_room_are_dropped_and_counted(form) {
        let clause = "pid$target:a.out:used:entry { @counts[arg0] = count(); }
                      END { printa(\"count %d %@d\\n\", @counts); }";
        let calls = form.scale(100_000, 10_000);
        let traced = tracer(form, &["aggsize=4k", "aggrate=10s"])
            .clause(clause)
            .command(&program("ever_new.c"), &format!("2 2 {calls} 0"))
            .run()
            .success();
        let (stdout, stderr) = (&traced.finished.stdout, &traced.finished.stderr);
        let (drops, missed) = (told(stderr, " aggregation drop"), told(stderr, " hits missed"));
        assert!(stdout.contains("OK") && drops > 0, "{stderr}");
        let counted = sums(&traced.results, "count").0.values().sum::<i64>();
        assert_eq!(counted + drops + missed, said(stdout, "calls"), "{stderr}");
    }
}
