//! Steps that take long before anything is printed are named on one line of the terminal, which
//! is removed afterwards.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Command, Stdio};

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::program::program;

/// Both ends of a pseudo-terminal: ours, and that of the command.
fn terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: writes two numbers of ours; name, mode and size are null.
    let result = unsafe { libc::openpty(&raw mut ours, &raw mut theirs, none, none.cast(), none.cast()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both descriptors are open, and have no other owner.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// The output on standard error, a terminal of this kind, while every function of a program is probed.
fn told(term: &str, arguments: &[&str], probed: &str) -> String {
    let (mut ours, theirs) = terminal();
    let program = env!("CARGO_BIN_EXE_nanoprobe");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .args([
            "-n",
            "pid$target:a.out::entry { @ = count(); }",
            "-o",
            "/dev/null",
            "-c",
        ])
        .arg(probed)
        .env("TERM", term)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(theirs);
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut bytes = [0; 4096];
        // Reading fails once the other end is closed everywhere.
        while let Ok(count @ 1..) = ours.read(&mut bytes) {
            text.extend_from_slice(&bytes[..count]);
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let status = command.status_in_time().expect("running nanoprobe");
    // The command's end of the terminal.
    drop(command);
    let text = reader.join().expect("reading the terminal");
    assert!(status.success(), "{text}");
    text
}

const ERASE: &str = "\r\u{1b}[K";

#[test]
fn a_terminal_shows_the_progress_of_long_steps() {
    let text = told("xterm", &[], &program("many_functions.c").to_string_lossy());
    let lines: Vec<&str> = text.split(ERASE).collect();
    let counted = |line: &&&str| {
        let rest = line
            .strip_prefix("nanoprobe: planning ")
            .and_then(|rest| rest.strip_suffix(" functions ..."));
        let numbers = rest.and_then(|rest| rest.split_once(" of "));
        numbers.is_some_and(|(done, of)| done.parse::<u64>().is_ok_and(|done| done <= of.parse().unwrap_or(0)))
    };
    assert!(lines.iter().any(|line| counted(&line)), "{text:?}");
    // Each line is removed before anything else is written, and nothing of the last line remains.
    let is_work = |line: &str| line.starts_with("nanoprobe: ") && line.ends_with(" ...");
    for line in &lines {
        assert!(is_work(line) || !line.contains(" ..."), "{line:?} in {text:?}");
    }
    assert!(!is_work(lines.last().expect("a part")), "{text:?}");
    assert!(
        text.contains("nanoprobe: description 'pid$target:a.out::entry ' matched "),
        "{text:?}"
    );
    let begun = lines.iter().flat_map(|line| line.lines());
    let begun: Vec<&str> = begun.filter(|line| line.starts_with("nanoprobe: tracing ")).collect();
    assert!(
        matches!(begun[..], [line] if line.ends_with(" sites; Ctrl-C ends")),
        "{text:?}"
    );
}

#[test]
fn without_a_wanting_terminal_no_progress_is_shown() {
    for (term, arguments) in [
        ("dumb", &[][..]),
        ("", &[]),
        ("xterm", &["-q"]),
        ("xterm", &["--format", "json"]),
    ] {
        let text = told(term, arguments, &format!("{} -V", env!("CARGO_BIN_EXE_nanoprobe")));
        assert!(
            !text.contains('\u{1b}') && !text.contains(" ..."),
            "{term} {arguments:?}: {text:?}"
        );
        // A terminal that cannot clear a line is still read.
        assert_eq!(
            text.contains("Ctrl-C ends"),
            arguments.is_empty(),
            "{term} {arguments:?}: {text:?}"
        );
    }
    let program = env!("CARGO_BIN_EXE_nanoprobe");
    let output = Command::new(program)
        .args(["-n", "pid$target:a.out::entry { @ = count(); }", "-c"])
        .arg(format!("{program} -V"))
        .env("TERM", "xterm")
        .output_in_time()
        .expect("running nanoprobe");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains('\u{1b}'), "{text}");
}
