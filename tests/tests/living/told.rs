//! Processes that obey the test (`member.c`), and tracers of several of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::program::program;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, Tracing, wait_until_tracing};

/// Counts by process.
pub const BY_PROCESS: &str = "pid$target:a.out:called:entry { @[pid] = count(); }";

/// A process that calls when it is told to.
pub struct Told {
    pub running: Running,
    snapshot: Snapshot,
    /// How many lines it has answered.
    answers: usize,
}

impl Told {
    pub fn start() -> Told {
        Told::of(&program("member.c"))
    }

    pub fn of(path: &Path) -> Told {
        Told::started(Command::new(path))
    }

    /// A process that this command starts.
    pub fn started(mut command: Command) -> Told {
        let mut running = Running::start(&mut command);
        // Its answer says that its libraries are loaded.
        running.write("call 0\n");
        running.wait_for(" 0\n");
        Told {
            snapshot: Snapshot::take(running.pid()),
            answers: 1,
            running,
        }
    }

    pub fn pid(&self) -> i32 {
        self.running.pid()
    }

    /// Has the process do something, and waits for its answer.
    #[track_caller]
    pub fn tell(&mut self, line: &str) {
        self.running.write(&format!("{line}\n"));
        self.wait_for_answer(line);
    }

    /// Waits for the answer to a line that was written.
    #[track_caller]
    pub fn wait_for_answer(&mut self, line: &str) {
        self.answers += 1;
        let answers = self.answers;
        self.running
            .wait_until(line, |running| running.stdout().lines().count() >= answers);
    }

    /// How often each process has called, as it and its children say.
    pub fn said(&self) -> BTreeMap<String, i64> {
        let mut said = BTreeMap::new();
        for line in self.running.stdout().lines() {
            let (pid, calls) = line
                .strip_prefix("by ")
                .and_then(|line| line.split_once(' '))
                .expect(line);
            *said.entry(pid.to_owned()).or_default() += calls.parse::<i64>().expect("a count");
        }
        said.retain(|_, calls| *calls > 0);
        said
    }

    /// Ends it, after its text was compared with that before.
    #[track_caller]
    pub fn end(mut self) -> BTreeMap<String, i64> {
        self.snapshot.assert_restored(self.pid());
        let said = self.said();
        self.running.close_input();
        self.running.finish().success();
        said
    }
}

pub fn pids(told: &[Told]) -> String {
    let pids: Vec<String> = told.iter().map(|told| told.pid().to_string()).collect();
    pids.join(",")
}

/// Starts a tracer, and waits until it traces.
#[track_caller]
pub fn trace(arguments: &[&str], clauses: &[&str]) -> Tracing {
    let mut tracer = Tracer::new(Form::Default).argument("-v");
    for argument in arguments {
        tracer = tracer.argument(*argument);
    }
    for clause in clauses {
        tracer = tracer.clause(clause);
    }
    let mut tracing = tracer.start();
    wait_until_tracing(&mut tracing.running);
    tracing
}

/// The output of all of them.
#[track_caller]
pub fn end(told: Vec<Told>) -> BTreeMap<String, i64> {
    told.into_iter().flat_map(Told::end).collect()
}

/// Ends processes that are still traced.
#[track_caller]
pub fn end_before_restored(told: Vec<Told>) -> BTreeMap<String, i64> {
    let mut all = BTreeMap::new();
    for mut told in told {
        all.extend(told.said());
        told.running.close_input();
        told.running.finish().success();
    }
    all
}
