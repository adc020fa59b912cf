//! The tools that look at system calls, on a program that makes known ones.

use nanoprobe_tests::program::{Build, need_program, program};

use crate::tool_and_command;

/// The number after a word of the program's output.
#[track_caller]
fn number(stdout: &str, word: &str) -> String {
    let found = stdout
        .lines()
        .find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{word}: {stdout}")).to_owned()
}

#[test]
fn opensnoop_shows_each_open_and_its_error() {
    let paths = [Some(program("snooped.c")), need_program("snooped.c", Build::Static)];
    for path in paths.into_iter().flatten() {
        let (lines, stdout) = tool_and_command("opensnoop", &path.display().to_string(), &[]);
        let (process, file, folder) = (
            number(&stdout, "process"),
            number(&stdout, "file"),
            number(&stdout, "folder"),
        );
        assert_eq!(lines[0], "PID TID FD ERROR PATH");
        let own = lines.iter().position(|line| line.ends_with(" /proc/self/status"));
        let own = &lines[own.unwrap_or_else(|| panic!("{lines:?}"))..];
        let wanted = [
            format!("{process} {process} {file} 0 /proc/self/status"),
            format!("{process} {process} {folder} 0 /proc/self"),
            format!("{process} {process} -1 2 no such file"),
            format!("{process} {process} -1 2 /no/such/folder"),
        ];
        assert_eq!(own[..4], wanted, "{}", path.display());
        // The linker's opens come before the library keeps the thread's number.
        let begin = format!("{process} {process} ");
        assert!(lines[1..].iter().all(|line| line.starts_with(&begin)), "{lines:?}");
    }
}

#[test]
fn killsnoop_shows_each_signal_that_is_sent() {
    let (lines, stdout) = tool_and_command("killsnoop", &program("snooped.c").display().to_string(), &[]);
    let process = number(&stdout, "process");
    let wanted = [
        "PID TID SIGNAL TO ERROR CALL".to_owned(),
        format!("{process} {process} 0 {process} 0 kill"),
        format!("{process} {process} {} {process} 0 tgkill", signal_number("SIGUSR1")),
        format!("{process} {process} {} -1000000 3 kill", signal_number("SIGTERM")),
    ];
    assert_eq!(lines, wanted);
}

fn signal_number(signal: &str) -> i32 {
    signal.parse::<nix::sys::signal::Signal>().expect("a signal") as i32
}

#[test]
fn gethostlatency_shows_each_name_and_result() {
    let (lines, _) = tool_and_command("gethostlatency", &program("snooped.c").display().to_string(), &[]);
    assert_eq!(lines[0], "TID MICROSECONDS RETURNED CALL");
    let rests = lines[1..]
        .iter()
        .map(|line| line.splitn(3, ' ').nth(2).unwrap_or_default());
    // EAI_NONAME is -2.
    assert_eq!(
        rests.collect::<Vec<_>>(),
        [
            "0 getaddrinfo(127.0.0.1)",
            "-2 getaddrinfo(no.number)",
            "found gethostbyname(127.0.0.1)",
            "not found gethostbyname2(::1)"
        ]
    );
}
