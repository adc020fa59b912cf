//! Whether a thread is on a processor.
//!
//! A thread that is ready to run and has no processor is in the kernel, as one that sleeps is; but its state, `R`, does
//! not say so. To stop it is to wait until the scheduler gives it a turn: milliseconds on a busy machine, a tenth of a
//! second in a group that has used up its time (cpu.max). So it is found out by a clock that goes only while the thread
//! is on a processor, perf_event_open(2)'s `PERF_COUNT_SW_TASK_CLOCK`. Two readings that are the same were taken of a
//! thread that was on none between them. A reading interrupts the processor that the thread is on, so the clock is
//! exact to the nanosecond, and cannot stand still on one that runs.
//!
//! It costs some 15 us, and often the kernel refuses it (perf_event_paranoid, seccomp): then nothing is known. The
//! first event of a system makes the kernel wait for all its processors: 10 to 20 ms, in which only we stand. The
//! kernel stays ready for a second after the last event. So a clock of our own is held ([`Clocks::ready`]) before any
//! thread waits for us, and none is asked for before threads have turned out to be late.

use std::os::fd::OwnedFd;

use rustix::io::read;

use crate::{ThreadId, perf};

/// Clocks can be opened, and quickly, while this lives.
#[derive(Debug)]
pub(crate) struct Clocks {
    _own: OwnedFd,
}

impl Clocks {
    /// `None` where we may not have any.
    pub fn ready() -> Option<Clocks> {
        let _own = perf::task_clock(0).ok()?;
        Some(Clocks { _own })
    }

    /// True when the thread was seen to be on no processor, at some moment since this was called.
    pub fn stands_still(&self, tid: ThreadId) -> bool {
        // Opened anew each time: a number that was given to a new thread is that thread's.
        let Ok(clock) = perf::task_clock(tid) else { return false };
        match (reading(&clock), reading(&clock)) {
            (Some(first), Some(second)) => first == second,
            _ => false,
        }
    }
}

/// In nanoseconds since the clock was opened; `None` of one that does not work.
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
        // Our own: we are on a processor when we read it.
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
            // It may not be asleep yet.
            while !clocks.stands_still(tid) {
                std::thread::yield_now();
            }
            done.store(true, Ordering::SeqCst);
            thread.thread().unpark();
        });
        let ended = asleep.load(Ordering::SeqCst);
        // A waiting tracer goes on a little earlier.
        while std::path::Path::new(&format!("/proc/self/task/{ended}")).exists() {
            std::thread::yield_now();
        }
        assert!(
            !clocks.stands_still(ended),
            "nothing is known of a thread that is no more"
        );
    }
}
