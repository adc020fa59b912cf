//! The message of a run in which no probe fires: the probes, the duration, and possible reasons.

use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::in_time::InTime;

/// `called` is called, `uncalled` is not; with an argument it forks a child that calls it as long as its parent lives.
const PROGRAM: &str = r#"
#include <sys/wait.h>
#include <unistd.h>
volatile int calls;
__attribute__((noinline)) void called(void) { calls++; }
__attribute__((noinline)) void uncalled(void) { calls++; }
int main(int count, char **words)
{
	int parent = getpid();
	if (count > 1 && fork() == 0) {
		while (getppid() == parent) {
			uncalled();
			usleep(10000);
		}
		_exit(0);
	}
	called();
	if (count > 2)
		uncalled();
	wait(0);
	return 0;
}
"#;

fn built(folder: &Path, flags: &[&str]) -> PathBuf {
    let source = folder.join("program.c");
    std::fs::write(&source, PROGRAM).expect("a source");
    let program = folder.join("program");
    let mut command = Command::new("cc");
    command.args(["-O1", "-o"]).arg(&program).arg(&source).args(flags);
    assert!(command.status_in_time().expect("running cc").success());
    program
}

/// The messages besides the results, and the exit status.
fn said(program: &Path, words: &str, text: &str) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nanoprobe"));
    command.args(["-q", "-n", text, "-c", &format!("{} {words}", program.display())]);
    let output = command.output_in_time().expect("running nanoprobe");
    (
        String::from_utf8_lossy(&output.stderr).into_owned(),
        output.status.code(),
    )
}

#[test]
fn probes_that_do_not_fire_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = built(folder.path(), &[]);
    let (said, status) = said(&program, "", "pid$target:a.out:uncalled:entry { @ = count(); }");
    let (first, rest) = said.split_once("s: ").expect(&said);
    assert!(first.starts_with("nanoprobe: nothing was seen in "), "{said}");
    assert_eq!(rest, "1 probe in program did not fire\n");
    assert_eq!(status, Some(0));
}

/// Of a clause that only assigns nobody knows whether it has run. A system call is a probe, too.
#[test]
fn an_empty_result_is_explained_for_clauses_that_assign_and_for_system_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = built(folder.path(), &[]);
    for (text, before, after) in [
        (
            "pid$target:a.out:uncalled:entry { self->t = 1; } pid$target:a.out:uncalled:return /self->t/ { trace(1); }",
            "nanoprobe: nothing was recorded in ",
            " by 2 probes in program (a clause that only assigns may have run)",
        ),
        (
            "syscall::mkdir:entry { @ = count(); }",
            "nanoprobe: nothing was seen in ",
            "1 probe in system calls did not fire",
        ),
    ] {
        let (said, status) = said(&program, "", text);
        assert!(said.contains(before) && said.contains(after), "{text}: {said}");
        assert_eq!(status, Some(0), "{said}");
    }
}

#[test]
fn children_that_are_not_traced_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = built(folder.path(), &[]);
    let text = "#pragma D option follow=no\n\
        pid$target:a.out:uncalled:entry { trace(1); } tick-10ms /++looks == 50/ { exit(0); }";
    let (said, _) = said(&program, "fork", text);
    assert!(said.contains("has 1 child that is not traced: "), "{said}");
}

#[test]
fn a_stripped_program_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = built(folder.path(), &["-s", "-rdynamic"]);
    let (said, _) = said(&program, "", "pid$target:a.out:uncalled:entry { @ = count(); }");
    assert!(
        said.contains("program is stripped: only ") && said.contains(" of it have a name"),
        "{said}"
    );
}

#[test]
fn descriptions_without_a_match_and_predicates_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = built(folder.path(), &[]);
    let text = "#pragma D option zdefs\npid$target:a.out:called:entry, pid$target:a.out:nosuch:entry /arg0 == 1 && arg0 == 2/ { @ = count(); }";
    let (said, _) = said(&program, "", text);
    assert!(said.contains("perhaps no predicate was true"), "{said}");
    assert!(said.contains("a.out:nosuch:entry"), "{said}");
}

/// There is no message if a probe has fired, or if this cannot be known.
#[test]
fn nothing_is_said_otherwise() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = built(folder.path(), &[]);
    for text in [
        "pid$target:a.out:called:entry { @ = count(); }",
        "pid$target:a.out:called:entry { trace(1); }",
        "pid$target:a.out:called:entry { trace(*(int *)8); }",
        "pid$target:a.out:called:entry { exit(0); }",
        "pid$target:a.out:uncalled:entry { x = 1; }",
        "BEGIN { @ = count(); clear(@); }",
        "tick-10ms { exit(0); }",
    ] {
        let (said, _) = said(&program, "", text);
        assert!(!said.contains("nothing was seen"), "{text}: {said}");
    }
}

/// The message names the function that a misspelt name probably meant.
#[test]
fn a_misspelt_probe_names_the_one_that_was_meant() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = built(folder.path(), &[]);
    for (text, meant) in [
        ("pid$target:a.out:caled:entry", "(did you mean called?)"),
        ("pid$target::uncaled:entry", "(did you mean uncalled?)"),
        ("begin { exit(0); }", "(did you mean BEGIN?)"),
        ("BEGNI { exit(0); }", "(did you mean BEGIN?)"),
        ("dtrace:::end { exit(0); }", "(did you mean END?)"),
    ] {
        let (said, status) = said(&program, "", text);
        assert!(said.contains(meant), "{text}: {said}");
        assert_eq!(status, Some(1), "{text}: {said}");
    }
}
