//! The tracer's heartbeat while the tracer is busy.
//!
//! A thread of the target that has loaded a library waits for the library's probes, but only while the tracer's
//! heartbeat is recent. To place probes on every instruction of a large program takes seconds, in which the tracer does
//! nothing else. So another thread of the tracer writes the heartbeat during that time. That thread ends with the work,
//! and with the tracer: a tracer that is killed, or stopped, has no heartbeat.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nanoprobe_arena::ControlBlock;

use crate::arena_memory::ArenaMemory;
use crate::clock::tsc;

/// A fraction of the time after which the target takes the tracer for dead.
const PERIOD: Duration = Duration::from_millis(100);

/// Writes the heartbeat until this value is dropped.
#[must_use]
pub struct Heartbeat {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Starts the heartbeat in these arenas. If no thread can be started there is none, and the targets wait for a
    /// shorter time.
    pub(crate) fn start(arenas: Vec<Arc<ArenaMemory>>) -> Heartbeat {
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let beat = move || {
            while !until.load(Ordering::Acquire) {
                for arena in &arenas {
                    // A damaged control block is found, and reported, by the code that works with it.
                    let _ = ControlBlock::open(arena.memory()).and_then(|block| block.beat(tsc()));
                }
                std::thread::park_timeout(PERIOD);
            }
        };
        let thread = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(beat);
        Heartbeat {
            over,
            thread: thread.ok(),
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // An error would mean that the thread has panicked. It cannot panic, and there would be nothing to do about
            // it.
            let _ = thread.join();
        }
    }
}
