//! Several processes under one program, with one table of aggregations and one output: each has a session of its own,
//! and the sessions begin and end independently.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::Instant;

use nanoprobe_export::{AggregateTable, Row};
use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::AggregationId;
use nanoprobe_lang::{MacroValues, Source, compile};
use nanoprobe_session::{Acquired, Attached, Compiled, Output, Prepared, SessionError, Tracing};
use nanoprobe_tests::LIMIT;
use nanoprobe_tests::in_time::{EndsInTime, InTime, TimeLimit};

struct Asked {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Asked {
    fn start(program: &Path) -> Asked {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn_in_group()
            .unwrap();
        let mut asked = Asked {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        assert_eq!(asked.line(), "ready");
        asked
    }

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn line(&mut self) -> String {
        let _limit = TimeLimit::new(self.pid(), "its next line is waited for");
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Makes the program call this many times. Yields how often it has called in all.
    fn call(&mut self, times: u64) -> u64 {
        writeln!(self.input, "{times}").unwrap();
        self.line().parse().unwrap()
    }

    fn end(self) {
        drop(self.input);
        let mut child = self.child;
        assert!(child.wait_in_time().unwrap().success());
    }
}

fn built(folder: &Path) -> PathBuf {
    let program = folder.join("asked");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/asked.c");
    let status = Command::new("cc")
        .args(["-O1", "-o"])
        .args([&program, &source])
        .status_in_time()
        .unwrap();
    assert!(status.success());
    program
}

/// One program for several processes: counts by process, one sum over all, and a record for every hundredth call.
fn compiled(pids: &[i32]) -> Rc<Compiled> {
    let descriptions: Vec<String> = pids.iter().map(|pid| format!("pid{pid}:a.out:probed:entry")).collect();
    let text = format!(
        "{descriptions} {{ @calls[pid] = count(); @sum = sum(arg0); }}\n{descriptions} /arg0 % 100 == 0/ {{ trace(arg0); }}",
        descriptions = descriptions.join(",")
    );
    let program = compile(&[Source::new("test", &text)], &MacroValues::default()).unwrap();
    Compiled::for_processes(program, Options::default(), pids.to_vec(), None).unwrap()
}

fn attach(compiled: &Rc<Compiled>, pid: i32) -> Attached {
    let prepared = Prepared::new(compiled.clone(), Acquired::running(pid).unwrap()).unwrap();
    prepared.begin().unwrap().0
}

/// The results of all sessions of a program.
#[derive(Default)]
struct Collected {
    table: AggregateTable,
    /// How many records each thread has made.
    records: BTreeMap<u32, u64>,
}

impl Collected {
    fn add(&mut self, tracing: &mut Tracing, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Record { thread, .. } => *self.records.entry(thread).or_default() += 1,
                Output::Exited(_) => {}
                other => panic!("{other:?}"),
            }
        }
        let new = tracing.take_aggregations().unwrap();
        self.table.add(tracing.known().program(), new);
    }

    fn step(&mut self, attached: &mut Attached) {
        let outputs = attached.step().unwrap();
        self.add(attached.tracing_mut(), outputs);
    }

    fn end(&mut self, attached: Attached) {
        let (mut ended, detached) = attached.end().unwrap();
        assert_eq!((detached.left_bytes, detached.foreign), (0, 0));
        while let Some(outputs) = ended.remaining().unwrap() {
            self.add(ended.tracing_mut(), outputs);
        }
        self.add(ended.tracing_mut(), Vec::new());
        assert_eq!(ended.tracing().losses().unwrap(), nanoprobe_session::Losses::default());
    }

    /// How often each process has called.
    fn calls(&self, compiled: &Compiled) -> BTreeMap<i64, u64> {
        let rows = self.table.rows(compiled.program(), AggregationId(0));
        let entry = |row: &Row| match row.key.first() {
            Some(Value::Integer(pid)) => (*pid, *row.words.first().unwrap()),
            other => panic!("{other:?}"),
        };
        rows.iter().map(entry).collect()
    }

    fn sum(&self, compiled: &Compiled) -> u64 {
        let rows = self.table.rows(compiled.program(), AggregationId(1));
        rows.iter().flat_map(|row| row.words.first()).sum()
    }
}

/// The sum of the arguments of this many calls.
fn up_to(calls: u64) -> u64 {
    calls * (calls + 1) / 2
}

#[test]
fn two_processes_are_traced_by_one_program_into_one_output() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path());
    let (mut one, mut two) = (Asked::start(&program), Asked::start(&program));
    let compiled = compiled(&[one.pid(), two.pid()]);
    let mut collected = Collected::default();

    let mut first = attach(&compiled, one.pid());
    // Only the first process is traced: the other's calls are not counted.
    assert_eq!((one.call(1000), two.call(50)), (1000, 50));
    collected.step(&mut first);
    let mut second = attach(&compiled, two.pid());
    for _ in 0..20 {
        one.call(300);
        two.call(700);
        collected.step(&mut first);
        collected.step(&mut second);
    }
    // The first session ends. The second continues, and its process notices nothing.
    collected.end(first);
    one.call(12_345);
    two.call(400);
    collected.step(&mut second);
    collected.end(second);
    two.call(77);

    let (of_one, of_two) = (1000 + 20 * 300, 20 * 700 + 400);
    let expected = BTreeMap::from([(i64::from(one.pid()), of_one), (i64::from(two.pid()), of_two)]);
    assert_eq!(collected.calls(&compiled), expected);
    assert_eq!(
        collected.sum(&compiled),
        up_to(1000) + 20 * up_to(300) + 20 * up_to(700) + up_to(400)
    );
    let records = BTreeMap::from([(one.child.id(), of_one / 100), (two.child.id(), of_two / 100)]);
    assert_eq!(collected.records, records);
    one.end();
    two.end();
}

#[test]
fn the_end_of_one_process_is_nothing_to_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path());
    let (mut one, mut two) = (Asked::start(&program), Asked::start(&program));
    let compiled = compiled(&[one.pid(), two.pid()]);
    let mut collected = Collected::default();
    let mut first = attach(&compiled, one.pid());
    let mut second = attach(&compiled, two.pid());
    one.call(100);
    let (pid, two_pid) = (i64::from(one.pid()), i64::from(two.pid()));
    one.end();
    let deadline = Instant::now() + LIMIT;
    while !first.is_finished() {
        collected.step(&mut first);
        assert!(Instant::now() < deadline, "its end is not seen");
    }
    collected.end(first);
    two.call(500);
    collected.step(&mut second);
    collected.end(second);
    assert_eq!(collected.calls(&compiled), BTreeMap::from([(pid, 100), (two_pid, 500)]));
    two.end();
}

#[test]
fn a_description_of_a_process_that_is_none_of_them_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path());
    let (one, two) = (Asked::start(&program), Asked::start(&program));
    let compiled = {
        let text = format!(
            "pid{}:a.out:probed:entry, pid{}:a.out:probed:entry {{ @ = count(); }}",
            one.pid(),
            two.pid()
        );
        let program = compile(&[Source::new("test", &text)], &MacroValues::default()).unwrap();
        Compiled::for_processes(program, Options::default(), vec![one.pid()], None).unwrap()
    };
    let prepared = Prepared::new(compiled, Acquired::running(one.pid()).unwrap());
    assert!(matches!(prepared.map(drop), Err(SessionError::AtDescription { .. })));
    one.end();
    two.end();
}
