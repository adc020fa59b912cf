//! A target that writes random bytes over all our memory in it, and closes or replaces every descriptor (I9).

use std::process::Command;
use std::time::Duration;

use nanoprobe_tests::command::{Finished, Running, run};
use nanoprobe_tests::program::program;
use nanoprobe_tests::text::{Snapshot, is_patched};
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

/// No handler reads the program's memory: with a damaged list of readable ranges it would read unmapped memory.
const CLAUSE: &str =
    "pid$target:a.out:scribbler_work:entry { @[arg0 % 16] = count(); self->t = timestamp; trace(probefunc); }";
const ROUNDS: u32 = 4;

struct Scribbler {
    program: Running,
    snapshot: Snapshot,
}

impl Scribbler {
    fn start(what: &str) -> Scribbler {
        let mut program = start_waiting(&program("scribbler.c"), what);
        let snapshot = Snapshot::take(program.pid());
        program.go();
        program.wait_for("working\n");
        Scribbler { program, snapshot }
    }

    fn pid(&self) -> i32 {
        self.program.pid()
    }

    /// Checks the tracer's duties whatever the target does: it ends by itself, and restores the text or reports why
    /// not.
    fn assert_answered(&mut self, finished: &Finished) {
        let code = finished.code();
        assert!(code == 0 || code == 1, "{finished:?}");
        assert!(!finished.stderr.contains("panicked"), "{finished:?}");
        assert!(code == 0 || finished.stderr.contains("nanoprobe: "), "{finished:?}");
    }

    fn restore(&self) -> Finished {
        run(Command::new(nanoprobe()).args(["restore", &self.pid().to_string()]))
    }

    fn finish(mut self) {
        assert!(self.program.is_running(), "the target died: {}", self.program.stdout());
        self.program.write("stop\n");
        let finished = self.program.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
    }
}

#[test]
fn a_scribbled_arena_is_reported_and_the_text_restored() {
    let mut target = Scribbler::start("arena");
    for round in 0..ROUNDS {
        let tracer = Tracer::new(Form::Default)
            .clause(CLAUSE)
            .clause("tick-300ms { exit(0); }")
            .argument("-x")
            .argument(if round % 2 == 0 { "stop=auto" } else { "stop=never" });
        let finished = tracer.process(target.pid()).run().finished;
        println!(
            "{} {}",
            finished.code(),
            finished.stderr.lines().last().unwrap_or_default()
        );
        target.assert_answered(&finished);
        target.snapshot.assert_restored(target.pid());
    }
    target.finish();
}

/// A target that overwrites the thread table leads its own threads astray, and may die of it. The
/// tracer does not.
#[test]
fn a_scribbled_thread_table_does_not_end_the_tracer() {
    for _ in 0..ROUNDS {
        let mut target = Scribbler::start("table");
        let tracer = Tracer::new(Form::Default)
            .clause(CLAUSE)
            .clause("tick-300ms { exit(0); }");
        let finished = tracer.process(target.pid()).run().finished;
        println!(
            "{} {}",
            finished.code(),
            finished.stderr.lines().last().unwrap_or_default()
        );
        target.assert_answered(&finished);
    }
}

/// The damage begins when everything is in place, and continues while the tracer ends.
#[test]
fn damage_during_tracing_is_reported_and_the_text_restored() {
    for form in [Form::Default, Form::Trap] {
        let mut target = Scribbler::start("arena later");
        let tracing = Tracer::new(form).clause(CLAUSE).trace(target.pid());
        target.program.go();
        target.program.wait_for("scribbling\n");
        let finished = tracing.finish().finished;
        println!(
            "{} {}",
            finished.code(),
            finished.stderr.lines().last().unwrap_or_default()
        );
        target.assert_answered(&finished);
        assert_eq!(finished.code(), 1, "{finished:?}");
        target.snapshot.assert_restored(target.pid());
        target.finish();
    }
}

#[test]
fn restore_after_a_kill_repairs_a_scribbler_or_reports_why_not() {
    for round in 0..ROUNDS {
        let mut target = Scribbler::start("arena later");
        let tracing = Tracer::new(Form::Default).clause(CLAUSE).trace(target.pid());
        tracing.running.signal(Signal::SIGKILL);
        tracing.finish();
        assert!(is_patched(target.pid()), "the probes were in place");
        target.program.go();
        target.program.wait_for("scribbling\n");
        std::thread::sleep(Duration::from_millis(u64::from(round) * 20));
        let finished = target.restore();
        println!("{} {}", finished.code(), finished.stderr.trim_end());
        target.assert_answered(&finished);
        let says_so = ["overwritten it", "damaged"]
            .iter()
            .any(|words| finished.stderr.contains(words));
        if !says_so {
            target.snapshot.assert_restored(target.pid());
        }
    }
}
