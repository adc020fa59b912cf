//! Diagnostics: why the front end refuses a program.
//!
//! Every diagnostic has a stable tag. Where DTrace has a tag (`D_SYNTAX`, `D_IDENT_UNDEF`, ...), the
//! tag is DTrace's, from its manual and its test suite. Our own tags begin with `N_`. They are for
//! parts of D that nanoprobe does not support yet, and for our own limits. Nothing is dropped or
//! guessed: an unsupported part is refused by name.

use crate::source::{Source, Span};
use std::fmt;

/// Our own tags, and the things that they refuse. A tag for a missing part of D goes away when that part is added.
pub const OWN_TAGS: &[(&str, &str)] = &[
    (
        "N_ACTION",
        "an action of D that nanoprobe does not have: panic, chill, breakpoint, ...",
    ),
    (
        "N_ATTRIBUTE",
        "an attribute of GNU C that changes the layout of members in an unknown way",
    ),
    (
        "N_DESTRUCTIVE",
        "destructive actions without `-w` (Destructive actions not allowed)",
    ),
    (
        "N_FLOAT",
        "computing with float and double; variables of them, other than global ones",
    ),
    (
        "N_GOROUTINE",
        "goid, or self-> of goroutines, where the goroutine is not known",
    ),
    ("N_FUNCTION_TYPE", "a function where the type of a value must stand"),
    (
        "N_NESTING",
        "a limit: expressions, types, statements or inlines nested too deeply",
    ),
    (
        "N_PROBE_ID",
        "naming a probe by its number, other than those of BEGIN, END and ERROR",
    ),
    (
        "N_PROVIDER",
        "provider definitions in a program that traces: they are for `-h` and `-G`",
    ),
    ("N_SOURCE_LENGTH", "a limit: a text that is too long"),
    ("N_SIZE", "a limit: structures and arrays that are too large"),
    (
        "N_STACK",
        "`stack( )` where nothing samples the kernel's stack: outside of clauses of `profile-N` and `sched`",
    ),
    (
        "N_STRUCT",
        "a structure of an associative array, or with strings, as a whole, except when it is assigned; unions with \
         strings in them; keys that are structures with strings, or of more than 128 bytes",
    ),
    (
        "N_SUBROUTINE",
        "a subroutine of D that nanoprobe does not have: mutex_owned, msgsize, ddi_pathname, ...",
    ),
    (
        "N_VARIABLE",
        "a built-in variable of D that nanoprobe does not have: curthread, caller, stackdepth, ...",
    ),
];

/// One error in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// A stable name for tests and scripts: `D_...` as in DTrace, `N_...` ours.
    pub tag: &'static str,
    /// The error: one sentence without a full stop.
    pub message: String,
    /// The place in the text.
    pub span: Span,
    /// How to correct it.
    pub help: Option<String>,
    /// Other places that explain the error ("first used here").
    pub related: Vec<(Span, String)>,
}

impl Diagnostic {
    /// A diagnostic without help or related places.
    pub fn new(tag: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            tag,
            message: message.into(),
            span,
            help: None,
            related: Vec::new(),
        }
    }

    /// The same diagnostic with a remedy.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// The same diagnostic with a place that explains it.
    #[must_use]
    pub fn with_related(mut self, span: Span, message: impl Into<String>) -> Diagnostic {
        self.related.push((span, message.into()));
        self
    }

    /// `name:line:column: [TAG] message`, with help and related places on lines of their own.
    #[must_use]
    pub fn render(&self, sources: &[Source]) -> String {
        let mut text = format!("{}: [{}] {}", place(sources, self.span), self.tag, self.message);
        for (span, message) in &self.related {
            text.push_str(&format!("\n  {}: {message}", place(sources, *span)));
        }
        if let Some(help) = &self.help {
            text.push_str(&format!("\n  help: {help}"));
        }
        text
    }
}

fn place(sources: &[Source], span: Span) -> String {
    match sources.get(span.source as usize) {
        Some(source) => {
            let (line, column) = source.line_column(span.start);
            format!("{}:{line}:{column}", source.name)
        }
        None => "<unknown>".to_owned(),
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.tag, self.message)
    }
}

impl std::error::Error for Diagnostic {}
