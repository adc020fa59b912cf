//! Somebody wants all sessions of this process to end: Ctrl-C.
//!
//! Reading, matching and planning of hundreds of thousands of places take many seconds. All of that looks here now and then,
//! and is cut short: what would have come of it is thrown away, and no probe is placed any more. What is in the target by
//! then is taken back as at any other end.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// From now on sessions end as soon as they can. A signal's handler may call this.
pub fn request() {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Whether somebody asked for that.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
