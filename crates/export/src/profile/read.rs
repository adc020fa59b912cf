//! Reads a recorded profile: folded stacks, pprof or speedscope, as nanoprobe writes them.
//!
//! A file may come from anywhere, so everything is bounded: its compressed and expanded bytes, its names, frames and
//! stacks. A part that makes no sense is an error, whose message says what is wrong.

mod folded;
mod pprof;
mod speedscope;

use std::io::{self, Read};

use super::tree::{Side, Tree};

/// Larger files are refused.
const FILE_BYTES_MAX: u64 = 128 << 20;
/// JSON takes many times its bytes in memory.
const JSON_BYTES_MAX: usize = 64 << 20;

/// Why a file is no profile that can be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("{0}")]
    File(#[from] io::Error),
    /// The file exceeds one of the limits.
    #[error("it has more than {0}")]
    TooLarge(String),
    /// The file is damaged, or has none of these formats.
    #[error("{0}: nanoprobe reads what --folded, --pprof and --speedscope write")]
    Damaged(String),
    /// The file has several profiles, none of which has the requested name.
    #[error("it has no profile {wanted:?}, but {there}")]
    NoKind { wanted: String, there: String },
}

impl ReadError {
    fn damaged(what: impl Into<String>) -> ReadError {
        ReadError::Damaged(what.into())
    }
}

/// The properties of the profile that was read, as its file states them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// The profile's name, which is that of its aggregation. Empty for folded stacks.
    pub kind: String,
    /// The unit of the values; empty if it is not known.
    pub unit: String,
}

/// Reads the bytes of a file.
///
/// # Errors
/// The file cannot be read, or is too large.
pub(crate) fn bytes_of(path: &str) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ReadError::TooLarge(format!("{} MiB", FILE_BYTES_MAX >> 20)));
    }
    Ok(bytes)
}

/// Adds one profile of a file to one side of a tree. `kind`: the name of the profile, if the file has several. Without
/// it the first profile is taken.
///
/// # Errors
/// The bytes are no profile.
pub(crate) fn read(bytes: &[u8], kind: Option<&str>, tree: &mut Tree, side: Side) -> Result<Said, ReadError> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    match (bytes, first) {
        ([0x1f, 0x8b, ..], _) => pprof::read(bytes, kind, tree, side),
        (_, Some(b'{')) if bytes.len() > JSON_BYTES_MAX => {
            Err(ReadError::TooLarge(format!("{} MiB of JSON", JSON_BYTES_MAX >> 20)))
        }
        (_, Some(b'{')) => speedscope::read(bytes, kind, tree, side),
        _ => folded::read(bytes, tree, side),
    }
}

/// The place of the wanted profile among those of a file.
fn chosen(names: &[&str], wanted: Option<&str>) -> Result<usize, ReadError> {
    let plain = |name: &str| name.trim_start_matches('@').to_owned();
    let found = match wanted {
        None => (!names.is_empty()).then_some(0),
        Some(wanted) => names.iter().position(|name| plain(name) == plain(wanted)),
    };
    found.ok_or_else(|| ReadError::NoKind {
        wanted: wanted.unwrap_or_default().to_owned(),
        there: match names
            .iter()
            .take(16)
            .map(|name| format!("{name:?}"))
            .collect::<Vec<_>>()
        {
            names if names.is_empty() => "none at all".to_owned(),
            names => names.join(", "),
        },
    })
}

#[cfg(test)]
mod tests;
