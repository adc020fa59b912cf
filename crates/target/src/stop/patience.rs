//! How long a thread that does not come is waited for.

use std::time::{Duration, Instant};

/// How long an interrupted thread takes to stop, and be seen, when it is on a processor.
const PROMPT: Duration = Duration::from_micros(40);

/// Waits without blocking: a blocking wait could not be bounded, and would not return for a main thread that has
/// ended before the others.
///
/// A thread that runs on another processor stops within microseconds: for that long we stay on ours. Then we sleep:
/// first for tens of microseconds, in the end for a millisecond. A tracer that wakes up is given the processor that the
/// thread has left by stopping. A tracer that yields instead waits for a whole slice (3 to 4 ms), after everything else
/// that is ready, and the thread stands as long.
pub(crate) struct Patience {
    begun: Instant,
    deadline: Instant,
    sleeps: u32,
}

impl Patience {
    pub fn until(deadline: Instant) -> Patience {
        Patience {
            begun: Instant::now(),
            deadline,
            sleeps: 0,
        }
    }

    /// Whether a thread that is on a processor may still be on its way.
    pub fn is_prompt(&self) -> bool {
        self.begun.elapsed() < PROMPT
    }

    /// False when the time is over.
    pub fn pause(&mut self) -> bool {
        if self.is_prompt() {
            for _ in 0..50 {
                std::hint::spin_loop();
            }
            return true;
        }
        self.sleeps += 1;
        std::thread::sleep(Duration::from_micros(if self.sleeps <= 200 { 30 } else { 1000 }));
        Instant::now() < self.deadline
    }

    /// Whether it is time for a look that costs something.
    pub fn is_long(&self) -> bool {
        self.sleeps > 50
    }
}
