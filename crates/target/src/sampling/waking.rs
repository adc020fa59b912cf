//! Who wakes a process's threads, who runs after them, and who sends them signals that are discarded, by the kernel's
//! tracepoints `sched_waking`, `sched_switch` and `signal_generate`.
//!
//! `sched_waking` fires in the waker: in the thread that makes another one runnable, or in an interrupt. So the events
//! of the process's threads show what they wake, and those of the processors what others and interrupts wake.

use super::firings::{Firings, TracepointError, Wanted};
use super::tracepoint::Tracepoint;
use super::{Sample, Stacks};
use crate::{Process, ThreadId};

/// `TRACE_FLAG_HARDIRQ` and `TRACE_FLAG_SOFTIRQ` of a record.
const IN_INTERRUPT: u64 = 0x08 | 0x10;
/// `TRACE_SIGNAL_IGNORED`: the result of a signal that its process ignores.
const IGNORED: u64 = 1;

/// A thread was woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waking {
    /// The thread that was woken. It may belong to any process.
    pub woken: ThreadId,
    /// The waker; in an interrupt the thread that was interrupted.
    pub waker: Sample,
    /// An interrupt has woken the thread.
    pub in_interrupt: bool,
}

/// A signal was discarded, because its process ignores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discard {
    /// The signal.
    pub signal: u64,
    /// The thread for which it was, or the first thread of the process. It may belong to any process.
    pub recipient: ThreadId,
    /// The sender; in an interrupt the thread that was interrupted.
    pub sender: Sample,
    /// An interrupt has sent it: a timer, a terminal.
    pub in_interrupt: bool,
}

/// A thread of the process leaves its processor, and another one comes: right before the [`crate::Switch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Succession {
    pub thread: ThreadId,
    /// The time, by CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The thread that runs next; 0: none.
    pub next: ThreadId,
}

/// Who wakes threads. Dropping it ends the watch.
#[derive(Debug)]
pub struct WakeWatch(Firings);

/// Which signals are discarded. Dropping it ends the watch.
#[derive(Debug)]
pub struct DiscardWatch(Firings);

/// Who runs after the process's threads. Dropping it ends the watch.
#[derive(Debug)]
pub struct SuccessionWatch(Firings);

impl Process {
    /// Begins to watch who wakes the threads, with the stacks of wakers of this process. The kernel's are those of all
    /// wakers.
    ///
    /// # Errors
    /// [`TracepointError`].
    pub fn wakings(&self, stacks: Stacks) -> Result<WakeWatch, TracepointError> {
        let wanted = Wanted {
            stacks,
            everybody: true,
        };
        Firings::of(self, ("sched", "sched_waking"), wanted).map(WakeWatch)
    }

    /// Begins to watch which signals are discarded, with the stacks of senders of this process.
    ///
    /// # Errors
    /// [`TracepointError`].
    pub fn discards(&self, stacks: Stacks) -> Result<DiscardWatch, TracepointError> {
        let wanted = Wanted {
            stacks,
            everybody: true,
        };
        Firings::of(self, ("signal", "signal_generate"), wanted).map(DiscardWatch)
    }

    /// Begins to watch who runs after the threads.
    ///
    /// # Errors
    /// [`TracepointError`].
    pub fn successions(&self) -> Result<SuccessionWatch, TracepointError> {
        let wanted = Wanted {
            stacks: Stacks::default(),
            everybody: false,
        };
        Firings::of(self, ("sched", "sched_switch"), wanted).map(SuccessionWatch)
    }
}

impl WakeWatch {
    /// Whether wakings by some threads may be missing, because new ones kept appearing while the watch began.
    pub fn may_miss_threads(&self) -> bool {
        self.0.may_miss_threads()
    }

    /// The wakings since the last call, by anybody, of any thread, and how many records were lost for lack of room.
    pub fn take(&mut self) -> (Vec<Waking>, u64) {
        self.0.take(&waking)
    }
}

impl DiscardWatch {
    /// Whether what some threads send may be missing, because new ones kept appearing while the watch began.
    pub fn may_miss_threads(&self) -> bool {
        self.0.may_miss_threads()
    }

    /// The discarded signals since the last call, by anybody, for any thread, and how many records were lost for lack
    /// of room.
    pub fn take(&mut self) -> (Vec<Discard>, u64) {
        self.0.take(&discard)
    }
}

impl SuccessionWatch {
    /// The successions since the last call, and how many records were lost for lack of room.
    pub fn take(&mut self) -> (Vec<Succession>, u64) {
        self.0.take(&succession)
    }
}

fn waking(tracepoint: &Tracepoint, waker: Sample, raw: &[u8]) -> Option<Waking> {
    Some(Waking {
        woken: tracepoint.integer(raw, "pid")? as ThreadId,
        in_interrupt: tracepoint.integer(raw, "common_flags")? & IN_INTERRUPT != 0,
        waker,
    })
}

fn discard(tracepoint: &Tracepoint, sender: Sample, raw: &[u8]) -> Option<Discard> {
    if tracepoint.integer(raw, "result")? != IGNORED {
        return None;
    }
    Some(Discard {
        signal: tracepoint.integer(raw, "sig")?,
        recipient: tracepoint.integer(raw, "pid")? as ThreadId,
        in_interrupt: tracepoint.integer(raw, "common_flags")? & IN_INTERRUPT != 0,
        sender,
    })
}

fn succession(tracepoint: &Tracepoint, sample: Sample, raw: &[u8]) -> Option<Succession> {
    Some(Succession {
        thread: sample.thread,
        time_ns: sample.time_ns,
        next: tracepoint.integer(raw, "next_pid")? as ThreadId,
    })
}
