//! The debug information of modules. Each file's information is opened once, when it is first needed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use nanoprobe_symbols::{FileIdentity, Module};
use nanoprobe_types::{DebugInfo, Problem};

type Opened = Result<Arc<DebugInfo>, Problem>;

thread_local! {
    /// The files that this thread has opened: the compiler and then the session need the same files. The path alone is
    /// no key, because in two processes it may mean two files.
    static OPENED: RefCell<HashMap<(PathBuf, Option<FileIdentity>), Opened>> = RefCell::default();
}

/// A module's debug information.
///
/// # Errors
/// The module has no debug information, or it cannot be read.
pub fn debug_info(module: &Module) -> Opened {
    let file = (module.path().to_owned(), module.identity());
    OPENED.with_borrow_mut(|opened| opened.entry(file).or_insert_with(|| DebugInfo::of(module)).clone())
}
