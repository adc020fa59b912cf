//! The debug information of modules: that of each file is opened once, when it is first needed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use nanoprobe_symbols::{FileIdentity, Module};
use nanoprobe_types::{DebugInfo, Problem};

type Opened = Result<Arc<DebugInfo>, Problem>;

thread_local! {
    /// What this thread has opened. The compiler and then the session need the same files. A path alone is no key:
    /// in two processes it may mean two files.
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
