//! The request to end (Ctrl-C). The request is noted, and checked between two measurements, so that everything that was
//! started ends as usual.

use anyhow::{Result, ensure};
use nanoprobe_session::interrupt;

extern "C" fn note(_signal: libc::c_int) {
    interrupt::request();
}

/// From now on SIGINT and SIGTERM end the comparison at its next step.
pub fn install() {
    let handler: extern "C" fn(libc::c_int) = note;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the structure is plain data; the handler only stores to an atomic.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Whether the user asked to end.
pub fn asked() -> bool {
    interrupt::requested()
}

/// Yields an error if the user asked to end.
pub fn check() -> Result<()> {
    ensure!(!asked(), "interrupted");
    Ok(())
}
