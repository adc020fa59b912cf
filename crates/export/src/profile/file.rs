//! The file of a profile.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};

use crate::Error;

/// Checks that a file can be written. This is done before tracing begins, so that no results are lost.
///
/// # Errors
/// [`Error::File`]
pub fn check(path: &str) -> Result<(), Error> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map(drop).map_err(|error| failed(path, error))
}

/// Writes a file anew.
///
/// # Errors
/// [`Error::File`]
pub(crate) fn write(path: &str, content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), Error> {
    let written = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        content(&mut out)?;
        out.flush()
    });
    written.map_err(|error| failed(path, error))
}

fn failed(path: &str, error: io::Error) -> Error {
    Error::File {
        path: path.to_owned(),
        error,
    }
}
