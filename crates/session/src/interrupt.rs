//! The user wants all sessions of this process to end: Ctrl-C.
//!
//! Reading, matching and planning of hundreds of thousands of places take many seconds. Each of these checks for a
//! request now and then, and stops early: its results are thrown away, and no more probes are placed. Everything that
//! is in the target by then is removed as at any other end.

//! Other work cannot be stopped early, such as reading the symbols or the debug information of one large file.
//! While it runs before anything of ours is in the process, the handler of Ctrl-C may end this process at once
//! ([`harmless`]).

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);
/// Whether this process may end at once, because nothing of ours is in any other process.
static HARMLESS: AtomicBool = AtomicBool::new(false);
/// In how many processes something of ours is.
static PRESENT: AtomicUsize = AtomicUsize::new(0);
/// The number of a command that was started and waits before its first instruction; 0: none.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// The duty of a handler of signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The handler need not do anything: all long work checks [`requested`].
    Later,
    /// The handler may end this process, and must kill the command that was started.
    AtOnce(Option<i32>),
}

/// From now on sessions end as soon as they can. A signal's handler may call this.
pub fn request() {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// As long as this value exists, something of ours is in a process: the tracer must not end at once.
pub(crate) struct Present;

impl Present {
    pub fn new() -> Present {
        PRESENT.fetch_add(1, Ordering::Relaxed);
        Present
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        PRESENT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Does work that may take long, and that leaves nothing to take back. `command`: the process that was started and
/// waits.
pub fn harmless<T>(command: Option<i32>, work: impl FnOnce() -> T) -> T {
    COMMAND.store(command.unwrap_or(0), Ordering::Relaxed);
    HARMLESS.store(PRESENT.load(Ordering::Relaxed) == 0, Ordering::Relaxed);
    let result = work();
    HARMLESS.store(false, Ordering::Relaxed);
    result
}

/// The present duty of a signal's handler: in particular, whether it may end this process.
pub fn end() -> End {
    if !HARMLESS.load(Ordering::Relaxed) {
        return End::Later;
    }
    End::AtOnce(Some(COMMAND.load(Ordering::Relaxed)).filter(|command| *command > 0))
}

/// Whether an end was requested.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ended_at_once_only_while_nothing_is_to_be_taken_back() {
        assert_eq!(end(), End::Later);
        assert_eq!(harmless(None, end), End::AtOnce(None));
        assert_eq!(harmless(Some(7), end), End::AtOnce(Some(7)));
        assert_eq!(
            harmless(None, end),
            End::AtOnce(None),
            "the command of before is not killed"
        );
        let present = Present::new();
        assert_eq!(harmless(None, end), End::Later, "another process has probes");
        drop(present);
        assert_eq!(harmless(None, end), End::AtOnce(None));
        assert_eq!(end(), End::Later);
    }
}
