//! Every way in which a program ends: the results are complete, and the program's exit status is unchanged.

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, value};
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe, start_waiting, wait_until_tracing};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const WAYS: [(&str, i32); 10] = [
    ("return", 0),
    ("exit", 3),
    ("_exit", 4),
    ("thread", 0),
    ("group", 0),
    ("main-first", 0),
    ("exec", 0),
    ("abort", 128 + libc::SIGABRT),
    ("kill", 128 + libc::SIGKILL),
    ("segv", 128 + libc::SIGSEGV),
];

live_tests! {
    fn counts_are_complete(form) {
        for (way, code) in WAYS {
            let mut target = start_waiting(&program("exits.c"), &format!("{way} 1234"));
            let clause = "pid$target:a.out:last_calls:entry { @ = count(); }";
            let tracing = Tracer::new(form).clause(clause).attach(target.pid());
            target.go();
            let finished = target.finish();
            assert_eq!(finished.code(), code, "{way}: {}", finished.stdout);
            assert!(finished.stdout.contains("\nOK\n"), "{way}: {}", finished.stdout);
            if way == "exec" {
                assert!(finished.stdout.ends_with("executed\n"), "{}", finished.stdout);
            }
            let traced = tracing.finish().success();
            assert_eq!(value(&traced.results), 1234, "{way}");
        }
    }

    /// Records that are in the ring at the end are printed, each once, in order.
    fn records_are_complete(form) {
        for (way, _) in WAYS {
            let mut target = start_waiting(&program("exits.c"), &format!("{way} 500"));
            let clause = "pid$target:a.out:last_calls:entry { printf(\"%d\\n\", arg0); }";
            let tracing = Tracer::new(form).argument("-q").clause(clause).attach(target.pid());
            target.go();
            target.finish();
            let traced = tracing.finish().success();
            let found: Vec<i64> = traced.results.lines().filter_map(|line| line.trim().parse().ok()).collect();
            let right: Vec<i64> = (0..500).map(|i| i * 3).collect();
            assert_eq!(found, right, "{way}");
        }
    }

    fn a_command_ends_the_tracing(form) {
        for (way, _) in WAYS {
            let clause = "pid$target:a.out:last_calls:entry { @ = count(); } END { printf(\"the end\\n\"); }";
            let traced = Tracer::new(form).clause(clause).command(&program("exits.c"), way).run().success();
            assert!(traced.results.contains("the end"), "{way}: {}", traced.results);
            assert_eq!(said(&traced.finished.stdout, "calls"), 1000, "{way}");
            let counted: Vec<&str> = traced.results.lines().filter(|line| line.trim() == "1000").collect();
            assert_eq!(counted.len(), 1, "{way}: {}", traced.results);
        }
    }

    fn exit_handlers_are_traced(form) {
        let clause = "pid$target:a.out:at_the_end:entry { @ = count(); }";
        let traced = Tracer::new(form).clause(clause).command(&program("exits.c"), "return").run().complete();
        assert_eq!(value(&traced.results), 1);
    }
}

/// A program that executes another one loses its probes, which is reported; the process is followed to its end.
#[test]
fn an_exec_is_reported() {
    let mut target = Running::start(Command::new("/bin/sh").args(["-c", "echo ready; read line; exec cat"]));
    target.wait_for("ready\n");
    let clause = "pid$target:libc:read:entry,pid$target:libc:execve:entry { @ = count(); }";
    let mut tracing = Tracer::new(Form::Default).clause(clause).attach(target.pid());
    target.write("go\n");
    let told = |tracer: &Running| tracer.stderr().contains("cat: its probes are gone");
    tracing.running.wait_until("telling of the exec", told);
    target.close_input();
    target.finish().success();
    let traced = tracing.finish().success();
    assert!(value(&traced.results) >= 1);
    assert_eq!(traced.finished.stderr.matches("its probes are gone").count(), 1);
}

/// For a command that outlives the tracing: the results contain its number.
const ITS_NUMBER: &str = "BEGIN { printf(\"%d\\n\", $target); }";

fn number_in(results: &str) -> i32 {
    let number = results.split_whitespace().find_map(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("a process id: {results}"))
}

/// No process is left, not even as a zombie that its parent would have to wait for.
fn is_gone(pid: i32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

live_tests! {
    /// As in DTrace. The command is killed only after END has run.
    fn a_command_that_outlives_the_tracing_is_killed(form) {
        let ways = [
            ("sleep 1000", "BEGIN { exit(7); }"),
            ("sleep 1000", "tick-20ms { exit(7); }"),
            ("sleep 1000", "pid$target:a.out:main:entry, pid$target:libc:*nanosleep:entry { exit(7); }"),
            ("sh -c 'exec sleep 1000'", "tick-200ms { exit(7); }"),
        ];
        for (command, way) in ways {
            let lives = "END { system(\"test -d /proc/%d && echo lives\", $target); }";
            let tracer = Tracer::new(form).argument("-qw").argument("-Z").clause(ITS_NUMBER).clause(way).clause(lives);
            let traced = tracer.argument("-c").argument(command).run();
            assert_eq!(traced.finished.code(), 7, "{command}, {way}");
            // Executing another program is reported.
            let mut told = traced.finished.stderr.lines().filter(|line| !line.ends_with("its probes are gone"));
            assert_eq!(told.next(), None, "{command}, {way}");
            assert_eq!(traced.finished.stdout, "lives\n", "{command}, {way}");
            assert!(is_gone(number_in(&traced.results)), "{command}, {way}");
        }
    }

    fn a_command_is_killed_when_the_tracer_is_asked_to_end(form) {
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            let mut tracer = Tracer::new(form).argument("-v").clause(ITS_NUMBER).clause("END { printf(\"the end\\n\"); }");
            tracer = tracer.clause("pid$target:libc:read:entry { @ = count(); }");
            let mut tracing = tracer.argument("-c").argument("sleep 1000").start();
            wait_until_tracing(&mut tracing.running);
            tracing.running.signal(signal);
            let traced = tracing.finish().success();
            assert!(traced.results.contains("the end"), "{signal}: {}", traced.results);
            let its = traced.results.lines().find(|line| line.contains(":BEGIN")).unwrap_or_default();
            assert!(is_gone(number_in(its.split_once(":BEGIN").unwrap_or_default().1)), "{signal}");
        }
    }
}

/// Its output is a pipe whose reader waits until the last writer has closed it.
#[test]
fn a_command_that_is_killed_keeps_no_pipe_open() {
    let script = "\"$0\" -q -c 'sleep 1000' -n 'BEGIN { exit(0); }' | cat; echo over";
    let finished = run(Command::new("sh").args(["-c", script]).arg(nanoprobe()));
    // A newline ends the output, as in DTrace.
    assert_eq!(finished.success().stdout.trim_start(), "over\n");
}

/// We kill the command that we have started, and no process that the command has started, neither its child nor its
/// successor.
#[test]
fn children_of_the_command_live_on() {
    for rest in ["; wait", ""] {
        let command = format!("sh -c 'sleep 1000 >&- 2>&- & echo $!{rest}'");
        let mut tracer = Tracer::new(Form::Default).argument("-q").clause("BEGIN { begun = 1; }");
        tracer = tracer.argument("-c").argument(command);
        let mut tracing = tracer.start();
        let said = |tracer: &Running| tracer.stdout().ends_with('\n');
        tracing.running.wait_until("starting another", said);
        tracing.running.signal(Signal::SIGINT);
        let traced = tracing.finish().success();
        let pid = number_in(&traced.finished.stdout);
        // An error: the process is gone.
        let lived = kill(Pid::from_raw(pid), Signal::SIGKILL);
        assert_eq!(lived, Ok(()), "{rest}");
    }
}
