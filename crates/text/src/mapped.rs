//! Opening the very file that a mapping shows, with proof.
//!
//! The traced process decides what its paths lead to, and may change that at any time. So a file is opened by one
//! of these ways, in this order, and then compared with the map:
//!
//! | way | needs |
//! |---|---|
//! | /proc/PID/map_files/START-END, the kernel's own link | CAP_CHECKPOINT_RESTORE in the first user namespace |
//! | /proc/PID/exe | no more than attaching does; only the program itself |
//! | the path below the process's root | the name still leads to the file |
//! | the path below ours | likewise: a process that was put into a folder of ours (chroot) |
//!
//! | proof | where |
//! |---|---|
//! | device and inode are the map's | most file systems |
//! | the same inode, the head is what memory holds | btrfs, overlayfs: `stat` shows another device than the map |
//! | a head with a build-id that memory holds, too | overlayfs over several file systems: another inode, too |
//!
//! Manuals: proc_pid_maps(5), proc_pid_map_files(5), openat2(2).

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nanoprobe_symbols::files;
use nanoprobe_target::{Image, Mapping, Memory, ProcessId};
use rustix::fs::{Mode, OFlags, major, minor};

/// The head of a file that is compared with memory.
const HEAD_BYTES: usize = 4096;
/// How many program headers of the head are looked at.
const HEADERS_MAX: usize = 64;

/// Opens the file that an image shows. `deleted`: according to the map, the file no longer has a name.
///
/// # Errors
/// No file that can be opened is that file. The text tells the user the reason.
pub(crate) fn open(pid: ProcessId, image: &Image, path: &Path, deleted: bool, memory: &Memory) -> Result<File, String> {
    let Some(first) = image.mappings.first() else {
        return Err(format!("{}: no part of it is mapped", path.display()));
    };
    let link = format!("/proc/{pid}/map_files/{:x}-{:x}", first.start.0, first.end.0);
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let by_link = |link: &str| {
        let found = rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let found = found.map_err(|error| format!("{link}: {}", std::io::Error::from(error)))?;
        files::reopen(&found, path).map_err(|error| error.to_string())
    };
    let by_name = |root: &Path| match deleted {
        true => Err(format!("{}: its file was deleted or replaced", path.display())),
        false => files::open_inside(root, path).map_err(|error| error.to_string()),
    };
    let ways: [&dyn Fn() -> Result<File, String>; 4] = [
        &|| by_link(&link),
        &|| by_link(&format!("/proc/{pid}/exe")),
        &|| by_name(&root),
        &|| by_name(Path::new("/")),
    ];
    let mut reasons = Vec::new();
    for way in ways {
        match way() {
            Ok(file) if is_mapped(&file, first, memory) => return Ok(file),
            Ok(_) => reasons.push(None),
            Err(reason) => reasons.push(Some(reason)),
        }
    }
    // The error for the path below the process's own root is the most informative.
    Err(match reasons.into_iter().nth(2).flatten() {
        Some(reason) if !deleted => reason,
        _ => format!(
            "{}: the file there is not the one that the process has mapped: that file was deleted or replaced, and \
             only root can still read it",
            path.display()
        ),
    })
}

/// Whether a file is the file that a mapping shows.
fn is_mapped(file: &File, mapping: &Mapping, memory: &Memory) -> bool {
    let Ok(metadata) = file.metadata() else {
        return false;
    };
    let device = (major(metadata.dev()), minor(metadata.dev()));
    let is_inode = metadata.ino() == mapping.inode;
    is_inode && device == mapping.device || has_same_head(file, mapping, memory, is_inode)
}

/// Whether memory holds the head of the file. If the inode differs, the head must also contain a build-id, which no
/// other file has.
fn has_same_head(file: &File, mapping: &Mapping, memory: &Memory, is_inode: bool) -> bool {
    let mut on_disk = vec![0; HEAD_BYTES];
    let mut in_memory = vec![0; HEAD_BYTES];
    let read = file.read_at(&mut on_disk, mapping.offset).unwrap_or(0);
    if read == 0 || memory.read(mapping.start, &mut in_memory).is_err() {
        return false;
    }
    // After the file's end, the page contains zeros.
    let head = Head(&on_disk);
    if mapping.offset != 0 || !head.is_elf() {
        return is_inode && on_disk == in_memory;
    }
    // A page with code may contain breakpoints of a debugger, but headers and notes never change.
    let is_same = match mapping.permissions.execute {
        false => on_disk == in_memory,
        true => head.tables().all(|(at, bytes)| {
            at.checked_add(bytes)
                .is_some_and(|end| on_disk.get(at..end) == in_memory.get(at..end))
        }),
    };
    is_same && (is_inode || head.has_build_id())
}

/// The first page of an ELF file.
struct Head<'a>(&'a [u8]);

impl Head<'_> {
    fn is_elf(&self) -> bool {
        self.0.starts_with(b"\x7fELF\x02\x01")
    }

    fn word<const BYTES: usize>(&self, at: usize) -> u64 {
        let bytes = at.checked_add(BYTES).and_then(|end| self.0.get(at..end));
        let bytes = bytes.unwrap_or_default().iter().rev();
        bytes.fold(0, |word, byte| word << 8 | u64::from(*byte))
    }

    /// The places of the notes that lie in this page.
    fn notes(&self) -> impl Iterator<Item = (usize, usize)> {
        const NOTE: u64 = 4;
        let table = self.word::<8>(32) as usize;
        let count = (self.word::<2>(56) as usize).min(HEADERS_MAX);
        let headers = (0..count).map_while(move |index| table.checked_add(index * 56));
        let notes = headers.filter(|at| self.word::<4>(*at) == NOTE);
        let ranges =
            notes.filter_map(|at| Some((self.word::<8>(at.checked_add(8)?), self.word::<8>(at.checked_add(32)?))));
        ranges
            .map(|(at, bytes)| (at as usize, bytes as usize))
            .filter(|(at, bytes)| at.checked_add(*bytes).is_some_and(|end| end <= self.0.len()))
    }

    /// The file header, the program headers and the notes.
    fn tables(&self) -> impl Iterator<Item = (usize, usize)> {
        let table = (self.word::<8>(32) as usize).min(self.0.len());
        let bytes = (self.word::<2>(56) as usize * 56).min(self.0.len() - table);
        [(0, 64), (table, bytes)].into_iter().chain(self.notes())
    }

    fn has_build_id(&self) -> bool {
        const BUILD_ID: u64 = 3;
        self.notes().any(|(start, bytes)| {
            let mut at = start;
            while at + 12 <= start + bytes {
                let (owner, contents) = (self.word::<4>(at) as usize, self.word::<4>(at + 4) as usize);
                let is_gnu = self.0.get(at + 12..at + 16) == Some(b"GNU\0") && owner == 4;
                if is_gnu && self.word::<4>(at + 8) == BUILD_ID && contents >= 8 && at + 16 + contents <= start + bytes
                {
                    return true;
                }
                at += 12 + owner.next_multiple_of(4) + contents.next_multiple_of(4);
            }
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use nanoprobe_target::{Map, MappingKind, Process};

    /// Kills the child when it is dropped.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Starts a copy of sleep(1), and calls `act` with its image, its path and its memory. cp(1) makes the copy. If
    /// this process made it, a child that another test forks meanwhile would inherit the copy open for writing, and
    /// the copy could not be executed (ETXTBSY) before that child has executed its own program.
    fn with_program(act: impl FnOnce(ProcessId, &Image, &Path, &Memory)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let copied = Command::new("cp").arg("/bin/sleep").arg(&path).status().unwrap();
        assert!(copied.success(), "sleep was not copied");
        let running = Running(Command::new(&path).arg("60").stdout(Stdio::null()).spawn().unwrap());
        let pid = running.0.id() as i32;
        let process = Process::open(pid).unwrap();
        let started = std::time::Instant::now();
        loop {
            let map = Map::parse(&std::fs::read(format!("/proc/{pid}/maps")).unwrap());
            let is_it =
                |image: &&Image| matches!(image.kind(), Some(MappingKind::File { path: of, .. }) if *of == path);
            if let Some(image) = map.images().iter().find(is_it) {
                return act(pid, image, &path, process.memory());
            }
            assert!(started.elapsed().as_secs() < 60, "the program was not executed");
            std::thread::yield_now();
        }
    }

    /// The image as it would appear in a map that shows another device or inode.
    fn disguised(image: &Image, device: bool, inode: bool) -> Image {
        let mut image = image.clone();
        for mapping in &mut image.mappings {
            mapping.device.1 += u32::from(device);
            mapping.inode += u64::from(inode);
        }
        image
    }

    #[test]
    fn a_file_is_proven_by_inode_or_contents() {
        with_program(|pid, image, path, memory| {
            let file = open(pid, image, path, false, memory).unwrap();
            assert_eq!(file.metadata().unwrap().ino(), image.mappings[0].inode);
            for (device, inode) in [(true, false), (true, true)] {
                open(pid, &disguised(image, device, inode), path, false, memory).unwrap();
            }
            // A file on another device may have the same inode by chance, but it has other contents.
            let other = File::open("/bin/cat").unwrap();
            let mut mapping = image.mappings[0].clone();
            mapping.inode = other.metadata().unwrap().ino();
            mapping.device.1 += 1;
            assert!(!is_mapped(&other, &mapping, memory));
        });
    }

    #[test]
    fn a_replacement_of_a_file_is_not_opened() {
        with_program(|pid, image, path, memory| {
            let aside = path.with_extension("old");
            std::fs::rename(path, &aside).unwrap();
            // The kernel has no link for this mapping, so only the path remains.
            let mut image = image.clone();
            image.mappings[0].end.0 += 1 << 20;
            let refused = |what: &str| {
                let found = open_by_name(pid, &image, path, memory);
                assert!(found.is_err(), "{what}: {found:?}");
            };
            std::fs::copy("/bin/cat", path).unwrap();
            refused("another program");
            std::fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/bin/cat", path).unwrap();
            refused("a link to another program");
            std::fs::remove_file(path).unwrap();
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
            refused("a FIFO");
            std::fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/dev/zero", path).unwrap();
            refused("a device");
            std::fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink(&aside, path).unwrap();
            assert!(
                open_by_name(pid, &image, path, memory).is_ok(),
                "a link to the file itself"
            );
        });
    }

    /// As [`open`], by names only.
    fn open_by_name(pid: ProcessId, image: &Image, path: &Path, memory: &Memory) -> Result<File, String> {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let file = files::open_inside(&root, path).map_err(|error| error.to_string())?;
        match is_mapped(&file, &image.mappings[0], memory) {
            true => Ok(file),
            false => Err("another file".to_owned()),
        }
    }

    #[test]
    fn absolute_links_stay_inside_of_a_root() {
        let root = tempfile::tempdir().unwrap();
        let inside = |path: &str| root.path().join(path);
        std::fs::create_dir_all(inside("etc")).unwrap();
        std::fs::write(inside("etc/passwd"), "the root's own").unwrap();
        std::os::unix::fs::symlink("/etc", inside("absolute")).unwrap();
        std::os::unix::fs::symlink("../../../../../../etc/passwd", inside("dots")).unwrap();
        std::os::unix::fs::symlink("/proc/self/root", inside("magic")).unwrap();
        for path in ["/etc/passwd", "/absolute/passwd", "/dots", "/../../etc/passwd"] {
            let file = files::open_inside(root.path(), Path::new(path)).unwrap();
            assert_eq!(std::io::read_to_string(file).unwrap(), "the root's own", "{path}");
        }
        assert!(files::open_inside(root.path(), Path::new("/magic/etc/passwd")).is_err());
    }
}
