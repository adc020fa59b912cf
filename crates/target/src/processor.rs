//! Whether a thread is on a processor.
//!
//! A thread that is ready to run, but has no processor, is in the kernel like a sleeping thread; its state, `R`, does
//! not show the difference. Stopping such a thread means waiting until the scheduler gives it a turn: milliseconds on a
//! busy machine, a tenth of a second in a group that has used up its time (cpu.max). A clock shows the difference:
//! perf_event_open(2)'s `PERF_COUNT_SW_TASK_CLOCK` runs only while the thread is on a processor. If two readings are
//! equal, the thread was on no processor between them. A reading interrupts the thread's processor, so the clock is
//! exact to the nanosecond, and never seems to stand still for a running thread.
//!
//! A clock costs some 15 us, and often the kernel refuses it (perf_event_paranoid, seccomp): then nothing is known.
//! When the first event of a system is opened, the kernel waits for all processors: 10 to 20 ms, during which only
//! the tracer waits. The kernel stays ready for a second after the last event. So the tracer opens a clock for itself
//! ([`Clocks::ready`]) before any thread waits for the tracer, and only after threads have been late once.

use std::os::fd::OwnedFd;

use rustix::io::read;

use crate::{ThreadId, perf};

/// While this lives, further clocks can be opened quickly.
#[derive(Debug)]
pub(crate) struct Clocks {
    _own: OwnedFd,
}

impl Clocks {
    /// `None` if the kernel permits no clock.
    pub fn ready() -> Option<Clocks> {
        let _own = perf::task_clock(0).ok()?;
        Some(Clocks { _own })
    }

    /// True if the thread was seen on no processor at some moment since the call began.
    pub fn stands_still(&self, tid: ThreadId) -> bool {
        // The clock is opened anew each time, because the thread's number may belong to a new thread by now.
        let Ok(clock) = perf::task_clock(tid) else { return false };
        match (reading(&clock), reading(&clock)) {
            (Some(first), Some(second)) => first == second,
            _ => false,
        }
    }
}

/// Nanoseconds since the clock was opened; `None` for a clock that does not work.
fn reading(clock: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; 8];
    let length = read(clock, &mut bytes).ok()?;
    (length == bytes.len()).then(|| u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

    use super::*;

    #[test]
    fn a_clock_goes_while_its_thread_runs_and_only_then() {
        let Some(clocks) = Clocks::ready() else {
            eprintln!("skipped: perf_event_open is not allowed here");
            return;
        };
        // Our own thread: it is on a processor when it reads its clock.
        assert!(!clocks.stands_still(0));
        let (asleep, done) = (AtomicI32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                asleep.store(nix::unistd::gettid().as_raw(), Ordering::SeqCst);
                while !done.load(Ordering::SeqCst) {
                    std::thread::park();
                }
            });
            let tid = loop {
                match asleep.load(Ordering::SeqCst) {
                    0 => std::thread::yield_now(),
                    tid => break tid,
                }
            };
            // The thread may not be asleep yet.
            while !clocks.stands_still(tid) {
                std::thread::yield_now();
            }
            done.store(true, Ordering::SeqCst);
            thread.thread().unpark();
        });
        let ended = asleep.load(Ordering::SeqCst);
        // join() returns a moment before the thread is gone.
        while std::path::Path::new(&format!("/proc/self/task/{ended}")).exists() {
            std::thread::yield_now();
        }
        assert!(
            !clocks.stands_still(ended),
            "nothing is known of a thread that is no more"
        );
    }
}
