//! The identity of a file, which shows whether the file is still unchanged.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The properties that distinguish a file from other files, and from itself before a change of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
    pub bytes: u64,
    /// The time of the last write: seconds, nanoseconds. The owner can set it.
    pub written: (i64, i64),
    /// The time of the last change, also of other properties of the inode. Nobody can set it.
    pub changed: (i64, i64),
}

impl FileIdentity {
    /// The identity of an open file.
    pub fn of(metadata: &Metadata) -> FileIdentity {
        FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether an open file, which had the other identity before, seems to have the same contents. A new name or other
    /// permissions change no contents.
    pub fn has_contents_of(&self, before: &FileIdentity) -> bool {
        FileIdentity {
            changed: before.changed,
            ..*self
        } == *before
    }
}
