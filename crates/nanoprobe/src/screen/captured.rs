//! Keeps output that would go to the terminal, as long as a screen is shown there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The screen takes the kept output 30 times a second. More than this is not printed in that time, unless the tracer
/// does something else.
const BYTES_MAX: usize = 1 << 24;

static BYTES: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// From now on output is kept.
pub fn begin() {
    IS_SHOWN.store(true, Ordering::Release);
}

/// From now on, output goes to the terminal again. Yields the output that was kept.
pub fn end() -> Vec<u8> {
    IS_SHOWN.store(false, Ordering::Release);
    take()
}

/// Yields the output that was kept since the last call.
pub fn take() -> Vec<u8> {
    std::mem::take(&mut *held())
}

/// Whether a screen is shown.
pub fn is_shown() -> bool {
    IS_SHOWN.load(Ordering::Acquire)
}

/// Keeps output for the screen. False: no screen is shown, so nothing is kept.
pub fn keep(bytes: &[u8]) -> bool {
    if !is_shown() {
        return false;
    }
    let mut kept = held();
    kept.extend_from_slice(bytes);
    if kept.len() > BYTES_MAX {
        let surplus = kept.len() - BYTES_MAX;
        kept.drain(..surplus);
    }
    true
}

fn held() -> MutexGuard<'static, Vec<u8>> {
    BYTES.lock().unwrap_or_else(PoisonError::into_inner)
}
