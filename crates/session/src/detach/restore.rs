//! Takes back what a killed tracer left, at whatever moment of its life it was killed.
//!
//! | killed | what is left | recognised by |
//! |---|---|---|
//! | while it had borrowed a thread | twelve bytes of code, maybe a thread in them | the bytes ([`Stopped::clear_way_home`]) |
//! | while it made the arena | a descriptor in the target, a mapping of zeros | their name, `memfd:nanoprobe-` and a number |
//! | later | all that the arena lists | its control block, which holds its own address |
//!
//! Anything that the arena lists may be gone already: the tracer, or another `restore`, may have been killed while it
//! removed things.
//!
//! A tracer is dead when no process holds the lock on its arena's file ([`nanoprobe_target::is_locked`]). That
//! needs neither its name nor its number. The tables are read while the process runs, and once more only if they
//! have changed by the time of the stop.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;
use std::time::{Duration, Instant};

use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{
    Control, Inherited, REGION_TABLE, Region, STATE_RESTORED, Semaphore, Site, TABLE_BYTES, TABLE_INHERITANCE,
    TABLE_LENT, TACTIC_SHIM, VERSION,
};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Map, Memory, Process, StopError, Stopped, WayHome, is_file_locked};

use super::copies;
use super::leaving::{Presence, leave};
use super::remains::{self, Arenas, Remains, is_child};
use super::sites::are_original;
use super::stacks::Restorer;
use super::unmapping::{ARENA_NAME, mapped_parts};
use super::{Detached, PATIENCE, bytes_of, is_code, is_host, is_springboard, our_code, restore_sites};
use crate::error::SessionError;
use crate::others::{Host, Others};
use crate::semaphores;
use crate::signals::{self, guests};

/// The time between two checks whether a borrowed thread has returned.
const PAUSE: Duration = Duration::from_millis(1);
/// The number of bytes that stay in the process if job control has stopped a borrowed thread, so that it cannot return.
const WAY_HOME_BYTES: u64 = 12;

/// Cleans up after tracers that were killed. This may be repeated any number of times, and may be killed at any moment.
///
/// # Errors
/// There is nothing to clean, a tracer lives that needs what is there, or the target cannot be stopped or written.
pub fn restore(process: &Process) -> Result<Detached, SessionError> {
    let _claim = process.claim()?;
    let pid = process.pid();
    let mut detached = Detached::default();
    let first = remains::find(process, &process.map()?)?;
    // A program that has nothing of a dead tracer's is not even stopped.
    if let (true, Some(tracer)) = (first.dead.is_empty(), first.living) {
        return Err(SessionError::TracerLives { pid, tracer });
    }
    let living = first.living;
    let mut next = unneeded(process, first, &[])?;
    let (mut stopped, way_home) = settled(process, &mut detached)?;
    let mut anything = way_home != WayHome::Clean;
    // All threads are stopped, so no other tracer can be in the middle of attaching.
    anything |= close_descriptors(&mut stopped)?;
    let mut done = Vec::new();
    while let Some(mut remains) = next.take() {
        let arena = remains.head.arena_address;
        done.push(arena);
        // The head as it is now: the program may have changed it meanwhile, for example its signal actions.
        let now = remains::at(process, &process.map()?, TargetAddress(arena));
        if let Some(found) = now {
            if !found.is_like(&remains.head) {
                remains = remains::read(process.memory(), &found, is_child(process, &found.head))?;
            }
            remains.head = found.head;
        }
        anything = true;
        detached.damaged += remains.damaged;
        take_back(process, stopped, remains, &mut detached)?;
        next = unneeded(process, remains::find(process, &process.map()?)?, &done)?;
        stopped = process.stop()?;
    }
    if way_home == WayHome::InUse {
        let last = stopped.clear_way_home()?;
        detached.left_bytes += if last == WayHome::InUse { WAY_HOME_BYTES } else { 0 };
    }
    detached.pauses.add_whole(stopped.release());
    match (anything, living) {
        (true, _) => Ok(detached),
        (false, Some(tracer)) => Err(SessionError::TracerLives { pid, tracer }),
        (false, None) => Err(SessionError::NothingToRestore { pid }),
    }
}

/// The first remains of a dead tracer that no other tracer needs, running or not, and that are not `done`. Remains that
/// are needed only by each other, in a circle, are forged, and stay.
fn unneeded(process: &Process, arenas: Arenas, done: &[u64]) -> Result<Option<Remains>, SessionError> {
    let others = Others::of(process, None)?;
    for found in arenas.dead.iter().filter(|found| !done.contains(&found.start)) {
        let remains = remains::read(process.memory(), found, is_child(process, &found.head))?;
        if !others.need(&remains.own(found.start)) {
            return Ok(Some(remains));
        }
    }
    Ok(None)
}

/// Takes the patches of a live session out of a forked child. The session has already left the target itself.
///
/// # Errors
/// The child cannot be stopped or written.
pub(crate) fn restore_child(process: &Process, arena: TargetAddress) -> Result<Detached, SessionError> {
    let mut detached = Detached::default();
    let Some(found) = remains::at(process, &process.map()?, arena) else {
        return Ok(detached);
    };
    let _claim = process.claim()?;
    sweep(process);
    let mut remains = remains::read(process.memory(), &found, true)?;
    let others = Others::of(process, Some(arena))?;
    if others.need(&remains.own(arena.0)) {
        detached.needed_by = others.living_need(&remains.own(arena.0));
        let mut sites = remains.sites.clone();
        others.keep_covered(&remains.own(arena.0), &mut sites);
        remains.sites = sites;
        let is_left = |site: &Site| site.tactic == TACTIC_SHIM || is_host(site) || is_springboard(site);
        remains.sites.retain(|site| !is_left(site));
        let stopped = super::stop(process)?;
        restore_sites(process.memory(), &remains.sites, &mut detached)?;
        detached.pauses.add_whole(stopped.release());
        return Ok(detached);
    }
    let stopped = super::stop(process)?;
    take_back(process, stopped, remains, &mut detached)?;
    sweep(process);
    Ok(detached)
}

/// Takes some patches of a live session out of a forked child, in which the others go on. Yields whether there were
/// any. All threads that execute the child's text stand still meanwhile, so the bytes that are compared are those that
/// are written over.
///
/// # Errors
/// The child cannot be stopped or written now.
pub(crate) fn turn_off_in_child(process: &Process, arena: TargetAddress, sites: &[Site]) -> Result<bool, SessionError> {
    // Most children were forked later, and have none.
    if are_original(process.memory(), sites)? {
        return Ok(false);
    }
    let busy = || StopError::Busy { pid: process.pid() };
    let _claim = process.claim_now().ok_or_else(busy)?;
    let Some(found) = remains::at(process, &process.map()?, arena) else {
        return Ok(false);
    };
    let mut sites = sites.to_vec();
    let others = Others::of(process, Some(arena))?;
    if !others.are_none() {
        let remains = remains::read(process.memory(), &found, true)?;
        others.keep_covered(&remains.own(arena.0), &mut sites);
    }
    let stopped = process.stop()?;
    let mut sharers = Vec::new();
    for other in process.sharers() {
        sharers.push(Process::open(other)?.stop()?);
    }
    let map = process.map()?;
    let is_text = |site: &Site| {
        let mapping = map.find(TargetAddress(site.address));
        mapping.is_some_and(|mapping| mapping.permissions.execute)
    };
    sites.retain(is_text);
    let mut detached = Detached::default();
    restore_sites(process.memory(), &sites, &mut detached)?;
    for standing in sharers.into_iter().chain([stopped]) {
        standing.release();
    }
    Ok(detached.restored > 0)
}

/// Takes back what other tracers, which are gone, have left because this one needed it.
pub(super) fn sweep(process: &Process) {
    // A tracer that lives may need it, too. What cannot be taken back now is found by the next tracer.
    if has_arena_at_rest(process) {
        let _ = restore(process);
    }
}

fn has_arena_at_rest(process: &Process) -> bool {
    let arenas = process
        .map()
        .map_err(SessionError::from)
        .and_then(|map| remains::find(process, &map));
    arenas.is_ok_and(|arenas| !arenas.dead.is_empty())
}

/// Stops all threads, after those that the dead tracer had borrowed have returned. Before that, one of them could
/// still make the dead tracer's system call.
fn settled(process: &Process, detached: &mut Detached) -> Result<(Stopped, WayHome), SessionError> {
    let deadline = Instant::now() + PATIENCE;
    let mut was_in_use = false;
    loop {
        let mut stopped = process.stop()?;
        match stopped.clear_way_home()? {
            WayHome::InUse if Instant::now() < deadline => was_in_use = true,
            WayHome::Clean if was_in_use => return Ok((stopped, WayHome::Cleared)),
            way_home => return Ok((stopped, way_home)),
        }
        detached.pauses.add_whole(stopped.release());
        std::thread::sleep(PAUSE);
    }
}

fn take_back(
    process: &Process,
    mut stopped: Stopped,
    remains: Remains,
    detached: &mut Detached,
) -> Result<(), SessionError> {
    let Remains {
        head,
        sites,
        semaphores,
        regions,
        ..
    } = remains;
    let (head, semaphores, regions) = (&head, semaphores.as_slice(), regions.as_slice());
    let map = process.map()?;
    let child = is_child(process, head);
    let own = if child {
        childs_actions(process.memory(), head, regions)
    } else {
        None
    };
    let head = own.as_ref().unwrap_or(head);
    say_restored(process.memory(), child, head);
    // A library may have been unloaded since, and another one may lie in its place.
    let semaphores = match semaphores {
        [] => Vec::new(),
        some => semaphores::described(process, &map, some),
    };
    lower_semaphores(process.memory(), &map, child, head, &semaphores)?;
    let Taken {
        springboards,
        hosts,
        shimmed,
        lent,
        table,
    } = take_back_sites(process.memory(), &map, sites, regions, detached)?;
    let guest_of = guest_of(process, head)?;
    // Without the shims the program has been changing its masks itself.
    if shimmed && guest_of.is_none() {
        signals::restore_masks(head, table, signals::Known::new(), &mut stopped, |rip| {
            is_code(regions, rip)
        })?;
    }
    let put_back = |stopped: &mut Stopped| match &guest_of {
        Some(host) => guests::unregister(stopped.process().memory(), host, |address| is_code(regions, address)),
        None => signals::put_back(head, stopped),
    };
    let code = our_code(
        regions,
        &springboards,
        &hosts,
        Restorer::of(process.pid(), restorer_of(head)),
        guest_of.as_ref(),
    );
    let presence = Presence {
        // A child shares the arena with the traced process, whose mappings the table must go on listing.
        arena: Some(TargetAddress(head.arena_address)).filter(|_| !child),
        regions,
        code,
        springboards: &springboards,
        hosts: &hosts,
        map: &map,
        // Without the tracer's tables no thread can be moved out of a detour. Each leaves it by running on.
        departures: &BTreeMap::new(),
        lent,
        table,
        sharers: process.sharers(),
        is_guest: guest_of.is_some(),
    };
    leave(process, stopped, &presence, put_back, detached)
}

/// The tracer whose agent handles the signals of this arena's agent; `None`: its own agent does.
fn guest_of(process: &Process, head: &Control) -> Result<Option<Host>, SessionError> {
    if head.version != VERSION || head.host == 0 {
        return Ok(None);
    }
    let others = Others::of(process, Some(TargetAddress(head.arena_address)))?;
    match others.host_at(head.host, process.memory()) {
        // Its list still leads to this arena's code.
        None if others.has(head.host) => Err(SessionError::Overwritten { pid: process.pid() }),
        host => Ok(host),
    }
}

/// The head with the signal actions of a followed child, which the child keeps itself.
fn childs_actions(memory: &Memory, head: &Control, regions: &[Region]) -> Option<Control> {
    if head.version != VERSION || head.follows == 0 {
        return None;
    }
    let table = regions.iter().find(|region| region.kind == REGION_TABLE)?;
    let mut bytes = vec![0; Inherited::BYTES];
    let place = table.address.checked_add(TABLE_INHERITANCE as u64)?;
    memory.read(TargetAddress(place), &mut bytes).ok()?;
    Some(Control {
        actions: Inherited::from_bytes(&bytes)?.actions,
        ..*head
    })
}

/// The result of taking back the sites.
pub(super) struct Taken {
    pub springboards: Vec<Site>,
    pub hosts: Vec<Site>,
    /// The shims were in place.
    pub shimmed: bool,
    /// The lent thread pointer; 0: none.
    pub lent: u64,
    /// The address of the thread table if all of it is mapped; otherwise 0.
    pub table: u64,
}

/// Takes back what needs no thread to be looked at.
///
/// # Errors
/// The text cannot be written.
pub(super) fn take_back_sites(
    memory: &Memory,
    map: &Map,
    mut sites: Vec<Site>,
    regions: &[Region],
    detached: &mut Detached,
) -> Result<Taken, SessionError> {
    let springboards: Vec<Site> = sites.extract_if(.., |site| is_springboard(site)).collect();
    let hosts: Vec<Site> = sites.extract_if(.., |site| is_host(site)).collect();
    let shimmed = sites
        .iter()
        .filter(|site| site.tactic == TACTIC_SHIM)
        .all(|site| is_in_place(memory, site));
    restore_sites(memory, &sites, detached)?;
    copies::mend(memory, map, &sites, regions)?;
    let whole = |region: &&Region| {
        // The kernel shows two mappings, since a part of the table is kept in forked children.
        let parts = mapped_parts(map, region).into_iter();
        let end = parts.fold(region.address, |end, part| if part.0 == end { part.1 } else { end });
        region.bytes >= TABLE_BYTES as u64 && end == region.address.saturating_add(region.bytes)
    };
    let table = regions.iter().find(|region| region.kind == REGION_TABLE);
    Ok(Taken {
        springboards,
        hosts,
        shimmed,
        lent: table.map_or(0, |table| table.address.saturating_add(TABLE_LENT as u64)),
        // The table is unmapped after all code, because then nothing writes into it any more.
        table: table.filter(whole).map_or(0, |table| table.address),
    })
}

/// The address to which our signal handlers return; 0: no handlers were installed.
pub(super) fn restorer_of(head: &Control) -> u64 {
    head.installed.iter().map(|action| action.restorer).max().unwrap_or(0)
}

/// Writes the state RESTORED into the arena: should its tracer live after all, it stops working. A child shares its
/// parent's arena, so there the state stays as it is.
pub(super) fn say_restored(memory: &Memory, is_child: bool, head: &Control) {
    if is_child || head.magic == 0 {
        return;
    }
    let state = head.arena_address.saturating_add(offset_of!(Control, state) as u64);
    // An error means that the process has unmapped the arena meanwhile, so nothing reads it.
    let _ = memory.write(TargetAddress(state), &STATE_RESTORED.to_le_bytes());
}

/// Lowers the semaphores that the dead tracer had raised. A semaphore is lowered even if its entry in the arena cannot
/// be written.
pub(super) fn lower_semaphores(
    memory: &Memory,
    map: &Map,
    is_child: bool,
    head: &Control,
    semaphores: &[Semaphore],
) -> Result<(), SessionError> {
    let entry = |index: u32| {
        let inside = head
            .semaphores_offset
            .saturating_add(u64::from(index) * Semaphore::BYTES as u64);
        TargetAddress(head.arena_address.saturating_add(inside))
    };
    semaphores::lower(memory, map, semaphores, is_child, &mut |index, semaphore| {
        Ok(memory.write(entry(index), &semaphore.to_bytes())?)
    })
}

/// Closes the descriptors that a tracer opened in the target before it was killed. Yields whether there were any. If
/// the process is a tracer itself, its own descriptors are locked and stay.
fn close_descriptors(stopped: &mut Stopped) -> Result<bool, SessionError> {
    let tid = stopped.best_thread()?;
    // A process whose descriptors we may not list has none that we may close.
    let Ok(entries) = std::fs::read_dir(format!("/proc/{tid}/fd")) else {
        return Ok(false);
    };
    let is_ours = |path: &Path| {
        let link = std::fs::read_link(path).unwrap_or_default();
        // If it is not known whether the descriptor is locked, the descriptor stays.
        link.as_os_str().as_encoded_bytes().starts_with(ARENA_NAME) && !is_file_locked(path).unwrap_or(true)
    };
    let ours = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let number = entry.file_name().to_str()?.parse::<i32>().ok()?;
        is_ours(&entry.path()).then_some(number)
    });
    let ours: Vec<i32> = ours.collect();
    if ours.is_empty() {
        return Ok(false);
    }
    let mut remote = stopped.remote(tid)?;
    for descriptor in ours {
        remote.close(descriptor)?;
    }
    remote.finish()?;
    Ok(true)
}

/// Whether a patch is in the text as it was written.
fn is_in_place(memory: &Memory, site: &Site) -> bool {
    let (_, patched) = bytes_of(site);
    let mut now = vec![0; patched.len()];
    memory.read(TargetAddress(site.address), &mut now).is_ok() && now == patched
}
