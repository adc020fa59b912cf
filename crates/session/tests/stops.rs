//! How much is done while all threads are stopped, measured by a counter and not by a clock.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use nanoprobe_lang::options::Options;
use nanoprobe_lang::{MacroValues, Source, compile};
use nanoprobe_session::{Acquired, Compiled, Prepared};
use nanoprobe_tests::in_time::{EndsInTime, InTime, TimeLimit};

/// The program has some sixty handlers, and the masks of all of them change. While all threads are stopped, the
/// borrowed thread is resumed once at attach, and twice at detach. If a program changes an action at the last moment,
/// both numbers are larger by one; this program changes none.
#[test]
fn a_borrowed_thread_is_resumed_a_fixed_small_number_of_times() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("handlers");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/handlers.c");
    let status = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &source])
        .status_in_time()
        .unwrap();
    assert!(status.success());
    for tactic in [None, Some("trap")] {
        let mut child = Command::new(&program)
            .arg("8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn_in_group()
            .unwrap();
        let pid = child.id().cast_signed();
        let _limit = TimeLimit::new(pid, "its lines are waited for");
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");

        let text = "pid$target:a.out:probed:entry { @ = count(); }";
        let macros = MacroValues {
            target: Some(i64::from(pid)),
            ..MacroValues::default()
        };
        let sources = [Source::new("test", text)];
        let mut options = Options::default();
        options.tracing.tactic = tactic.map(str::to_owned);
        let compiled = compile(&sources, &macros).unwrap();
        let compiled = Compiled::new(compiled, options).unwrap();
        let prepared = Prepared::new(compiled, Acquired::running(pid).unwrap()).unwrap();
        let (mut attached, _) = prepared.begin().unwrap();
        let process = attached.known().process().unwrap().clone();
        assert_eq!(process.resumes_in_whole_stops(), 1, "{tactic:?}");
        attached.step().unwrap();
        let (_, detached) = attached.end().unwrap();
        assert_eq!((detached.left_bytes, detached.foreign), (0, 0));
        assert_eq!(process.resumes_in_whole_stops(), 3, "{tactic:?}");

        child.stdin.take().unwrap().write_all(b"x").unwrap();
        let said: Vec<String> = output.lines().map(Result::unwrap).collect();
        assert!(child.wait_in_time().unwrap().success());
        let value = |name: &str| {
            let line = said.iter().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse::<u32>().unwrap()
        };
        assert!(value("caught") > 50 && value("total") > 0);
        assert_eq!(value("same"), value("caught"), "{tactic:?}");
    }
}
