//! Standard error: each mistake is one line, in one write; it is drawn if a terminal can show that.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Command, Stdio};

use nanoprobe_tests::in_time::InTime as _;
use nanoprobe_tests::tracer::nanoprobe;

/// The two ends that `make` opens.
fn ends(make: impl FnOnce(&mut [i32; 2]) -> i32) -> (OwnedFd, OwnedFd) {
    let mut ends = [-1; 2];
    let result = make(&mut ends);
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both were opened just now, and have no other owner.
    unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) }
}

fn wrong(stderr: OwnedFd, variables: &[(&str, &str)], arguments: &[&str]) {
    let mut command = Command::new(nanoprobe());
    for name in ["LC_ALL", "LC_CTYPE", "LANG", "TERM", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.args(arguments).envs(variables.iter().copied());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(stderr));
    let status = command
        .status_within(nanoprobe_tests::LIMIT)
        .expect("running nanoprobe");
    assert_eq!(status.code(), Some(1));
}

/// The output on a terminal.
fn on_a_terminal(variables: &[(&str, &str)]) -> String {
    let (master, slave) = ends(|[master, slave]| {
        // SAFETY: opens two descriptors and writes no more than their numbers.
        unsafe { libc::openpty(master, slave, std::ptr::null_mut(), std::ptr::null(), std::ptr::null()) }
    });
    wrong(slave, variables, &["-n", "BEGIN { trace(nothing); }"]);
    let (mut master, mut shown) = (File::from(master), Vec::new());
    // Reading from a terminal fails after the last process has closed it.
    let _ = master.read_to_end(&mut shown);
    String::from_utf8(shown).expect("UTF-8")
}

const LINE: &str = "nanoprobe: invalid probe specifier BEGIN { trace(nothing); }: [D_IDENT_UNDEF] in action list: failed to \
                    resolve nothing: Unknown variable name\r\n";

#[test]
fn a_mistake_is_drawn_where_the_terminal_can_show_it() {
    let usual = [("LANG", "C.UTF-8"), ("TERM", "xterm")];
    let drawn = on_a_terminal(&usual);
    assert!(
        drawn.starts_with(LINE) && drawn.contains('┬') && drawn.contains("\x1b["),
        "{drawn}"
    );
    let plain = on_a_terminal(&[usual[0], usual[1], ("NO_COLOR", "1")]);
    assert!(
        plain.starts_with(LINE) && plain.contains('┬') && !plain.contains('\x1b'),
        "{plain}"
    );
    for cannot in [("LC_ALL", "C"), ("TERM", "dumb")] {
        assert_eq!(on_a_terminal(&[usual[0], usual[1], cannot]), LINE, "{cannot:?}");
    }
    assert_eq!(on_a_terminal(&[("TERM", "xterm")]), LINE);
}

/// The output is a pipe in packet mode, which keeps writes separate.
#[test]
fn a_line_is_one_write() {
    let (reading, writing) = ends(|ends| {
        // SAFETY: writes two descriptors.
        unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_DIRECT | libc::O_CLOEXEC) }
    });
    wrong(writing, &[], &["-n", "BEGIN { trace(nothing); }"]);
    let mut reading = File::from(reading);
    let mut packet = [0; 4096];
    let length = reading.read(&mut packet).expect("a write");
    let shown = String::from_utf8_lossy(&packet[..length]).into_owned();
    assert_eq!(shown, LINE.replace("\r\n", "\n"));
    assert_eq!(reading.read(&mut packet).expect("the end"), 0);
}
