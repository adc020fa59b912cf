//! Handlers of probes that the program's own signal handlers interrupt and abandon by siglongjmp.

use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::tracer::{Form, Traced, Tracer};

/// The clause is slow, so that most signals interrupt its handler.
const CLAUSE: &str =
    "pid$target:a.out:called:entry { @[probename, tid != 0, strjoin(probefunc, execname) != \"\"] = count(); }";

fn trace(arguments: &str) -> (Traced, i64, i64) {
    let traced = Tracer::new(Form::Default)
        .clause(CLAUSE)
        .command(&program("left.c"), arguments)
        .run()
        .success();
    assert!(traced.finished.stdout.contains("OK"), "{}", traced.finished.stdout);
    let hits = table(&traced.results).values().sum();
    // "nanoprobe: 12 hits missed: ...", or nothing; one such line for each second.
    let told = traced
        .finished
        .stderr
        .lines()
        .filter(|line| line.contains("hits missed"));
    let number = |line: &str| line.split_whitespace().find_map(|word| word.parse::<i64>().ok());
    let missed = told.map(|line| number(line).unwrap_or_else(|| panic!("{line}"))).sum();
    (traced, hits, missed)
}

#[test]
fn a_thread_that_leaves_a_handler_is_traced_on() {
    let (traced, hits, missed) = trace("1000000");
    let (calls, signals) = (
        said(&traced.finished.stdout, "calls"),
        said(&traced.finished.stdout, "signals"),
    );
    assert!(signals > 20, "{signals} signals");
    // An abandoned call is made again.
    let entered = hits + missed;
    assert!(
        (calls..=calls + signals).contains(&entered),
        "{hits} + {missed} of {calls}"
    );
    // The next hit notices that a handler was left.
    assert!(missed <= signals, "{missed} missed, {signals} signals");
}

#[test]
fn a_handler_is_not_over_when_it_is_interrupted_from_above() {
    let (traced, hits, missed) = trace("1000000 alternate");
    let (calls, within) = (
        said(&traced.finished.stdout, "calls"),
        said(&traced.finished.stdout, "within"),
    );
    assert!(within > 20, "{within} signals");
    assert_eq!(hits + missed, calls + within, "{hits} + {missed}");
    // Exactly those hits are missed that interrupted a handler.
    assert!(missed <= within, "{missed} missed, {within} within");
}
