//! The debug information of modules: each file's is opened once, when somebody first asks.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use nanoprobe_symbols::Module;
use nanoprobe_types::{DebugInfo, Problem};

type Opened = Result<Arc<DebugInfo>, Problem>;

/// What tells a file from another one that was put in its place.
#[derive(PartialEq, Eq, Hash)]
struct Status {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

thread_local! {
    /// What this thread has opened. What is compiled and the session that runs it ask the same, one after the other.
    static OPENED: RefCell<HashMap<(PathBuf, Option<Status>), Opened>> = RefCell::default();
}

/// A module's debug information.
///
/// # Errors
/// There is none, or none that can be read.
pub fn debug_info(module: &Module) -> Opened {
    let path = module
        .path()
        .canonicalize()
        .unwrap_or_else(|_| module.path().to_owned());
    // One that is gone has no status, and stays what it was.
    let status = std::fs::metadata(&path).ok().map(|status| Status {
        device: status.dev(),
        inode: status.ino(),
        bytes: status.size(),
        changed: (status.mtime(), status.mtime_nsec()),
    });
    let file = (path, status);
    OPENED.with_borrow_mut(|opened| opened.entry(file).or_insert_with(|| DebugInfo::of(module)).clone())
}
