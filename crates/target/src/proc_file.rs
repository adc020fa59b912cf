//! Files of /proc and of /sys, whose length nobody knows before they are read.
//!
//! `std::fs::read` asks for the length, gets 0, and then reads 32 bytes, 64, 128, and so on: eight calls for a map. The
//! kernel makes such a file page by page, so a read of a page or more yields as much as it has made.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Most files fit. A longer one is read in further calls.
const BYTES: usize = 16 << 10;

/// The whole file.
///
/// # Errors
/// It cannot be opened or read.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(BYTES);
    // `take` hides the file's length, 0, from the reader.
    File::open(path)?.take(u64::MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// The whole file as text; bytes that are not UTF-8 are replaced.
///
/// # Errors
/// As [`read`].
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = read(path)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_whatever_its_length() {
        let pid = std::process::id();
        let status = read_text(format!("/proc/{pid}/status")).unwrap();
        assert!(
            status.starts_with("Name:") && status.contains("\nnonvoluntary_ctxt_switches:"),
            "{status}"
        );
        // A list of symbols is much longer than what one call yields.
        let long = read("/proc/kallsyms").unwrap();
        assert_eq!(
            long.iter().filter(|byte| **byte == b'\n').count(),
            std::fs::read_to_string("/proc/kallsyms").unwrap().lines().count()
        );
        assert!(long.len() > BYTES);
        assert!(read("/proc/0/status").is_err());
    }
}
