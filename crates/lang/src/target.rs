//! Questions that the front end asks about the traced program: its types, parameters and variables.
//!
//! The front end knows no process. When a text names something that D itself does not have, the
//! front end asks [`Target`]:
//!
//! ```text
//! struct request *, (PyObject *)arg0, enum color    -> tagged, named
//! args[0] in a clause on pid$target:a.out:serve:*   -> arguments
//! a.out`counter                                     -> variable
//! RED                                               -> enumerator
//! ```
//!
//! It asks only then: for a text without such names, no file is opened. Manual: "Structs and Unions",
//! "pid Provider".

use crate::program::{Goroutines, ProbeDescription, Type};

/// The traced program, as far as its types are known.
pub trait Target {
    /// The type `struct tag`, `union tag` or `enum tag`. The tag may have a module before it: `` a.out`request ``.
    ///
    /// # Errors
    /// The reason why the type is not known.
    fn tagged(&self, keyword: &str, tag: &str) -> Result<Type, Unknown>;

    /// A typedef or a base type by its name, which may begin with a module.
    ///
    /// # Errors
    /// The reason why the type is not known.
    fn named(&self, name: &str) -> Result<Type, Unknown>;

    /// An enumerator's value.
    fn enumerator(&self, name: &str) -> Option<i64>;

    /// `args[]` of a clause with these probes. The types must be the same at all of them.
    ///
    /// # Errors
    /// The reason why the arguments are not known.
    fn arguments(&self, probes: &[ProbeDescription]) -> Result<Vec<Argument>, Unknown>;

    /// A variable, by its name with a backquote in it.
    ///
    /// # Errors
    /// The reason why the variable is not known.
    fn variable(&self, name: &str) -> Result<Variable, Unknown>;

    /// Where the program of these probes keeps its goroutines; `None`: it is not a Go program.
    ///
    /// # Errors
    /// The reason why a Go program's goroutines cannot be found.
    fn goroutines(&self, probes: &[ProbeDescription]) -> Result<Option<Goroutines>, Unknown> {
        let _ = probes;
        Ok(None)
    }
}

/// One of `args[]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// The name in the source; may be empty.
    pub name: String,
    pub value_type: Type,
    /// The place of the argument when the probe fires.
    pub place: ArgumentPlace,
}

/// The place of an argument when the probe fires. A word is one of `arg0` to `arg9`: the integer
/// registers in the order of the ABI, then the stack. At a return these are the offset of the exit,
/// rax and rdx.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentPlace {
    /// In this word. A structure of up to 16 bytes lies in this word and the next word.
    Words(u8),
    /// In memory, at the address in this word.
    Behind(u8),
    /// On the stack, at this number of bytes above the end of the return address.
    Stack(u32),
    /// In a place that D cannot read, with the reason.
    Unreadable(String),
}

/// A variable of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// The variable's address in the process; 0 while there is no process.
    pub address: u64,
    /// The variable's type, if it is known.
    pub value_type: Option<Type>,
}

/// The reason why something is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unknown {
    /// DTrace's tag of the error.
    pub tag: &'static str,
    /// The name that is not known, in a sentence.
    pub message: String,
    /// Advice on what to do.
    pub help: Option<String>,
}

impl Unknown {
    /// An error without help.
    #[must_use]
    pub fn new(tag: &'static str, message: impl Into<String>) -> Unknown {
        Unknown {
            tag,
            message: message.into(),
            help: None,
        }
    }

    /// This error, with help.
    #[must_use]
    pub fn with_help(self, help: impl Into<String>) -> Unknown {
        Unknown {
            help: Some(help.into()),
            ..self
        }
    }
}

/// The absence of a program, or a program without any information.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTarget;

fn none(tag: &'static str, what: &str) -> Unknown {
    Unknown::new(tag, format!("{what}: no program to ask")).with_help("name the process by -p, or start it by -c")
}

impl Target for NoTarget {
    fn tagged(&self, keyword: &str, tag: &str) -> Result<Type, Unknown> {
        Err(none("D_TYPE_ERR", &format!("failed to resolve {keyword} {tag}")))
    }

    fn named(&self, name: &str) -> Result<Type, Unknown> {
        Err(none("D_TYPE_ERR", &format!("failed to resolve type {name}")))
    }

    fn enumerator(&self, _: &str) -> Option<i64> {
        None
    }

    fn arguments(&self, _: &[ProbeDescription]) -> Result<Vec<Argument>, Unknown> {
        Err(none("D_ARGS_TYPE", "failed to resolve the types of args[ ]"))
    }

    fn variable(&self, name: &str) -> Result<Variable, Unknown> {
        Err(none("D_SYM_NOTYPES", &format!("failed to resolve the symbol {name}")))
    }
}
