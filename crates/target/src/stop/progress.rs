//! Whether a thread that does not come is slow or stuck.
//!
//! The clock on the wall does not show it: with twenty threads to a processor, in a cgroup with little of one, or
//! at the idle policy, a thread takes seconds for what takes it microseconds elsewhere. So its own time counts. A
//! thread that waits for a processor is waited for. One that used a processor for long, or slept for long, and has
//! not done what was asked, is stuck. Sleep is counted by looks, so that a tracer without a processor does not
//! count its own wait.

use std::fs;
use std::time::{Duration, Instant};

use crate::{ProcessId, ThreadId, threads};

/// How long a thread may execute, for one system call or one called function.
const RUNS_MAX: Duration = Duration::from_secs(2);
/// How long it may sleep meanwhile.
const SLEEPS_MAX: Duration = Duration::from_secs(10);
/// How long it is waited for at most, whatever it does.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// What one look counts at most.
const LOOK_MAX: Duration = Duration::from_millis(50);

/// What a thread has done since it was asked for something.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pid: ProcessId,
    tid: ThreadId,
    begun: Instant,
    looked: Instant,
    executed_before: Option<Duration>,
    executed: Duration,
    slept: Duration,
}

/// What is known of a thread at a look.
#[derive(Clone, Copy, Debug)]
struct Look {
    state: char,
    /// For how long it has executed in its life; `None`: the kernel does not say.
    executed: Option<Duration>,
    since_last: Duration,
    since_begun: Duration,
}

impl Progress {
    /// From now on.
    pub fn of(pid: ProcessId, tid: ThreadId) -> Progress {
        let now = Instant::now();
        Progress {
            pid,
            tid,
            begun: now,
            looked: now,
            executed_before: None,
            executed: Duration::ZERO,
            slept: Duration::ZERO,
        }
    }

    /// Looks, not too often, and says whether to wait no longer.
    pub fn is_stuck(&mut self) -> bool {
        let now = Instant::now();
        let since_last = now.duration_since(self.looked);
        if since_last < LOOK {
            return false;
        }
        self.looked = now;
        self.count(Look {
            state: threads::state(self.pid, self.tid).unwrap_or('?'),
            executed: executed(self.pid, self.tid),
            since_last,
            since_begun: now.duration_since(self.begun),
        })
    }

    /// For how long it has executed.
    pub fn executed(&self) -> Duration {
        self.executed
    }

    /// For how long it has slept.
    pub fn slept(&self) -> Duration {
        self.slept
    }

    fn count(&mut self, look: Look) -> bool {
        let counted = look.since_last.min(LOOK_MAX);
        match (look.state, look.executed) {
            // 't': it stands, and is to be asked for it.
            ('t', _) => {}
            (_, Some(executed)) if look.state == 'R' => {
                let before = *self.executed_before.get_or_insert(executed);
                self.executed = executed.saturating_sub(before);
            }
            ('R', _) => self.executed += counted,
            _ => self.slept += counted,
        }
        self.executed > RUNS_MAX || self.slept > SLEEPS_MAX || look.since_begun > WAIT_MAX
    }
}

fn executed(pid: ProcessId, tid: ThreadId) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    // Executed, waited (both in ns), times.
    let nanoseconds: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    (nanoseconds != 0).then(|| Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds_of(state: char, executed: impl Fn(u64) -> Option<Duration>, look: Duration) -> Option<u64> {
        let mut progress = Progress::of(1, 1);
        let mut since_begun = Duration::ZERO;
        for index in 0..1_000_000 {
            since_begun += look;
            let stuck = progress.count(Look {
                state,
                executed: executed(index),
                since_last: look,
                since_begun,
            });
            if stuck {
                return Some(since_begun.as_secs());
            }
        }
        None
    }

    #[test]
    fn a_thread_without_a_processor_is_waited_for() {
        let none = |_| Some(Duration::from_secs(7));
        assert_eq!(seconds_of('R', none, LOOK), Some(WAIT_MAX.as_secs()));
        let little = |index| Some(Duration::from_micros(index * 10));
        assert_eq!(seconds_of('R', little, LOOK), Some(WAIT_MAX.as_secs()));
    }

    #[test]
    fn a_thread_that_executes_or_sleeps_for_long_is_stuck() {
        let all = |index: u64| Some(LOOK * u32::try_from(index).unwrap());
        assert_eq!(seconds_of('R', all, LOOK), Some(2));
        assert_eq!(seconds_of('R', |_| None, LOOK), Some(2));
        assert_eq!(seconds_of('D', all, LOOK), Some(10));
        assert_eq!(seconds_of('S', all, LOOK), Some(10));
    }

    #[test]
    fn a_tracer_that_gets_no_processor_does_not_count_its_own_wait() {
        assert_eq!(seconds_of('S', |_| None, Duration::from_millis(500)), Some(100));
    }
}
