//! The functions of a module and their call frame information, each read when the first question needs it. Most modules
//! of a process are never asked: a probe belongs to one of them.
//!
//! ```text
//!   CodeOf::File    own symbols, those of the separate debug file, .eh_frame  ->  frames, functions, index
//!   CodeOf::Part    the same of the whole file, restricted to mapped parts    ->  functions, index
//! ```

use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::address::AddressRange;
use crate::asked::Asked;
use crate::debug_file::DebugFile;
use crate::elf::Elf;
use crate::frames::Frames;
use crate::functions::{self, Functions};
use crate::go::Go;
use crate::resolve::Index;
use crate::{symbol_table, unnamed};

/// The functions and frames in a module's code. Copies of the module share it. Each method takes the module's own
/// [`Elf`].
#[derive(Debug)]
pub(crate) struct Found {
    of: CodeOf,
    frames: OnceLock<Frames>,
    named: OnceLock<Named>,
    /// What callers have worked out.
    pub asked: Asked,
}

/// The source from which functions are found.
#[derive(Debug)]
enum CodeOf {
    File {
        /// Taken, and closed, when the functions are found.
        debug: Mutex<Debug>,
        /// Whether the debug file is searched only when the functions are needed.
        searches: bool,
        /// Whether the functions that no symbol names are added: see [`crate::Module::name_the_unnamed`].
        with_unnamed: bool,
        /// The tables of Go, if Go's tool chain linked it.
        go: Option<Arc<Go>>,
    },
    Part {
        whole: Arc<Found>,
        elf: Box<Elf>,
    },
}

/// The separate debug file of a module.
#[derive(Debug)]
pub(crate) enum Debug {
    /// There is no debug file, or it is not needed.
    None,
    /// The debug file is open, so that it can be read after the process has ended.
    Open(Box<Elf>),
    /// The debug file is searched when it is needed, and not kept open.
    Search(Box<DebugFile>),
}

/// Functions, and the index from addresses to them.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub functions: Functions,
    pub index: Index,
    /// Whether a debug file that was searched has a full symbol table.
    pub is_full: bool,
}

impl Found {
    /// The functions and symbols in a file and its separate debug file.
    pub fn of_file(debug: Debug, with_unnamed: bool, go: Option<Arc<Go>>) -> Found {
        Found::new(CodeOf::File {
            searches: matches!(debug, Debug::Search(_)),
            debug: Mutex::new(debug),
            with_unnamed,
            go,
        })
    }

    /// The same for `elf`, restricted to the parts of its code that are executable in another [`Elf`].
    pub fn of_part(whole: Arc<Found>, elf: Elf) -> Found {
        let elf = Box::new(elf);
        Found::new(CodeOf::Part { whole, elf })
    }

    fn new(of: CodeOf) -> Found {
        Found {
            of,
            frames: OnceLock::new(),
            named: OnceLock::new(),
            asked: Asked::default(),
        }
    }

    /// A new value for the same file with another debug file, in which nothing was found yet.
    pub fn with_debug(&self, new: Debug) -> Found {
        match &self.of {
            CodeOf::File { with_unnamed, go, .. } => Found::of_file(new, *with_unnamed, go.clone()),
            CodeOf::Part { whole, elf } => Found::of_part(Arc::new(whole.with_debug(new)), (**elf).clone()),
        }
    }

    /// A new value for the same file that will include functions without a symbol, and in which nothing was found yet.
    pub fn with_unnamed(&self) -> Found {
        match &self.of {
            CodeOf::File { debug, go, .. } => Found::of_file(taken(debug), true, go.clone()),
            CodeOf::Part { whole, elf } => Found::of_part(Arc::new(whole.with_unnamed()), (**elf).clone()),
        }
    }

    /// Whether the debug file is searched when the functions are found.
    pub fn is_searched(&self) -> bool {
        match &self.of {
            CodeOf::File { searches, .. } => *searches,
            CodeOf::Part { whole, .. } => whole.is_searched(),
        }
    }

    /// Whether the functions were found already.
    pub fn is_named(&self) -> bool {
        self.named.get().is_some()
    }

    /// The call frame information.
    pub fn frames(&self, elf: &Elf) -> &Frames {
        match &self.of {
            CodeOf::File { .. } => self.frames.get_or_init(|| Frames::of(&without_bytes(elf))),
            CodeOf::Part { whole, elf } => whole.frames(elf),
        }
    }

    /// The functions, and their index.
    pub fn named(&self, elf: &Elf) -> &Named {
        self.named.get_or_init(|| {
            let (functions, is_full) = match &self.of {
                CodeOf::File {
                    debug,
                    with_unnamed,
                    go,
                    ..
                } => self.find(elf, &taken(debug), *with_unnamed, go.as_deref()),
                CodeOf::Part { whole, elf: of_whole } => {
                    let named = whole.named(of_whole);
                    (mapped(&named.functions, &elf.executable), named.is_full)
                }
            };
            let index = Index::of(elf, self.frames(elf), &functions);
            Named {
                functions,
                index,
                is_full,
            }
        })
    }

    /// The functions of a file, and whether a debug file that was searched has a full symbol table. Bytes that only
    /// this search needs are dropped after it.
    fn find(&self, elf: &Elf, debug: &Debug, with_unnamed: bool, go: Option<&Go>) -> (Functions, bool) {
        let (elf, frames) = (without_bytes(elf), self.frames(elf));
        let debug = match debug {
            Debug::None => None,
            Debug::Open(open) => Some(Cow::Borrowed(&**open)),
            Debug::Search(file) => file.open().map(Cow::Owned),
        };
        let is_full = debug.as_deref().is_some_and(symbol_table::has_full_table);
        let mut functions = functions::find(&elf, frames, debug.as_deref(), go);
        if with_unnamed && !is_full {
            unnamed::add(&elf, frames, &mut functions);
        }
        (functions, is_full)
    }
}

fn taken(debug: &Mutex<Debug>) -> Debug {
    let mut debug = debug.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut debug, Debug::None)
}

/// This file. If it is large, the bytes that a search reads are dropped with the returned value.
fn without_bytes(elf: &Elf) -> Cow<'_, Elf> {
    elf.with_image(elf.image().unread())
}

/// The functions whose code lies in mapped parts, with the fragments of the others left out.
fn mapped(all: &Functions, parts: &[AddressRange]) -> Functions {
    let is_mapped = |range: AddressRange| {
        let mut parts = parts.iter();
        parts.any(|part| part.start <= range.start && range.end <= part.end)
    };
    let mut functions = all.clone();
    functions.list.retain(|function| is_mapped(function.extent()));
    functions.orphans.retain(|fragment| is_mapped(fragment.range));
    functions
}
