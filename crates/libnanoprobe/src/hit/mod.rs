//! The hit path, seen from Rust: what `hit.h` declares, field by field.
//!
//! All that a hit reads is built here and published by one store. All that a hit writes lies in its thread's block.

mod calls;
mod hook;
mod watch;

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

pub use calls::*;
pub use hook::Hook;
pub use watch::*;

use crate::c::{FaultHandler, PostHandler, PreHandler, Registers};

/// `np_hit_function`.
pub type Function = unsafe extern "C" fn(entry: *mut Entry, registers: *mut Registers) -> i32;

/// `struct np_hit_entry`: one registered probe at a site.
#[repr(C)]
pub struct Entry {
    /// The caller's structure.
    pub owner: *mut c_void,
    /// A plain probe's pre-handler.
    pub pre: Option<PreHandler>,
    /// A plain probe's post-handler.
    pub post: Option<PostHandler>,
    /// A plain probe's fault handler.
    pub fault: Option<FaultHandler>,
    /// For kinds other than plain probes: the function that is called instead of `pre`.
    pub function: Option<Function>,
    /// The index of the entry's counters.
    pub index: u32,
    /// Not 0: the entry is enabled.
    pub enabled: AtomicU32,
    /// Data that only `function` knows.
    pub data: AtomicPtr<c_void>,
}

// SAFETY: the data behind the pointers belongs to the caller, who knows that handlers run in every thread.
unsafe impl Send for Entry {}
// SAFETY: as above; the only field that changes is an atomic.
unsafe impl Sync for Entry {}

/// `struct np_hit_site`.
#[repr(C)]
pub struct Site {
    /// The address of the probed instruction.
    pub address: u64,
    /// `struct np_hit_list`: a [`ListHeader`], then pointers to entries.
    pub list: AtomicPtr<ListHeader>,
    /// The address of the instruction after the probed instruction.
    pub next: u64,
    /// The number of hits in threads for whose block there was no memory.
    pub missed_without_thread: AtomicU64,
    /// The function that is called when handlers are left out; 0: no function.
    pub otherwise: AtomicU64,
    /// For a branch, call or return: `struct np_emulation`; else 0.
    pub emulation: u64,
    /// The next site in the list of those with fault handlers.
    pub next_with_fault: AtomicPtr<Site>,
}

/// The head of `struct np_hit_list`.
#[repr(C)]
pub struct ListHeader {
    /// How many entries follow.
    pub count: u64,
    /// [`Saved`]: the registers that some handler may change.
    pub saved: u64,
    /// Not 0: post-handlers run after an emulated instruction.
    pub emulates: u64,
    /// The only entry, if a hit does nothing but call that entry; else NULL.
    pub only: *const Entry,
    /// The function to call for it, with [`ListHeader::argument`] and the registers.
    pub call: u64,
    /// The argument: the caller's structure, or the entry.
    pub argument: u64,
    /// Offset in a [`Thread`] of the counter that is incremented.
    pub counter: u64,
    /// Points at the word that says whether the only entry is enabled; without such an entry, at a constant 0.
    pub enabled: *const AtomicU32,
}

/// The constant 0 for lists with no such entry.
static NEVER: AtomicU32 = AtomicU32::new(0);

/// Which registers are saved around handlers: `enum np_hit_saved`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Saved {
    /// Nothing.
    Nothing = 0,
    /// errno.
    Errno = 1,
    /// errno, xmm0-15 and MXCSR.
    Xmm = 8,
    /// errno, and all SIMD registers that are live.
    All = 16,
}

impl ListHeader {
    /// The header of a list with this many entries, whose hits take the full way.
    pub fn new(count: u64, saved: Saved, emulates: bool) -> ListHeader {
        ListHeader {
            count,
            saved: saved as u64,
            emulates: u64::from(emulates),
            only: std::ptr::null(),
            call: 0,
            argument: 0,
            counter: 0,
            enabled: &raw const NEVER,
        }
    }

    /// Chooses the short way: there is one entry, it has no fault handler, and nothing is emulated. `short` is called
    /// in place of the entry's function.
    pub fn set_only(&mut self, entry: &Entry, short: Option<u64>) {
        self.only = entry;
        self.enabled = &raw const entry.enabled;
        let counter =
            std::mem::offset_of!(Thread, counters) as u64 + u64::from(entry.index) * size_of::<Counters>() as u64;
        (self.call, self.argument, self.counter) = match (entry.function, entry.pre) {
            // Return probes count their hits themselves.
            (Some(function), _) => (
                short.unwrap_or(function as *const () as u64),
                std::ptr::from_ref(entry) as u64,
                std::mem::offset_of!(Thread, uncounted) as u64,
            ),
            (None, Some(pre)) => (pre as *const () as u64, entry.owner as u64, counter),
            (None, None) => (np_hit_nothing as *const () as u64, 0, counter),
        };
    }
}

/// `struct np_hit_counters`.
#[repr(C)]
pub struct Counters {
    /// How often the handlers ran.
    pub hits: AtomicU64,
    /// How often the handlers were left out.
    pub missed: AtomicU64,
}

/// The most probes at a time: `NP_PROBES_MAX`.
pub const PROBES_MAX: usize = 16384;

/// `struct np_hit_thread`.
#[repr(C)]
pub struct Thread {
    /// Not 0 while handlers run.
    pub depth: AtomicU64,
    /// How often the thread has left its handlers.
    pub epoch: AtomicU64,
    error: AtomicPtr<i32>,
    /// The next block.
    pub next: AtomicPtr<Thread>,
    /// The thread that owns the block; 0: no thread does.
    pub tid: AtomicU64,
    /// The entry whose handler runs.
    pub current: AtomicPtr<Entry>,
    uncounted: AtomicU64,
    recover: [u64; 5],
    recoverable: AtomicU64,
    jprobe: AtomicU64,
    fallback: i32,
    calls: AtomicU32,
    call: AtomicU64,
    /// A number that differs for every thread that ever had a block.
    pub life: AtomicU64,
    readable: AtomicU64,
    /// The counters, by [`Entry::index`].
    pub counters: [Counters; PROBES_MAX],
}

unsafe extern "C" {
    static __start_np_hit_path: u8;
    static __stop_np_hit_path: u8;
    static mut np_simd_features: u32;
    static mut np_simd_live: u32;
    static mut np_simd_initial: u32;
    static mut np_hit_emulate: u64;
    static np_hit_sites_with_fault: AtomicPtr<Site>;
    fn np_hit_fault(signal: i32, context: *mut c_void, original: u64, pushed: u64) -> i32;
    fn np_hit(site: *mut Site, registers: *mut Registers, behind: u64) -> u32;
    fn np_hit_nothing();
    fn np_hit_exit(site: *mut Site, registers: *mut Registers, behind: u64) -> u32;
    fn np_hit_behind(site: *mut Site, registers: *mut Registers, behind: u64) -> u32;
    fn np_hit_forked();
    fn np_hit_clear_holds(index: u32);
    fn np_hit_watch_threads(ends: unsafe extern "C" fn(*mut Thread)) -> i32;
    fn np_resume();
    /// The hit function of jumper probes.
    pub fn np_jprobe_hit(entry: *mut Entry, registers: *mut Registers) -> i32;
    /// The stack pointer with which the calling thread leaves its current mirror; 0: the thread is in none.
    pub fn np_jprobe_end() -> u64;
    /// Leaves the mirror. Reached by a jump, with that stack pointer in rdi.
    pub fn np_jprobe_leave();
    /// The hit function of hooks.
    pub fn np_hook_hit(entry: *mut Entry, registers: *mut Registers) -> i32;
    /// The hit function at the dynamic linker's debugger hook.
    pub fn np_replaced_hit(entry: *mut Entry, registers: *mut Registers) -> i32;
    fn np_hit_threads() -> *mut Thread;
    fn np_hit_threads_address() -> *mut *mut Thread;
    fn np_hit_is_inside() -> i32;
}

/// The address of the detours' dispatcher.
pub fn dispatch_address() -> u64 {
    np_hit as *const () as u64
}

/// The address of the dispatcher for an exit at which a return probe is the only member.
pub fn dispatch_exit_address() -> u64 {
    np_hit_exit as *const () as u64
}

/// The address of the code that loads all registers.
pub fn resume_address() -> u64 {
    np_resume as *const () as u64
}

/// Whether an address lies in the hit path itself.
pub fn is_path(address: u64) -> bool {
    // The linker's symbols around the section of the hit path.
    let (start, end) = (
        &raw const __start_np_hit_path as u64,
        &raw const __stop_np_hit_path as u64,
    );
    (start..end).contains(&address)
}

/// The blocks of all threads, dead ones included.
pub fn threads() -> impl Iterator<Item = &'static Thread> {
    // SAFETY: blocks are added complete, and are never freed; all their fields that change are atomics here.
    let first = unsafe { np_hit_threads().as_ref() };
    std::iter::successors(first, |block| {
        // SAFETY: as above.
        unsafe { block.next.load(Ordering::Acquire).as_ref() }
    })
}

/// Where the address of the first block is kept.
pub fn threads_address() -> u64 {
    // SAFETY: the function only yields the address of a variable.
    unsafe { np_hit_threads_address() as u64 }
}

/// Whether the calling thread is inside of a handler.
pub fn in_handler() -> bool {
    // SAFETY: it reads the thread's own block, which is never freed.
    unsafe { np_hit_is_inside() != 0 }
}

/// The counts of an index, summed over all threads: hits and missed.
pub fn counts(index: u32) -> (u64, u64) {
    let of = |block: &'static Thread| block.counters.get(index as usize);
    threads().filter_map(of).fold((0, 0), |(hits, missed), counters| {
        (
            hits.wrapping_add(counters.hits.load(Ordering::Relaxed)),
            missed.wrapping_add(counters.missed.load(Ordering::Relaxed)),
        )
    })
}

/// Finds out what the processor has. Called before the first probe.
pub fn initialise() {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const OSXSAVE: u32 = 1 << 27;
    const AVX512F: u32 = 1 << 16;
    const XGETBV1: u32 = 1 << 2;
    let basic = __cpuid(1);
    let (mut features, mut live, mut initial) = (0, 1, 0);
    if basic.ecx & OSXSAVE != 0 && __cpuid(0).eax >= 13 {
        // SAFETY: the processor has xgetbv, and the system allows it.
        let enabled = unsafe { std::arch::x86_64::_xgetbv(0) } as u32;
        live = enabled & 0xe7;
        features |= u32::from(__cpuid_count(13, 1).eax & XGETBV1 != 0);
        features |= u32::from(enabled & 4 != 0) << 1;
        features |= u32::from(enabled & 0xe0 == 0xe0 && __cpuid_count(7, 0).ebx & AVX512F != 0) << 2;
        initial = features & 1 | if features & 4 != 0 { 0xa0 } else { 0 };
    }
    // SAFETY: the first registration holds the engine's lock, and no detour leads to np_hit yet.
    unsafe {
        np_simd_features = features;
        np_simd_live = live;
        np_simd_initial = initial;
    }
}

/// Whether the thread of a block has died inside of a handler, so that it will never leave.
pub fn is_abandoned(thread: &Thread) -> bool {
    let tid = thread.tid.load(Ordering::Acquire);
    // SAFETY: with signal 0 the call sends nothing.
    tid == 0 || unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) } != 0
}

/// Sets an entry's counters to 0, since indices are used again.
pub fn clear_counts(index: u32) {
    for counters in threads().filter_map(|block| block.counters.get(index as usize)) {
        counters.hits.store(0, Ordering::Relaxed);
        counters.missed.store(0, Ordering::Relaxed);
    }
    // SAFETY: no registered member has this index, and no thread is in a handler of its last owner.
    unsafe { np_hit_clear_holds(index) };
}

/// The address of the dispatcher of post-handlers.
pub fn dispatch_behind_address() -> u64 {
    np_hit_behind as *const () as u64
}

/// Frees all blocks but this thread's, in a child of fork.
pub fn forked() {
    // SAFETY: the child has one thread.
    unsafe { np_hit_forked() };
}

/// Arranges that every ending thread calls `ends` with its block from now on.
///
/// # Errors
/// The C library has no key left.
pub fn watch_threads(ends: unsafe extern "C" fn(*mut Thread)) -> std::io::Result<()> {
    // SAFETY: under the engine's lock; the function accepts the argument that it is called with.
    match unsafe { np_hit_watch_threads(ends) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

impl Thread {
    /// Whether this thread has begun calls of functions with return probes that have not ended.
    pub fn has_calls(&self) -> bool {
        self.calls.load(Ordering::Relaxed) != 0
    }
}

/// The address of `np_fault_hook`.
pub fn fault_hook_address() -> u64 {
    np_hit_fault as *const () as u64
}

/// Tells the hit path where the agent's `np_emulate` is, before the first probe.
pub fn set_emulate(address: u64) {
    // SAFETY: the engine is being made: no detour leads to np_hit yet.
    unsafe { np_hit_emulate = address };
}

/// Makes faults of the instruction at this site lead to its fault handlers. The engine's lock is held.
pub fn watch_faults(site: &'static Site) {
    // SAFETY: an atomic pointer to sites, which live for ever.
    let first = unsafe { &np_hit_sites_with_fault };
    let sites = std::iter::successors(std::ptr::NonNull::new(first.load(Ordering::Acquire)), |site| {
        // SAFETY: as above.
        std::ptr::NonNull::new(unsafe { site.as_ref() }.next_with_fault.load(Ordering::Acquire))
    });
    if sites.into_iter().any(|known| std::ptr::eq(known.as_ptr(), site)) {
        return;
    }
    site.next_with_fault
        .store(first.load(Ordering::Acquire), Ordering::Release);
    first.store(std::ptr::from_ref(site).cast_mut(), Ordering::Release);
}
