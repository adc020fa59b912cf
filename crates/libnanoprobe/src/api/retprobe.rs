//! `np_retprobe`: return probes.

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use nanoprobe_patch::TargetAddress;

use super::probe::{describe, finish_pending, offset_of};
use super::{array, check_rest};
use crate::c::{Probe, ReturnHandler, ReturnProbe};
use crate::c::{RETPROBE_ADDRESS as ADDRESS, RETPROBE_AUTO as AUTO, RETPROBE_EXITS as EXITS};
use crate::c::{
    RETPROBE_DATA_MAX as DATA_MAX, RETPROBE_MAXACTIVE as MAXACTIVE, RETPROBE_MAXACTIVE_MAX as MAXACTIVE_MAX,
};
use crate::engine::{Demand, Engine, Kind, Member, Spot, Ways, engine, engine_to_change, engine_to_register};
use crate::error::{Error, answer};
use crate::hit::{self, CallPlan, Calls, np_retprobe_entry, np_retprobe_exit};
use crate::tsan;

/// The registered return probes, by the address of the caller's structure.
pub(crate) static REGISTERED: Mutex<ReturnProbes> = Mutex::new(None);
/// The registered return probes, by the address of the caller's structure.
pub(crate) type ReturnProbes = Option<HashMap<usize, Registered>>;

/// A registered return probe.
pub(crate) struct Registered {
    entry: Spot,
    exits: Vec<Spot>,
    calls: Arc<Calls>,
}

/// The contents of a structure, checked.
struct Wanted {
    address: TargetAddress,
    member: Member,
    demand: Demand,
    form: c_int,
}

/// # Safety
///
/// `probe` points to a whole `struct np_retprobe`, or to one that is shorter and says so in its size.
unsafe fn check(engine: &mut Engine, probe: *mut ReturnProbe) -> Result<Wanted, Error> {
    // SAFETY: the caller promises that at least the size is there.
    if unsafe { (*probe).probe.size } < size_of::<ReturnProbe>() {
        return Err(Error::Argument(
            "its size is smaller than this version's: begin it with { NP_SIZE(struct np_retprobe) }",
        ));
    }
    // SAFETY: the caller promises that the structure has as many bytes as its size says.
    unsafe { check_rest(probe, (*probe).probe.size) }?;
    // SAFETY: the structure is whole, since its size was checked above.
    let (address, member, demand) = unsafe { describe(engine, probe.cast::<Probe>()) }?;
    // SAFETY: the structure is whole, since its size was checked above.
    let given = unsafe { &*probe };
    if member.entry.pre.is_some() || member.entry.post.is_some() {
        return Err(Error::Argument("a return probe has no pre- or post-handler of its own"));
    }
    if given.data_size > DATA_MAX {
        return Err(Error::Argument("data_size is larger than NP_RETPROBE_DATA_MAX"));
    }
    if given.maxactive < 0 || given.maxactive as u64 > MAXACTIVE_MAX {
        return Err(Error::Argument(
            "maxactive is negative, or larger than NP_RETPROBE_MAXACTIVE_MAX",
        ));
    }
    if !(AUTO..=ADDRESS).contains(&given.form) {
        return Err(Error::Argument("a form that does not exist"));
    }
    Ok(Wanted {
        address,
        member,
        demand,
        form: given.form,
    })
}

/// Registers one probe, in the form that is requested and possible.
///
/// # Safety
///
/// The structure is as [`check`] demands it.
unsafe fn register_one(engine: &mut Engine, probe: *mut ReturnProbe) -> Result<Registered, Error> {
    // SAFETY: the caller promises what `check` demands.
    let wanted = unsafe { check(engine, probe) }?;
    let ways = engine.ways_out(wanted.address)?;
    engine.watch_threads()?;
    // SAFETY: the caller promises what `check` demands.
    let mut place = |form, demand| unsafe { place(engine, probe, &wanted, &ways, form, demand) };
    match wanted.form {
        AUTO if wanted.member.trap => place(EXITS, Demand::Any).or_else(|_| place(ADDRESS, Demand::Any)),
        AUTO => match place(EXITS, Demand::Jump) {
            Err(Error::Exits(_)) => place(ADDRESS, wanted.demand),
            Err(Error::Tactic(_)) => match place(ADDRESS, wanted.demand) {
                Err(Error::ReturnAddress { .. }) => place(EXITS, wanted.demand),
                other => other,
            },
            other => other,
        },
        form => place(form, wanted.demand),
    }
}

/// # Safety
///
/// The structure is as [`check`] demands it.
unsafe fn place(
    engine: &mut Engine,
    probe: *mut ReturnProbe,
    wanted: &Wanted,
    ways: &Ways,
    form: c_int,
    demand: Demand,
) -> Result<Registered, Error> {
    let rets = match (form, &ways.rets) {
        (EXITS, None) => return Err(Error::Exits(wanted.address)),
        (EXITS, Some(rets)) => rets.as_slice(),
        _ => &[],
    };
    let site = if form == ADDRESS {
        Some(engine.return_site(wanted.address)?)
    } else {
        None
    };
    // SAFETY: the caller promises a whole structure, and its size was checked.
    let given = unsafe { &*probe };
    // ThreadSanitizer was told about the structure when `describe` read it.
    let told = |handler: Option<ReturnHandler>, instead: ReturnHandler| match tsan::is_there() {
        true => handler.map(|_| instead),
        false => handler,
    };
    let calls = Arc::new(Calls::new(&CallPlan {
        handler: told(given.handler, tsan::returned),
        entry_handler: told(given.entry_handler, tsan::entered),
        owner: probe,
        capacity: if given.maxactive == 0 {
            MAXACTIVE
        } else {
            given.maxactive as u64
        },
        data_size: given.data_size as u64,
        site,
        loops: ways.loops,
    })?);
    let member = |kind, function| {
        let data = Arc::as_ptr(&calls).cast_mut().cast();
        let mut member = Member::new(kind, probe.cast(), Some(function), data);
        member.entry.fault = wanted.member.entry.fault;
        member.no_simd = wanted.member.no_simd;
        member.trap = wanted.member.trap;
        member.calls = Some(Arc::clone(&calls));
        member
    };
    // The exits are registered first. Otherwise the probe might see a call but not its return.
    let exits = rets
        .iter()
        .map(|ret| (*ret, member(Kind::Exit, np_retprobe_exit as hit::Function), demand));
    let exits = engine.register(exits.collect())?;
    let entry = member(Kind::Retprobe, np_retprobe_entry as hit::Function);
    let enabled = wanted.member.is_enabled();
    entry
        .entry
        .enabled
        .store(u32::from(enabled), std::sync::atomic::Ordering::Relaxed);
    let entry = engine.register(vec![(wanted.address, entry, demand)]);
    match entry.and_then(|spots| spots.first().copied().ok_or(Error::NotRegistered)) {
        Ok(entry) => Ok(Registered { entry, exits, calls }),
        Err(error) => {
            let withdrawn = engine.withdraw(&exits, true);
            engine.reclaim(withdrawn);
            Err(error)
        }
    }
}

/// # Safety
///
/// Each structure is as [`np_register_retprobe`] demands it.
unsafe fn register(probes: &[*mut ReturnProbe]) -> Result<(), Error> {
    let mut done = Vec::with_capacity(probes.len());
    let mut engine = engine_to_register()?;
    for probe in probes {
        // SAFETY: the caller promises what `np_register_retprobe` demands.
        match unsafe { register_one(&mut engine, *probe) } {
            Ok(registered) => {
                engine.remember(*probe as usize, registered.entry);
                done.push((*probe, registered));
            }
            Err(error) => {
                drop(engine);
                for (probe, registered) in &done {
                    withdraw(*probe, registered)?;
                }
                return Err(error);
            }
        }
    }
    drop(engine);
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let registered = registered.get_or_insert_default();
    for (probe, one) in done {
        // SAFETY: the caller lets this function fill in the structure.
        unsafe { (*probe).probe.addr = (one.entry.address.wrapping_sub(offset_of(probe.cast()))) as *mut _ };
        registered.insert(probe as usize, one);
    }
    finish_pending();
    Ok(())
}

/// The entry is removed first, so that no new calls are followed; then the exits. At last, waits until no thread is in
/// a handler.
fn withdraw(probe: *mut ReturnProbe, registered: &Registered) -> Result<(), Error> {
    let mut all = vec![registered.entry];
    all.extend(&registered.exits);
    let mut engine = engine()?;
    engine.forget(probe as usize);
    let mut withdrawn = engine.withdraw(&all, false);
    drop(engine);
    withdrawn.wait();
    tsan::unregistered(probe);
    let unloaded = withdrawn.check();
    let mut engine = self::engine()?;
    engine.end(probe as usize, registered.entry.index, registered.calls.abandoned());
    engine.reclaim(withdrawn);
    unloaded
}

fn unregister(probes: &[*mut ReturnProbe]) -> Result<(), Error> {
    // This check comes first, since a handler must not wait for itself.
    drop(engine_to_change()?);
    let found: Vec<_> = {
        let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        let registered = registered.get_or_insert_default();
        let mut seen = HashSet::with_capacity(probes.len());
        if !(probes.iter()).all(|probe| registered.contains_key(&(*probe as usize)) && seen.insert(*probe)) {
            return Err(Error::NotRegistered);
        }
        let taken = probes
            .iter()
            .map(|probe| Some((*probe, registered.remove(&(*probe as usize))?)));
        taken.flatten().collect()
    };
    for (probe, registered) in &found {
        withdraw(*probe, registered)?;
    }
    finish_pending();
    Ok(())
}

fn calls_of(probe: *const ReturnProbe) -> Option<Arc<Calls>> {
    if hit::in_handler() {
        return None;
    }
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let one = registered.as_ref()?.get(&(probe as usize))?;
    Some(Arc::clone(&one.calls))
}

/// `np_register_retprobe`.
///
/// # Safety
/// The promises in `nanoprobe.h` about the structure and its handlers hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_register_retprobe(probe: *mut ReturnProbe) -> c_int {
    // SAFETY: there is one pointer at `&probe`, and the caller promises that the structure is whole.
    answer(unsafe { array(&probe, 1).and_then(|probes| register(probes)) })
}

/// `np_register_retprobes`.
///
/// # Safety
/// There are `count` pointers. Each structure is as `nanoprobe.h` demands it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_register_retprobes(probes: *const *mut ReturnProbe, count: usize) -> c_int {
    // SAFETY: the caller promises `count` pointers to whole structures.
    answer(unsafe { array(probes, count).and_then(|probes| register(probes)) })
}

/// `np_unregister_retprobe`.
#[unsafe(no_mangle)]
pub extern "C" fn np_unregister_retprobe(probe: *mut ReturnProbe) -> c_int {
    answer(unregister(&[probe]))
}

/// `np_unregister_retprobes`.
///
/// # Safety
/// There are `count` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_unregister_retprobes(probes: *const *mut ReturnProbe, count: usize) -> c_int {
    // SAFETY: the caller promises `count` pointers.
    answer(unsafe { array(probes, count) }.and_then(unregister))
}

/// `np_retprobe_nmissed`.
#[unsafe(no_mangle)]
pub extern "C" fn np_retprobe_nmissed(probe: *const ReturnProbe) -> u64 {
    super::np_probe_nmissed(probe.cast())
}

/// `np_retprobe_abandoned`.
#[unsafe(no_mangle)]
pub extern "C" fn np_retprobe_abandoned(probe: *const ReturnProbe) -> u64 {
    match calls_of(probe) {
        Some(calls) => calls.abandoned(),
        None => super::probe::counts(probe.cast()).abandoned,
    }
}

/// `np_retprobe_form`.
#[unsafe(no_mangle)]
pub extern "C" fn np_retprobe_form(probe: *const ReturnProbe) -> c_int {
    match calls_of(probe) {
        None => AUTO,
        Some(calls) if calls.by_address() => ADDRESS,
        Some(_) => EXITS,
    }
}
