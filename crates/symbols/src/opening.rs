//! All opening of files.
//!
//! A process that can write to a folder on a path decides where the path leads. So a path is first looked up without
//! effects (O_PATH opens no device and waits for no FIFO). Then the result is examined, and exactly that file is
//! opened for reading. A caller that knows which file is meant compares device and inode of the result.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::error::Error;

/// The largest file that [`read`] reads.
pub const WHOLE_BYTES_MAX: u64 = 256 << 20;
/// A regular file on our own root, open for reading.
///
/// # Errors
///
/// When the path leads to something else, or the operating system refuses.
pub fn open_regular(path: &Path) -> Result<File, Error> {
    open_inside(Path::new("/"), path)
}

/// A regular file by its path inside of a root (/proc/PID/root): no link, absolute or with `..`, leads out of it. With
/// our own root (`/`) the path is an ordinary one, and may be relative.
///
/// # Errors
///
/// As [`open_regular`]; also with a kernel before 5.6, which lacks such a look-up.
pub fn open_inside(root: &Path, path: &Path) -> Result<File, Error> {
    reopen(&look_up(root, path, OFlags::empty())?, path)
}

/// [`open_inside`] for a folder in which every user may write: the last name of the path must not be a link.
///
/// # Errors
///
/// As [`open_inside`]; also when the last name is a link.
pub fn open_unlinked(root: &Path, path: &Path) -> Result<File, Error> {
    reopen(&look_up(root, path, OFlags::NOFOLLOW)?, path)
}

/// The file to which a path leads for a process with this root, as an O_PATH descriptor.
fn look_up(root: &Path, path: &Path, flags: OFlags) -> Result<OwnedFd, Error> {
    // If another process renames a part of the path meanwhile, the kernel asks to try again.
    const TRIES: usize = 16;
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    if root == Path::new("/") {
        return rustix::fs::open(path, flags, Mode::empty()).map_err(|error| io(path, error.into()));
    }
    let failed = |error: rustix::io::Errno| io(&root.join(path.strip_prefix("/").unwrap_or(path)), error.into());
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, folder, Mode::empty()).map_err(failed)?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let mut last = rustix::io::Errno::AGAIN;
    for _ in 0..TRIES {
        match rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve) {
            Err(error @ (rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)) => last = error,
            done => return done.map_err(failed),
        }
    }
    Err(failed(last))
}

/// Opens for reading the file that a path has led to (an O_PATH descriptor), if it is a regular file. `path` is for
/// messages.
///
/// # Errors
///
/// As [`open_regular`].
pub fn reopen(found: &OwnedFd, path: &Path) -> Result<File, Error> {
    let status = rustix::fs::fstat(found).map_err(|error| io(path, error.into()))?;
    if !rustix::fs::FileType::from_raw_mode(status.st_mode).is_file() {
        return Err(Error::Unreadable {
            path: path.into(),
            what: "not a regular file",
        });
    }
    // If another process holds a lease on the file, do not wait for it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    let file = rustix::fs::openat(CWD, link, flags, Mode::empty());
    file.map(File::from).map_err(|error| io(path, error.into()))
}

/// The contents of a regular file on our own root, of at most [`WHOLE_BYTES_MAX`] bytes.
///
/// # Errors
///
/// When the path leads to something else, or the operating system refuses.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    use std::io::Read;
    let file = open_regular(path)?;
    let metadata = file.metadata().map_err(|source| io(path, source))?;
    if metadata.len() > WHOLE_BYTES_MAX {
        return Err(Error::Unreadable {
            path: path.into(),
            what: "larger than 256 MiB",
        });
    }
    let mut bytes = Vec::new();
    file.take(WHOLE_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|source| io(path, source))?;
    Ok(bytes)
}

pub(crate) fn io(path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        path: path.into(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        for path in ["/dev/zero", "/"] {
            assert!(
                matches!(read(Path::new(path)), Err(Error::Unreadable { .. })),
                "{path} is no regular file"
            );
        }
        assert!(matches!(read(Path::new("/nonexistent")), Err(Error::Io { .. })));
    }
}
