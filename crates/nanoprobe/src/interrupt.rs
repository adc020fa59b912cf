//! Ctrl-C, and the other ways of being asked to end: noted, and looked at between two steps, and within those that take long.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nanoprobe_session::interrupt;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Nothing of ours is in any process, and nothing is printed yet.
static AT_ONCE: AtomicBool = AtomicBool::new(false);
/// But this command is started, and stands; 0: none.
static COMMAND: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(_signal: i32) {
    interrupt::request();
    if AT_ONCE.load(Ordering::Relaxed) {
        let command = COMMAND.load(Ordering::Relaxed);
        // SAFETY: both calls may be made by a handler of signals. Nobody else has the number of a child that was not
        // collected.
        unsafe {
            if command > 0 {
                libc::kill(command, libc::SIGKILL);
            }
            libc::_exit(0);
        }
    }
}

/// Does what may take long (it reads debug information) while there is nothing to be taken back: who asks to end then ends
/// at once. `command`: what was started, and is killed.
pub fn at_once<T>(command: Option<i32>, work: impl FnOnce() -> T) -> T {
    COMMAND.store(command.unwrap_or(0), Ordering::Relaxed);
    AT_ONCE.store(true, Ordering::Relaxed);
    // One that came before this waited for nothing else.
    if requested() {
        note(0);
    }
    let result = work();
    AT_ONCE.store(false, Ordering::Relaxed);
    result
}

/// From now on SIGINT, SIGTERM and SIGHUP end tracing, not the tracer: its probes must be taken out first. SIGHUP stays
/// ignored where it was (nohup).
pub fn install() {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only stores to an atomic.
        let before = unsafe { sigaction(signal, &action) };
        if signal == Signal::SIGHUP
            && let Ok(before) = before
            && matches!(before.handler(), SigHandler::SigIgn)
        {
            // SAFETY: puts back what was there.
            let _ = unsafe { sigaction(signal, &before) };
        }
    }
    // A reader of our output that goes away must not kill us while probes are in place: writing fails instead.
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: ignoring a signal runs no code.
    let _ = unsafe { sigaction(Signal::SIGPIPE, &ignore) };
}

/// Whether somebody asked to end.
pub fn requested() -> bool {
    interrupt::requested()
}
