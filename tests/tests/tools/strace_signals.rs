//! The tool `strace`: lines of signals, and of ends by signals.

use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::tracer::{Form, nanoprobe};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The tool, which writes to a file.
fn strace(output: &std::path::Path, form: Form, arguments: &[&str]) -> Command {
    let mut command = Command::new(nanoprobe());
    command.args(["tool", "strace", "-o"]).arg(output).args(arguments);
    if form == Form::Trap {
        command.args(["-x", "tactic=trap"]);
    }
    command
}

/// What the tool writes of `signalled MODE`, and what the program prints.
fn traced(form: Form, arguments: &[&str], mode: &str) -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("lines");
    let words = format!("{} {mode}", program("signalled.c").display());
    let finished = run(strace(&output, form, arguments).args(["-c", words.trim()]));
    for sign in ["drop", "missed"] {
        assert!(!finished.stderr.contains(sign), "{}", finished.stderr);
    }
    let lines = std::fs::read_to_string(&output).expect("lines");
    (lines, finished.stdout)
}

/// The lines of signals, without the times that children have taken.
fn signals(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with("--- "));
    lines
        .map(|line| line.split(", si_utime").next().unwrap_or_default().to_owned())
        .collect()
}

live_tests! {
    /// What the handlers were given is what is printed, in this order.
    fn each_signal_has_the_line_that_its_handler_would_write(form) {
        let (lines, said) = traced(form, &["-e", "rt_sigsuspend,rt_sigreturn"], "");
        assert!(said.lines().any(|line| line == "OK"), "{said}");
        assert_eq!(signals(&lines), signals(&said), "{lines}");
        assert_eq!(signals(&said).len(), 12, "{said}");
        // The handler's end restores the result of the call that was interrupted.
        let has = |line: &str| lines.lines().filter(|of| of.split_whitespace().collect::<Vec<_>>().join(" ") == line).count();
        assert_eq!(has("rt_sigreturn({mask=[ALRM]}) = -1 EINTR (Interrupted system call)"), 1, "{lines}");
        // Four are left by siglongjmp before they end.
        assert_eq!(lines.matches("rt_sigreturn(").count(), 8, "{lines}");
        assert!(lines.ends_with("+++ exited with 0 +++\n"), "{lines}");
    }

    fn a_call_that_a_signal_interrupts_is_a_line_before_it(form) {
        let (lines, _) = traced(form, &["-e", "rt_sigsuspend", "-e", "signal=ALRM"], "");
        let interrupted = lines.matches("EINTR (Interrupted system call)").count();
        assert_eq!(interrupted, 3, "{lines}");
        let (call, signal) = (lines.rfind("rt_sigsuspend("), lines.find("--- SIGALRM"));
        assert!(call < signal && signals(&lines).len() == 1, "{lines}");
    }

    /// All threads are ended.
    fn an_end_by_a_signal_is_told(form) {
        let (lines, _) = traced(form, &["-f", "-e", "kill,pause"], "kill");
        let ends = lines.lines().filter(|line| line.ends_with(" +++ killed by SIGKILL +++"));
        let threads: Vec<&str> = ends.filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(threads.len(), 2, "{lines}");
        assert!(threads[0] != threads[1] && !lines.contains("exited with"), "{lines}");
        let last = lines.lines().last().and_then(|line| line.split_whitespace().next());
        let first = lines.lines().find(|line| line.contains("kill(")).and_then(|line| line.split_whitespace().next());
        assert_eq!(last, first, "{lines}");
    }
}

#[test]
fn no_lines_of_signals_are_wanted() {
    let (lines, _) = traced(Form::Default, &["-e", "kill", "-e", "signal=none"], "");
    assert!(lines.contains("kill(") && signals(&lines).is_empty(), "{lines}");
}

#[test]
fn lines_of_signals_are_those_of_strace() {
    let Some(tool) = need_command("lines of signals", "strace") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("lines");
    let finished = run(Command::new(tool).arg("-o").arg(&output).arg(program("signalled.c")));
    let expected = std::fs::read_to_string(&output).unwrap_or_default();
    if expected.is_empty() {
        left_out("lines of signals", finished.stderr.lines().next().unwrap_or("no lines"));
        return;
    }
    let (found, _) = traced(Form::Default, &[], "");
    // Numbers of processes and addresses differ between two runs.
    let same = |text: &str| -> Vec<String> {
        let lines = signals(text).into_iter().map(|line| {
            let parts = line.split(", ").map(|part| match part.split_once('=') {
                Some((name @ ("si_pid" | "si_addr"), _)) => name.to_owned(),
                _ => part.trim_end_matches("} ---").to_owned(),
            });
            parts.collect::<Vec<_>>().join(", ")
        });
        // Only strace is told what comes with a signal whose handler does not ask for it.
        lines.filter(|line| !line.starts_with("--- SIGURG")).collect()
    };
    assert_eq!(same(&found), same(&expected));
    assert_eq!(same(&found).len(), 11);
}

/// A child that a signal kills has a line where the kernel tells others than its parent.
#[test]
fn the_end_of_a_child_by_a_signal_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("lines");
    let words = format!("{} child", program("signalled.c").display());
    let mut tool = strace(&output, Form::Default, &["-f", "-v", "-e", "pause,getppid,wait4"]);
    let mut running = Running::start(tool.args(["-c", &words]));
    running.wait_until("following", |running| running.stderr().contains("is traced, too"));
    running.wait_until("child", |running| running.stdout().contains("child "));
    let said = running.stdout();
    let child = said.lines().find_map(|line| line.strip_prefix("child "));
    let child: i32 = child.and_then(|number| number.parse().ok()).expect("a number");
    kill(Pid::from_raw(child), Signal::SIGUSR1).expect("a child");
    running.finish();
    let lines = std::fs::read_to_string(&output).expect("lines");
    let ends: Vec<&str> = lines.lines().filter(|line| line.contains("+++")).collect();
    if ends.len() == 1 {
        left_out("the end of a child", "before Linux 6.15 only its parent knows");
        return;
    }
    let of = |line: &str, text: &str| line.split_whitespace().next() == Some(&child.to_string()) && line.contains(text);
    let killed = ends.iter().filter(|line| of(line, "+++ killed by SIGUSR1 +++")).count();
    assert_eq!((killed, ends.len()), (1, 2), "{lines}");
    assert!(lines.contains("+++ exited with 7 +++"), "{lines}");
}
