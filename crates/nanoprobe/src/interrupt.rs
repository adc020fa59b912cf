//! Ctrl-C, and the other ways of being asked to end: noted, and looked at between two steps.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: i32) {
    REQUESTED.store(true, Ordering::Relaxed);
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
    REQUESTED.load(Ordering::Relaxed)
}
