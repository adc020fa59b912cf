//! The debug information of modules: each file's is opened once, when somebody first asks.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use nanoprobe_symbols::{FileIdentity, Module};
use nanoprobe_types::{DebugInfo, Problem};

type Opened = Result<Arc<DebugInfo>, Problem>;

thread_local! {
    /// What this thread has opened. What is compiled and the session that runs it ask the same,
    /// one after the other. The path alone would not do: two processes may mean two files by it.
    static OPENED: RefCell<HashMap<(PathBuf, Option<FileIdentity>), Opened>> = RefCell::default();
}

/// A module's debug information.
///
/// # Errors
/// There is none, or none that can be read.
pub fn debug_info(module: &Module) -> Opened {
    let file = (module.path().to_owned(), module.identity());
    OPENED.with_borrow_mut(|opened| opened.entry(file).or_insert_with(|| DebugInfo::of(module)).clone())
}
