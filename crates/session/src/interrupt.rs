//! Somebody wants all sessions of this process to end: Ctrl-C.
//!
//! Reading, matching and planning of hundreds of thousands of places take many seconds. All of
//! that looks here now and then, and is cut short: what would have come of it is thrown away, and
//! no probe is placed any more. What is in the target by then is taken back as at any other end.

//! Other work cannot be cut short: to read the symbols, or the debug information,
//! of one large file. While that is done before there is anything of ours in the
//! process, whoever asks for the end may end this process at once ([`harmless`]).

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);
/// Nothing of ours is in any process.
static HARMLESS: AtomicBool = AtomicBool::new(false);
/// But this command is started, and stands; 0: none.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// What a handler of signals is to do, which may ask this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing: all that takes long looks at [`requested`].
    Later,
    /// It may end this process, and is to kill the command that was started.
    AtOnce(Option<i32>),
}

/// From now on sessions end as soon as they can. A signal's handler may call this.
pub fn request() {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Does what may take long, and leaves nothing that would have
/// to be taken back. `command`: what was started, and stands.
pub fn harmless<T>(command: Option<i32>, work: impl FnOnce() -> T) -> T {
    COMMAND.store(command.unwrap_or(0), Ordering::Relaxed);
    HARMLESS.store(true, Ordering::Relaxed);
    let result = work();
    HARMLESS.store(false, Ordering::Relaxed);
    result
}

/// Whether this process may be ended as it stands.
pub fn end() -> End {
    if !HARMLESS.load(Ordering::Relaxed) {
        return End::Later;
    }
    End::AtOnce(Some(COMMAND.load(Ordering::Relaxed)).filter(|command| *command > 0))
}

/// Whether somebody asked for that.
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
        assert_eq!(end(), End::Later);
    }
}
