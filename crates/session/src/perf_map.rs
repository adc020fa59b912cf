//! Names for code that is made at run time: `/tmp/perf-PID.map`, as perf(1) has it from Node, the JVM's agents, PyPy and others.
//!
//! ```text
//!   3ef414c0 398 RegExp:[{(]                 start and size in hexadecimal, and the rest of the line is the name
//! ```
//!
//! The file grows while the program runs: it is read on when an address is met that nothing is known of. Code may be made where
//! other code was; the later line holds. The target's user writes it, so it is hostile input: it must be a regular file of
//! that very user's (or of root's), is never waited for, and lines, names and the whole are bounded.
//! Manual: the kernel's tools/perf/Documentation/jit-interface.txt.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

/// More of a file is not read.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Longer lines are left out.
const LINE_BYTES_MAX: usize = 4096;
/// Longer names are cut.
const NAME_BYTES_MAX: usize = 512;
/// The most pieces of code that are known at a time.
const PIECES_MAX: usize = 4 << 20;
/// The most pieces that one piece takes the place of.
const REPLACED_MAX: usize = 1 << 16;
/// O_NONBLOCK and O_NOFOLLOW on Linux.
const FLAGS: i32 = 0o4000 | 0o400_000;

/// A process's map.
#[derive(Debug, Default)]
pub struct PerfMap {
    /// Where it may lie.
    paths: Vec<PathBuf>,
    /// Whose it must be.
    user: u32,
    file: Option<File>,
    /// Bytes that were read.
    read: u64,
    /// What was read of a line that is not finished.
    rest: Vec<u8>,
    /// A line is too long, and its end has not come.
    skips: bool,
    /// By start: the end, and the name.
    pieces: BTreeMap<u64, (u64, Box<str>)>,
}

impl PerfMap {
    /// Of a process: its number, that in its own namespace, and its user. Nothing is opened yet.
    pub fn of(pid: i32, inner_pid: i32, user: u32, same_namespace: bool) -> PerfMap {
        let mut paths = vec![PathBuf::from(format!("/proc/{pid}/root/tmp/perf-{inner_pid}.map"))];
        if same_namespace {
            // The way in when the process has ended.
            paths.push(PathBuf::from(format!("/tmp/perf-{inner_pid}.map")));
        }
        PerfMap {
            paths,
            user,
            ..PerfMap::default()
        }
    }

    /// The code around an address: where it begins, and its name.
    pub fn find(&mut self, address: u64) -> Option<(u64, &str)> {
        if self.known(address).is_none() {
            self.read_on();
        }
        let start = self.known(address)?;
        self.pieces.get(&start).map(|(_, name)| (start, &**name))
    }

    /// Where the first piece of all begins, of those that are known.
    pub fn start(&self) -> Option<u64> {
        self.pieces.first_key_value().map(|(start, _)| *start)
    }

    fn known(&self, address: u64) -> Option<u64> {
        let (start, (end, _)) = self.pieces.range(..=address).next_back()?;
        (address < *end).then_some(*start)
    }

    fn open(&self) -> Option<File> {
        let open = |path: &PathBuf| OpenOptions::new().read(true).custom_flags(FLAGS).open(path).ok();
        let is_theirs = |file: &File| {
            let status = file.metadata();
            status.is_ok_and(|status| status.is_file() && (status.uid() == self.user || status.uid() == 0))
        };
        self.paths.iter().find_map(|path| open(path).filter(is_theirs))
    }

    fn read_on(&mut self) {
        if self.file.is_none() {
            self.file = self.open();
        }
        let left = FILE_BYTES_MAX.saturating_sub(self.read);
        let Some(mut file) = self.file.as_ref().filter(|_| left > 0) else {
            return;
        };
        let mut bytes = Vec::new();
        let at = file.seek(SeekFrom::Start(self.read));
        if at.and_then(|_| file.take(left).read_to_end(&mut bytes)).is_err() {
            return;
        }
        self.read += bytes.len() as u64;
        self.take(&bytes);
    }

    /// Takes what the file goes on with.
    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = part.last() == Some(&b'\n');
            if self.rest.len() + part.len() > LINE_BYTES_MAX {
                self.skips = true;
                self.rest.clear();
            }
            if !self.skips {
                self.rest.extend_from_slice(part);
            }
            if is_whole {
                let line = std::mem::take(&mut self.rest);
                if !std::mem::take(&mut self.skips) {
                    self.add(&String::from_utf8_lossy(&line));
                }
            }
        }
    }

    fn add(&mut self, line: &str) {
        let mut fields = line.trim_end().splitn(3, ' ');
        let mut number = || {
            let text = fields.next()?;
            u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
        };
        let (Some(start), Some(bytes)) = (number(), number()) else {
            return;
        };
        let (Some(end), Some(name)) = (start.checked_add(bytes), fields.next()) else {
            return;
        };
        if bytes == 0 || name.is_empty() {
            return;
        }
        // What lay there is no more.
        let below = self.pieces.range(..start).next_back();
        let below = below.filter(|(_, (end, _))| *end > start).map(|(start, _)| *start);
        if let Some((before, _)) = below.and_then(|below| self.pieces.get_mut(&below)) {
            *before = start;
        }
        let over = self.pieces.range(start..end).map(|(start, _)| *start);
        let over: Vec<u64> = over.take(REPLACED_MAX).collect();
        for replaced in over {
            self.pieces.remove(&replaced);
        }
        if self.pieces.len() < PIECES_MAX {
            self.pieces.insert(start, (end, shown(name)));
        }
    }
}

/// A name as it may be printed: a line, and without what terminals obey.
fn shown(name: &str) -> Box<str> {
    let mut shown = String::new();
    for character in name.chars() {
        if shown.len() >= NAME_BYTES_MAX {
            shown.push_str("...");
            break;
        }
        shown.push(if character.is_control() { '?' } else { character });
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> PerfMap {
        let mut map = PerfMap::default();
        map.take(text.as_bytes());
        map
    }

    #[test]
    fn lines_name_pieces_and_later_ones_hold() {
        let mut map = map("1000 100 first\n0x1200 10 with spaces (x.js:1)\n1080 40 second\n");
        assert_eq!(map.find(0x1000), Some((0x1000, "first")));
        assert_eq!(map.find(0x107f), Some((0x1000, "first")));
        assert_eq!(map.find(0x1080), Some((0x1080, "second")));
        assert_eq!(map.find(0x10c0), None);
        assert_eq!(map.find(0x120f), Some((0x1200, "with spaces (x.js:1)")));
        assert_eq!(map.find(0x1210), None);
        assert_eq!(map.start(), Some(0x1000));
        map.take(b"f00 1000 all\n");
        assert_eq!(map.find(0x1210), Some((0xf00, "all")));
        assert_eq!(map.pieces.len(), 1);
    }

    #[test]
    fn lines_come_in_parts_and_may_be_anything() {
        let mut found = map("1000 10 fi");
        assert_eq!(found.find(0x1000), None);
        found.take(b"rst\n\n zz\n1 2\n1 0 empty\nffffffffffffffff 2 over\n-1 5 minus\n2000 5 \x1b[31mred\n");
        assert_eq!(found.find(0x1000), Some((0x1000, "first")));
        assert_eq!(found.find(0x2000), Some((0x2000, "?[31mred")));
        assert_eq!(found.pieces.len(), 2);
        let long = format!("3000 10 {}\n4000 10 x\n", "y".repeat(LINE_BYTES_MAX));
        found.take(long.as_bytes());
        assert_eq!(found.find(0x3000), None);
        assert_eq!(found.find(0x4000), Some((0x4000, "x")));
        let wide = format!("5000 10 {}\n", "z".repeat(1000));
        found.take(wide.as_bytes());
        assert_eq!(found.find(0x5000).map(|(_, name)| name.len()), Some(NAME_BYTES_MAX + 3));
        found.take(&[0xff, 0xfe, b'\n', 0, b'\n']);
        assert_eq!(found.pieces.len(), 4);
    }

    #[test]
    fn a_file_is_read_on_and_must_be_its_user_s() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf-1.map");
        let user = std::fs::metadata(folder.path()).unwrap().uid();
        let of = |user| PerfMap {
            paths: vec![path.clone()],
            user,
            ..PerfMap::default()
        };
        let mut found = of(user);
        assert_eq!(found.find(0x1000), None);
        std::fs::write(&path, "1000 10 first\n").unwrap();
        assert_eq!(found.find(0x1000), Some((0x1000, "first")));
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, b"2000 10 second\n").unwrap();
        assert_eq!(found.find(0x2000), Some((0x2000, "second")));
        if user != 0 {
            assert_eq!(of(user + 1).find(0x1000), None);
        } else {
            std::os::unix::fs::chown(&path, Some(4321), None).unwrap();
            assert_eq!(of(4322).find(0x1000), None);
            assert_eq!(of(4321).find(0x1000), Some((0x1000, "first")));
        }
        // Neither a link nor a FIFO is one.
        std::fs::rename(&path, folder.path().join("other")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), &path).unwrap();
        assert_eq!(of(user).find(0x1000), None);
    }
}
