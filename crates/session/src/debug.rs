//! The debug information of modules: each file's is opened once, when somebody first asks.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use nanoprobe_symbols::Module;
use nanoprobe_types::{DebugInfo, Problem};

type Opened = Result<Arc<DebugInfo>, Problem>;

/// What was opened, by the path of the module's file. Clones share it.
#[derive(Clone, Default)]
pub struct DebugFiles {
    known: Rc<RefCell<HashMap<PathBuf, Opened>>>,
}

impl DebugFiles {
    /// A module's.
    ///
    /// # Errors
    /// There is none, or none that can be read.
    pub fn of(&self, module: &Module) -> Opened {
        let path = module
            .path()
            .canonicalize()
            .unwrap_or_else(|_| module.path().to_owned());
        let mut known = self.known.borrow_mut();
        known.entry(path).or_insert_with(|| DebugInfo::of(module)).clone()
    }
}
