//! The errors of reading a file.

use std::path::PathBuf;

/// A module could not be read. A mere oddity inside a module (a symbol outside of the text, a malformed FDE) is left
/// out of the answers instead: an oddity must not hide the rest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file has no ELF magic, or is shorter than an ELF header.
    #[error("{path}: not an ELF file")]
    NotElf { path: PathBuf },
    /// The file is an ELF file for another machine than 64-bit little-endian x86-64.
    #[error("{path}: an ELF file for another machine (only 64-bit x86-64 is supported)")]
    OtherMachine { path: PathBuf },
    /// The file is an object file, a core file, or an image without a loadable segment: no process executes it.
    #[error("{path}: not a program or shared object (its ELF header says type {elf_type})")]
    NotLoadable {
        path: PathBuf,
        /// `e_type`.
        elf_type: u16,
    },
    /// A header points outside of the file: it was cut short, or is being written.
    #[error("{path}: damaged ELF file: {what} lies outside of it")]
    Damaged { path: PathBuf, what: &'static str },
    /// The operating system refused to read the file.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    /// The file is larger than 4 GiB, or not a regular file.
    #[error("{path}: {what}")]
    Unreadable { path: PathBuf, what: &'static str },
}
