//! Whether a thread that does not answer a request is slow or stuck.
//!
//! Elapsed time does not show the difference. With twenty threads to a processor, in a cgroup with a small share, or at
//! the idle policy, a thread may take seconds instead of microseconds. So the thread's own time counts. The tracer
//! waits for a thread that is ready but has no processor. A thread is stuck if it has executed or slept for long
//! without answering the request. Sleep is counted by looks, so that a tracer without a processor does not count its
//! own wait.

use std::time::{Duration, Instant};

use crate::proc_file;
use crate::{ProcessId, ThreadId, threads};

/// How long a thread may execute for one system call or one called function.
const RUNS_MAX: Duration = Duration::from_secs(2);
/// How long a thread may sleep before the system call or the function is done.
const SLEEPS_MAX: Duration = Duration::from_secs(10);
/// The limit of the whole wait.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// The longest time that is counted from one look to the next, however late the look comes.
const LOOK_MAX: Duration = Duration::from_millis(50);

/// The progress of a thread since a request.
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

/// A thread's state at a look.
#[derive(Clone, Copy, Debug)]
struct Look {
    state: char,
    /// How long the thread has executed in its whole life; `None` if the kernel does not show this.
    executed: Option<Duration>,
    since_last: Duration,
    since_begun: Duration,
}

impl Progress {
    /// Begins to count now.
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

    /// Returns whether to give up waiting. Looks at the thread only if the last look was a while ago.
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

    /// How long the thread has executed since the request.
    pub fn executed(&self) -> Duration {
        self.executed
    }

    /// How long the thread has slept since the request.
    pub fn slept(&self) -> Duration {
        self.slept
    }

    fn count(&mut self, look: Look) -> bool {
        let counted = look.since_last.min(LOOK_MAX);
        match (look.state, look.executed) {
            // 't': the thread is stopped, and the next event shows that.
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
    let text = proc_file::read_text(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    // The fields: ns executed, ns waited, and the number of slices.
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
