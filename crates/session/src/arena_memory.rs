//! The tracer's view of the arena: the same memory as the target's, or the tracer's own memory, for a program that
//! traces no process.
//!
//! This file, [`crate::lost_pages`] and [`crate::clock`] hold the crate's only unsafe code.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use nanoprobe_arena::{Corrupt, Mapping};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::lost_pages::Watched;

/// A mapping of the arena, which is unmapped when this value is dropped.
pub struct ArenaMemory {
    start: NonNull<u8>,
    bytes: usize,
    mapping: Mapping,
    /// Keeps the tracer alive when the kernel cannot provide a page.
    watched: Option<Watched>,
    /// The arena's file, kept open because other tracers see the lock on it. They take this tracer for dead once it is
    /// closed.
    _file: Option<OwnedFd>,
}

// SAFETY: the `Mapping` that it hands out may be used by several threads at once; the pointer is only used to unmap, by
// the last owner.
unsafe impl Send for ArenaMemory {}
// SAFETY: as above.
unsafe impl Sync for ArenaMemory {}

impl ArenaMemory {
    /// Maps the file that the target has made and the tracer has opened.
    ///
    /// # Errors
    /// The tracer's address space is full or limited.
    pub fn shared(file: OwnedFd, bytes: u64) -> Result<ArenaMemory, Errno> {
        let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing of ours is replaced.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )?
        };
        let mut arena = ArenaMemory::over(start.cast(), bytes)?;
        arena.watched = Some(Watched::new(start as usize, bytes).ok_or(Errno::NOMEM)?);
        arena._file = Some(file);
        Ok(arena)
    }

    /// Private memory of zeros.
    ///
    /// # Errors
    /// As for [`ArenaMemory::shared`].
    pub fn private(bytes: u64) -> Result<ArenaMemory, Errno> {
        let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing of ours is replaced.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        ArenaMemory::over(start.cast(), bytes)
    }

    fn over(start: *mut u8, bytes: usize) -> Result<ArenaMemory, Errno> {
        let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
        // SAFETY: `bytes` bytes are mapped at `start`, page-aligned, and unmapped only when this value, which owns the
        // view and hands out nothing but references to it, is dropped.
        let mapping = unsafe { Mapping::new(start.as_ptr(), bytes) };
        Ok(ArenaMemory {
            start,
            bytes,
            mapping,
            watched: None,
            _file: None,
        })
    }

    /// Checked access to the arena.
    pub fn memory(&self) -> &Mapping {
        &self.mapping
    }

    /// An error if pages of the mapping were lost. Zeros were read from these pages since then.
    pub fn damage(&self) -> Option<Corrupt> {
        let pages = self.watched.as_ref().map_or(0, Watched::lost);
        (pages > 0).then_some(Corrupt::Lost { pages })
    }
}

impl Drop for ArenaMemory {
    fn drop(&mut self) {
        // The watch ends first, because other mappings may take the addresses after the unmapping.
        self.watched = None;
        // SAFETY: this value made the mapping, and no view of it outlives the value.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use nanoprobe_arena::Memory as _;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const BYTES: u64 = 4 * 4096;

    #[test]
    fn a_page_that_is_cut_off_reads_as_zero_and_is_told() {
        let file = memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, BYTES).unwrap();
        let other = file.try_clone().unwrap();
        let arena = ArenaMemory::shared(file, BYTES).unwrap();
        arena.memory().store_u64(4096, 7).unwrap();
        arena.memory().store_u64(0, 5).unwrap();
        assert_eq!(arena.damage(), None);
        ftruncate(&other, 4096).unwrap();
        assert_eq!(arena.memory().load_u64(4096), Ok(0));
        assert_eq!(arena.memory().copy(0, BYTES).unwrap().first(), Some(&5));
        assert_eq!(arena.damage(), Some(Corrupt::Lost { pages: 3 }));
        // The file is anonymous, so the write reaches no other process.
        arena.memory().store_u64(4096, 9).unwrap();
        assert_eq!(arena.memory().load_u64(4096), Ok(9));
    }

    #[test]
    fn hole_punching_takes_no_page_away() {
        let file = memfd_create("holes", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, BYTES).unwrap();
        let other = file.try_clone().unwrap();
        let arena = ArenaMemory::shared(file, BYTES).unwrap();
        arena.memory().store_u64(4096, 7).unwrap();
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&other, punch, 0, BYTES).unwrap();
        assert_eq!(arena.memory().load_u64(4096), Ok(0));
        assert_eq!(arena.damage(), None);
    }
}
