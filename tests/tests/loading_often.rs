//! A program that loads and unloads a probed library all day.

use std::time::Duration;

use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Form, Tracer};

/// So many loads need more room than there is, unless room is reused: each load needs room for its patches, and for new
/// tables.
const LOADS: i64 = 2000;
const CALLS: i64 = 10;
/// Generous, because the machine may be busy.
const LIMIT: Duration = Duration::from_secs(900);

#[test]
fn the_room_of_libraries_that_are_gone_is_used_again() {
    let Some(plugin) = need_program("plugin.c", Build::Library) else {
        return;
    };
    let arguments = format!("{} {LOADS} {CALLS}", plugin.display());
    let clause = "pid$target:plugin.so:plugin_function:entry,pid$target:plugin.so:plugin_constructed:entry
                  { @[probefunc] = count(); }";
    let tracer = Tracer::new(Form::Default).argument("-Z").clause(clause);
    let tracing = tracer.command(&program("dlopen.c"), &arguments).start();
    let traced = tracing.finish_within(LIMIT).complete();
    let rows = table(&traced.results);
    let told = &traced.finished.stderr;
    assert_eq!(rows["plugin_function"], LOADS * CALLS, "{told}");
    assert_eq!(rows["plugin_constructed"], LOADS, "{told}");
}
