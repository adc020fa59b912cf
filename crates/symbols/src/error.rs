//! Why a file could not be understood.

use std::path::PathBuf;

/// A module could not be read. What is merely odd inside a module (a symbol outside of the text, a malformed FDE) is
/// left out of the answers instead: it must not hide the rest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No ELF magic, or shorter than an ELF header.
    #[error("{path}: not an ELF file")]
    NotElf {
        /// As given to the parser.
        path: PathBuf,
    },
    /// An ELF file, but not one for this machine: nanoprobe knows 64-bit little-endian x86-64.
    #[error("{path}: an ELF file for another machine (only 64-bit x86-64 is supported)")]
    OtherMachine {
        /// As given to the parser.
        path: PathBuf,
    },
    /// An object file, a core file, or an image without a loadable segment: nothing that a process runs.
    #[error("{path}: not a program or shared object (its ELF header says type {elf_type})")]
    NotLoadable {
        /// As given to the parser.
        path: PathBuf,
        /// `e_type`.
        elf_type: u16,
    },
    /// A header points outside of the file: it was cut short, or is being written.
    #[error("{path}: damaged ELF file: {what} lies outside of it")]
    Damaged {
        /// As given to the parser.
        path: PathBuf,
        /// Which part.
        what: &'static str,
    },
    /// The operating system refused to read the file.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// Larger than 4 GiB, or not a regular file.
    #[error("{path}: {what}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why it is not even tried.
        what: &'static str,
    },
}
