//! Names for code that is made at run time: `/tmp/perf-PID.map`, as perf(1) has it from Node, the JVM's agents,
//! PyPy and others.
//!
//! ```text
//!   3ef414c0 398 RegExp:[{(]                 start and size in hexadecimal, and the rest of the line is the name
//! ```
//!
//! The file grows while the program runs: its new lines are read when an unknown address comes up. Code may be made
//! where other code was before; the later line counts. The target's user writes the file, so it is hostile input. It
//! must be a regular file, reading it never blocks, no link of another root leads to it, and the lengths of its lines,
//! its names and the whole are bounded. It is trusted when it belongs to the process's user. It is also trusted when it
//! belongs to root, if the process shares our root folder, mount and user namespace. In another namespace root may be
//! any user. Manual: the kernel's tools/perf/Documentation/jit-interface.txt.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nanoprobe_symbols::files;

/// How much of a file is read at most.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// How much is read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Longer lines are left out.
const LINE_BYTES_MAX: usize = 4096;
/// Longer names are cut.
const NAME_BYTES_MAX: usize = 512;
/// The most pieces of code that are known at a time.
const PIECES_MAX: usize = 1 << 20;
/// The most bytes of their names.
const NAMES_BYTES_MAX: usize = 128 << 20;
/// The most pieces that one new piece may replace.
const REPLACED_MAX: usize = 1 << 16;

/// A process's map.
#[derive(Debug, Default)]
pub struct PerfMap {
    /// The root folders in which the file may lie.
    roots: Vec<PathBuf>,
    /// The path of the file below a root folder.
    path: PathBuf,
    /// The user that must own the file.
    user: u32,
    /// Whether a file that belongs to root is trusted, too.
    believes_root: bool,
    file: Option<File>,
    /// The number of bytes that were read so far.
    read: u64,
    /// The bytes of the last line, whose end was not read yet.
    rest: Vec<u8>,
    /// Whether the rest of a line is being skipped, because the line is too long.
    skips: bool,
    /// The pieces by start: the end, and the name.
    pieces: BTreeMap<u64, (u64, Box<str>)>,
    /// Bytes of names.
    names_bytes: usize,
}

impl PerfMap {
    /// The map of a process: its number, the number in its own namespace, and its user. Nothing is opened yet.
    pub fn of(pid: i32, inner_pid: i32, user: u32, same_namespace: bool) -> PerfMap {
        let believes_root = shares_our_root(pid);
        let mut roots = vec![PathBuf::from(format!("/proc/{pid}/root"))];
        if same_namespace && believes_root {
            // The way to the file after the process has ended.
            roots.push(PathBuf::from("/"));
        }
        PerfMap {
            roots,
            path: PathBuf::from(format!("/tmp/perf-{inner_pid}.map")),
            user,
            believes_root,
            ..PerfMap::default()
        }
    }

    /// A map whose lines are only these bytes.
    pub fn of_bytes(bytes: &[u8]) -> PerfMap {
        let mut map = PerfMap::default();
        map.take(bytes);
        map
    }

    /// The code around an address: where it begins, and its name.
    pub fn find(&mut self, address: u64) -> Option<(u64, &str)> {
        if self.known(address).is_none() {
            self.read_on();
        }
        let start = self.known(address)?;
        self.pieces.get(&start).map(|(_, name)| (start, &**name))
    }

    /// Whether the file exists.
    pub fn exists(&self) -> bool {
        self.file.is_some() || self.open().is_some()
    }

    /// Where the first known piece begins.
    pub fn start(&self) -> Option<u64> {
        self.pieces.first_key_value().map(|(start, _)| *start)
    }

    fn known(&self, address: u64) -> Option<u64> {
        let (start, (end, _)) = self.pieces.range(..=address).next_back()?;
        (address < *end).then_some(*start)
    }

    fn open(&self) -> Option<File> {
        let is_theirs = |file: &File| {
            let owner = file.metadata().map(|status| status.uid());
            owner.is_ok_and(|owner| owner == self.user || owner == 0 && self.believes_root)
        };
        let open = |root: &PathBuf| files::open_unlinked(root, &self.path).ok();
        self.roots.iter().find_map(|root| open(root).filter(is_theirs))
    }

    fn read_on(&mut self) {
        if self.file.is_none() {
            self.file = self.open();
        }
        let Some(file) = self.file.take() else { return };
        let mut piece = vec![0; PIECE_BYTES];
        while self.read < FILE_BYTES_MAX {
            let Some(bytes) = file
                .read_at(&mut piece, self.read)
                .ok()
                .and_then(|read| piece.get(..read))
                .filter(|bytes| !bytes.is_empty())
            else {
                break;
            };
            self.read += bytes.len() as u64;
            self.take(bytes);
        }
        self.file = Some(file);
    }

    /// Takes the next bytes of the file.
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
        // Pieces in the same place are replaced.
        let below = self.pieces.range(..start).next_back();
        let below = below.filter(|(_, (end, _))| *end > start).map(|(start, _)| *start);
        if let Some((before, _)) = below.and_then(|below| self.pieces.get_mut(&below)) {
            *before = start;
        }
        let over = self.pieces.range(start..end).map(|(start, _)| *start);
        let over: Vec<u64> = over.take(REPLACED_MAX).collect();
        for replaced in over {
            let name = self.pieces.remove(&replaced);
            self.names_bytes -= name.map_or(0, |(_, name)| name.len());
        }
        let name = shown(name);
        if self.pieces.len() < PIECES_MAX && self.names_bytes + name.len() <= NAMES_BYTES_MAX {
            self.names_bytes += name.len();
            self.pieces.insert(start, (end, name));
        }
    }
}

/// Whether a process has our root folder, mounts and user namespace, so that its root user is also ours.
fn shares_our_root(pid: i32) -> bool {
    let same_namespace = |name: &str| {
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
        of("self").is_some() && of("self") == of(&pid.to_string())
    };
    let folder = |path: &Path| std::fs::metadata(path).ok().map(|status| (status.dev(), status.ino()));
    let ours = folder(Path::new("/"));
    let is_same_root = ours.is_some() && ours == folder(Path::new(&format!("/proc/{pid}/root/")));
    is_same_root && same_namespace("mnt") && same_namespace("user")
}

/// A name as it may be printed: one line, without control characters.
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

    /// A folder that stands for a process's root, and the path of the map in it.
    fn root() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        let path = folder.path().join("tmp/perf-1.map");
        (folder, path)
    }

    fn below(root: &Path, user: u32) -> PerfMap {
        PerfMap {
            roots: vec![root.to_owned()],
            path: PathBuf::from("/tmp/perf-1.map"),
            user,
            ..PerfMap::default()
        }
    }

    #[test]
    fn a_file_is_read_on_and_must_be_its_user_s() {
        let (folder, path) = root();
        let user = std::fs::metadata(folder.path()).unwrap().uid();
        let of = |user| below(folder.path(), user);
        let mut found = of(user);
        assert_eq!(found.find(0x1000), None);
        std::fs::write(&path, "1000 10 first\n").unwrap();
        assert_eq!(found.find(0x1000), Some((0x1000, "first")));
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, b"2000 10 second\n").unwrap();
        assert_eq!(found.find(0x2000), Some((0x2000, "second")));
        if user != 0 {
            assert_eq!(of(user + 1).find(0x1000), None);
        } else {
            std::os::unix::fs::chown(&path, Some(4321), None).unwrap();
            assert_eq!(of(4322).find(0x1000), None);
            assert_eq!(of(4321).find(0x1000), Some((0x1000, "first")));
        }
    }

    #[test]
    fn root_s_file_is_believed_only_where_root_is_ours() {
        let (folder, path) = root();
        std::fs::write(&path, "1000 10 first\n").unwrap();
        if std::fs::metadata(&path).unwrap().uid() != 0 {
            // Only root can make a file that belongs to root.
            return;
        }
        let mut elsewhere = below(folder.path(), 4321);
        assert_eq!(elsewhere.find(0x1000), None);
        let mut ours = PerfMap {
            believes_root: true,
            ..below(folder.path(), 4321)
        };
        assert_eq!(ours.find(0x1000), Some((0x1000, "first")));
        assert!(shares_our_root(std::process::id() as i32));
    }

    #[test]
    fn neither_links_out_of_the_root_nor_a_fifo_are_opened() {
        let (folder, path) = root();
        let user = std::fs::metadata(folder.path()).unwrap().uid();
        let outside = tempfile::tempdir().unwrap();
        let secret = outside.path().join("perf-1.map");
        std::fs::write(&secret, "1000 10 secret\n").unwrap();
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        assert_eq!(
            below(folder.path(), user).find(0x1000),
            None,
            "a link to a file outside"
        );
        std::fs::remove_file(&path).unwrap();
        std::fs::write(folder.path().join("own"), "1000 10 own\n").unwrap();
        std::os::unix::fs::symlink("../own", &path).unwrap();
        assert_eq!(
            below(folder.path(), user).find(0x1000),
            None,
            "a link, wherever it leads"
        );
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
        assert_eq!(below(folder.path(), user).find(0x1000), None, "a FIFO");
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_dir(folder.path().join("tmp")).unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("tmp")).unwrap();
        assert_eq!(below(folder.path(), user).find(0x1000), None, "a folder outside");
    }
}
