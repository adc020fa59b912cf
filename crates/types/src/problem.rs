//! Why nothing is known.

/// Why debug information does not answer a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Neither the file nor a separate debug file has any.
    #[error("{module} has no debug information")]
    None {
        /// The module's name.
        module: String,
    },
    /// It lies in other files, by `-gsplit-dwarf`.
    #[error("the debug information of {module} is split: a part of it is in {file}, which is not read")]
    Split {
        /// The module's name.
        module: String,
        /// The file of the part that was needed.
        file: String,
    },
    /// A part of it is in a file shared with others, by `dwz -m`.
    #[error("a part of the debug information of {module} is in a supplementary file (dwz), which is not read")]
    Supplementary {
        /// The module's name.
        module: String,
    },
    /// A section is compressed in a way that is not known, or says that it is larger than it can be.
    #[error("the section {section} of {module} cannot be decompressed")]
    Compressed {
        /// The module's name.
        module: String,
        /// The section.
        section: &'static str,
    },
    /// It makes no sense.
    #[error("the debug information of {module} is damaged: {what}")]
    Damaged {
        /// The module's name.
        module: String,
        /// What of it.
        what: &'static str,
    },
    /// The compiler left parameters of a function out, or its result, and says so (`DW_CC_nocall`).
    #[error("the compiler of {module} has changed how this function is called")]
    Changed {
        /// The module's name.
        module: String,
    },
    /// A function of Go's that Go's own tool chain has not compiled, or has not linked.
    #[error("functions of Go in {module} take their arguments as nobody tells")]
    Go {
        /// The module's name.
        module: String,
    },
    /// It describes lines alone (`-g1`).
    #[error("the debug information of {module} tells of no parameters: it was compiled with -g1")]
    LinesOnly {
        /// The module's name.
        module: String,
    },
    /// It does not have what was asked for.
    #[error("the debug information of {module} does not know {what}")]
    Unknown {
        /// The module's name.
        module: String,
        /// A name or an address.
        what: String,
    },
}

impl Problem {
    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        Some(match self {
            Problem::None { .. } => "compile it with -g, or install its separate debug file below /usr/lib/debug",
            Problem::Split { .. } => "compile it without -gsplit-dwarf",
            Problem::Go { .. } => {
                "integers and pointers may be in arg0, arg1, ..., or in uregs[R_RAX], R_RBX, R_RCX, ..."
            }
            Problem::LinesOnly { .. } => "compile it with -g; arg0, arg1, ... need no debug information",
            Problem::Supplementary { .. } => "use a debug file that was not shared by dwz -m",
            _ => return None,
        })
    }
}
