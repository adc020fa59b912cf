//! The clock that target and tracer share: the processor's time stamp counter, and its relation to nanoseconds.
//!
//! `ns since boot = clock_ns + ((tsc - clock_tsc) * mult >> 32)`. The rate is measured once, against
//! CLOCK_MONOTONIC, since users compare times with that clock. It takes two readings, as far apart as the session's
//! preparation takes, each the tightest of several. So the error is some tens of nanoseconds over some tens of
//! milliseconds: a few parts per million.
//!
//! A run that attaches to one process after the other keeps the first reading for a second. A program that is executed
//! waits for its session, and would wait ten milliseconds for nothing else.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A reading of both clocks at the same moment: the TSC and the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    tsc: u64,
    ns: u64,
}

/// The relation between the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// TSC at `ns`.
    pub tsc: u64,
    /// ns since boot.
    pub ns: u64,
    /// ns per tick, 32.32 fixed point.
    pub mult: u64,
    /// Added to ns since boot, yields ns since the epoch.
    pub wall_ns: u64,
}

/// The shortest interval over which a rate is trusted.
const INTERVAL_NS_MIN: u64 = 10_000_000;
/// A first reading is used again for so long.
const INTERVAL_NS_MAX: u64 = 1_000_000_000;
/// Attempts at a tight reading.
const ATTEMPTS: usize = 16;

/// The time stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: rdtsc is unprivileged on Linux unless a process forbids it to itself (PR_SET_TSC), which we do not.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// ns since boot.
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// The processor time of this thread in ns.
pub fn thread_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Reads both clocks several times, and yields the pair with the least time between the two.
pub fn read() -> Reading {
    let attempt = || {
        let before = tsc();
        let ns = monotonic_ns();
        let after = tsc();
        (
            after.wrapping_sub(before),
            Reading {
                tsc: before.wrapping_add(after.wrapping_sub(before) / 2),
                ns,
            },
        )
    };
    let mut best = attempt();
    for _ in 1..ATTEMPTS {
        let next = attempt();
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

/// The first of two readings: an earlier one if there is one, else a new one.
pub fn start() -> Reading {
    static KEPT: Mutex<Option<(Reading, u64)>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let now = monotonic_ns();
    // While the machine was suspended, the counter may have gone on. The monotonic clock has not.
    let suspended = nanoseconds(ClockId::Boottime).saturating_sub(now) / INTERVAL_NS_MIN;
    let is_good = |(reading, then): &(Reading, u64)| {
        now.saturating_sub(reading.ns) <= INTERVAL_NS_MAX && suspended.abs_diff(*then) <= 1
    };
    match kept.filter(is_good) {
        Some((reading, _)) => reading,
        None => kept.insert((read(), suspended)).0,
    }
}

impl Clock {
    /// Measures the rate since an earlier reading; waits until enough time has passed.
    pub fn since(start: Reading) -> Clock {
        let passed = monotonic_ns().saturating_sub(start.ns);
        if passed < INTERVAL_NS_MIN {
            std::thread::sleep(Duration::from_nanos(INTERVAL_NS_MIN - passed));
        }
        let end = read();
        let ticks = end.tsc.wrapping_sub(start.tsc).max(1);
        let ns = end.ns.saturating_sub(start.ns).max(1);
        let mult = u64::try_from((u128::from(ns) << 32) / u128::from(ticks)).unwrap_or(u64::MAX);
        let wall_ns = nanoseconds(ClockId::Realtime).saturating_sub(monotonic_ns());
        Clock {
            tsc: end.tsc,
            ns: end.ns,
            mult,
            wall_ns,
        }
    }

    /// ns since boot at a reading of the counter: what handlers compute.
    #[cfg(test)]
    pub fn ns_at(&self, tsc: u64) -> u64 {
        let ticks = tsc.wrapping_sub(self.tsc) as i64;
        let ns = (i128::from(ticks) * i128::from(self.mult)) >> 32;
        self.ns.wrapping_add(ns as u64)
    }

    /// How many ticks a duration takes.
    pub fn ticks(&self, duration: Duration) -> u64 {
        let ticks = (duration.as_nanos() << 32) / u128::from(self.mult.max(1));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// ns since the epoch.
pub fn wall_ns() -> u64 {
    nanoseconds(ClockId::Realtime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_s_time_is_the_system_s() {
        let start = read();
        let clock = Clock::since(start);
        let before = monotonic_ns();
        let ours = clock.ns_at(tsc());
        let after = monotonic_ns();
        // The result lies in the interval in which the clock was read, except for an error of the measured rate.
        let slack = 100_000;
        assert!(
            ours + slack >= before && ours <= after + slack,
            "{before} {ours} {after}"
        );
    }

    #[test]
    fn a_first_reading_is_used_again_for_a_while() {
        let first = start();
        assert_eq!((start().tsc, start().ns), (first.tsc, first.ns));
        std::thread::sleep(Duration::from_nanos(INTERVAL_NS_MAX + 1));
        let later = start();
        assert!(later.ns > first.ns + INTERVAL_NS_MAX && later.tsc > first.tsc);
        let clock = Clock::since(later);
        let before = monotonic_ns();
        let ours = clock.ns_at(tsc());
        let after = monotonic_ns();
        assert!(ours + 100_000 >= before && ours <= after + 100_000);
    }

    #[test]
    fn ticks_are_the_inverse_of_nanoseconds() {
        let clock = Clock {
            tsc: 1000,
            ns: 0,
            mult: 1 << 31,
            wall_ns: 0,
        };
        assert_eq!(clock.ns_at(1000 + 2_000_000), 1_000_000);
        assert_eq!(clock.ns_at(998), u64::MAX);
        assert_eq!(clock.ticks(Duration::from_millis(1)), 2_000_000);
    }
}
