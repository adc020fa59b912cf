//! Why an option was not set, in DTrace's words, with what would do. Which option it was, is said by whoever sets it.

/// Why an option was not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("Invalid option name{}", .nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default())]
    Unknown {
        /// As given.
        name: String,
        /// What was probably meant.
        nearest: Option<&'static str>,
    },
    /// DTrace has it, and it can mean nothing here.
    #[error("Option is not there: {reason}")]
    NotHere {
        /// The option.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// It needs a value.
    #[error("Invalid value for specified option: it needs one: {expected}")]
    Missing {
        /// The option.
        name: String,
        /// What would do.
        expected: String,
    },
    /// The value is not one.
    #[error("Invalid value for specified option: {value}: expected {expected}")]
    Invalid {
        /// The option.
        name: String,
        /// As given.
        value: String,
        /// What would do.
        expected: String,
    },
    /// The value is too small or too large.
    #[error("Invalid value for specified option: {value}: from {minimum} to {maximum} is possible")]
    OutOfRange {
        /// The option.
        name: String,
        /// As given.
        value: String,
        /// The smallest possible.
        minimum: u64,
        /// The largest possible.
        maximum: u64,
    },
}

impl OptionError {
    /// DTrace's tag of an option that a `#pragma` could not set.
    pub fn tag(&self) -> &'static str {
        "D_PRAGMA_OPTSET"
    }
}
