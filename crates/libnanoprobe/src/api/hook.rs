//! `np_hook`: a replacement runs in place of a function.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nanoprobe_patch::TargetAddress;

use crate::engine::{Demand, Kind, Member, Spot, engine, engine_to_change, engine_to_register};
use crate::error::{Error, answer};
use crate::hit::{self, np_hook_hit};

/// The hooks, by the function's address.
pub(crate) static HOOKS: Mutex<Hooks> = Mutex::new(None);
/// The hooks, by the function's address; `None` until there is a first hook.
pub(crate) type Hooks = Option<HashMap<u64, Spot>>;

/// `*original` is written before any thread reaches the replacement. Other threads call the function all the time,
/// and so does this library (malloc, memcpy) while it writes the text.
///
/// # Safety
/// `original` is NULL or may be written.
unsafe fn hook(function: u64, replacement: *mut c_void, original: *mut *mut c_void) -> Result<(), Error> {
    if replacement.is_null() {
        return Err(Error::Argument("no replacement"));
    }
    if replacement as u64 == function {
        return Err(Error::Argument("a function in its own place"));
    }
    let mut hooks = lock()?;
    let hooks = hooks.get_or_insert_default();
    if hooks.contains_key(&function) {
        return Err(Error::Busy(TargetAddress(function)));
    }
    let mut engine = engine_to_register()?;
    let address = engine.resolve(function, None, 0)?;
    // Until the hook has a replacement, every call runs the function itself.
    let member = Member::new(Kind::Hook, null_mut(), Some(np_hook_hit), null_mut());
    let spots = engine.register(vec![(address, member, Demand::Any)])?;
    let spot = *spots.first().ok_or(Error::NotRegistered)?;
    let made = engine.make_hook(&spot, replacement);
    let (Some(code), Some(member), Ok(hook)) = (engine.original(&spot), engine.member(&spot), made) else {
        engine.withdraw(&spots, true);
        return Err(Error::NotRegistered);
    };
    hooks.insert(function, spot);
    if !original.is_null() {
        // SAFETY: the caller promises that `original` is NULL or may be written.
        unsafe { AtomicPtr::from_ptr(original) }.store(code.0 as *mut c_void, Ordering::Release);
    }
    let hook = std::ptr::from_ref(hook).cast_mut();
    member.entry.data.store(hook.cast(), Ordering::Release);
    Ok(())
}

/// The calling code may be a handler that has interrupted this very thread while the thread held the lock.
fn lock() -> Result<MutexGuard<'static, Hooks>, Error> {
    if hit::in_handler() {
        return Err(Error::InHandler);
    }
    Ok(HOOKS.lock().unwrap_or_else(PoisonError::into_inner))
}

fn unhook(function: u64) -> Result<(), Error> {
    drop(engine_to_change()?);
    let mut hooks = lock()?;
    let spot = hooks.as_mut().and_then(|hooks| hooks.remove(&function));
    let spot = spot.ok_or(Error::NotRegistered)?;
    // The withdrawal does not wait here, since handlers of other probes may take long.
    let mut withdrawn = engine()?.withdraw(&[spot], false);
    drop(hooks);
    withdrawn.wait();
    let unloaded = withdrawn.check();
    engine()?.reclaim(withdrawn);
    unloaded
}

/// `np_hook`.
///
/// # Safety
/// The replacement takes and returns what the function does. `original` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_hook(function: *mut c_void, replacement: *mut c_void, original: *mut *mut c_void) -> c_int {
    // SAFETY: the caller promises what `hook` asks for.
    answer(unsafe { hook(function as u64, replacement, original) })
}

/// `np_unhook`.
#[unsafe(no_mangle)]
pub extern "C" fn np_unhook(function: *mut c_void) -> c_int {
    answer(unhook(function as u64))
}
