//! A program blocks all signals in every possible way, while all functions that it calls are probed by traps. It must
//! print the same as without probes, every call must be counted, and the right signals must be blocked in the end.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use nanoprobe_tests::LIMIT;
use nanoprobe_tests::in_time::{EndsInTime, InTime, TimeLimit};

use nanoprobe_export::AggregateTable;
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::AggregationId;
use nanoprobe_lang::{MacroValues, Source, compile};
use nanoprobe_session::{Acquired, Compiled, Prepared};

/// The program, with its ends of the pipes.
struct Masks {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Signals by the lines of /proc/PID/status.
#[derive(Debug, PartialEq, Eq)]
struct Signals {
    blocked: u64,
    caught: u64,
}

impl Masks {
    fn start(program: &Path) -> Masks {
        let mut child = Command::new(program)
            .arg("5")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn_in_group()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Masks {
            child,
            input,
            output: BufReader::new(output),
        }
    }

    /// The program's output up to this line.
    fn until(&mut self, last: &str) -> Vec<String> {
        let _limit = TimeLimit::new(self.child.id().cast_signed(), "its next lines are waited for");
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != last) {
            let mut line = String::new();
            assert_ne!(
                self.output.read_line(&mut line).unwrap(),
                0,
                "it has ended after {lines:?}"
            );
            lines.push(line.trim_end().to_owned());
        }
        lines
    }

    fn go_on(&mut self) {
        self.input.write_all(b"x").unwrap();
    }

    fn signals(&self) -> Signals {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        Signals {
            blocked: value("SigBlk:"),
            caught: value("SigCgt:"),
        }
    }

    /// The rest of the program's output; the program must have ended well.
    fn end(mut self) -> Vec<String> {
        self.go_on();
        let _limit = TimeLimit::new(self.child.id().cast_signed(), "its last lines are waited for");
        let lines = self.output.lines().map(Result::unwrap).collect();
        let status = self.child.wait_in_time().unwrap();
        assert!(status.success(), "{status}");
        lines
    }
}

/// Attaches, lets the program do its work, and yields how often the probe fired.
fn traced(masks: &mut Masks, said: &mut Vec<String>, text: &str, tactic: Option<&str>) -> u64 {
    let pid = i32::try_from(masks.child.id()).unwrap();
    let macros = MacroValues {
        target: Some(i64::from(pid)),
        ..MacroValues::default()
    };
    let sources = [Source::new("test", text)];
    let program = compile(&sources, &macros).unwrap();
    let mut options = Options::default();
    options.tracing.tactic = tactic.map(str::to_owned);
    let compiled = Compiled::new(program, options).unwrap();
    let prepared = Prepared::new(compiled.clone(), Acquired::running(pid).unwrap()).unwrap();
    let (mut attached, _) = prepared.begin().unwrap();
    let refused = attached.known().refused();
    assert!(refused.is_empty(), "{refused:?}");
    masks.go_on();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(masks.until("ran")).unwrap());
        // Libraries that come meanwhile wait for an answer.
        let deadline = Instant::now() + LIMIT;
        loop {
            attached.step().unwrap();
            if let Ok(lines) = receiver.try_recv() {
                said.extend(lines);
                break;
            }
            assert!(Instant::now() < deadline, "it hangs");
        }
    });
    let (mut ended, detached) = attached.end().unwrap();
    assert_eq!((detached.left_bytes, detached.foreign), (0, 0));
    let mut table = AggregateTable::new();
    let new = ended.tracing_mut().take_aggregations().unwrap();
    table.add(compiled.program(), new);
    let rows = table.rows(compiled.program(), AggregationId(0));
    rows.iter().flat_map(|row| row.words.first()).sum()
}

#[test]
fn a_program_that_blocks_all_signals_never_notices() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("masks");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/masks.c");
    let status = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &source])
        .status_in_time()
        .unwrap();
    assert!(status.success());

    let mut alone = Masks::start(&program);
    let mut expected = alone.until("ready");
    let before = alone.signals();
    alone.go_on();
    expected.extend(alone.until("ran"));
    let after = alone.signals();
    expected.extend(alone.end());
    let total: u64 = expected
        .iter()
        .find_map(|line| line.strip_prefix("total "))
        .unwrap()
        .parse()
        .unwrap();
    assert!(total > 20 && before != after);

    let count = "pid$target:a.out:probed:entry { @ = count(); }";
    let reads = "pid$target:a.out:probed:entry { @ = count(); trace(copyin(arg0 & 0, 1)); }";
    for (text, tactic) in [
        (count, Some("trap")),
        (count, None),
        (reads, Some("trap")),
        (reads, None),
    ] {
        let mut masks = Masks::start(&program);
        let mut said = masks.until("ready");
        assert_eq!(masks.signals(), before);
        let counted = traced(&mut masks, &mut said, text, tactic);
        assert_eq!(counted, total, "{text} {tactic:?}");
        assert_eq!(masks.signals(), after, "{text} {tactic:?}");
        said.extend(masks.end());
        assert_eq!(said, expected, "{text} {tactic:?}");
    }
}
