//! Whether somebody asked to end: looked at between two measurements, so that everything that was started ends as
//! usual.

use std::sync::OnceLock;

use anyhow::{Result, ensure};

static ASKED: OnceLock<fn() -> bool> = OnceLock::new();

/// Who is to be asked, for this run and all others.
pub fn set(asked: fn() -> bool) {
    let _ = ASKED.set(asked);
}

/// Whether somebody asked.
pub fn asked() -> bool {
    ASKED.get().is_some_and(|asked| asked())
}

/// The same as an error.
pub fn check() -> Result<()> {
    ensure!(!asked(), "interrupted");
    Ok(())
}
