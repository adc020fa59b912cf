//! A program that works all the time: a target that must not be harmed.

use crate::command::Running;
use crate::program::program;
use crate::text::Snapshot;
use crate::tracer::start_waiting;

/// Three busy threads, which check what they compute.
pub struct Target {
    /// The program.
    pub busy: Running,
    /// Its text and its map, untouched.
    pub snapshot: Snapshot,
}

impl Target {
    /// Starts it; it works when this returns.
    pub fn start() -> Target {
        let mut busy = start_waiting(&program("busy.c"), "3");
        busy.go();
        busy.wait_for("working\n");
        let snapshot = Snapshot::take(busy.pid());
        Target { busy, snapshot }
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.busy.pid()
    }

    /// Ends it.
    ///
    /// # Panics
    /// When it has computed something wrong.
    #[track_caller]
    pub fn finish(mut self) {
        self.busy.write("stop\n");
        let finished = self.busy.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
    }
}
