//! Which file it is, and whether it still is as it was.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// What distinguishes a file from another one, and from itself before a change of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Its length.
    pub bytes: u64,
    /// When it was written last: seconds, nanoseconds.
    pub written: (i64, i64),
}

impl FileIdentity {
    /// Of an open file.
    pub fn of(metadata: &Metadata) -> FileIdentity {
        FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}
