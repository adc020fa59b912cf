//! The file of `-o`: it is appended to, opened anew when it was moved, and gives way to a new one when it is full.
//!
//! ```text
//!   FILE      is written      -x rotate=SIZE,2:   FILE.1 becomes FILE.2, FILE becomes FILE.1, and a new FILE begins
//!   FILE.1    the one before
//!   FILE.2    the oldest
//! ```
//!
//! A service goes on when its output cannot be written: a full disk must not take the probes in and out all the time.
//! What was lost is counted and reported.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write};
use std::time::{Duration, Instant};

use nanoprobe_lang::options::Rotation;

/// How often lost output is reported.
const LOST_PERIOD: Duration = Duration::from_secs(10);

/// See the module's description.
pub struct OutputFile {
    path: String,
    file: File,
    rotation: Option<Rotation>,
    /// The bytes of the file.
    length: u64,
    is_at_line_start: bool,
    /// The output that was lost, if its loss is no error.
    lost: Option<Lost>,
    is_rotation_failed: bool,
    /// Reports what is no error.
    tell: fn(fmt::Arguments<'_>),
}

#[derive(Default)]
struct Lost {
    bytes: u64,
    told_bytes: u64,
    told_at: Option<Instant>,
}

impl OutputFile {
    /// Opens a file. `may_lose`: the loss of output is reported, and is no error.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(
        path: &str,
        rotation: Option<Rotation>,
        may_lose: bool,
        tell: fn(fmt::Arguments<'_>),
    ) -> io::Result<OutputFile> {
        let (file, length) = appended(path)?;
        Ok(OutputFile {
            path: path.to_owned(),
            file,
            rotation,
            length,
            is_at_line_start: true,
            lost: may_lose.then(Lost::default),
            is_rotation_failed: false,
            tell,
        })
    }

    /// The path as it was given.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Opens the file anew: the old one was moved. If that fails, the old one is still written.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.length) = appended(&self.path)?;
        Ok(())
    }

    /// Empties the file.
    ///
    /// # Errors
    /// As [`File::set_len`].
    pub fn empty(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.length = 0;
        Ok(())
    }

    /// How many of these bytes belong into the present file: whole lines, as long as they fit.
    fn fitting(&self, bytes: &[u8], rotation: &Rotation) -> usize {
        let room = rotation.bytes_max.saturating_sub(self.length);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        if bytes.len() <= room {
            return bytes.len();
        }
        let end_of_line = |part: &[u8]| part.iter().rposition(|byte| *byte == b'\n').map(|last| last + 1);
        if let Some(whole) = end_of_line(bytes.get(..room).unwrap_or(bytes)) {
            return whole;
        }
        if self.is_at_line_start && self.length > 0 {
            return 0;
        }
        // The rest of a line that has begun, or a line that is longer than a file.
        let rest = bytes.iter().position(|byte| *byte == b'\n').map(|first| first + 1);
        rest.unwrap_or(bytes.len())
    }

    /// Moves the full file and its predecessors, and begins a new one.
    fn rotate(&mut self, rotation: &Rotation) -> io::Result<()> {
        let old = |number: u32| match number {
            0 => self.path.clone(),
            number => format!("{}.{number}", self.path),
        };
        for number in (0..rotation.kept).rev() {
            match std::fs::rename(old(number), old(number + 1)) {
                Err(error) if number > 0 && error.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
        }
        self.reopen()
    }

    fn make_room(&mut self) {
        let Some(rotation) = self.rotation else { return };
        match self.rotate(&rotation) {
            Ok(()) => self.is_rotation_failed = false,
            Err(error) => {
                // The next attempt is made after as many bytes again.
                self.length = 0;
                if !std::mem::replace(&mut self.is_rotation_failed, true) {
                    (self.tell)(format_args!(
                        "cannot rotate the output file '{}', which grows: {error}; may nanoprobe write to its folder?",
                        self.path
                    ));
                }
            }
        }
    }

    fn lose(&mut self, bytes: usize, error: io::Error) -> io::Result<usize> {
        let Some(lost) = self.lost.as_mut().filter(|_| is_passing(&error)) else {
            return Err(error);
        };
        lost.bytes += bytes as u64;
        if lost.told_at.is_none_or(|told| told.elapsed() >= LOST_PERIOD) {
            (self.tell)(format_args!(
                "{} bytes of output were lost: cannot write to the output file '{}': {error}",
                lost.bytes - lost.told_bytes,
                self.path
            ));
            lost.told_bytes = lost.bytes;
            lost.told_at = Some(Instant::now());
        }
        Ok(bytes)
    }
}

/// Whether a later write may succeed: the disk, or a quota, or the limit of a file's size (`ulimit -f`) is reached, or
/// the disk fails.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge) || error.raw_os_error() == Some(libc::EIO)
}

fn appended(path: &str) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut part = bytes.len();
        if let Some(rotation) = self.rotation {
            part = self.fitting(bytes, &rotation);
            if part == 0 && !bytes.is_empty() {
                self.make_room();
                part = self.fitting(bytes, &rotation);
            }
        }
        let bytes = bytes.get(..part).unwrap_or(bytes);
        let written = match self.file.write(bytes) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => return self.lose(bytes.len(), error),
        };
        self.length += written as u64;
        if let Some(last) = written.checked_sub(1) {
            self.is_at_line_start = bytes.get(last) == Some(&b'\n');
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    fn written(kept: u32, bytes_max: u64, pieces: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let path = path.to_str().unwrap();
        let mut file = OutputFile::open(path, Some(Rotation { bytes_max, kept }), false, |_| ()).unwrap();
        for piece in pieces {
            file.write_all(piece.as_bytes()).unwrap();
        }
        let names = std::iter::once(path.to_owned()).chain((1..=kept + 1).map(|number| format!("{path}.{number}")));
        names.map_while(|name| std::fs::read_to_string(name).ok()).collect()
    }

    #[test]
    fn a_full_file_gives_way_and_no_line_is_split() {
        assert_eq!(written(2, 10, &["1234\n", "5678\n"]), ["1234\n5678\n"]);
        assert_eq!(written(2, 10, &["1234\n", "5678\n", "9\n"]), ["9\n", "1234\n5678\n"]);
        // A line that has begun ends in the same file.
        assert_eq!(
            written(2, 10, &["123", "4\n567", "89\nab", "c\n"]),
            ["abc\n", "1234\n56789\n"]
        );
        assert_eq!(
            written(2, 10, &["1234\n2345\n3456\n4567\n5678\n6789\n7890\n"]),
            ["7890\n", "5678\n6789\n", "3456\n4567\n"]
        );
        // A line that is longer than a file is in one file.
        assert_eq!(
            written(1, 10, &["1\n", "0123456789ab", "cdef\n", "2\n"]),
            ["2\n", "0123456789abcdef\n"]
        );
    }

    #[test]
    fn a_file_that_was_moved_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("out"), folder.path().join("moved"));
        let mut file = OutputFile::open(path.to_str().unwrap(), None, false, |_| ()).unwrap();
        file.write_all(b"one\n").unwrap();
        std::fs::rename(&path, &moved).unwrap();
        file.write_all(b"two\n").unwrap();
        file.reopen().unwrap();
        file.write_all(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn only_a_service_goes_on_when_the_disk_is_full() {
        let full = |may_lose| {
            let mut file = OutputFile::open("/dev/full", None, may_lose, |_| ()).unwrap();
            file.write_all(b"lost\n").map(|()| file.lost.map(|lost| lost.bytes))
        };
        assert_eq!(full(true).unwrap(), Some(5));
        assert_eq!(full(false).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
