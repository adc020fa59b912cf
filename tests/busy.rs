//! A program that works all the time: a target that must not be harmed.

use crate::command::Running;
use crate::program::program;
use crate::text::Snapshot;
use crate::tracer::start_waiting;

/// Three busy threads, which check their own results.
pub struct Target {
    /// The running program.
    pub busy: Running,
    /// The program's text and map before tracing.
    pub snapshot: Snapshot,
}

impl Target {
    /// Starts the program. When this returns, its threads work.
    pub fn start() -> Target {
        let mut busy = start_waiting(&program("busy.c"), "3");
        busy.go();
        busy.wait_for("working\n");
        let snapshot = Snapshot::take(busy.pid());
        Target { busy, snapshot }
    }

    /// The number of the process.
    pub fn pid(&self) -> i32 {
        self.busy.pid()
    }

    /// Ends the program.
    ///
    /// # Panics
    /// If it has computed a wrong result.
    #[track_caller]
    pub fn finish(mut self) {
        self.busy.write("stop\n");
        let finished = self.busy.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
    }
}
