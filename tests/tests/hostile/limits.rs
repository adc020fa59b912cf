//! Resource limits of the tracer and of its target. Under each the tracer works fully or prints a message; it never
//! dies by a signal, and the target survives.

use std::process::Command;

use nanoprobe_tests::command::{Finished, Running, as_ordinary_user, run};
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::program::program;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe, start_waiting_as};

/// Every limit, by its prlimit name, with the first value to try. This value is doubled until the program starts under
/// the limit, and then twice more.
const LIMITS: [(&str, u64); 15] = [
    ("as", 1 << 20),
    ("core", 0),
    ("cpu", 1),
    ("data", 1 << 16),
    ("fsize", 0),
    ("locks", 0),
    ("memlock", 0),
    ("msgqueue", 0),
    ("nice", 0),
    ("nofile", 4),
    ("nproc", 1),
    ("rss", 0),
    ("rtprio", 0),
    ("sigpending", 0),
    ("stack", 1 << 14),
];
const CLAUSE: &str = "pid$target:a.out:func:entry { @ = count(); } tick-20ms { exit(0); }";

/// A command under one limit.
fn limited(prlimit: &std::path::Path, limit: &str, value: u64, command: &Command) -> Command {
    let mut wrapped = Command::new(prlimit);
    wrapped.arg(format!("--{limit}={value}")).arg(command.get_program());
    wrapped.args(command.get_args());
    wrapped
}

/// The smallest value, and two larger ones, under which a command starts.
fn values(limit: &str, least: u64, starts: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut value = least;
    while !starts(value) {
        assert!(value < 1 << 40, "{limit}: does not start under any limit");
        value = (value * 2).max(1);
    }
    match value {
        0 => vec![0],
        // A longer command line leaves less stack, and then the loader dies before the program begins.
        _ if limit == "stack" => vec![2 * value, 4 * value],
        _ => vec![value, 2 * value, 4 * value],
    }
}

/// Checks that it was not killed, and that it is not silent if it has failed.
fn assert_clean(what: &str, finished: &Finished) {
    let code = finished.code();
    assert!(code == 0 || code == 1, "{what}: {finished:?}");
    assert!(
        code == 0 || finished.stderr.contains("nanoprobe: "),
        "{what}: {finished:?}"
    );
    assert!(!finished.stderr.contains("panicked"), "{what}: {finished:?}");
}

#[test]
fn a_tracer_under_any_limit_works_or_says_why_not() {
    let Some(prlimit) = need_command("resource limits", "prlimit") else {
        return;
    };
    for (limit, least) in LIMITS {
        let version = |value| {
            let mut asked = Command::new(nanoprobe());
            asked.arg("-V");
            run(&mut as_ordinary_user(&limited(&prlimit, limit, value, &asked))).code() == 0
        };
        for value in values(limit, least, version) {
            let what = format!("nanoprobe under {limit}={value}");
            let mut target = start_waiting_as(&program("looper.c"), "10", true);
            let snapshot = Snapshot::take(target.pid());
            let mut trace = Command::new(nanoprobe());
            trace.args(["-n", CLAUSE, "-p", &target.pid().to_string()]);
            let finished = run(&mut as_ordinary_user(&limited(&prlimit, limit, value, &trace)));
            println!("{what}: {} {}", finished.code(), finished.stderr.trim_end());
            assert_clean(&what, &finished);
            // A tracer that ended for lack of memory says what to do; after that nothing is left.
            let restored = run(Command::new(nanoprobe()).args(["restore", &target.pid().to_string()]));
            let left = restored.code() == 0;
            assert!(
                !left || finished.stderr.contains("nanoprobe restore"),
                "{what}: {finished:?} {restored:?}"
            );
            snapshot.assert_identical(target.pid());
            target.go();
            assert!(target.finish().success().stdout.contains("OK\n"), "{what}");
        }
    }
}

#[test]
fn a_target_under_any_limit_is_traced_or_left_alone() {
    let Some(prlimit) = need_command("resource limits", "prlimit") else {
        return;
    };
    for (limit, least) in LIMITS {
        let command = |value| {
            let mut target = Command::new(program("looper.c"));
            target.args(["--wait", "10"]);
            as_ordinary_user(&limited(&prlimit, limit, value, &target))
        };
        let starts = |value| run(&mut command(value)).code() == 0;
        for value in values(limit, least, starts) {
            let what = format!("a target under {limit}={value}");
            let mut target = Running::start(&mut command(value));
            target.wait_for("ready\n");
            let snapshot = Snapshot::take(target.pid());
            let finished = Tracer::new(Form::Default)
                .clause(CLAUSE)
                .process(target.pid())
                .run()
                .finished;
            println!("{what}: {} {}", finished.code(), finished.stderr.trim_end());
            assert_clean(&what, &finished);
            snapshot.assert_identical(target.pid());
            target.go();
            assert!(target.finish().success().stdout.contains("OK\n"), "{what}");
        }
    }
}
