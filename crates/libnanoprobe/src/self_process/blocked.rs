//! Threads that block the signals of a breakpoint.
//!
//! The kernel kills a process whose thread blocks a signal that one of its own instructions raises. So no text is
//! changed while a thread blocks one: it may execute any instruction at any moment.

use std::ffi::CString;
use std::io::ErrorKind;

use nanoprobe_arena::layout::SYNCHRONOUS;

use super::raw;
use crate::error::Error;
use crate::tsan;

/// A thread that blocks such signals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocking {
    /// The thread's number.
    pub tid: i32,
    /// The thread's name, as the kernel shows it.
    pub name: String,
    /// The signals of [`SYNCHRONOUS`] that the thread blocks.
    pub signals: u64,
    /// Whether the thread sleeps. A thread that does not sleep may be a new thread that has not run yet.
    pub sleeps: bool,
}

/// All threads of this process that block one of the signals, except the calling one.
///
/// # Errors
/// /proc/self/task cannot be read.
pub fn blocking_threads() -> Result<Vec<Blocking>, Error> {
    let refused = |error| Error::System {
        call: "reading /proc/self/task",
        error,
    };
    let own = own_tid();
    let mut found = Vec::new();
    for tid in raw::numbers(c"/proc/self/task").map_err(refused)? {
        let text = match of_thread(tid, "status") {
            Ok(text) => text,
            // The thread has ended meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) => continue,
            Err(error) => return Err(refused(error)),
        };
        let blocking = blocking(&text).filter(|thread| thread.tid != own);
        found.extend(blocking.filter(|thread| !is_sanitizers(thread.tid)));
    }
    Ok(found)
}

/// The data in /proc about a thread, read without calling the C library, which may be probed.
fn of_thread(tid: i32, name: &str) -> Result<String, std::io::Error> {
    let path = CString::new(format!("/proc/self/task/{tid}/{name}")).map_err(std::io::Error::other)?;
    raw::read(&path).map(|text| String::from_utf8_lossy(&text).into_owned())
}

/// Whether a thread belongs to ThreadSanitizer's runtime, and sleeps in it. The runtime's own thread blocks all
/// signals for ever, and executes only the runtime.
fn is_sanitizers(tid: i32) -> bool {
    let sleeps_at = |text: &str| u64::from_str_radix(text.trim().rsplit(' ').next()?.strip_prefix("0x")?, 16).ok();
    tsan::is_there() && of_thread(tid, "syscall").is_ok_and(|text| sleeps_at(&text).is_some_and(tsan::is_in_runtime))
}

/// Which signals a thread blocks, from its status; `None`: none of them, or the thread is about to end.
fn blocking(status: &str) -> Option<Blocking> {
    let field = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)).map(str::trim)
    };
    let signals = u64::from_str_radix(field("SigBlk:")?, 16).ok()? & SYNCHRONOUS;
    let state = field("State:")?;
    // A zombie or a dead thread executes nothing.
    let is_over = state.starts_with(['Z', 'X']);
    (signals != 0 && !is_over).then(|| Blocking {
        tid: field("Pid:").and_then(|tid| tid.parse().ok()).unwrap_or(0),
        name: field("Name:").unwrap_or_default().to_owned(),
        signals,
        sleeps: state.starts_with('S'),
    })
}

fn own_tid() -> i32 {
    // SAFETY: the call takes no arguments.
    unsafe { raw::call(libc::SYS_gettid, [0; 4]) }.unwrap_or(0) as i32
}

/// Changes the calling thread's mask, by SIG_BLOCK or SIG_UNBLOCK, without passing the shims. Yields which of the
/// four signals were blocked before.
pub fn set_own_mask(how: i32, signals: u64) -> u64 {
    let mut before = 0_u64;
    let (new, old) = (&raw const signals as u64, &raw mut before as u64);
    // SAFETY: both masks have 8 bytes, as the call's last argument says.
    let _ = unsafe { raw::call(libc::SYS_rt_sigprocmask, [how as u64, new, old, 8]) };
    before & SYNCHRONOUS
}

impl Blocking {
    /// The signals' names.
    pub fn names(&self) -> String {
        let all = [
            (libc::SIGTRAP, "SIGTRAP"),
            (libc::SIGILL, "SIGILL"),
            (libc::SIGSEGV, "SIGSEGV"),
            (libc::SIGBUS, "SIGBUS"),
        ];
        let blocked = all.iter().filter(|(signal, _)| self.signals & 1 << (signal - 1) != 0);
        blocked.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    const STATUS: &str = "Name:\tworker 1\nState:\tS (sleeping)\nTgid:\t10\nPid:\t12\nSigBlk:\tfffffffe7ffbfeff\n";

    #[test]
    fn a_status_names_the_thread_and_its_signals() {
        let found = blocking(STATUS).unwrap();
        assert_eq!((found.tid, found.name.as_str()), (12, "worker 1"));
        assert_eq!(found.names(), "SIGTRAP, SIGILL, SIGSEGV, SIGBUS");
        assert!(found.sleeps && !blocking(&STATUS.replace("S (sleeping)", "R (running)")).unwrap().sleeps);
        assert_eq!(blocking(&STATUS.replace("fffffffe7ffbfeff", "0000000000000200")), None);
        assert_eq!(blocking(&STATUS.replace("S (sleeping)", "Z (zombie)")), None);
        assert_eq!(blocking(""), None);
    }
}
