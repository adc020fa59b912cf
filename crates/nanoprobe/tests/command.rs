//! The command without a target. (Its being here also has the command built before the whole-program tests run.)

use std::process::{Command, Output};

fn nanoprobe(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nanoprobe"))
        .args(arguments)
        .output()
        .expect("running nanoprobe")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_without_a_target_prints_and_exits_with_its_status() {
    let output = nanoprobe(&[
        "-q",
        "-n",
        "BEGIN { printf(\"%d %s\\n\", $1 * 2, $$2); exit(7); }",
        "21",
        "x",
    ]);
    assert_eq!(text(&output.stdout), "42 x\n");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(7));
}

/// A container's shell has its session and its group outside the container: the kernel calls them 0 there.
#[test]
fn a_group_and_a_session_outside_the_pid_namespace_are_0() {
    let inside = |arguments: &[&str]| {
        Command::new("unshare")
            .args(["--map-root-user", "--pid", "--fork", "--kill-child"])
            .args(arguments)
            .output()
    };
    match inside(&["true"]) {
        Ok(output) if output.status.success() => {}
        _ => {
            println!("left out: no new pid namespace can be made here");
            return;
        }
    }
    let program = "BEGIN { printf(\"%d %d %d\\n\", $ppid, $pgid, $sid); exit(0); }";
    let output = inside(&[env!("CARGO_BIN_EXE_nanoprobe"), "-q", "-n", program]).expect("running unshare");
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("0 0 0\n".into(), String::new())
    );
}

#[test]
fn a_wrong_program_has_its_line_a_caret_and_a_tag() {
    let output = nanoprobe(&["-n", "BEGIN { trace(nothing); }"]);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("line 1, column 15: [D_IDENT_UNDEF]"), "{stderr}");
    assert!(
        stderr.contains("BEGIN { trace(nothing); }") && stderr.contains('┬'),
        "{stderr}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_wrong_command_line_is_told_from_a_failure() {
    assert_eq!(nanoprobe(&["-K"]).status.code(), Some(2));
    assert_eq!(nanoprobe(&[]).status.code(), Some(2));
    assert_eq!(nanoprobe(&["-h"]).status.code(), Some(0));
    assert_eq!(
        nanoprobe(&["-p", "1", "-c", "true", "-n", "BEGIN"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_provider_that_is_not_there_is_named() {
    let output = nanoprobe(&["-n", "pid$target:::entry"]);
    assert!(
        text(&output.stderr).contains("D_MACRO_UNDEF"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(1));
}
