//! The tracer's view of the arena: the same memory as the target's, or the tracer's own memory, for a program that
//! traces no process.
//!
//! This file, [`crate::lost_pages`] and [`crate::clock`] hold the crate's only unsafe code.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::time::Duration;

use nanoprobe_arena::{Corrupt, Mapping};
use nanoprobe_target::SharedFile;
use nanoprobe_target::precise::precisely;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::thread::futex::{Wait, WaitFlags, WaitPtr, WaitvFlags, waitv};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::holders::ArenaFile;
use crate::lost_pages::Watched;

/// The most words that futex_waitv(2) takes.
const WORDS_MAX: usize = 128;

/// A mapping of the arena, which is unmapped when this value is dropped.
pub struct ArenaMemory {
    start: NonNull<u8>,
    bytes: usize,
    mapping: Mapping,
    /// Keeps the tracer alive when the kernel cannot provide a page.
    watched: Option<Watched>,
    /// The arena's file, kept open because other tracers see the lock on it. They take this tracer for dead once it is
    /// closed.
    file: Option<SharedFile>,
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
    pub fn shared(file: SharedFile, bytes: u64) -> Result<ArenaMemory, Errno> {
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
        arena.file = Some(file);
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
            file: None,
        })
    }

    /// Whether a target, or a child that it has forked, may have the arena mapped. `false` is a proof.
    pub fn may_be_mapped(&self) -> bool {
        self.file.as_ref().is_none_or(SharedFile::may_be_mapped)
    }

    /// Device and inode of the arena's file; `None` for memory of the tracer's own.
    pub(crate) fn identity(&self) -> Option<ArenaFile> {
        self.file.as_ref()?.identity()
    }

    /// Checked access to the arena.
    pub fn memory(&self) -> &Mapping {
        &self.mapping
    }

    /// Wakes the threads of the target that wait for a change of this word. They look again by themselves, only later.
    pub fn wake(&self, offset: u64) {
        let Ok(word) = self.mapping.futex(offset) else { return };
        // SAFETY: the word lies in the mapping, which this value keeps; the call reads and writes no memory of ours.
        let _ = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, libc::c_int::MAX) };
    }

    /// An error if pages of the mapping were lost. Zeros were read from these pages since then.
    pub fn damage(&self) -> Option<Corrupt> {
        let pages = self.watched.as_ref().map_or(0, Watched::lost);
        (pages > 0).then_some(Corrupt::Lost { pages })
    }
}

/// Waits until a thread of a target wakes the tracer after it has changed one of these words, or for so long. It does
/// not wait if a word has another value already, and yields whether that is so. A kernel without futex_waitv(2) wakes
/// nobody, so this sleeps.
pub fn wait_for_change<'a>(words: impl Iterator<Item = (&'a ArenaMemory, u64, u32)>, limit: Duration) -> bool {
    let wait = |(arena, offset, value): (&ArenaMemory, u64, u32)| {
        let mut wait = Wait::new();
        wait.val = value.into();
        wait.uaddr = WaitPtr::new(arena.memory().futex(offset).ok()?.cast());
        wait.flags = WaitFlags::SIZE_U32;
        Some(wait)
    };
    let waits: Vec<Wait> = words.filter_map(wait).take(WORDS_MAX).collect();
    let now = clock_gettime(ClockId::Monotonic);
    let until = Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32).saturating_add(limit);
    let until = Timespec {
        tv_sec: until.as_secs().cast_signed(),
        tv_nsec: until.subsec_nanos().into(),
    };
    match precisely(|| waitv(&waits, WaitvFlags::empty(), Some(&until), ClockId::Monotonic)) {
        Err(Errno::AGAIN) => return true,
        Ok(_) | Err(Errno::TIMEDOUT | Errno::INTR) => {}
        Err(_) => std::thread::sleep(limit),
    }
    false
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

    /// A wait that misses a change would last for a minute. A wait that does not wait would show the old value.
    #[test]
    fn a_change_that_is_told_ends_the_wait() {
        let arenas = [0, 1].map(|_| ArenaMemory::private(BYTES).unwrap());
        let [first, second] = &arenas;
        let words = || [(first, 8, 0), (second, 4096, 0)].into_iter();
        let minute = Duration::from_secs(60);
        let start = std::time::Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(!wait_for_change(words(), minute));
                assert_eq!(second.memory().load_u32(4096), Ok(1));
            });
            std::thread::sleep(Duration::from_millis(20));
            second.memory().store_u32(4096, 1).unwrap();
            second.wake(4096);
        });
        // The value has changed already.
        assert!(wait_for_change(words(), minute));
        assert!(start.elapsed() < minute);
        assert!(!wait_for_change([(first, 8, 0)].into_iter(), Duration::from_millis(1)));
    }

    #[test]
    fn a_page_that_is_cut_off_reads_as_zero_and_is_told() {
        let file = memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, BYTES).unwrap();
        let other = file.try_clone().unwrap();
        let arena = ArenaMemory::shared(SharedFile::new(file), BYTES).unwrap();
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
        let arena = ArenaMemory::shared(SharedFile::new(file), BYTES).unwrap();
        arena.memory().store_u64(4096, 7).unwrap();
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&other, punch, 0, BYTES).unwrap();
        assert_eq!(arena.memory().load_u64(4096), Ok(0));
        assert_eq!(arena.damage(), None);
    }
}
