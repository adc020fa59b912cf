//! How often a wait for words of the targets may end at once.
//!
//! A word may have changed while the tracer worked, and then there is nothing to wait for. But a process may change its
//! words without end, and the tracer must not take a processor for that.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// So many waits in a row may end at once: as many as a script needs that executes a few programs.
const ROW: u32 = 32;
/// And then one in each such time.
const EACH: Duration = Duration::from_micros(200);

/// See the module's description.
pub struct Early {
    left: Cell<u32>,
    /// When the last one was given back.
    since: Cell<Instant>,
}

impl Early {
    pub fn new() -> Early {
        Early {
            left: Cell::new(ROW),
            since: Cell::new(Instant::now()),
        }
    }

    /// Takes one; false: there is none.
    pub fn is_allowed(&self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since.get());
        let back = u32::try_from(passed.as_nanos() / EACH.as_nanos()).unwrap_or(u32::MAX);
        if back > 0 {
            self.since.set(now);
        }
        let left = self.left.get().saturating_add(back).min(ROW);
        self.left.set(left.saturating_sub(1));
        left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_changes_its_words_without_end_is_slowed_down() {
        let (early, start) = (Early::new(), Instant::now());
        let allowed = |now| early.is_allowed(now);
        assert_eq!((0..100).filter(|_| allowed(start)).count(), ROW as usize);
        // One in each period from then on.
        let later = (1..=1000).filter(|count| allowed(start + EACH * *count / 10)).count();
        assert!((90..=100).contains(&later), "{later}");
        // After a rest, as many as at first.
        let rested = start + 1000 * EACH;
        assert_eq!((0..100).filter(|_| allowed(rested)).count(), ROW as usize);
    }
}
