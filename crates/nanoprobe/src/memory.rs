//! The end of the command when memory runs out, for example under `ulimit -v` or `-d`.
//!
//! By default a Rust program then aborts, which would leave our patches in the traced program's text. So a reserve is
//! kept while we trace. The first failing request frees the reserve, and asks for the end of tracing, as Ctrl-C does.
//! When the reserve is used up, too, the command says so and ends with status 1; `nanoprobe restore` then takes the
//! probes back.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The reserved address space, which is never touched. Taking all probes back needs less.
const RESERVE_BYTES: usize = 32 << 20;
const MESSAGE: &[u8] =
    b"nanoprobe: out of memory; is it limited (ulimit -v, ulimit -d)? If a process was being traced: \
    nanoprobe restore PID\n";

static RESERVE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// The system's allocator, with a reserve.
pub struct Reserving;

/// Blocks of at least this size get their own mapping, which is unmapped when they are freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: i32 = 1 << 20;
/// The free memory that stays at the heap's end for later requests.
#[cfg(target_env = "gnu")]
const SPARE_BYTES: i32 = 8 << 20;

/// Tunes the C library's allocator. By default it keeps freed blocks of up to 128 bytes apart, and searches all of them
/// whenever a large block is requested: with a hundred thousand sites, an eighth of planning's time. And once large
/// blocks were freed, it places the next ones among the small ones, where they leave holes.
pub fn tune() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no other thread runs yet; the options take numbers of bytes.
    unsafe {
        libc::mallopt(libc::M_MXFAST, 0);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, SPARE_BYTES);
    }
}

/// Gives free memory back to the system, also from among used blocks. What was known of an ended process lies between
/// that of others, so the heap would stay as large as it ever was.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call locks the allocator's own structures, and changes no block in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// How many bytes are in use; `None`: the allocator does not say.
pub fn in_use() -> Option<u64> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call only reads the allocator's own structures.
        let found = unsafe { libc::mallinfo2() };
        Some((found.uordblks + found.hblkhd) as u64)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

fn reserve_layout() -> Option<Layout> {
    Layout::from_size_align(RESERVE_BYTES, 4096).ok()
}

/// Keeps a reserve from now on, if there is enough memory.
pub fn reserve() {
    let Some(layout) = reserve_layout() else { return };
    // SAFETY: the layout has a size.
    let reserve = unsafe { System.alloc(layout) };
    let before = RESERVE.swap(reserve, Ordering::AcqRel);
    give_back(before);
}

fn give_back(reserve: *mut u8) -> bool {
    match reserve_layout() {
        Some(layout) if !reserve.is_null() => {
            // SAFETY: the block came from `reserve`, with that layout. Taking it off the static
            // makes this its only owner.
            unsafe { System.dealloc(reserve, layout) };
            true
        }
        _ => false,
    }
}

/// Frees the reserve, and makes the request again. Ends the process if the request fails again.
fn again(request: impl Fn() -> *mut u8) -> *mut u8 {
    if give_back(RESERVE.swap(std::ptr::null_mut(), Ordering::AcqRel)) {
        nanoprobe_session::interrupt::request();
        let block = request();
        if !block.is_null() {
            return block;
        }
    }
    // SAFETY: writes our own bytes, and exits without running code that may need memory.
    unsafe {
        libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::_exit(1)
    }
}

// SAFETY: every block comes from the system's allocator, and is returned to it with the same layout.
unsafe impl GlobalAlloc for Reserving {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passes on the caller's promise.
        let request = || unsafe { System.alloc(layout) };
        let block = request();
        if block.is_null() { again(request) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let request = || unsafe { System.alloc_zeroed(layout) };
        let block = request();
        if block.is_null() { again(request) } else { block }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above; a failed request leaves the block as it was.
        let request = || unsafe { System.realloc(block, layout, bytes) };
        let moved = request();
        if moved.is_null() { again(request) } else { moved }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}
