//! The file of memory that tracer and target share, and the question whether anybody still has it mapped.
//!
//! ```text
//!   open file description of the target    closed by the target at once, and kept by each mapping: the target's,
//!                                          and those of the children that it forks
//!      flock(LOCK_SH), taken by the tracer on a copy of the descriptor (pidfd_getfd(2))
//!   open file description of the tracer
//!      flock(LOCK_EX)                      fails as long as the other one exists
//! ```
//!
//! Only a program that has not executed anything yet is asked for a copy. In another one, a thread could put a file
//! under the number whose file system waits for somebody: then fstat(2) and close(2) of the copy would hold the tracer
//! up.
//!
//! A lock of flock(2) belongs to an open file description, and ends with it. So the tracer gets the exclusive lock only
//! after the last mapping is gone. No search through /proc can prove that: a process may be forked during it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{FlockOperation, flock, fstat, major, minor};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};

use crate::status::{Seccomp, Status};

/// See the module's description.
#[derive(Debug)]
pub struct SharedFile {
    file: OwnedFd,
    is_marked: bool,
}

impl SharedFile {
    /// The tracer's descriptor of a file, of whose mappings nothing is known.
    pub fn new(file: OwnedFd) -> SharedFile {
        SharedFile { file, is_marked: false }
    }

    /// Locks the target's open file description, to which its mappings belong. The target has one thread, which has not
    /// executed anything. Where there is no lock, mappings stay unknown: on a kernel before 5.6, in a container.
    pub(crate) fn mark(&mut self, target: BorrowedFd<'_>, descriptor: i32) {
        if !may_copy_descriptors() {
            return;
        }
        let lock = || -> Result<bool, rustix::io::Errno> {
            let theirs = pidfd_getfd(target, descriptor, PidfdGetfdFlags::empty())?;
            let (ours, shown) = (fstat(&self.file)?, fstat(&theirs)?);
            if (ours.st_dev, ours.st_ino) != (shown.st_dev, shown.st_ino) {
                return Ok(false);
            }
            flock(&theirs, FlockOperation::NonBlockingLockShared)?;
            Ok(true)
        };
        self.is_marked = lock().unwrap_or(false);
    }

    /// Device and inode, as a map shows them.
    pub fn identity(&self) -> Option<((u32, u32), u64)> {
        let status = fstat(&self.file).ok()?;
        Some(((major(status.st_dev), minor(status.st_dev)), status.st_ino))
    }

    /// Whether another process may have the memory mapped. `false` is a proof, unless the target itself has
    /// interfered.
    pub fn may_be_mapped(&self) -> bool {
        if !self.is_marked || flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return true;
        }
        let _ = flock(&self.file, FlockOperation::Unlock);
        false
    }
}

/// Whether the tracer itself may make a call that few programs make. A filter of a container's may kill it for that.
fn may_copy_descriptors() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    *KNOWN.get_or_init(|| Status::of(own).is_ok_and(|status| status.seccomp == Seccomp::Disabled))
}

impl AsFd for SharedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
