//! Why debug information does not answer a question.

/// Why debug information does not answer a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Neither the file nor a separate debug file has debug information.
    #[error("{module} has no debug information")]
    None {
        /// The module's name.
        module: String,
    },
    /// The information lies in other files, because of `-gsplit-dwarf`.
    #[error("the debug information of {module} is split: a part of it is in {file}, which is not read")]
    Split {
        /// The module's name.
        module: String,
        /// The file that contains the needed part.
        file: String,
    },
    /// A part of the information is in a file that several modules share, because of `dwz -m`.
    #[error("a part of the debug information of {module} is in a supplementary file (dwz), which is not read")]
    Supplementary {
        /// The module's name.
        module: String,
    },
    /// A section is compressed in an unknown way, or claims to be larger than possible.
    #[error("the section {section} of {module} cannot be decompressed")]
    Compressed {
        /// The module's name.
        module: String,
        /// The name of the section.
        section: &'static str,
    },
    /// The information makes no sense.
    #[error("the debug information of {module} is damaged: {what}")]
    Damaged {
        /// The module's name.
        module: String,
        /// The part that makes no sense.
        what: &'static str,
    },
    /// The compiler has left out parameters of a function, or its result, and says so (`DW_CC_nocall`).
    #[error("the compiler of {module} has changed how this function is called")]
    Changed {
        /// The module's name.
        module: String,
    },
    /// A Go function that was not compiled or not linked by Go's own tool chain.
    #[error("it is not known how functions of Go in {module} take their arguments")]
    Go {
        /// The module's name.
        module: String,
    },
    /// The information describes only lines (`-g1`).
    #[error("the debug information of {module} describes no parameters: it was compiled with -g1")]
    LinesOnly {
        /// The module's name.
        module: String,
    },
    /// The information does not have the wanted thing.
    #[error("the debug information of {module} does not describe {what}")]
    Unknown {
        /// The module's name.
        module: String,
        /// The wanted thing: a name or an address.
        what: String,
    },
}

impl Problem {
    /// The remedy.
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
