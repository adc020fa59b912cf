//! Files that stay open so that parts can be read later, and reading from them.

use std::fs::File;
use std::ops::Range;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::buffer::spare_capacity;

use crate::identity::FileIdentity;

/// How many files are kept open. Further files are read as a whole at once.
const OPEN_FILES_MAX: usize = 128;

/// The number of files that are kept open.
static OPEN_FILES: AtomicUsize = AtomicUsize::new(0);

/// A file that stays open, and is counted in [`OPEN_FILES`].
///
/// The library keeps files open in somebody's program, which may close all descriptors, as daemons do, and get the same
/// number for a file of its own. So each read is of the file that was opened, or yields nothing, and a descriptor that
/// shows another file is not closed.
pub(crate) struct Kept {
    /// Always there until it is dropped.
    file: Option<File>,
    identity: FileIdentity,
}

impl Kept {
    /// Keeps a file that [`may_keep_one_more`] has counted, with its identity when it was opened.
    pub fn new(file: File, identity: FileIdentity) -> Kept {
        Kept {
            file: Some(file),
            identity,
        }
    }

    /// The bytes of a range, if the file is unchanged since it was opened.
    pub fn read(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let bytes = read(self.file.as_ref()?, range)?;
        self.now()?.has_contents_of(&self.identity).then_some(bytes)
    }

    /// What the descriptor shows now.
    fn now(&self) -> Option<FileIdentity> {
        let metadata = self.file.as_ref()?.metadata().ok()?;
        Some(FileIdentity::of(&metadata))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        OPEN_FILES.fetch_sub(1, Ordering::Relaxed);
        let place = |identity: FileIdentity| (identity.device, identity.inode);
        let is_ours = self.now().map(place) == Some(place(self.identity));
        if let Some(file) = self.file.take().filter(|_| !is_ours) {
            let _not_ours = file.into_raw_fd();
        }
    }
}

/// Counts one more file as open; false if the maximum is open already.
pub(crate) fn may_keep_one_more() -> bool {
    let more = |open: usize| open.checked_add(1).filter(|open| *open <= OPEN_FILES_MAX);
    OPEN_FILES
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        .is_ok()
}

/// The bytes of a range; `None` if the file lacks them, or there is no memory for them.
pub(crate) fn read(file: &File, range: Range<u64>) -> Option<Vec<u8>> {
    let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).ok()?;
    while bytes.len() < length {
        let at = range.start + bytes.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut bytes), at) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
    // A file that ends early yields fewer bytes.
    bytes.truncate(length);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::{AsRawFd, OwnedFd};

    use super::*;

    #[test]
    fn a_descriptor_that_the_program_took_over_is_neither_read_nor_closed() {
        let temporary = |text: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text).unwrap();
            file
        };
        let (ours, theirs) = (temporary(b"ours"), temporary(b"theirs"));
        let identity = FileIdentity::of(&ours.metadata().unwrap());
        assert!(may_keep_one_more());
        let kept = Kept::new(ours.try_clone().unwrap(), identity);
        assert_eq!(kept.read(0..4).as_deref(), Some(&b"ours"[..]));

        let mut descriptor = OwnedFd::from(ours);
        rustix::io::dup2(&theirs, &mut descriptor).unwrap();
        let number = descriptor.as_raw_fd();
        assert!(may_keep_one_more());
        let taken = Kept::new(File::from(descriptor), identity);
        assert_eq!(taken.read(0..4), None);
        drop(taken);
        let path = format!("/proc/self/fd/{number}");
        assert_eq!(std::fs::read(path).unwrap(), b"theirs");
        // This one is closed. Another thread may open a file that gets its number.
        let number = kept.file.as_ref().map(AsRawFd::as_raw_fd).unwrap();
        let shown = || std::fs::read_link(format!("/proc/self/fd/{number}")).ok();
        let ours = shown();
        assert!(ours.is_some());
        drop(kept);
        assert_ne!(shown(), ours);
    }
}
