//! Why an option was not set, in DTrace's words, with a remedy. The caller adds the name of the option.

/// Why an option was not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No option has this name.
    #[error("Invalid option name{}", .nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default())]
    Unknown {
        name: String,
        /// The name of the option that was probably meant.
        nearest: Option<&'static str>,
    },
    /// DTrace has the option, but it has no meaning here.
    #[error("Option is not supported: {reason}")]
    NotHere { name: String, reason: &'static str },
    /// The option needs a value.
    #[error("Invalid value for specified option: a value is needed: {expected}")]
    Missing { name: String, expected: String },
    /// The value is malformed.
    #[error("Invalid value for specified option: {value}: expected {expected}")]
    Invalid {
        name: String,
        value: String,
        expected: String,
    },
    /// The value is too small or too large.
    #[error("Invalid value for specified option: {value}: from {minimum} to {maximum} is possible")]
    OutOfRange {
        name: String,
        value: String,
        /// The smallest possible value.
        minimum: u64,
        /// The largest possible value.
        maximum: u64,
    },
}

impl OptionError {
    /// DTrace's tag for this error in a `#pragma`.
    pub fn tag(&self) -> &'static str {
        "D_PRAGMA_OPTSET"
    }
}
