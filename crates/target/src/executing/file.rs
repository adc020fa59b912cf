//! The file that a thread is about to execute, as the thread would find it.
//!
//! Programs with rights of their own (set-user-ID, set-group-ID, capabilities) lose them if they are executed while
//! their process is traced. So such a program is never held. In doubt a program counts as one. The file may be replaced
//! between this look and the execution: then the program runs without its rights, and the tracer has gained none.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat, openat2};
use rustix::io::Errno;

use crate::{ProcessId, ThreadId, raw};

/// The longest path that execve takes, with its NUL.
const PATH_MAX: usize = 4096;
const PAGE: u64 = 4096;
/// The kernel follows so many interpreters of scripts.
const INTERPRETERS_MAX: usize = 5;
/// The bytes of a file that the kernel looks at.
const HEAD_BYTES: u64 = 256;
const SET_ID: u32 = 0o6000;
const AT_FDCWD: i32 = -100;
const AT_EMPTY_PATH: u64 = 0x1000;
const X86_64: [u8; 2] = [62, 0];

/// The arguments of an execve: the target's, and so of any value.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub address: u64,
    /// The descriptor of the folder in which a relative path begins.
    pub folder: i32,
    /// `AT_*`
    pub flags: u64,
}

/// The kind of the file.
#[derive(Debug, PartialEq, Eq)]
pub enum Looked {
    /// A program that can be held, and traced, with its path.
    Program(String),
    /// No program: the execution will fail.
    NoProgram,
    /// A program that is left alone, with its path and the reason.
    LeftAlone(String, String),
}

/// Looks at the file that the arguments name.
pub fn look(tid: ThreadId, pid: ProcessId, path: Path) -> Looked {
    let Some(name) = read_path(pid, path.address) else {
        return Looked::NoProgram;
    };
    let shown = name.to_string_lossy().into_owned();
    let left = |reason: &str| Looked::LeftAlone(shown.clone(), reason.to_owned());
    let found = if name.is_empty() && path.flags & AT_EMPTY_PATH != 0 {
        open_path(&format!("/proc/{tid}/fd/{}", path.folder))
    } else {
        find(tid, pid, &name, path.folder)
    };
    let mut file = match found {
        Ok(file) => file,
        Err(Errno::XDEV) => return left("it has another root directory"),
        Err(_) => return Looked::NoProgram,
    };
    for _ in 0..=INTERPRETERS_MAX {
        let head = match examine(file) {
            Examined::Head(head) => head,
            Examined::NoFile => return Looked::NoProgram,
            Examined::LeftAlone(reason) => return left(reason),
        };
        if head.starts_with(b"\x7fELF") {
            return match (head.get(4), head.get(18..20)) {
                (Some(2), Some(machine)) if machine == X86_64 => Looked::Program(shown),
                _ => left("it is no program for x86-64"),
            };
        }
        let Some(interpreter) = interpreter(&head) else {
            // The kernel may have other formats (binfmt_misc); usually a shell runs such a file itself.
            return Looked::NoProgram;
        };
        file = match find(tid, pid, &interpreter, AT_FDCWD) {
            Ok(file) => file,
            Err(Errno::XDEV) => return left("it has another root directory"),
            Err(_) => return Looked::NoProgram,
        };
    }
    Looked::NoProgram
}

/// The path, which must end within its limit.
fn read_path(pid: ProcessId, address: u64) -> Option<CString> {
    let mut path = Vec::new();
    while path.len() < PATH_MAX {
        let at = address.checked_add(path.len() as u64)?;
        // Not beyond a page at once: the next page may not be readable.
        let mut part = vec![0; (PAGE - at % PAGE) as usize];
        let read = raw::read_memory(pid, at, &mut part).ok().filter(|read| *read > 0)?;
        part.truncate(read);
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            path.extend_from_slice(part.get(..end)?);
            return CString::new(path).ok();
        }
        path.append(&mut part);
    }
    None
}

fn open_path(path: &str) -> Result<OwnedFd, Errno> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a path as the thread would. XDEV: the thread's root is not ours, and the path leads out of that root, or out
/// of its start folder.
fn find(tid: ThreadId, pid: ProcessId, path: &CStr, folder: i32) -> Result<OwnedFd, Errno> {
    const SELF: [&[u8]; 2] = [b"/proc/self/", b"/proc/thread-self/"];
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let bytes = path.to_bytes();
    let rest = SELF.iter().find_map(|prefix| bytes.strip_prefix(*prefix));
    if let Some(rest) = rest.filter(|_| has_our_root(tid)) {
        let own = [format!("/proc/{pid}/").as_bytes(), rest].concat();
        return openat(CWD, OsStr::from_bytes(&own), flags, Mode::empty());
    }
    let is_absolute = bytes.first() == Some(&b'/');
    let start = match folder {
        _ if is_absolute => open_path(&format!("/proc/{tid}/root"))?,
        AT_FDCWD => open_path(&format!("/proc/{tid}/cwd"))?,
        folder => open_path(&format!("/proc/{tid}/fd/{folder}"))?,
    };
    if has_our_root(tid) {
        return openat(start.as_fd(), path, flags, Mode::empty());
    }
    let within = if is_absolute {
        ResolveFlags::IN_ROOT
    } else {
        ResolveFlags::BENEATH
    };
    openat2(start.as_fd(), path, flags, Mode::empty(), within).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::ACCESS => errno,
        _ => Errno::XDEV,
    })
}

/// Whether paths mean the same for the thread as for us.
fn has_our_root(tid: ThreadId) -> bool {
    let root = |path: &str| fs::metadata(path).map(|root| (root.dev(), root.ino())).ok();
    let namespace = |id: &str| fs::read_link(format!("/proc/{id}/ns/mnt")).ok();
    let own = namespace("self");
    own.is_some() && own == namespace(&tid.to_string()) && root("/") == root(&format!("/proc/{tid}/root"))
}

enum Examined {
    Head(Vec<u8>),
    NoFile,
    LeftAlone(&'static str),
}

/// The head of a file without rights of its own.
fn examine(file: OwnedFd) -> Examined {
    let file = File::from(file);
    let Ok(metadata) = file.metadata() else {
        return Examined::NoFile;
    };
    if !metadata.is_file() {
        return Examined::NoFile;
    }
    if metadata.mode() & SET_ID != 0 {
        return Examined::LeftAlone("it is set-user-ID or set-group-ID, and would lose that under a tracer");
    }
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut capabilities = [0u8; 64];
    match rustix::fs::getxattr(link.as_str(), "security.capability", &mut capabilities[..]) {
        Err(Errno::NODATA | Errno::NOTSUP) => {}
        Ok(_) => return Examined::LeftAlone("it has capabilities, and would lose them under a tracer"),
        Err(_) => return Examined::LeftAlone("whether it has capabilities is not known"),
    }
    // The descriptor leads to a regular file, so this neither waits nor changes anything.
    let mut head = Vec::new();
    match File::open(&link).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head)) {
        Ok(_) => Examined::Head(head),
        Err(_) => Examined::LeftAlone("its file cannot be read"),
    }
}

/// The interpreter that a script names.
fn interpreter(head: &[u8]) -> Option<CString> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let begin = line.iter().position(|byte| !blank(byte))?;
    let word = line.get(begin..)?.split(|byte| blank(byte) || *byte == 0).next()?;
    CString::new(word).ok().filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(path: &str) -> Looked {
        let path = CString::new(path).unwrap();
        let own = std::process::id().cast_signed();
        let arguments = Path {
            address: path.as_ptr() as u64,
            folder: AT_FDCWD,
            flags: 0,
        };
        look(own, own, arguments)
    }

    fn file(folder: &std::path::Path, name: &str, content: &[u8], mode: u32) -> String {
        use std::os::unix::fs::PermissionsExt as _;
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn programs_and_scripts_are_told_from_what_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(looked("/proc/self/exe"), Looked::Program("/proc/self/exe".to_owned()));
        assert_eq!(looked("/nothing/here"), Looked::NoProgram);
        assert_eq!(looked("/"), Looked::NoProgram);
        assert_eq!(looked("/dev/null"), Looked::NoProgram);
        let script = file(folder.path(), "script", b"#! /proc/self/exe -x\n", 0o755);
        assert_eq!(looked(&script), Looked::Program(script));
        let around = file(
            folder.path(),
            "around",
            format!("#!{}/around\n", folder.path().display()).as_bytes(),
            0o755,
        );
        assert_eq!(looked(&around), Looked::NoProgram);
        assert_eq!(looked(&file(folder.path(), "text", b"echo", 0o755)), Looked::NoProgram);
        assert_eq!(looked(&file(folder.path(), "empty", b"", 0o755)), Looked::NoProgram);
    }

    #[test]
    fn programs_with_rights_of_their_own_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let own = fs::read("/proc/self/exe").unwrap();
        let head = own.get(..64).unwrap();
        for mode in [0o4755, 0o2755, 0o6711] {
            let path = file(folder.path(), "privileged", head, mode);
            assert!(matches!(looked(&path), Looked::LeftAlone(..)), "{mode:o}");
            let script = file(folder.path(), "script", format!("#!{path}\n").as_bytes(), 0o755);
            assert!(matches!(looked(&script), Looked::LeftAlone(..)), "{mode:o}");
        }
        let mut other = head.to_vec();
        *other.get_mut(4).unwrap() = 1;
        let path = file(folder.path(), "other", &other, 0o755);
        assert!(matches!(looked(&path), Looked::LeftAlone(..)));
    }
}
