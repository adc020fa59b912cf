//! Watchpoints, in the form that `watch.c` reads.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::c::{WatchHandler, Watchpoint};

/// `struct np_hit_watch`.
#[repr(C)]
pub struct Watch {
    /// `perf_event_attr.sig_data` of the watchpoint's events.
    pub key: u64,
    /// The caller's structure.
    pub owner: *mut Watchpoint,
    /// `None`: accesses are only counted, by the kernel.
    pub handler: Option<WatchHandler>,
    /// The index of the watchpoint's counters.
    pub index: u32,
    /// Not 0: the watchpoint's handler runs.
    pub enabled: AtomicU32,
    /// Not 0: `NP_WATCH_EXECUTE`.
    pub executes: u32,
    /// The number of accesses that the kernel has not counted.
    pub lost: AtomicU64,
}

// SAFETY: the owner is only passed on to handlers, which may run in any thread, as the caller was told.
unsafe impl Send for Watch {}

/// How many watchpoints can be published: more than any processor has debug registers.
const WATCHES: usize = 16;
/// How many bits of a key distinguish it from other keys.
const KEY_BITS: u32 = 24;

unsafe extern "C" {
    static np_hit_watches: [AtomicPtr<Watch>; WATCHES];
    static np_hit_watch_cookie: AtomicU64;
    fn np_hit_event(information: *const c_void, context: *mut c_void, original: u64, pushed: u64) -> i32;
}

/// The address of `np_event_hook`.
pub fn event_hook_address() -> u64 {
    np_hit_event as *const () as u64
}

/// A key that the program's own events do not have. The engine's lock is held.
pub fn watch_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // SAFETY: the variable is only used as an atomic.
    let cookie = unsafe { &np_hit_watch_cookie };
    if cookie.load(Ordering::Acquire) == 0 {
        let mut random = [0_u8; 8];
        // SAFETY: the buffer has 8 bytes. If the system has no random bytes, the bit below still keeps the key from
        // being a pointer.
        unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), libc::GRND_NONBLOCK) };
        let random = u64::from_le_bytes(random) | 1 << 63 | 1 << 55;
        cookie.store(random & !((1 << KEY_BITS) - 1), Ordering::Release);
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed) & ((1 << KEY_BITS) - 1);
    cookie.load(Ordering::Acquire) | number
}

/// Makes hits find the watch. `false`: there is no room. The watch must live until [`withdraw_watch`], and then until
/// all threads have left the hits that found it.
pub fn publish_watch(watch: &Watch) -> bool {
    let new = std::ptr::from_ref(watch).cast_mut();
    // SAFETY: the pointers are atomics, and written only under the engine's lock.
    let mut places = unsafe { &np_hit_watches }.iter();
    places.any(|place| {
        let free = place.load(Ordering::Acquire).is_null();
        if free {
            place.store(new, Ordering::Release);
        }
        free
    })
}

/// Hides the watch from hits.
pub fn withdraw_watch(watch: &Watch) {
    let old = std::ptr::from_ref(watch).cast_mut();
    // SAFETY: the pointers are atomics.
    for place in unsafe { &np_hit_watches } {
        let _ = place.compare_exchange(old, std::ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    }
}
