//! Files that stay open so that parts can be read later, and reading from them.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::buffer::spare_capacity;

use crate::identity::FileIdentity;

/// How many files are kept open. Further files are read as a whole at once.
const OPEN_FILES_MAX: usize = 128;

/// The number of files that are kept open.
static OPEN_FILES: AtomicUsize = AtomicUsize::new(0);

/// A file that stays open, and is counted in [`OPEN_FILES`].
pub(crate) struct Kept {
    file: File,
    identity: FileIdentity,
}

impl Kept {
    /// Keeps a file that [`may_keep_one_more`] has counted, with its identity when it was opened.
    pub fn new(file: File, identity: FileIdentity) -> Kept {
        Kept { file, identity }
    }

    /// The bytes of a range, if the file is unchanged since it was opened.
    pub fn read(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let bytes = read(&self.file, range)?;
        let now = FileIdentity::of(&self.file.metadata().ok()?);
        (now == self.identity).then_some(bytes)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        OPEN_FILES.fetch_sub(1, Ordering::Relaxed);
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
