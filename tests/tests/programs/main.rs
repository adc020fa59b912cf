//! Real programs work while all their functions are probed at entry and return: their output is right.

mod commands;
mod interpreters;
mod postgres;
mod servers;
mod trees;

use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::Traced;

/// Counts every entry and return of a module. This is cheap, so the program's work is not disturbed.
fn all_of(module: &str) -> String {
    format!("pid$target:{module}::entry,pid$target:{module}::return {{ @[probename] = count(); }}")
}

/// Asserts that many entries and returns were counted.
#[track_caller]
fn assert_counted(traced: &Traced, at_least: i64) {
    let rows = table(&traced.results);
    for name in ["entry", "return"] {
        let hits = rows.get(name).copied().unwrap_or(0);
        assert!(hits >= at_least, "{hits} hits of {name}\n{}", traced.finished.stderr);
    }
    eprintln!("{rows:?}");
}
