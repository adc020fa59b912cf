//! When a probe at intervals is due, and how many firings it owes.

use std::time::{Duration, Instant};

use nanoprobe_target::{Sampler, SystemSampler};

/// A probe that fires at intervals.
pub(super) struct Timer {
    /// Its enablings, in the order of the program's clauses.
    pub(super) enablings: Vec<usize>,
    pub(super) period: Duration,
    pub(super) next: Instant,
    pub(super) firings: usize,
    /// The sampler of a `profile` probe, if the target can be sampled.
    pub(super) sampler: Option<Sampler>,
    /// The sampler of a `profile` probe without a target.
    pub(super) system: Option<SystemSampler>,
    /// When to look for new processes.
    pub(super) look_at: Instant,
    /// When the sampler was last read.
    pub(super) read: Instant,
    /// The stacks of the samples that were read, in their order.
    pub(super) stacks: Vec<Vec<u64>>,
    /// The frames of interpreted code are read soon after a sample, or they have changed.
    pub(super) is_interpreted: bool,
}

/// How soon samples of interpreted code are read.
const SOON: Duration = Duration::from_millis(1);

impl Timer {
    /// When the timer next needs work.
    pub(super) fn due(&self) -> Instant {
        match self.sampler {
            // It fires for each sample, and at no other time.
            _ if self.system.is_some() => self.read + Sampler::READ_PERIOD,
            Some(_) if self.is_interpreted => self.next.min(self.read + SOON),
            Some(_) => self.next.min(self.read + Sampler::READ_PERIOD),
            None => self.next,
        }
    }
}

/// A late tracer makes up for the firings of this time, as DTrace's cyclics do. Older ones are missed, and counted.
const MADE_UP_FOR: Duration = Duration::from_secs(1);

/// How many firings a timer owes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) firings: usize,
    pub(super) missed: u64,
    pub(super) next: Instant,
}

/// How many firings a timer owes at `now`, which is not before its `next` time.
pub(super) fn due(next: Instant, period: Duration, now: Instant) -> Due {
    let period_ns = period.as_nanos().max(1);
    let late = now.saturating_duration_since(next).as_nanos();
    let passed = u64::try_from(late / period_ns + 1).unwrap_or(u64::MAX);
    let most = u64::try_from(MADE_UP_FOR.as_nanos() / period_ns)
        .unwrap_or(u64::MAX)
        .max(1);
    let firings = passed.min(most);
    let to_next = Duration::from_nanos(u64::try_from(period_ns - late % period_ns).unwrap_or(u64::MAX));
    Due {
        firings: usize::try_from(firings).unwrap_or(usize::MAX),
        missed: passed - firings,
        next: now + to_next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(100);

    #[test]
    fn a_timer_that_is_on_time_fires_once() {
        let start = Instant::now();
        let now = start + Duration::from_millis(3);
        let next = start + PERIOD;
        assert_eq!(
            due(start, PERIOD, now),
            Due {
                firings: 1,
                missed: 0,
                next
            }
        );
    }

    #[test]
    fn a_late_timer_makes_up_for_one_second() {
        let start = Instant::now();
        let late = |milliseconds| due(start, PERIOD, start + Duration::from_millis(milliseconds));
        assert_eq!((late(450).firings, late(450).missed), (5, 0));
        assert_eq!((late(5050).firings, late(5050).missed), (10, 41));
        assert_eq!(late(5050).next, start + Duration::from_millis(5100));
    }

    #[test]
    fn a_slow_timer_fires_once_however_late_it_is() {
        let start = Instant::now();
        let due = due(start, Duration::from_secs(10), start + Duration::from_secs(25));
        assert_eq!((due.firings, due.missed), (1, 2));
    }
}
