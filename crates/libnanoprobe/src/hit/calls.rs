//! A return probe's calls: `retprobe.h`, field by field.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nanoprobe_patch::{Quick, TargetAddress};

use crate::c::{ReturnHandler, ReturnInstance, ReturnProbe};
use crate::error::Error;

/// `struct np_hit_call`.
#[repr(C)]
struct Call {
    frame: AtomicU64,
    life: u64,
    word: u64,
    instance: ReturnInstance,
    claims: u32,
    hold: AtomicU32,
    holder: u64,
    reserved: u64,
}

/// `struct np_hit_calls`.
#[repr(C)]
pub struct Calls {
    handler: Option<ReturnHandler>,
    entry_handler: Option<ReturnHandler>,
    owner: *mut ReturnProbe,
    calls: *mut c_void,
    capacity: u64,
    stride: u64,
    data_size: u64,
    index: AtomicU32,
    by_address: u32,
    loops: u32,
    is_long: u32,
    site: u64,
    abandoned: AtomicU64,
    furthest: AtomicU64,
    looked: AtomicU64,
}

// SAFETY: the memory behind the pointers is changed only by atomics, or by the thread that has claimed it. `owner` is
// only passed on to handlers.
unsafe impl Send for Calls {}
// SAFETY: as above.
unsafe impl Sync for Calls {}

/// The properties of the return probe for which a table of calls is made.
pub struct CallPlan {
    /// `np_retprobe.handler`.
    pub handler: Option<ReturnHandler>,
    /// `np_retprobe.entry_handler`.
    pub entry_handler: Option<ReturnHandler>,
    /// The caller's structure.
    pub owner: *mut ReturnProbe,
    /// `maxactive`, not 0.
    pub capacity: u64,
    /// Bytes of handler data of each call.
    pub data_size: u64,
    /// The function's site, for the form by return address; `None`: the form by exits.
    pub site: Option<u64>,
    /// A branch of the function itself leads to its entry.
    pub loops: bool,
}

impl Calls {
    /// A table of calls that is still empty.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(plan: &CallPlan) -> Result<Calls, Error> {
        const CACHE_LINE: u64 = 64;
        let stride = (size_of::<Call>() as u64 + plan.data_size).next_multiple_of(CACHE_LINE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let calls = unsafe { libc::mmap(null_mut(), (stride * plan.capacity) as usize, protection, flags, -1, 0) };
        if calls == libc::MAP_FAILED {
            return Err(Error::last_os("mmap of a return probe's calls"));
        }
        Ok(Calls {
            handler: plan.handler,
            entry_handler: plan.entry_handler,
            owner: plan.owner,
            calls,
            capacity: plan.capacity,
            stride,
            data_size: plan.data_size,
            index: AtomicU32::new(0),
            by_address: u32::from(plan.site.is_some()),
            loops: u32::from(plan.loops),
            is_long: u32::from(plan.entry_handler.is_some() || plan.data_size != 0),
            site: plan.site.unwrap_or(0),
            abandoned: AtomicU64::new(0),
            furthest: AtomicU64::new(0),
            looked: AtomicU64::new(0),
        })
    }

    /// How many calls are known to have ended without a return.
    pub fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// The entry handler and the return handler, as far as they are set.
    pub fn handlers(&self) -> Vec<u64> {
        let both = [self.handler, self.entry_handler].into_iter().flatten();
        both.map(|handler| handler as *const () as u64).collect()
    }

    /// Whether the return address is replaced.
    pub fn by_address(&self) -> bool {
        self.by_address != 0
    }

    /// Whether a handler runs at returns, which otherwise are only counted.
    pub fn has_handler(&self) -> bool {
        self.handler.is_some()
    }

    /// The function that the short way of np_hit calls in place of `function`, if there is such a function.
    pub fn short(&self, function: super::Function) -> Option<u64> {
        let is = |other: super::Function| function as usize == other as usize;
        let instead: unsafe extern "C" fn() = match (self.is_long != 0, self.by_address != 0) {
            (false, false) if is(np_retprobe_entry) => np_retprobe_entry_plain,
            (false, true) if is(np_retprobe_entry) => np_retprobe_entry_replaced,
            _ if is(np_retprobe_exit) && self.handler.is_some() => np_retprobe_exit_short,
            _ => return None,
        };
        Some(instead as *const () as u64)
    }

    /// The code that a detour at the entry may try first (`short.S`), if there is such code.
    pub fn quick(&self, function: super::Function) -> Option<Quick> {
        let address = |quick: unsafe extern "C" fn()| TargetAddress(quick as *const () as u64);
        let is_entry = function as usize == np_retprobe_entry as super::Function as usize;
        match (is_entry && self.is_long == 0, self.by_address()) {
            (false, _) => None,
            (true, false) => Some(Quick::Inline(address(np_retprobe_entry_quick))),
            (true, true) => Some(Quick::Called(address(np_retprobe_replace_quick))),
        }
    }

    /// Sets the index of the probe's counters, before any thread can hit the probe.
    pub fn set_index(&self, index: u32) {
        self.index.store(index, Ordering::Release);
    }

    /// Ends the calls that an ending thread has begun on its stack.
    ///
    /// # Safety
    /// The range is the calling thread's own stack, and the thread is ending.
    pub unsafe fn thread_ends(&self, life: u64, low: u64, high: u64) {
        // SAFETY: the caller promises that the range is its own stack. The C function changes only fields that are
        // atomic here.
        unsafe { np_retprobe_thread_ends(std::ptr::from_ref(self).cast_mut(), life, low, high) };
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; no list that leads here is read any more.
        unsafe { libc::munmap(self.calls, (self.stride * self.capacity) as usize) };
    }
}

/// `struct np_hit_returns`: the agent's parts that a replaced return address needs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Returns {
    /// `np_return_take`.
    pub take: u64,
    /// The thunks' address.
    pub thunks: u64,
    /// How many bytes the thunks have.
    pub thunks_bytes: u64,
    /// `struct np_return_pool`.
    pub pool: u64,
    /// `np_return_put_back`.
    pub put_back: u64,
}

unsafe extern "C" {
    static mut np_hit_returns: Returns;
    static mut np_hit_sandboxed: u64;
    fn np_retprobe_thread_ends(calls: *mut Calls, life: u64, low: u64, high: u64);
    fn np_hit_arrive();
    /// The hit function at the entry of a function with a return probe.
    pub fn np_retprobe_entry(entry: *mut super::Entry, registers: *mut crate::c::Registers) -> i32;
    /// The hit function at the rets of such a function.
    pub fn np_retprobe_exit(entry: *mut super::Entry, registers: *mut crate::c::Registers) -> i32;
    fn np_retprobe_entry_plain();
    fn np_retprobe_entry_replaced();
    fn np_retprobe_entry_quick();
    fn np_retprobe_replace_quick();
    fn np_retprobe_exit_short();
    /// The hit function at the entries of unwinders.
    pub fn np_unwinder_hit(entry: *mut super::Entry, registers: *mut crate::c::Registers) -> i32;
}

/// Tells the hit path where the agent's parts for return addresses are, before the first return address is replaced.
pub fn set_returns(returns: Returns) {
    // SAFETY: the engine's lock is held, and no registered member reads the variable yet.
    unsafe { np_hit_returns = returns };
}

/// Tells the hit path where the agent notes that the program is under seccomp, before the first probe.
pub fn set_sandboxed(address: u64) {
    // SAFETY: the engine is being made, so no registered member reads the variable yet.
    unsafe { np_hit_sandboxed = address };
}

/// Bytes before the first thunk: the call of that thunk.
pub const CALL_BYTES: u64 = 4;

/// The code of thunks. Before each thunk stands a call whose return address is the thunk (`returned.S`). All jump to
/// the code at `hop`. The bytes begin [`CALL_BYTES`] before `at`, where the first thunk is.
///
/// ```text
///   -4   ff 54 24 f0             call [rsp - 16]
///    0   66 c7 44 24 f0 imm16    mov word [rsp - 16], number
///    7   e9 rel32                jmp hop
///   12                           the next one's call
/// ```
pub fn thunks(at: u64, count: u32, hop: u64) -> Vec<u8> {
    const CALL: [u8; CALL_BYTES as usize] = [0xff, 0x54, 0x24, 0xf0];
    let mut bytes = CALL.to_vec();
    for number in 0..count {
        let end = at + 16 * u64::from(number) + 12;
        bytes.extend_from_slice(&[0x66, 0xc7, 0x44, 0x24, 0xf0]);
        bytes.extend_from_slice(&(number as u16).to_le_bytes());
        bytes.push(0xe9);
        bytes.extend_from_slice(&(hop.wrapping_sub(end) as u32).to_le_bytes());
        bytes.extend_from_slice(&CALL);
    }
    bytes.truncate(16 * count as usize);
    bytes
}

/// The code that thunks jump to. It works at any address.
pub fn hop() -> Vec<u8> {
    let mut code = vec![0xff, 0x25, 0, 0, 0, 0]; // jmp [rip]
    code.extend_from_slice(&(np_hit_arrive as *const () as u64).to_le_bytes());
    code
}

const _: () = assert!(size_of::<Call>() == 80);
