//! Ctrl-C and the other requests to end. A request is noted; the tracer looks for it between two
//! steps, and within long steps.

use nanoprobe_session::interrupt::{self, End};
use nanoprobe_session::progress::{Work, doing};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

extern "C" fn note(_signal: i32) {
    interrupt::request();
    let End::AtOnce(command) = interrupt::end() else {
        return;
    };
    crate::progress::erase_at_end();
    // SAFETY: a signal handler may make both calls. No other process has the number of a child that
    // was not waited for.
    unsafe {
        if let Some(command) = command {
            libc::kill(command, libc::SIGKILL);
        }
        libc::_exit(0);
    }
}

/// Runs a function that may take long (it reads debug information) while nothing has to be undone:
/// a request to end then ends the process at once. `command`: the started command, which is killed.
pub fn at_once<T>(command: Option<i32>, work: impl FnOnce() -> T) -> T {
    let _reading = doing(Work::Reading, 0);
    interrupt::harmless(command, || {
        // An earlier request waited only for this.
        if requested() {
            note(0);
        }
        work()
    })
}

extern "C" fn ignore(_signal: i32) {}

/// From now on a file that grows beyond the limit (ulimit -f) is an error of the call that writes it, and does not
/// kill. It is a handler, not the signal ignored: a handler goes with the next execve, so commands that we start are
/// killed as usual.
pub fn survive_file_limit() {
    let action = SigAction::new(SigHandler::Handler(ignore), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, &action) };
}

/// From now on SIGINT, SIGTERM, SIGHUP and SIGXCPU (ulimit -t) end the tracing and not the process:
/// its probes must be taken out first. SIGHUP stays ignored if it was (nohup).
pub fn install() {
    crate::memory::reserve();
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGXCPU] {
        // SAFETY: the handler only stores to an atomic.
        let before = unsafe { sigaction(signal, &action) };
        if signal == Signal::SIGHUP
            && let Ok(before) = before
            && matches!(before.handler(), SigHandler::SigIgn)
        {
            // SAFETY: restores the earlier action.
            let _ = unsafe { sigaction(signal, &before) };
        }
    }
    // A reader of our output that goes away must not kill us while probes are in place: the
    // write fails instead.
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: ignoring a signal runs no code.
    let _ = unsafe { sigaction(Signal::SIGPIPE, &ignore) };
}

/// Whether an end was requested.
pub fn requested() -> bool {
    interrupt::requested()
}
