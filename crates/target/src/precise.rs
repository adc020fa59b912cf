//! Short waits that end on time.
//!
//! The kernel lets a wait last up to 50 us longer (the timer slack), so that several timers may end with one interrupt.
//! A thread of the target stands still meanwhile. The slack belongs to a thread, and its children inherit it: so it is
//! changed for the one wait only.

use std::num::NonZeroU64;
use std::time::Duration;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// The least slack that can be set, in nanoseconds.
const LEAST: Option<NonZeroU64> = NonZeroU64::new(1);

/// Waits by `wait`, whose time-out ends on time.
pub fn precisely<R>(wait: impl FnOnce() -> R) -> R {
    let before = current_timer_slack().ok().and_then(NonZeroU64::new);
    let is_set = before.is_some() && set_current_timer_slack(LEAST).is_ok();
    let result = wait();
    if is_set {
        // It was allowed a moment ago.
        let _ = set_current_timer_slack(before);
    }
    result
}

/// Sleeps for so long.
pub fn sleep(time: Duration) {
    precisely(|| std::thread::sleep(time));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slack_is_as_before_after_a_wait() {
        let slack = || current_timer_slack().ok();
        let before = slack();
        assert_eq!(precisely(slack), Some(1));
        sleep(Duration::from_nanos(1));
        assert_eq!(slack(), before);
        assert!(before > Some(1), "{before:?}");
    }
}
