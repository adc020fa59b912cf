//! System calls of code that the program makes (`-x syscalls=all`): each is counted once, whatever becomes of the code,
//! and the program's results are those of an untraced run.

use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::text::{differences, maps};
use nanoprobe_tests::tracer::{Form, Traced, Tracer, assert_nothing_lost, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

const CLAUSE: &str = "syscall::getpgid:entry,syscall::getpgid:return,syscall::getsid:entry,syscall::getsid:return,
    syscall::getpriority:entry,syscall::getpriority:return { @[probefunc, probename] = count(); }";
const NAMES: [&str; 3] = ["getpgid", "getsid", "getpriority"];

fn tracer(form: Form, clause: &str) -> Tracer {
    Tracer::new(form).argument("-x").argument("syscalls=all").clause(clause)
}

/// Traces a part of `made_stubs`. Yields what the program has said.
#[track_caller]
fn traced(form: Form, clause: &str, what: &str, rounds: u64) -> (String, Traced) {
    let mut target = start_waiting(&program("made_stubs.c"), &format!("{rounds} {what}"));
    let tracing = tracer(form, clause).trace(target.pid());
    target.go();
    let finished = target.finish().success();
    let traced = tracing.finish().success();
    assert!(finished.stdout.ends_with("OK\n"), "{what}: {}", finished.stdout);
    assert_nothing_lost(&traced.finished.stderr);
    (finished.stdout, traced)
}

/// Each call has fired once before it and once after it.
#[track_caller]
fn assert_counted(form: Form, what: &str, rounds: u64) {
    let (said_by_program, traced) = traced(form, CLAUSE, what, rounds);
    let rows = table(&traced.results);
    for name in NAMES {
        let right = said(&said_by_program, name);
        for end in ["entry", "return"] {
            let counted = rows.get(&format!("{name} {end}")).copied().unwrap_or(0);
            assert_eq!(counted, right, "{what}: {name} {end} {}", traced.finished.stderr);
        }
    }
    let told = &traced.finished.stderr;
    assert!(!told.contains("are not seen, at"), "{told}");
}

/// No patch of a file is left, nothing of nanoprobe's is mapped, and there is nothing to restore. What would be left in
/// made code would end the program later.
#[track_caller]
fn assert_nothing_left(pid: i32) {
    assert!(differences(pid).is_empty(), "the text differs from its files");
    assert!(
        !maps(pid).iter().any(|mapping| mapping.path.contains("nanoprobe")),
        "a mapping is left"
    );
    let restored = run(Command::new(nanoprobe()).args(["restore", &pid.to_string()]));
    let said = format!("{}{}", restored.stdout, restored.stderr);
    assert!(said.contains("nothing to restore"), "{said}");
}

live_tests! {
    fn a_copied_function(form) {
        assert_counted(form, "l", 500);
    }

    /// All registers are checked, too.
    fn memory_that_becomes_executable(form) {
        assert_counted(form, "w", 500);
    }

    fn memory_that_is_writable_and_executable(form) {
        assert_counted(form, "r", 500);
    }

    fn threads_in_one_place(form) {
        assert_counted(form, "t", 1000);
    }

    /// fork, vfork and clone with another stack, made by made code.
    fn children_of_made_code(form) {
        let (stdout, traced) = traced(form, "syscall::*fork:return,syscall::clone:return
            /arg0 > 0 && errno == 0/ { @[probefunc] = count(); }", "c", 20);
        let rows = table(&traced.results);
        assert_eq!((rows["fork"], rows["vfork"], rows["clone"]), (20, 20, 20), "{rows:?} {stdout}");
    }

    /// Calls that are interrupted end once, and handlers make calls meanwhile.
    fn interrupted_calls(form) {
        let clause = format!("{CLAUSE} syscall::read:return /arg0 == -1 && errno == 4/ {{ @[probefunc, \"interrupted\"] = count(); }}
            syscall::nanosleep:entry,syscall::nanosleep:return {{ @[probefunc, probename] = count(); }}");
        let (stdout, traced) = traced(form, &clause, "i", 20);
        let rows = table(&traced.results);
        let handled = said(&stdout, "getsid");
        assert_eq!((rows["getsid entry"], rows["getsid return"], handled), (20, 20, 20), "{rows:?}");
        assert_eq!((rows["read interrupted"], rows["nanosleep entry"], rows["nanosleep return"]), (10, 20, 20), "{rows:?}");
    }

    /// A trap of a thread that blocks its signal ends the process: made code must not be able to block it.
    fn signals_that_made_code_blocks(form) {
        assert_counted(form, "b", 200);
    }

    /// As a JIT compiler does, for some seconds, in three threads.
    fn code_that_is_made_and_freed_all_the_time(form) {
        assert_counted(form, "k", form.scale(150, 50));
    }

    /// A handler with arguments, results and stacks.
    fn arguments_and_results(form) {
        let clause = "syscall::getpriority:entry { @[\"entry\", arg0, arg1] = count(); }
            syscall::getpriority:return { @[\"return\", arg0 == -1, errno] = count(); }
            syscall::getpriority:return { @stacks[ustack(2)] = count(); }";
        let (_, traced) = traced(form, clause, "w", 30);
        let rows = table(&traced.results);
        assert_eq!((rows["entry 9 0"], rows["return 1 22"]), (30, 30), "{}", traced.results);
    }

    /// A copy with our byte makes its call, is whole again, and whole when the tracer has gone.
    fn copies_of_patched_code(form) {
        let mut target = start_waiting(&program("made_stubs.c"), "50 m");
        let tracing = tracer(form, CLAUSE).trace(target.pid());
        target.go();
        target.wait_for("copied");
        let traced = tracing.interrupt();
        target.go();
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
        let (sure, rows) = (said(&finished.stdout, "getsid"), table(&traced.results));
        // Copies that the tracer finds in time are counted, too.
        let most = sure + said(&finished.stdout, "uncertain");
        for end in ["entry", "return"] {
            let counted = rows[&format!("getsid {end}")];
            assert!((sure..=most).contains(&counted), "{sure} {rows:?}");
        }
    }

    /// Where a call that cannot be seen may block the traps' signal, nothing traps, and the user is told.
    fn a_call_of_unknown_number_is_refused(form) {
        let (_, traced) = traced(form, CLAUSE, "wd", 50);
        let told = &traced.finished.stderr;
        assert_eq!(told.matches("an instruction there may be any call").count(), 1, "{told}");
    }

    /// The tracer goes while the code is being made, moved and freed.
    fn leaving_in_the_middle(form) {
        let mut target = start_waiting(&program("made_stubs.c"), "20000 wtkb");
        let tracing = tracer(form, CLAUSE).trace(target.pid());
        target.go();
        target.wait_until_worked(std::time::Duration::from_millis(300));
        let traced = tracing.interrupt();
        assert!(target.is_running(), "{}", traced.finished.stderr);
        assert_nothing_left(target.pid());
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{} {}", finished.stdout, traced.finished.stderr);
    }

    /// The tracer is killed, the program runs on, copies what is patched, and is restored.
    fn killed_and_restored(form) {
        let mut target = start_waiting(&program("made_stubs.c"), "50 wm");
        let tracing = tracer(form, CLAUSE).trace(target.pid());
        tracing.running.signal(Signal::SIGKILL);
        tracing.finish();
        target.go();
        target.wait_for("copied");
        run(Command::new(nanoprobe()).args(["restore", &target.pid().to_string()])).success();
        assert_nothing_left(target.pid());
        target.go();
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
    }
}
