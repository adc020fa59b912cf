//! `lockwait` and `threadsnoop` on the locks and threads of C, C++, Rust, Go and the JVM.

use std::process::Command;

use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::program::{Build, need_program, program, sources};
use nanoprobe_tests::terminal::Terminal;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{nanoprobe, start_waiting};
use nix::sys::signal::Signal;

use super::tool_on;

/// The words of lockwait's rows: waits, average, longest, kind, lock, caller.
fn rows(lines: &[String]) -> Vec<Vec<&str>> {
    let words = lines.iter().map(|line| line.splitn(6, ' ').collect::<Vec<&str>>());
    words
        .filter(|words| words.len() == 6 && words[0].parse::<u64>().is_ok())
        .collect()
}

/// Every call is counted with a time of 0, so the counts are exact. A lock has the name of its variable.
#[test]
fn lockwait_counts_each_kind_of_lock_by_name() {
    let lines = tool_on("lockwait", &program("locks.c").display().to_string(), &["libc", "0"]);
    let rows = rows(&lines);
    for (kind, lock, function, count) in [
        ("mutex", "queue_mutex", "waits_for_mutex", "6"),
        ("rwlock", "queue_rwlock", "waits_to_read", "5"),
        ("rwlock", "queue_rwlock", "waits_to_write", "4"),
        ("sem", "queue_sem", "waits_for_sem", "3"),
        ("cond", "queue_cond", "waits_for_cond", "2"),
    ] {
        let lock = format!("locks`{lock},");
        let caller = format!("locks`{function}+");
        let found: Vec<_> = rows
            .iter()
            .filter(|row| row[3] == kind && row[4] == lock && row[5].starts_with(&caller))
            .collect();
        assert!(found.len() == 1 && found[0][0] == count, "{kind} {function}: {lines:?}");
        // The scheduler decides how late the waiter is, but it is not late each time.
        assert!(found[0][2].parse::<u64>().is_ok_and(|us| us >= 20_000), "{lines:?}");
    }
}

#[test]
fn lockwait_sees_the_futexes_of_rust() {
    let Some(path) = need_program("locks.rs", Build::Rust) else {
        return;
    };
    let lines = tool_on("lockwait", &path.display().to_string(), &["libc", "20ms"]);
    let rows = rows(&lines);
    let found = rows
        .iter()
        .find(|row| row[3] == "futex" && row[4] == "locks`locks::QUEUE_LOCK,");
    // A waiter that gets a processor late has less time to wait for the lock.
    let count = found.and_then(|row| row[0].parse::<u64>().ok());
    assert!(count.is_some_and(|count| (1..=8).contains(&count)), "{lines:?}");
}

#[test]
fn lockwait_sees_the_futexes_of_go() {
    let Some(path) = need_program("golocks.go", Build::Go) else {
        return;
    };
    let lines = tool_on("lockwait", &path.display().to_string(), &["libc", "0"]);
    let rows = rows(&lines);
    let found = rows
        .iter()
        .any(|row| row[3] == "futex" && row[5].contains("`runtime.futexsleep+"));
    assert!(found, "{lines:?}");
}

#[test]
fn lockwait_sees_the_waits_of_the_jvm() {
    let Some(java) = need_command("lockwait on java", "java") else {
        return;
    };
    let results = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut traced = Command::new(nanoprobe());
    traced.args(["tool", "lockwait", "-o"]).arg(results.path()).arg("-c");
    traced.arg(format!(
        "{} -Xint {}",
        java.display(),
        sources().join("Locks.java").display()
    ));
    // Threads that the JVM ends while they wait are returns that were missed, and the message says so.
    let finished = nanoprobe_tests::command::run(traced.args(["libc", "1ms"])).success();
    assert!(finished.stdout.lines().any(|line| line == "OK"), "{}", finished.stdout);
    let text = std::fs::read_to_string(results.path()).expect("the results");
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines: Vec<String> = lines.collect();
    // Object.wait() of the program parks the thread on a condition variable: five times for 30 ms or more.
    let parked: u64 = rows(&lines)
        .iter()
        .filter(|row| row[3] == "cond" && row[5].contains("libjvm.so`"))
        .filter_map(|row| row[0].parse::<u64>().ok())
        .sum();
    assert!(parked >= 5, "{lines:?}");
}

/// The last column of threadsnoop's lines.
fn starts(lines: &[String]) -> Vec<&str> {
    let columns = lines.iter().skip(1).map(|line| line.splitn(4, ' ').nth(3));
    columns.flatten().collect()
}

#[test]
fn threadsnoop_shows_what_std_thread_was_given() {
    let lines = tool_on("threadsnoop", &program("started.cpp").display().to_string(), &[]);
    let starts = starts(&lines);
    let [plain, arguments, method, lambda] = starts[..] else {
        panic!("{lines:?}");
    };
    assert!(plain.starts_with("started`plain, by started`"), "{plain}");
    assert!(
        arguments.starts_with("started`with_arguments, by started`") && arguments.contains("void (*)(int, long)"),
        "{arguments}"
    );
    assert!(method.starts_with("started`Server::serve, by started`"), "{method}");
    assert!(
        lambda.contains("std::thread::_State_impl<") && lambda.contains("starts_lambda()::{lambda(int)#1}"),
        "{lambda}"
    );
}

#[test]
fn threadsnoop_names_the_closures_of_rust() {
    let Some(path) = need_program("locks.rs", Build::Rust) else {
        return;
    };
    let lines = tool_on("threadsnoop", &path.display().to_string(), &[]);
    let starts = starts(&lines);
    assert!(
        starts.len() == 1 && starts[0].contains("drop_in_place<") && starts[0].contains("locks::main::"),
        "{lines:?}"
    );
}

#[test]
fn threadsnoop_shows_new_goroutines() {
    let Some(path) = need_program("golocks.go", Build::Go) else {
        return;
    };
    let lines = tool_on("threadsnoop", &path.display().to_string(), &[]);
    let count = starts(&lines)
        .iter()
        .filter(|start| start.contains("`main.main.gowrap") || start.contains("`main.nap"))
        .count();
    assert_eq!(count, 5, "{lines:?}");
}

/// A terminal whose output is stopped blocks every write.
#[test]
fn sigterm_ends_a_tool_whose_terminal_takes_no_output() {
    let mut target = start_waiting(&program("tools.cpp"), "work");
    let snapshot = Snapshot::take(target.pid());
    let mut command = Command::new(nanoprobe());
    command.args([
        "tool",
        "funcslower",
        "-p",
        &target.pid().to_string(),
        "a.out:inner",
        "0us",
    ]);
    let mut terminal = Terminal::start(&mut command, 80, 24);
    target.go();
    terminal.wait_until("calls are shown", |screen| screen.contains("tools`inner("));
    terminal.take_nothing();
    // Long enough for the tracer to be in a write that does not end.
    std::thread::sleep(std::time::Duration::from_millis(500));
    terminal.signal(Signal::SIGTERM);
    terminal.finish();
    snapshot.assert_restored(target.pid());
    target.close_input();
    target.finish().success();
}

/// Parts of D that the tools use: `uframe()` and the stack agree, a variable has a name, `%v` prints any type.
#[test]
fn frames_and_variables_have_names_and_any_value_is_printed() {
    let text = "#pragma D option quiet\n\
        pid$target:a.out:inner:entry /arg0 == 2/ {\n\
        \x20   @same[uframe(1) == ucaller, uframe(0) != 0, uframe(16), uframe(-1)] = count();\n\
        \x20   @frames[uaddr(uframe(0)), usym(uframe(1)), usym(uframe(2)), usym(uframe(3))] = count();\n\
        }\n\
        pid$target:libc:pthread_mutex_lock:entry { @locks[uaddr(arg0), usym(ucaller)] = count(); }\n\
        END { printa(\"same %d %d %d %d %@d\\n\", @same); printa(\"frames %A %A %A %A %@d\\n\", @frames);\n\
        \x20   printf(\"%v %v %-4v| %5v|\\n\", \"text\", -5, \"ab\", (unsigned char)200);\n\
        \x20   printa(\"lock %v %v %@v\\n\", @locks); }\n";
    let traced = |mode: &str| {
        let mut command = Command::new(nanoprobe());
        command.args(["-n", text, "-c", &format!("{} {mode}", program("tools.cpp").display())]);
        nanoprobe_tests::command::run(&mut command).success().stdout
    };
    let shown = traced("calls");
    for line in [
        "same 1 1 0 0 3",
        "frames tools`inner tools`outer tools`top tools`main 3",
        "text -5 ab  |   200|",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    }
    let shown = traced("locks");
    assert!(
        shown.lines().any(|line| line == "lock tools`lock tools`waits 9"),
        "{shown}"
    );
}
