//! A test whether a process holds a lock on a file that we cannot open.
//!
//! A tracer holds a lock on the file of its arena. The kernel drops the lock when the tracer ends, however it ends.
//! The lock belongs to an open file description of the tracer, because a lock that belongs to a process would not
//! show in other pid namespaces. So /proc/locks shows it in every pid namespace. It gives the device and inode of the
//! file, which the target's memory map shows, too. A process without rights on the tracer, and without its number,
//! can thus find out whether the tracer lives.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::map::Mapping;

const LOCKS: &str = "/proc/locks";

/// Whether an open file description holds a lock on the file that a mapping shows.
///
/// # Errors
/// /proc/locks cannot be read.
pub fn is_locked(mapping: &Mapping) -> std::io::Result<bool> {
    holds(mapping.device, mapping.inode)
}

/// Whether an open file description holds a lock on the file to which a path leads. The file is not opened: the path
/// may be a link of /proc/PID/fd.
///
/// # Errors
/// As for [`is_locked`], or the path leads to no file.
pub fn is_file_locked(path: &Path) -> std::io::Result<bool> {
    let status = std::fs::metadata(path)?;
    let device = (rustix::fs::major(status.dev()), rustix::fs::minor(status.dev()));
    holds(device, status.ino())
}

fn holds(device: (u32, u32), inode: u64) -> std::io::Result<bool> {
    // Line by line: the file has a line for every lock of every user.
    for line in BufReader::new(File::open(LOCKS)?).split(b'\n') {
        if parse(&line?) == Some((device, inode)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Device and inode of a granted lock of an open file description: `1: OFDLCK ADVISORY  WRITE -1 00:01:4711 0 EOF`.
fn parse(line: &[u8]) -> Option<((u32, u32), u64)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace().skip(1);
    // For a lock that a process still waits for, this word is `->`.
    if words.next()? != "OFDLCK" {
        return None;
    }
    let mut file = words.nth(3)?.split(':');
    let mut device = || u32::from_str_radix(file.next()?, 16).ok();
    let device = (device()?, device()?);
    Some((device, file.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_granted_locks_of_descriptions_count() {
        assert_eq!(
            parse(b"1: OFDLCK ADVISORY  WRITE -1 fe:1a:4711 0 EOF"),
            Some(((0xfe, 0x1a), 4711))
        );
        for other in [
            "2: FLOCK  ADVISORY  WRITE 28607 fe:00:5399302 0 EOF",
            "3: POSIX  ADVISORY  WRITE 1 fe:00:5399302 0 EOF",
            "1: -> OFDLCK ADVISORY  WRITE -1 00:01:8 0 EOF",
            "1: OFDLCK ADVISORY  WRITE -1 <none>:0 0 EOF",
            "1: OFDLCK",
            "",
        ] {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
    }
}
