//! Ctrl-C, and the other ways of being asked to end: noted, and looked at between two steps, and
//! within those that take long.

use nanoprobe_session::interrupt::{self, End};
use nanoprobe_session::progress::{Work, doing};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

extern "C" fn note(_signal: i32) {
    interrupt::request();
    let End::AtOnce(command) = interrupt::end() else {
        return;
    };
    crate::progress::erase_at_end();
    // SAFETY: both calls may be made by a handler of signals. Nobody else has the number of a child
    // that was not collected.
    unsafe {
        if let Some(command) = command {
            libc::kill(command, libc::SIGKILL);
        }
        libc::_exit(0);
    }
}

/// Does what may take long (it reads debug information) while there is nothing to be taken back: who asks to end then
/// ends at once. `command`: what was started, and is killed.
pub fn at_once<T>(command: Option<i32>, work: impl FnOnce() -> T) -> T {
    let _reading = doing(Work::Reading, 0);
    interrupt::harmless(command, || {
        // One that came before this waited for nothing else.
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

/// From now on SIGINT, SIGTERM, SIGHUP and SIGXCPU (ulimit -t) end tracing, not the tracer: its probes must be taken
/// out first. SIGHUP stays ignored where it was (nohup).
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
