//! `np_watchpoint`: the processor's debug registers.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::check_rest;
use crate::c::{PROBE_DISABLED as DISABLED, WatchHandler, Watchpoint};
use crate::engine::{WatchState, engine};
use crate::error::{Error, answer};
use crate::self_process::{EXECUTE, Place};
use crate::{hit, tsan};

/// The end of the program's half of the address space.
const ADDRESSES_END: u64 = 1 << 56;

/// # Safety
///
/// `watchpoint` points to a whole `struct np_watchpoint`, or to one that is shorter and says so in its size.
unsafe fn register(watchpoint: *mut Watchpoint) -> Result<(), Error> {
    if watchpoint.is_null() {
        return Err(Error::Argument("NULL"));
    }
    // SAFETY: the caller promises that at least the field `size` is there.
    if unsafe { (*watchpoint).size } < size_of::<Watchpoint>() {
        return Err(Error::Argument(
            "its size is smaller than this version's: begin it with NP_SIZE",
        ));
    }
    // SAFETY: the caller promises that the structure has as many bytes as its size says.
    unsafe { check_rest(watchpoint, (*watchpoint).size) }?;
    // SAFETY: the structure is whole, since its size was checked above.
    let given = unsafe { &*watchpoint };
    let (address, length) = (given.addr as u64, given.length as u64);
    if !(2..=EXECUTE as c_int).contains(&given.kind) {
        return Err(Error::Argument("a type that does not exist"));
    }
    let kind = given.kind as u32;
    if kind == EXECUTE && length != 1 {
        return Err(Error::Argument(
            "the length of what is watched for execution is 1: an instruction begins there",
        ));
    }
    if !matches!(length, 1 | 2 | 4 | 8) || !address.is_multiple_of(length) {
        return Err(Error::Argument(
            "the length is not 1, 2, 4 or 8, or the address no multiple of it: the processor watches no other",
        ));
    }
    if address == 0 || address >= ADDRESSES_END {
        return Err(Error::Argument("no address of the program"));
    }
    if given.flags & !DISABLED != 0 {
        return Err(Error::Argument("flags that do not exist"));
    }
    tsan::registers(watchpoint);
    let handler = match tsan::is_there() {
        true => given.handler.map(|_| tsan::watched as WatchHandler),
        false => given.handler,
    };
    let watch = Box::new(hit::Watch {
        key: 0,
        owner: watchpoint,
        handler,
        index: 0,
        enabled: AtomicU32::new(u32::from(given.flags & DISABLED == 0)),
        executes: u32::from(kind == EXECUTE),
        lost: AtomicU64::new(0),
    });
    let place = Place {
        address,
        length,
        kind,
        signal: None,
    };
    engine()?.register_watch(watch, place)
}

fn unregister(watchpoint: *mut Watchpoint) -> Result<(), Error> {
    let withdrawn = engine()?.withdraw_watch(watchpoint as usize)?;
    // Waits without the lock, since the handler may take long.
    let index = withdrawn.wait();
    tsan::unregistered(watchpoint);
    engine()?.reclaim_watch(index);
    Ok(())
}

fn state(watchpoint: *const Watchpoint) -> Option<WatchState> {
    engine().ok()?.watch_state(watchpoint as usize)
}

/// `np_register_watchpoint`.
///
/// # Safety
/// The promises in `nanoprobe.h` about the structure and its handler hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_register_watchpoint(watchpoint: *mut Watchpoint) -> c_int {
    // SAFETY: the caller promises what `register` demands.
    answer(unsafe { register(watchpoint) })
}

/// `np_unregister_watchpoint`.
#[unsafe(no_mangle)]
pub extern "C" fn np_unregister_watchpoint(watchpoint: *mut Watchpoint) -> c_int {
    answer(unregister(watchpoint))
}

/// `np_disable_watchpoint`.
#[unsafe(no_mangle)]
pub extern "C" fn np_disable_watchpoint(watchpoint: *mut Watchpoint) -> c_int {
    answer(engine().and_then(|mut engine| engine.enable_watch(watchpoint as usize, false)))
}

/// `np_enable_watchpoint`.
#[unsafe(no_mangle)]
pub extern "C" fn np_enable_watchpoint(watchpoint: *mut Watchpoint) -> c_int {
    answer(engine().and_then(|mut engine| engine.enable_watch(watchpoint as usize, true)))
}

/// `np_watchpoint_hits`.
#[unsafe(no_mangle)]
pub extern "C" fn np_watchpoint_hits(watchpoint: *const Watchpoint) -> u64 {
    state(watchpoint).map_or(0, |state| state.hits)
}

/// `np_watchpoint_nmissed`.
#[unsafe(no_mangle)]
pub extern "C" fn np_watchpoint_nmissed(watchpoint: *const Watchpoint) -> u64 {
    state(watchpoint).map_or(0, |state| state.missed)
}
