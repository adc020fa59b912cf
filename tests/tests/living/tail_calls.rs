//! Functions that end by a jump to another function return when that function has returned: the return address is
//! replaced at the jump.

use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::tracer::{Form, Traced, Tracer, nanoprobe};

use crate::{traced_from_start, traced_when_attached, unprobed, without_messages};

/// The time for which the callee sleeps.
const SLEEP_NS: i64 = 5_000_000;

const COUNTS: &str = "pid$target:a.out:p?ng:entry,pid$target:a.out:p?ng:return { @[probefunc, probename] = count(); }";

/// The lines that `mutual 4` prints of its last call, pong(3).
fn order(form: Form, options: &[&str]) -> Vec<String> {
    let mut tracer = Tracer::new(form).argument("-q");
    for option in options {
        tracer = tracer.argument("-x").argument(*option);
    }
    let clause =
        "pid$target:a.out:p?ng:entry,pid$target:a.out:p?ng:return { printf(\"%s:%s\\n\", probefunc, probename); }";
    let traced = tracer
        .clause(clause)
        .command(&program("tailcalls.cpp"), "mutual 4")
        .run()
        .complete();
    let mut lines: Vec<String> = traced
        .results
        .lines()
        .filter(|line| line.contains(':'))
        .map(str::to_owned)
        .collect();
    lines.split_off(lines.len() - 8)
}

fn assert_all_return(traced: &Traced) {
    let rows = table(&traced.results);
    for name in ["ping", "pong"] {
        assert!(rows[&format!("{name} entry")] > 100, "{rows:?}");
        assert_eq!(
            rows[&format!("{name} entry")],
            rows[&format!("{name} return")],
            "{name}"
        );
    }
}

live_tests! {
    fn a_latency_ends_when_the_callee_has_returned(form) {
        let clause = "pid$target:a.out:handle_request:entry { self->start = timestamp; }
                      pid$target:a.out:handle_request:return /self->start/ {
                          @[\"value\", arg1] = count();
                          @shortest = min(timestamp - self->start);
                          @longest = max(timestamp - self->start); }";
        let (finished, traced) = traced_when_attached(form, clause, &program("tailcalls.cpp"), "sleeps 10");
        let rows = table(&traced.results);
        let values: Vec<i64> = (1..=10).map(|call| rows[&format!("value {}", 2 * call)]).collect();
        assert_eq!(values, [1; 10]);
        let found = nanoprobe_tests::results::values(&traced.results);
        let latencies: Vec<i64> = found.into_iter().filter(|value| *value > 1).collect();
        // The program's own clock reads are around the calls.
        let limit = said(&finished.stdout, "longest");
        let range = SLEEP_NS..=limit + limit / 20 + 1000;
        assert_eq!(latencies.len(), 2, "{}", traced.results);
        assert!(latencies.iter().all(|latency| range.contains(latency)), "{latencies:?}, {limit}");
    }

    fn mutual_tail_calls_return_once_each_from_the_innermost(form) {
        let entries = ["pong:entry", "ping:entry", "pong:entry", "ping:entry"];
        let returns = ["ping:return", "pong:return", "ping:return", "pong:return"];
        assert_eq!(order(form, &[]), [entries, returns].concat());
    }

    fn at_the_exits_a_function_returns_when_it_jumps(form) {
        let right = ["pong:entry", "pong:return", "ping:entry", "ping:return"];
        assert_eq!(order(form, &["return=exits"]), [right, right].concat());
    }

    fn recursion_by_tail_calls_returns_as_often_as_it_is_entered(form) {
        let arguments = format!("mutual {}", form.scale(2000, 200));
        assert_all_return(&traced_from_start(form, COUNTS, &program("tailcalls.cpp"), &arguments));
    }

    fn threads_return_through_their_own_tail_calls(form) {
        let arguments = format!("threads {}", form.scale(1000, 100));
        assert_all_return(&traced_when_attached(form, COUNTS, &program("tailcalls.cpp"), &arguments).1);
    }

    /// Half of the calls are left by an exception, or by longjmp, that is raised in the function to which they jumped.
    /// These do not return.
    fn exceptions_and_longjmp_are_no_returns(form) {
        for (mode, names) in [("throws", ["fail", "before_fail"]), ("jumps", ["leap", "before_leap"])] {
            let arguments = format!("{mode} 200");
            let clause = names.map(|name| format!("pid$target:a.out:{name}:entry,pid$target:a.out:{name}:return")).join(",")
                + " { @[probefunc, probename] = count(); }";
            let right = unprobed(&program("tailcalls.cpp"), &arguments).success();
            let traced = Tracer::new(form).clause(&clause).command(&program("tailcalls.cpp"), &arguments).run().success();
            assert_eq!(without_messages(&traced.finished.stdout), right.stdout);
            let rows = table(&traced.results);
            for name in names {
                assert_eq!(rows[&format!("{name} entry")], 200, "{rows:?}");
                assert_eq!(rows[&format!("{name} return")], 100, "{rows:?}");
            }
        }
    }

    /// `dlsym(RTLD_NEXT, ...)` at the end of a function finds the intended library by the return address.
    fn a_function_reached_by_a_tail_call_finds_its_return_address(form) {
        let clause = "pid$target:a.out:find_next:entry,pid$target:a.out:find_next:return { @[probename] = count(); }";
        let traced = traced_when_attached(form, clause, &program("tailcalls.cpp"), "finds 20").1;
        assert_eq!(table(&traced.results)["entry"], 20);
    }
}

/// `-l -v` plans as attaching does: for a function with a tail call the return address is to be replaced. Nothing is
/// refused because of a missing hook of the linker, which the process has.
#[test]
fn a_list_shows_how_each_site_would_be_patched() {
    let mut command = Command::new(nanoprobe());
    command.args(["-l", "-v", "-n", "pid$target:a.out:handle_request:return", "-c"]);
    // 1000 requests take so long that the program still runs while its sites are listed.
    command.arg(format!("{} sleeps 1000", program("tailcalls.cpp").display()));
    let listed = run(&mut command).success();
    assert!(listed.stdout.contains(", return address replaced"), "{}", listed.stdout);
    assert!(!listed.stdout.contains("hook"), "{}", listed.stdout);
}
