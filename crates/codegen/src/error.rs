//! Why a clause could not be compiled.

#![allow(missing_docs, reason = "each message says what its fields are")]

use nanoprobe_lang::Span;

/// Why a clause could not be compiled. No variant means an error in the D text: the front end has checked that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Cranelift does not know the machine or a setting: a defect of this build.
    #[error("the code generator cannot be set up: {0}")]
    Setup(String),
    /// The program has no clause with this index.
    #[error("the program has {count} clauses, there is no clause number {clause}")]
    NoSuchClause {
        /// The index of the clause.
        clause: usize,
        /// The number of clauses.
        count: usize,
    },
    /// An expression nests deeper than [`crate::MAX_EXPRESSION_DEPTH`].
    #[error("an expression nests more than {limit} deep; split it over several assignments")]
    TooDeep {
        /// The limit.
        limit: usize,
        span: Span,
    },
    /// The handler would take too much of the target's stack.
    #[error(
        "the clause needs {bytes} bytes of stack in the target, {limit} are allowed; split it into several clauses"
    )]
    TooMuchStack {
        /// The bytes that the handler needs, with the return address.
        bytes: u32,
        /// [`crate::MAX_STACK_BYTES`].
        limit: u32,
    },
    /// A record, a variable or a key is larger than offsets can express.
    #[error("{what} is too large")]
    TooLarge { what: &'static str },
    /// A construct for which there is no machine code yet.
    #[error("not supported: {what}")]
    Unsupported { what: &'static str, span: Span },
    /// The clause uses an argument of a static probe that cannot be read.
    #[error("arg{index} cannot be read here: {reason}")]
    StaticArgument {
        /// The number of the argument, from 0.
        index: u8,
        reason: String,
    },
    /// The program's form breaks its own rules: a defect of the front end.
    #[error("malformed program: {what}")]
    Malformed {
        /// The rule that is broken.
        what: &'static str,
        span: Span,
    },
    /// Cranelift refused the function: a defect of this crate.
    #[error("the code generator failed: {0}")]
    Generator(String),
}
