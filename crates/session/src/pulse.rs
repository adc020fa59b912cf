//! Signs of life while the tracer is busy.
//!
//! A thread of the target that has loaded a library waits for its probes, and for no longer than the tracer's heartbeat
//! is young. Placing every instruction of a large program takes seconds in which the tracer comes to nothing else, so a
//! thread beats for it. It ends with the work, and with the tracer: one that is killed, or stopped, has no pulse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nanoprobe_arena::ControlBlock;

use crate::arena_memory::ArenaMemory;
use crate::clock::tsc;

/// A fraction of the limit after which the target counts the tracer as gone.
const PERIOD: Duration = Duration::from_millis(100);

/// Beats until it is dropped.
#[must_use]
pub struct Pulse {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    /// Begins to beat. Where no thread can be had there is no pulse: the target then waits for less long.
    pub fn start(arena: Arc<ArenaMemory>) -> Pulse {
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let beat = move || {
            while !until.load(Ordering::Acquire) {
                // A control block that is damaged is found, and told, by whoever works with it.
                let _ = ControlBlock::open(arena.memory()).and_then(|block| block.beat(tsc()));
                std::thread::park_timeout(PERIOD);
            }
        };
        let thread = std::thread::Builder::new().name("pulse".to_owned()).spawn(beat);
        Pulse {
            over,
            thread: thread.ok(),
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It cannot have panicked, and there would be nothing to do about it.
            let _ = thread.join();
        }
    }
}
