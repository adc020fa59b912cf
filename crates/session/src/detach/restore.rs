//! Taking back what a tracer left that was killed, at whatever moment of its life.
//!
//! | killed | is left | recognised by |
//! |---|---|---|
//! | while it had borrowed a thread | twelve bytes of code, maybe a thread in them | the bytes ([`Stopped::clear_way_home`]) |
//! | while it made the arena | a descriptor in the target, a mapping of zeros | their name, `memfd:nanoprobe` |
//! | later | all that the arena tells of | its control block, which holds its own address |
//!
//! Whatever the arena tells of may be gone already: the tracer, or another `restore`, was killed while it took it back.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::{
    Control, MAGIC, REGION_ARENA, REGION_TABLE, Region, Semaphore, Site, TABLE_BYTES, TABLE_LENT, TACTIC_SHIM,
};
use nanoprobe_arena::{Bytes, ControlBlock, Structure as _};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Map, Memory, Process, Stopped, WayHome};

use super::unmapping::{is_arena, mapped_parts};
use super::{Detached, PATIENCE, Presence, bytes_of, is_code, is_host, is_springboard, leave, our_code, restore_sites};
use crate::error::SessionError;
use crate::{semaphores, signals};

/// Between two looks whether a thread has gone home.
const PAUSE: Duration = Duration::from_millis(1);
/// What stays when a thread does not go home, being stopped by job control.
const WAY_HOME_BYTES: u64 = 12;

/// What a dead tracer's arena tells.
struct Remains {
    head: Control,
    sites: Vec<Site>,
    semaphores: Vec<Semaphore>,
    /// With the arena itself.
    regions: Vec<Region>,
}

/// Cleans up after a tracer that was killed. May be done any number of times, and may itself be killed.
///
/// # Errors
/// There is nothing to clean, the tracer lives, or the target cannot be stopped or written.
pub fn restore(process: &Process) -> Result<Detached, SessionError> {
    // A program whose tracer lives is not even stopped.
    remains(process, &process.map()?)?;
    let mut detached = Detached::default();
    let (mut stopped, way_home) = settled(process, &mut detached)?;
    let mut found = way_home != WayHome::Clean;
    // Now that all threads stand still no other tracer can be in the middle of its attaching.
    let all = remains(process, &process.map()?)?;
    found |= close_descriptors(process, &mut stopped)? | !all.is_empty();
    for remains in all {
        take_back(process, stopped, &remains, &mut detached)?;
        stopped = process.stop()?;
    }
    if way_home == WayHome::InUse {
        let last = stopped.clear_way_home()?;
        detached.left_bytes += if last == WayHome::InUse { WAY_HOME_BYTES } else { 0 };
    }
    detached.pauses.add_whole(stopped.release());
    if found {
        Ok(detached)
    } else {
        Err(SessionError::NothingToRestore { pid: process.pid() })
    }
}

/// Stops all threads, when those that the dead tracer had borrowed have gone home: before that, one of them could still
/// make the dead tracer's system call.
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
    remains: &Remains,
    detached: &mut Detached,
) -> Result<(), SessionError> {
    let Remains {
        head,
        sites,
        semaphores,
        regions,
    } = remains;
    let (springboards, sites): (Vec<Site>, Vec<Site>) = sites.iter().copied().partition(is_springboard);
    let (hosts, sites): (Vec<Site>, Vec<Site>) = sites.into_iter().partition(is_host);
    let map = process.map()?;
    lower_semaphores(process, &map, head, semaphores)?;
    let shimmed = sites
        .iter()
        .filter(|site| site.tactic == TACTIC_SHIM)
        .all(|site| is_in_place(process.memory(), site));
    restore_sites(process.memory(), &sites, detached)?;
    let whole = |region: &&Region| {
        let parts = mapped_parts(&map, region);
        region.bytes >= TABLE_BYTES as u64 && parts == [(region.address, region.address.saturating_add(region.bytes))]
    };
    let table = regions.iter().find(|region| region.kind == REGION_TABLE);
    let lent = table.map_or(0, |table| table.address.saturating_add(TABLE_LENT as u64));
    // It goes after all code, when nothing is recorded in it any more.
    let table = table.filter(whole).map_or(0, |table| table.address);
    // Without the shims the program has been changing its masks itself.
    if shimmed {
        signals::restore_masks(head, table, &mut stopped, |rip| is_code(regions, rip))?;
    }
    let put_back = |stopped: &mut Stopped| signals::put_back(head, stopped);
    // Without the tracer's tables nobody can be moved out of a detour; everybody gets out by running on.
    let installed = head.installed.iter().map(|action| action.restorer);
    let restorer = installed.max().unwrap_or(0);
    let presence = Presence {
        // A child has the arena in common with the traced process, of whose mappings the table goes on telling.
        arena: Some(TargetAddress(head.arena_address)).filter(|_| !is_child(process, head)),
        regions,
        code: our_code(regions, &springboards, &hosts, restorer),
        springboards: &springboards,
        hosts: &hosts,
        map: &map,
        departures: &BTreeMap::new(),
        lent,
        table,
        sharers: process.sharers(),
    };
    leave(process, stopped, &presence, put_back, detached)
}

/// Whether it is not the traced process, but was forked from it.
fn is_child(process: &Process, head: &Control) -> bool {
    i64::from(head.target_pid) != i64::from(process.facts().inner_pid)
}

/// Lowers what the dead tracer had raised. Of an entry that cannot be written the word is lowered nevertheless.
fn lower_semaphores(
    process: &Process,
    map: &Map,
    head: &Control,
    semaphores: &[Semaphore],
) -> Result<(), SessionError> {
    let entry = |index: u32| {
        let inside = head
            .semaphores_offset
            .saturating_add(u64::from(index) * Semaphore::BYTES as u64);
        TargetAddress(head.arena_address.saturating_add(inside))
    };
    if semaphores.is_empty() {
        return Ok(());
    }
    // A library that went while nobody looked may have left its place to another.
    let semaphores = semaphores::described(process, map, semaphores);
    semaphores::lower(
        process.memory(),
        map,
        &semaphores,
        is_child(process, head),
        &mut |index, semaphore| Ok(process.memory().write(entry(index), &semaphore.to_bytes())?),
    )
}

/// The arenas of dead tracers.
fn remains(process: &Process, map: &Map) -> Result<Vec<Remains>, SessionError> {
    let pid = process.pid();
    let mut all = Vec::new();
    for mapping in map
        .mappings()
        .iter()
        .filter(|mapping| is_arena(mapping) && mapping.offset == 0)
    {
        let mut bytes = vec![0; Control::BYTES];
        if process.memory().read(mapping.start, &mut bytes).is_err() {
            continue;
        }
        let Some(mut head) = Control::from_bytes(&bytes) else {
            continue;
        };
        let mut itself = Region {
            address: mapping.start.0,
            bytes: mapping.end.0 - mapping.start.0,
            kind: REGION_ARENA,
            reserved: 0,
        };
        // Its tracer was killed before it had written more than the first of it. A live tracer has arenas of zeros too.
        let is_begun = head.arena_address == 0 && [0, MAGIC].contains(&head.magic);
        if is_begun && !is_tracer(pid.unsigned_abs()) {
            head = Control {
                arena_address: itself.address,
                ..Control::default()
            };
            all.push(Remains {
                head,
                sites: Vec::new(),
                semaphores: Vec::new(),
                regions: vec![itself],
            });
        }
        if head.arena_address != itself.address || is_begun {
            continue;
        }
        if head.tracer_pid != std::process::id() && is_tracer(head.tracer_pid) {
            return Err(SessionError::TracerLives {
                pid,
                tracer: head.tracer_pid,
            });
        }
        let Some(arena) = tables(process, &head)? else { continue };
        let control = ControlBlock::open(&arena)?;
        let sites = control.sites()?;
        let mut regions = if is_child(process, &head) {
            control.regions_ever()?
        } else {
            control.regions()?
        };
        itself.bytes = itself.bytes.max(head.arena_bytes);
        // The table's first, unless the tracer was killed before it had told.
        regions.retain(|region| region.kind != REGION_ARENA);
        regions.insert(0, itself);
        all.push(Remains {
            head,
            sites,
            semaphores: control.semaphores()?,
            regions,
        });
    }
    Ok(all)
}

/// An arena from its head to the end of the two tables; `None` when they cannot be where the head says.
fn tables(process: &Process, head: &Control) -> Result<Option<Bytes>, SessionError> {
    const END_MAX: u64 = 256 << 20;
    let end_of = |offset: u64, count: u32, bytes: usize| offset.saturating_add(u64::from(count) * bytes as u64);
    let end = end_of(head.sites_offset, head.site_count, Site::BYTES)
        .max(end_of(head.regions_offset, head.region_count, Region::BYTES))
        .max(end_of(head.semaphores_offset, head.semaphore_count, Semaphore::BYTES))
        .max(Control::BYTES as u64);
    if end > END_MAX || end > head.arena_bytes {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(end).unwrap_or(0)];
    process.memory().read(TargetAddress(head.arena_address), &mut bytes)?;
    Ok(Some(Bytes::from(bytes.as_slice())))
}

/// Closes what a tracer opened in the target, was killed, and could not close; whether there was any.
fn close_descriptors(process: &Process, stopped: &mut Stopped) -> Result<bool, SessionError> {
    let pid = process.pid();
    // A tracer holds the memory of its targets by that name.
    if is_tracer(pid.unsigned_abs()) {
        return Ok(false);
    }
    let tid = stopped.best_thread()?;
    // Without the right to look there is nothing to be closed by us either.
    let Ok(entries) = std::fs::read_dir(format!("/proc/{tid}/fd")) else {
        return Ok(false);
    };
    let is_ours = |path: PathBuf| path.to_string_lossy().starts_with("/memfd:nanoprobe ");
    let ours = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let number = entry.file_name().to_str()?.parse::<i32>().ok()?;
        std::fs::read_link(entry.path()).is_ok_and(is_ours).then_some(number)
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

/// Whether a process of that number lives and is one of ours.
fn is_tracer(pid: u32) -> bool {
    let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let zombie = state
        .rsplit(')')
        .next()
        .is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']));
    !zombie && name(&pid.to_string()).is_some_and(|other| Some(other) == name("self"))
}

/// Whether a patch is in the text as it was written.
fn is_in_place(memory: &Memory, site: &Site) -> bool {
    let (_, patched) = bytes_of(site);
    let mut now = vec![0; patched.len()];
    memory.read(TargetAddress(site.address), &mut now).is_ok() && now == patched
}
