//! The tracer's view of the arena: the same memory as the target's, or, for a program that traces no process, our own.
//!
//! This file and [`crate::clock`] hold the crate's only unsafe code.

use std::os::fd::AsFd;
use std::ptr::NonNull;

use nanoprobe_arena::Mapping;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A mapping that lives as long as this value.
pub struct ArenaMemory {
    start: NonNull<u8>,
    bytes: usize,
    mapping: Mapping,
}

// SAFETY: what it hands out, a `Mapping`, may be used by several threads at once; the pointer is only used to unmap, by
// the last owner.
unsafe impl Send for ArenaMemory {}
// SAFETY: as above.
unsafe impl Sync for ArenaMemory {}

impl ArenaMemory {
    /// Maps what the target has made and we have opened.
    ///
    /// # Errors
    /// No room in our address space, or a limit on it.
    pub fn shared(file: impl AsFd, bytes: u64) -> Result<ArenaMemory, Errno> {
        let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing of ours is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
        ArenaMemory::over(start.cast(), bytes)
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
        Ok(ArenaMemory { start, bytes, mapping })
    }

    /// Checked access to it.
    pub fn memory(&self) -> &Mapping {
        &self.mapping
    }
}

impl Drop for ArenaMemory {
    fn drop(&mut self) {
        // SAFETY: this value made the mapping, and no view of it outlives the value.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
