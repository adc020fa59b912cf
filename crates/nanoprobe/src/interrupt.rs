//! Ctrl-C and the other requests to end. The signal handler notes a request; the tracer checks for it between two
//! steps, and within long steps.

use std::sync::atomic::{AtomicBool, Ordering};

use nanoprobe_session::interrupt::{self, End};
use nanoprobe_session::progress::{Work, doing};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::progress;

/// What is said of an end that was requested before anything was done to a process.
pub const UNCHANGED: &str = "interrupted before anything was changed: no probe was placed";

extern "C" fn note(_signal: i32) {
    interrupt::request();
    let End::AtOnce(command) = interrupt::end() else {
        return;
    };
    if let Some(command) = command {
        // SAFETY: a signal handler may make this call. The number still belongs to our child, because nothing has
        // waited for it.
        unsafe { libc::kill(command, libc::SIGKILL) };
    }
    progress::erase_at_end();
    for part in ["nanoprobe: ", UNCHANGED, "\n"] {
        progress::say_at_end(part.as_bytes());
    }
    // SAFETY: a signal handler may make this call.
    unsafe { libc::_exit(0) };
}

/// Runs a slow function (it reads debug information) at a time when nothing has to be undone. A request to end then
/// ends the process at once. `command` is the process of the started command, which is killed first.
pub fn at_once<T>(command: Option<i32>, work: impl FnOnce() -> T) -> T {
    let _reading = doing(Work::Reading, 0);
    interrupt::harmless(command, || {
        // If an end was requested earlier and has had no effect yet, it takes effect now.
        if requested() {
            note(0);
        }
        work()
    })
}

extern "C" fn ignore(_signal: i32) {}

/// Makes a file that grows beyond the limit (ulimit -f) an error of the call that writes it; by default the signal
/// kills. The action is a handler and not "ignore": the next execve resets a handler, so commands that we start are
/// killed as usual.
pub fn survive_file_limit() {
    let action = SigAction::new(SigHandler::Handler(ignore), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, &action) };
}

/// Makes SIGINT, SIGTERM, SIGHUP and SIGXCPU (ulimit -t) end the tracing and not the process: the probes must be taken
/// out first. A SIGHUP that was ignored before (nohup) stays ignored.
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
    // If the reader of our output ends while probes are in place, SIGPIPE must not kill us: the write fails instead.
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: ignoring a signal runs no code.
    let _ = unsafe { sigaction(Signal::SIGPIPE, &ignore) };
}

/// Whether the output is to be opened anew.
static REOPEN: AtomicBool = AtomicBool::new(false);

extern "C" fn note_reopening(_signal: i32) {
    REOPEN.store(true, Ordering::Relaxed);
}

/// Makes SIGHUP a request to open the output anew, also if it was ignored before: a service is told so by logrotate.
pub fn reopen_on_hangup() {
    let action = SigAction::new(
        SigHandler::Handler(note_reopening),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    // SAFETY: the handler only stores to an atomic.
    let _ = unsafe { sigaction(Signal::SIGHUP, &action) };
}

/// Whether the output is to be opened anew; true once for each request.
pub fn take_reopening() -> bool {
    REOPEN.swap(false, Ordering::Relaxed)
}

/// Whether an end was requested.
pub fn requested() -> bool {
    interrupt::requested()
}
