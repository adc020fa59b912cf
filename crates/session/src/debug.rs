//! The debug information of modules. Each file's information is opened once, when it is first needed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use nanoprobe_lang::glob;
use nanoprobe_lang::options::Demangle;
use nanoprobe_symbols::{FileIdentity, Module};
use nanoprobe_types::{DebugInfo, Inlined, Problem};

use crate::probes::answers_to;

type Opened = Result<Arc<DebugInfo>, Problem>;
type File = (PathBuf, Option<FileIdentity>);

/// From this number of files on, those are closed of which nothing is in use.
const FILES_MAX: usize = 256;
/// So many answers about inlined copies, and copies in them, are kept.
const ANSWERS_MAX: usize = 1024;
const COPIES_MAX: usize = 1 << 16;

thread_local! {
    /// The files that this thread has opened: the compiler and then the session need the same files, and so do the
    /// programs that a process executes. The path alone is no key, because in two processes it may mean two files.
    static OPENED: RefCell<HashMap<File, Opened>> = RefCell::default();
    static COPIES: RefCell<KeptCopies> = RefCell::default();
}

/// The inlined copies that were searched: by the file, the function, and how names are demangled.
#[derive(Default)]
struct KeptCopies {
    answers: HashMap<(File, String, Demangle), Rc<Vec<Inlined>>>,
    copies: usize,
}

/// A module's debug information.
///
/// # Errors
/// The module has no debug information, or it cannot be read.
pub fn debug_info(module: &Module) -> Opened {
    OPENED.with_borrow_mut(|opened| {
        if opened.len() >= FILES_MAX {
            opened.retain(|_, opened| opened.as_ref().is_ok_and(is_in_use));
        }
        opened
            .entry(file_of(module))
            .or_insert_with(|| DebugInfo::of(module))
            .clone()
    })
}

/// Whether somebody else has this object, or a type that reads through it. It has one handle to itself.
fn is_in_use(info: &Arc<DebugInfo>) -> bool {
    Arc::strong_count(info) > 1 || Arc::weak_count(info) > 1
}

/// The inlined copies of a function in a module. Without debug information, or with damaged one, no copies are known.
/// The search reads much of the debug information, so its answer is kept.
pub fn inlined_copies(module: &Module, function: &str, demangle: Demangle) -> Rc<Vec<Inlined>> {
    let key = (file_of(module), function.to_owned(), demangle);
    if let Some(known) = COPIES.with_borrow(|kept| kept.answers.get(&key).cloned()) {
        return known;
    }
    let answers = |name: &str| answers_to(name, function, demangle).map(|name| name.into_owned());
    let wanted = glob::literal(function).unwrap_or_default();
    let found = debug_info(module).and_then(|info| info.inlined(&wanted, answers));
    let found = Rc::new(found.unwrap_or_default());
    COPIES.with_borrow_mut(|kept| {
        let more: usize = found.iter().map(|function| function.copies.len()).sum();
        if kept.answers.len() >= ANSWERS_MAX || kept.copies + more > COPIES_MAX {
            *kept = KeptCopies::default();
        }
        // An image from memory has no identity.
        if more <= COPIES_MAX && key.0.1.is_some() {
            kept.copies += more;
            kept.answers.insert(key, found.clone());
        }
    });
    found
}

fn file_of(module: &Module) -> File {
    (module.path().to_owned(), module.identity())
}
