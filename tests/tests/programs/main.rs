//! Real programs, every function of them probed at entry and return while they work: their output is right.

mod commands;
mod interpreters;
mod postgres;
mod servers;

use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::Traced;

/// Counts every entry and return of a module; cheap enough that the program's work stays its own.
fn all_of(module: &str) -> String {
    format!("pid$target:{module}::entry,pid$target:{module}::return {{ @[probename] = count(); }}")
}

/// Asserts that entries and returns were counted in plenty.
#[track_caller]
fn assert_counted(traced: &Traced, at_least: i64) {
    let rows = table(&traced.results);
    for name in ["entry", "return"] {
        let hits = rows.get(name).copied().unwrap_or(0);
        assert!(hits >= at_least, "{hits} hits of {name}\n{}", traced.finished.stderr);
    }
    eprintln!("{rows:?}");
}
