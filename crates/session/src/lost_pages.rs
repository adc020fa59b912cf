//! Pages of shared memory that the kernel cannot give.
//!
//! The arena's size is sealed, so the target cannot cut pages off. Two dangers remain: no memory is left for a page
//! that was never touched (strict overcommit), or a page of memory is broken. The kernel then sends SIGBUS to the
//! thread that touches the page. That would kill the tracer, with its patches in the text. So its handler maps a page
//! of zeros there, which only the tracer sees, and counts it. The session looks at the count, ends, and says why.
//!
//! A SIGBUS of any other cause goes to the handler that was installed before.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const PAGE_BYTES: usize = 4096;
/// How many mappings can be watched at the same time.
const WATCHED_MAX: usize = 64;

struct Slot {
    /// 0: the slot is free. Written last, and taken away first.
    start: AtomicUsize,
    bytes: AtomicUsize,
    lost: AtomicU64,
}

static SLOTS: [Slot; WATCHED_MAX] = [const {
    Slot {
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        lost: AtomicU64::new(0),
    }
}; WATCHED_MAX];

/// The slot is taken, but does not hold a mapping yet.
const CLAIMED: usize = 1;

/// A mapping that is watched until this value is dropped.
pub struct Watched {
    slot: &'static Slot,
}

impl Watched {
    /// Watches a shared mapping of ours. `None`: too many mappings are watched already.
    pub fn new(start: usize, bytes: usize) -> Option<Watched> {
        install();
        let claim = |slot: &&Slot| {
            slot.start
                .compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let slot = SLOTS.iter().find(claim)?;
        slot.bytes.store(bytes, Ordering::Relaxed);
        slot.lost.store(0, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        Some(Watched { slot })
    }

    /// How many pages were lost.
    pub fn lost(&self) -> u64 {
        self.slot.lost.load(Ordering::Acquire)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.slot.start.store(0, Ordering::Release);
    }
}

/// The action for SIGBUS before ours was installed.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, before the handler is installed that reads it; see `install`.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a sigaction of zeros is a valid one; the kernel fills in the old one before the handler can run
        // for the first time, and `Once` lets nobody write it again. The handler does only what a handler may do.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, std::ptr::null(), (*BEFORE.0.get()).as_mut_ptr());
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        }
    });
}

extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo to a handler with SA_SIGINFO.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // A signal that another process has sent has no address.
    let is_fault = code > 0;
    let slot = SLOTS.iter().find(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        start > CLAIMED && address.wrapping_sub(start) < slot.bytes.load(Ordering::Relaxed)
    });
    if let Some(slot) = slot.filter(|_| is_fault)
        && put_zeros(address - address % PAGE_BYTES)
    {
        slot.lost.fetch_add(1, Ordering::Release);
        return;
    }
    // SAFETY: `install` has written it before this handler was there.
    let before = unsafe { (*BEFORE.0.get()).assume_init_ref() };
    hand_on(before, signal, info, context);
}

/// Maps a page of zeros at an address. Yields whether this succeeded. Does not change errno.
fn put_zeros(page: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the page lies in a shared mapping of ours, whose readers expect any bytes at any time. mmap is a plain
    // system call, and errno is put back.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let mapped = libc::mmap(
            page as *mut libc::c_void,
            PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        );
        *errno = saved;
        mapped != libc::MAP_FAILED
    }
}

/// Does what the kernel would have done without our handler.
fn hand_on(before: &libc::sigaction, signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: a handler that the program installed is called as the kernel would call it. The default
    // action is put back, and the instruction that faulted, or the signal that is sent again, meets it.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, before, std::ptr::null_mut());
                libc::raise(signal);
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(i32) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
