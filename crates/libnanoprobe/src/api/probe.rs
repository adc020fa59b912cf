//! `np_probe`: plain probes.

use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError};

use nanoprobe_patch::{Tactic, TargetAddress};

use super::{array, check_rest, name};
use crate::c::{FaultHandler, PostHandler, PreHandler, Probe};
use crate::c::{
    PROBE_DISABLED as DISABLED, PROBE_JUMP_ONLY as JUMP_ONLY, PROBE_NO_SIMD as NO_SIMD, PROBE_TRAP as TRAP,
};
use crate::engine::{
    Counts, Demand, Engine, Kind, Member, Spot, Withdrawn, engine, engine_to_change, engine_to_register,
};
use crate::error::{Error, answer};
use crate::{hit, tsan};

/// The type of `done`, the function that is called when an asynchronous removal is complete.
pub type Done = unsafe extern "C" fn(probe: *mut Probe);

/// Asynchronous removals that may not be complete yet.
pub(crate) static PENDING: Mutex<Vec<Pending>> = Mutex::new(Vec::new());

/// An asynchronous removal.
pub(crate) struct Pending {
    withdrawn: Withdrawn,
    probe: usize,
    index: u32,
    done: Option<Done>,
}

/// The member that a probe's structure describes, and its address.
///
/// # Safety
///
/// `probe` points to a whole `struct np_probe` that is not registered.
pub(super) unsafe fn describe(
    engine: &mut Engine,
    probe: *mut Probe,
) -> Result<(TargetAddress, Member, Demand), Error> {
    // SAFETY: the caller promises a whole structure.
    let given = unsafe { &*probe };
    if given.size < size_of::<Probe>() {
        return Err(Error::Argument(
            "its size is smaller than this version's: begin it with NP_SIZE",
        ));
    }
    let flags = given.flags;
    if flags & !(DISABLED | NO_SIMD | TRAP | JUMP_ONLY) != 0 || flags & (TRAP | JUMP_ONLY) == TRAP | JUMP_ONLY {
        return Err(Error::Argument("flags that do not exist, or exclude each other"));
    }
    if engine.spot(probe as usize).is_some() {
        return Err(Error::Registered);
    }
    // SAFETY: `symbol` is NULL or a string, as the header demands.
    let symbol = unsafe { name(given.symbol) }?;
    let addr = given.addr as u64;
    if symbol.is_none() && addr == 0 {
        return Err(Error::Argument("neither address nor symbol"));
    }
    let address = engine.resolve(addr, symbol, given.offset as u64)?;
    if symbol.is_some() && addr != 0 && addr != address.0 {
        return Err(Error::Argument("both address and symbol, and they differ"));
    }
    let mut member = Member::new(Kind::Probe, probe.cast::<c_void>(), None, null_mut());
    member.entry.pre = given.pre_handler;
    member.entry.post = given.post_handler;
    member.entry.fault = given.fault_handler;
    member.entry.enabled = AtomicU32::new(u32::from(flags & DISABLED == 0));
    member.no_simd = flags & NO_SIMD != 0;
    member.trap = flags & TRAP != 0;
    if tsan::is_there() {
        member.entry.pre = given.pre_handler.map(|_| tsan::pre as PreHandler);
        member.entry.post = given.post_handler.map(|_| tsan::post as PostHandler);
        member.entry.fault = given.fault_handler.map(|_| tsan::fault as FaultHandler);
        member.no_simd = false;
        tsan::registers(probe);
    }
    let demand = if flags & JUMP_ONLY != 0 {
        Demand::Jump
    } else {
        Demand::Any
    };
    Ok((address, member, demand))
}

/// # Safety
///
/// Each structure is as [`describe`] demands it.
unsafe fn register(probes: &[*mut Probe]) -> Result<(), Error> {
    // SAFETY: the caller promises that the structure has as many bytes as its size says.
    let mut adapt = |probe: *mut Probe, _: &mut Member| {
        // SAFETY: the caller promises that the structure has as many bytes as its size says.
        unsafe { check_rest(probe, (*probe).size) }
    };
    // SAFETY: the caller promises that the structures are whole.
    unsafe { register_as(probes, &mut adapt) }
}

/// Registers structures that begin with a `struct np_probe`; `adapt` changes each member as its kind requires.
///
/// # Safety
///
/// Each structure is as [`describe`] demands it.
pub(super) unsafe fn register_as(
    probes: &[*mut Probe],
    adapt: &mut dyn FnMut(*mut Probe, &mut Member) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut engine = engine_to_register()?;
    let mut seen = HashSet::new();
    let mut members = Vec::with_capacity(probes.len());
    for probe in probes {
        if !seen.insert(*probe) {
            return Err(Error::Registered);
        }
        // SAFETY: the caller promises that the structures are whole.
        let mut described = unsafe { describe(&mut engine, *probe) }?;
        adapt(*probe, &mut described.1)?;
        members.push(described);
    }
    let spots = engine.register(members)?;
    for (probe, spot) in probes.iter().zip(spots) {
        engine.remember(*probe as usize, spot);
        // SAFETY: the caller lets this function fill in the structure.
        unsafe {
            (**probe).addr = (spot.address.wrapping_sub(offset_of(*probe))) as *mut c_void;
        }
    }
    drop(engine);
    finish_pending();
    Ok(())
}

/// # Safety
///
/// `probe` points to a whole `struct np_probe`.
pub(super) unsafe fn offset_of(probe: *const Probe) -> u64 {
    // SAFETY: the caller promises a whole structure.
    unsafe { (*probe).offset as u64 }
}

/// The spots of the probes. A probe that is listed twice is an error, because it is not registered any more when it is
/// removed the second time.
fn spots_of(engine: &Engine, probes: &[*mut Probe]) -> Result<Vec<Spot>, Error> {
    let mut seen = HashSet::with_capacity(probes.len());
    let spot = |probe: &*mut Probe| {
        let spot = engine.spot(*probe as usize).filter(|_| seen.insert(*probe));
        spot.ok_or(Error::NotRegistered)
    };
    probes.iter().map(spot).collect()
}

pub(super) fn unregister(probes: &[*mut Probe]) -> Result<(), Error> {
    let mut engine = engine_to_change()?;
    let spots = spots_of(&engine, probes)?;
    if spots.iter().any(|spot| engine.kind(spot) == Some(Kind::Retprobe)) {
        return Err(Error::Argument("a return probe: np_unregister_retprobe"));
    }
    for probe in probes {
        engine.forget(*probe as usize);
    }
    // The withdrawal does not wait here: handlers may take long, and other threads may register meanwhile.
    let mut withdrawn = engine.withdraw(&spots, false);
    drop(engine);
    withdrawn.wait();
    probes.iter().for_each(|probe| tsan::unregistered(*probe));
    let unloaded = withdrawn.check();
    let mut engine = self::engine()?;
    for (probe, spot) in probes.iter().zip(&spots) {
        engine.end(*probe as usize, spot.index, 0);
    }
    engine.reclaim(withdrawn);
    drop(engine);
    finish_pending();
    unloaded
}

fn unregister_async(probe: *mut Probe, done: Option<Done>) -> Result<(), Error> {
    let mut engine = engine_to_change()?;
    let spots = spots_of(&engine, &[probe])?;
    if spots.iter().any(|spot| engine.kind(spot) == Some(Kind::Retprobe)) {
        return Err(Error::Argument("a return probe: np_unregister_retprobe"));
    }
    engine.forget(probe as usize);
    let mut withdrawn = engine.withdraw(&spots, false);
    drop(engine);
    let done_so_far = withdrawn.check();
    let pending = Pending {
        withdrawn,
        probe: probe as usize,
        index: spots.first().map_or(0, |spot| spot.index),
        done,
    };
    PENDING.lock().unwrap_or_else(PoisonError::into_inner).push(pending);
    finish_pending();
    done_so_far
}

/// Finishes the asynchronous removals that are complete.
pub(super) fn finish_pending() {
    let mut over = Vec::new();
    {
        let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut index = 0;
        while let Some(one) = pending.get_mut(index) {
            if one.withdrawn.is_over() {
                over.push(pending.swap_remove(index));
            } else {
                index += 1;
            }
        }
    }
    for mut one in over {
        one.withdrawn.wait();
        if let Ok(mut engine) = engine() {
            engine.end(one.probe, one.index, 0);
            engine.reclaim(one.withdrawn);
        }
        tsan::unregistered(one.probe as *const Probe);
        if let Some(done) = one.done {
            // SAFETY: the caller's own function, called with the structure that belongs to it.
            unsafe { done(one.probe as *mut Probe) };
        }
    }
}

pub(super) fn set_enabled(probe: *mut Probe, enabled: bool) -> Result<(), Error> {
    let mut engine = engine_to_change()?;
    let spot = engine.spot(probe as usize).ok_or(Error::NotRegistered)?;
    engine.enable(&spot, enabled)
}

/// `np_register_probe`.
///
/// # Safety
/// The promises in `nanoprobe.h` about the structure and its handlers hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_register_probe(probe: *mut Probe) -> c_int {
    // SAFETY: there is one pointer at `&probe`, and the caller promises that the structure is whole.
    answer(unsafe { array(&probe, 1).and_then(|probes| register(probes)) })
}

/// `np_register_probes`.
///
/// # Safety
/// There are `count` pointers. Each structure is as `nanoprobe.h` demands it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_register_probes(probes: *const *mut Probe, count: usize) -> c_int {
    // SAFETY: the caller promises `count` pointers to whole structures.
    answer(unsafe { array(probes, count).and_then(|probes| register(probes)) })
}

/// `np_unregister_probe`.
#[unsafe(no_mangle)]
pub extern "C" fn np_unregister_probe(probe: *mut Probe) -> c_int {
    answer(unregister(&[probe]))
}

/// `np_unregister_probes`.
///
/// # Safety
/// There are `count` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_unregister_probes(probes: *const *mut Probe, count: usize) -> c_int {
    // SAFETY: the caller promises `count` pointers.
    answer(unsafe { array(probes, count) }.and_then(unregister))
}

/// `np_unregister_probe_async`.
///
/// # Safety
/// `done` may be called with the structure until it has been called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_unregister_probe_async(probe: *mut Probe, done: Option<Done>) -> c_int {
    answer(unregister_async(probe, done))
}

/// `np_synchronize`.
#[unsafe(no_mangle)]
pub extern "C" fn np_synchronize() -> c_int {
    if hit::in_handler() {
        return answer(Err(Error::InHandler));
    }
    loop {
        finish_pending();
        if PENDING.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return 0;
        }
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
}

/// `np_disable_probe`.
#[unsafe(no_mangle)]
pub extern "C" fn np_disable_probe(probe: *mut Probe) -> c_int {
    answer(set_enabled(probe, false))
}

/// `np_enable_probe`.
#[unsafe(no_mangle)]
pub extern "C" fn np_enable_probe(probe: *mut Probe) -> c_int {
    answer(set_enabled(probe, true))
}

pub(super) fn counts(probe: *const Probe) -> Counts {
    engine().map_or(Counts::default(), |engine| engine.counts(probe as usize))
}

/// `np_probe_hits`.
#[unsafe(no_mangle)]
pub extern "C" fn np_probe_hits(probe: *const Probe) -> u64 {
    counts(probe).hits
}

/// `np_probe_nmissed`.
#[unsafe(no_mangle)]
pub extern "C" fn np_probe_nmissed(probe: *const Probe) -> u64 {
    counts(probe).missed
}

/// `enum np_tactic`.
pub(crate) fn tactic_number(tactic: Option<Tactic>) -> c_int {
    match tactic.map(Tactic::name) {
        None => 0,
        Some("jump") => 1,
        Some("run") => 2,
        Some("pun") => 3,
        Some("evict") => 4,
        Some(_) => 5,
    }
}

/// `np_probe_tactic`.
#[unsafe(no_mangle)]
pub extern "C" fn np_probe_tactic(probe: *const Probe) -> c_int {
    let Ok(engine) = engine() else { return 0 };
    let spot = engine.spot(probe as usize);
    tactic_number(spot.and_then(|spot| engine.tactic(&spot)))
}

/// `np_tactic_name`.
#[unsafe(no_mangle)]
pub extern "C" fn np_tactic_name(tactic: c_int) -> *const c_char {
    let name = match tactic {
        1 => c"jump",
        2 => c"run",
        3 => c"pun",
        4 => c"evict",
        5 => c"trap",
        _ => c"none",
    };
    name.as_ptr()
}
