//! How to wait for a thread that has not stopped yet.

use std::time::{Duration, Instant};

use crate::precise;

/// How long an interrupted thread takes to stop, and to be seen, if it is on a processor.
const PROMPT: Duration = Duration::from_micros(40);

/// Waits without blocking: a blocking wait could not be bounded, and would not return for a main thread that has ended
/// before the others.
///
/// A thread that runs on another processor stops within microseconds, and for that long the tracer keeps its
/// processor. Then the tracer sleeps: first for tens of microseconds, in the end for a millisecond. When it wakes up,
/// it gets the processor that the stopped thread has left. A tracer that yields instead would wait for a whole slice
/// (3 to 4 ms), after all other threads that are ready, and so would the stopped thread.
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

    /// Whether a thread that is on a processor may not have had the time to stop yet.
    pub fn is_prompt(&self) -> bool {
        self.begun.elapsed() < PROMPT
    }

    /// Pauses; false when the time is over.
    pub fn pause(&mut self) -> bool {
        if self.is_prompt() {
            for _ in 0..50 {
                std::hint::spin_loop();
            }
            return true;
        }
        self.sleeps += 1;
        match self.sleeps <= 200 {
            true => precise::sleep(Duration::from_micros(30)),
            false => std::thread::sleep(Duration::from_millis(1)),
        }
        Instant::now() < self.deadline
    }

    /// Whether the wait is long enough for a look that costs something.
    pub fn is_long(&self) -> bool {
        self.sleeps > 50
    }
}
