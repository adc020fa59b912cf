//! Programs under ThreadSanitizer: the library tells the sanitizer that a handler runs after its probe's registration.
//!
//! ThreadSanitizer sees the accesses of instrumented code, and its calls of the C library. It does not see the patched
//! text and the barriers that order a registration before a hit in another thread. So it would report a race for every
//! handler that reads data from before the registration. Where it is present, the library tells it:
//!
//! ```text
//!   np_register_*      acquires the engine,  releases the structure, then publishes it
//!   a hit              acquires it,  runs the handler that the structure names,  releases it
//!   np_unregister_*    acquires it when no thread is in a handler any more,  releases the engine
//! ```
//!
//! Without the sanitizer a hit does none of this. Instrumented handlers call the sanitizer, which may use SIMD
//! registers, so these are saved whatever the flags say. Mirrors of jumper probes and replacements of functions are
//! called directly.

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::OnceLock;

use crate::c::{Probe, Registers, ReturnInstance, Watchpoint};

type Announce = unsafe extern "C" fn(address: *mut c_void);

struct Sanitizer {
    acquire: Announce,
    release: Announce,
}

fn sanitizer() -> Option<&'static Sanitizer> {
    static FOUND: OnceLock<Option<Sanitizer>> = OnceLock::new();
    let find = |name: &std::ffi::CStr| {
        // SAFETY: a string; the sanitizer's functions of these names take an address.
        unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            (!found.is_null()).then(|| std::mem::transmute::<*mut c_void, Announce>(found))
        }
    };
    let both = || {
        Some(Sanitizer {
            acquire: find(c"__tsan_acquire")?,
            release: find(c"__tsan_release")?,
        })
    };
    FOUND.get_or_init(both).as_ref()
}

/// Whether the program runs under ThreadSanitizer.
pub fn is_there() -> bool {
    sanitizer().is_some()
}

/// Whether an address lies in the module with ThreadSanitizer's runtime.
pub fn is_in_runtime(address: u64) -> bool {
    let base = |address: *const c_void| {
        // SAFETY: the structure has only pointers, which may be NULL.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: the linker looks up an address, whatever it is, and fills in the structure.
        let known = unsafe { libc::dladdr(address, &raw mut found) } != 0;
        known.then_some(found.dli_fbase)
    };
    let runtime = sanitizer().and_then(|sanitizer| base(sanitizer.acquire as *const c_void));
    runtime.is_some() && base(address as *const c_void) == runtime
}

/// Stands for the engine in the reports to the sanitizer. A new structure may lie in the memory of an unregistered
/// structure, so the structures' addresses alone do not order the two.
static ENGINE: u8 = 0;

/// Called before a structure is registered: a hit will see what the calling thread has done.
pub fn registers<T>(structure: *const T) {
    acquire(&raw const ENGINE);
    release(structure);
}

/// Called when a structure is unregistered, and no thread is in its handlers: the calling thread will see what they
/// have done.
pub fn unregistered<T>(structure: *const T) {
    acquire(structure);
    release(&raw const ENGINE);
}

/// Makes what the calling thread has done visible to later acquires of the structure.
fn release<T>(structure: *const T) {
    if let Some(sanitizer) = sanitizer() {
        // SAFETY: the function takes any address.
        unsafe { (sanitizer.release)(structure.cast_mut().cast()) };
    }
}

/// Makes everything that other threads did before they released the structure visible to the calling thread.
fn acquire<T>(structure: *const T) {
    if let Some(sanitizer) = sanitizer() {
        // SAFETY: the function takes any address.
        unsafe { (sanitizer.acquire)(structure.cast_mut().cast()) };
    }
}

/// Runs a probe's pre-handler, and tells the sanitizer.
///
/// # Safety
/// The same as for the handler itself.
pub unsafe extern "C" fn pre(probe: *mut Probe, registers: *mut Registers) -> c_int {
    acquire(probe);
    // SAFETY: the structure is whole while it is registered, and the handler has the type of these arguments.
    let answer = unsafe { (*probe).pre_handler.map_or(0, |handler| handler(probe, registers)) };
    release(probe);
    answer
}

/// Runs a probe's post-handler, and tells the sanitizer.
///
/// # Safety
/// The same as for the handler itself.
pub unsafe extern "C" fn post(probe: *mut Probe, registers: *mut Registers, flags: c_ulong) {
    acquire(probe);
    // SAFETY: as above.
    unsafe {
        if let Some(handler) = (*probe).post_handler {
            handler(probe, registers, flags);
        }
    }
    release(probe);
}

/// Runs a probe's fault handler, and tells the sanitizer.
///
/// # Safety
/// The same as for the handler itself.
pub unsafe extern "C" fn fault(probe: *mut Probe, registers: *mut Registers, signal: c_int) -> c_int {
    acquire(probe);
    // SAFETY: as above.
    let answer = unsafe {
        (*probe)
            .fault_handler
            .map_or(0, |handler| handler(probe, registers, signal))
    };
    release(probe);
    answer
}

/// Runs a return probe's handler, and tells the sanitizer.
///
/// # Safety
/// The same as for the handler itself.
pub unsafe extern "C" fn returned(instance: *mut ReturnInstance, registers: *mut Registers) -> c_int {
    // SAFETY: the instance is whole, and its structure while it is registered.
    unsafe {
        let probe = (*instance).retprobe;
        acquire(probe);
        let answer = (*probe).handler.map_or(0, |handler| handler(instance, registers));
        release(probe);
        answer
    }
}

/// Runs a return probe's entry handler, and tells the sanitizer.
///
/// # Safety
/// The same as for the handler itself.
pub unsafe extern "C" fn entered(instance: *mut ReturnInstance, registers: *mut Registers) -> c_int {
    // SAFETY: as above.
    unsafe {
        let probe = (*instance).retprobe;
        acquire(probe);
        let answer = (*probe).entry_handler.map_or(0, |handler| handler(instance, registers));
        release(probe);
        answer
    }
}

/// Runs a watchpoint's handler, and tells the sanitizer.
///
/// # Safety
/// The same as for the handler itself.
pub unsafe extern "C" fn watched(watchpoint: *mut Watchpoint, registers: *mut Registers) {
    acquire(watchpoint);
    // SAFETY: as above.
    unsafe {
        if let Some(handler) = (*watchpoint).handler {
            handler(watchpoint, registers);
        }
    }
    release(watchpoint);
}
