//! Taking everything back: from a session that ends, and (`restore`) from one whose tracer was killed.
//!
//! 1. All threads stand still. Every site that still holds our bytes gets the original ones; the state becomes RESTORED.
//!    From here on nobody enters our code any more, but for those on their way: who has met one of our traps, and waits
//!    for its signal.
//! 2. Who is inside of it, or on its way? A thread whose instruction pointer is in a detour, where the detour corresponds
//!    to the original text, is moved there. Any other (in a handler, in the agent, with a trap pending), and one whose
//!    stack holds an address of ours (a signal handler that interrupted a detour), is let run on, and looked at again.
//! 3. When nobody is, the signal actions are put back and everything is unmapped. When somebody stays (it sleeps in a signal handler for hours), the
//!    mappings stay too, harmless, and that is said.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::{Control, REGION_ARENA, REGION_CODE, Region, STATE_RESTORED, Site};
use nanoprobe_arena::{Bytes, ControlBlock, Structure as _};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Map, Mapping, Memory, Process, Stopped};

use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::signals;

/// How long threads may take to leave our code.
const PATIENCE: Duration = Duration::from_secs(2);
/// How much of a stack is searched for addresses of ours.
const STACK_BYTES_MAX: usize = 256 << 10;

/// How a detachment went.
#[derive(Debug, Default)]
pub struct Detached {
    /// For how long all threads stood still, added up.
    pub stopped: Duration,
    /// Sites that got their original bytes.
    pub restored: usize,
    /// Sites that no longer held our bytes: their library is gone, or somebody else has changed them.
    pub foreign: usize,
    /// Bytes that stay mapped because a thread is still inside; 0: all is gone.
    pub left_bytes: u64,
}

/// Takes a session's presence back.
///
/// # Errors
/// The target cannot be stopped or written. It may have ended: the caller asks first.
pub fn detach(attachment: &mut Attachment) -> Result<Detached, SessionError> {
    let mut detached = Detached::default();
    let sites: Vec<Site> = attachment.patches.iter().map(|patch| site(&patch.built)).collect();
    let mut departures = BTreeMap::new();
    for patch in attachment.patches.iter().chain(&attachment.retired) {
        for entry in patch.built.moves.iter().chain(&patch.built.departures) {
            departures.insert(entry.relocated.0, entry.original.0);
        }
    }
    let regions = attachment.regions.clone();
    let lent = attachment.lent_thread_pointer();
    let process = attachment.process.clone();
    let mut stopped = process.stop()?;
    restore_sites(process.memory(), &sites, &mut detached)?;
    if let Ok(control) = attachment.memory().and_then(|memory| Ok(ControlBlock::open(memory)?.read()?)) {
        signals::restore_masks(&control, attachment.addresses.table.0, &mut stopped, |rip| is_code(&regions, rip))?;
    }
    if let Ok(memory) = attachment.memory() {
        ControlBlock::open(memory)?.set_state(STATE_RESTORED)?;
    }
    attachment.patches.clear();
    let put_back = |stopped: &mut Stopped| signals::restore(attachment, stopped);
    leave(&process, stopped, &regions, &departures, lent, put_back, &mut detached)?;
    if detached.left_bytes == 0 {
        attachment.regions.clear();
    }
    Ok(detached)
}

/// Whether a process carries an arena.
pub fn has_arena(map: &Map) -> bool {
    arenas(map).next().is_some()
}

fn arenas(map: &Map) -> impl Iterator<Item = TargetAddress> {
    let ours = |mapping: &&Mapping| mapping.path().is_some_and(|path| path.ends_with("memfd:nanoprobe"));
    map.mappings().iter().filter(ours).map(|mapping| mapping.start)
}

/// Cleans up after a tracer that was killed.
///
/// # Errors
/// There is nothing to clean, the tracer lives, or the target cannot be stopped or written.
pub fn restore(process: &Process) -> Result<Detached, SessionError> {
    let pid = process.pid();
    let map = process.map()?;
    let nothing = || SessionError::NothingToRestore { pid };
    let arenas: Vec<TargetAddress> = arenas(&map).collect();
    let mut detached = Detached::default();
    let mut found = false;
    for address in arenas {
        let Some(arena) = read_arena(process.memory(), address)? else { continue };
        let control = ControlBlock::open(&arena)?;
        let head: Control = control.read()?;
        if head.arena_address != address.0 {
            continue;
        }
        if head.tracer_pid != std::process::id() && is_tracer(head.tracer_pid) {
            return Err(SessionError::TracerLives { pid, tracer: head.tracer_pid });
        }
        found = true;
        let (sites, regions) = (control.sites()?, control.regions()?);
        let mut stopped = process.stop()?;
        restore_sites(process.memory(), &sites, &mut detached)?;
        let table = regions.iter().find(|region| region.kind == nanoprobe_arena::layout::REGION_TABLE);
        let table = table.filter(|region| region.bytes >= nanoprobe_arena::layout::TABLE_BYTES as u64);
        let table = table.map_or(0, |region| region.address);
        signals::restore_masks(&head, table, &mut stopped, |rip| is_code(&regions, rip))?;
        // Without the tracer's tables nobody can be moved out of a detour; everybody gets out by running on.
        let lent = regions.iter().find(|region| region.kind == nanoprobe_arena::layout::REGION_TABLE);
        let lent = lent.map_or(0, |region| region.address + nanoprobe_arena::layout::TABLE_MAGIC as u64 + 8);
        let put_back = |stopped: &mut Stopped| {
            signals::restore_masks(&head, table, stopped, |_| false)?;
            signals::put_back(&head, stopped)
        };
        leave(process, stopped, &regions, &BTreeMap::new(), lent, put_back, &mut detached)?;
    }
    if found {
        return Ok(detached);
    }
    // A tracer that was killed even before it had an arena may have left the few bytes from which system calls are made:
    // borrowing a thread and giving it back puts them back too.
    let mut stopped = process.stop_one()?;
    let tid = stopped.best_thread()?;
    stopped.remote(tid)?.finish()?;
    Err(nothing())
}

fn site(built: &nanoprobe_patch::Built) -> Site {
    let mut site = Site { address: built.address.0, length: built.original.len() as u32, ..Site::default() };
    for (to, from) in site.original.iter_mut().zip(&built.original) {
        *to = *from;
    }
    for (to, from) in site.patched.iter_mut().zip(&built.patched) {
        *to = *from;
    }
    site
}

/// Writes the original bytes wherever ours still stand.
fn restore_sites(memory: &Memory, sites: &[Site], detached: &mut Detached) -> Result<(), SessionError> {
    let mut writes: Vec<(TargetAddress, &[u8])> = Vec::new();
    for site in sites {
        let length = (site.length as usize).min(site.original.len());
        let (Some(original), Some(patched)) = (site.original.get(..length), site.patched.get(..length)) else { continue };
        let mut now = vec![0; length];
        if memory.read(TargetAddress(site.address), &mut now).is_ok() && now == patched {
            writes.push((TargetAddress(site.address), original));
        } else if now != original {
            detached.foreign += 1;
        }
    }
    writes.sort_by_key(|(address, _)| *address);
    writes.dedup_by_key(|(address, _)| *address);
    detached.restored += writes.len();
    Ok(memory.write_text(&writes)?)
}

fn is_code(regions: &[Region], address: u64) -> bool {
    let holds = |region: &Region| address.wrapping_sub(region.address) < region.bytes;
    regions.iter().any(|region| region.kind == REGION_CODE && holds(region))
}

/// Steps 2 and 3.
fn leave(
    process: &Process,
    stopped: Stopped,
    regions: &[Region],
    departures: &BTreeMap<u64, u64>,
    lent: u64,
    mut put_back: impl FnMut(&mut Stopped) -> Result<(), SessionError>,
    detached: &mut Detached,
) -> Result<(), SessionError> {
    let code: Vec<Range<u64>> = regions
        .iter()
        .filter(|region| region.kind == REGION_CODE)
        .map(|region| region.address..region.address.saturating_add(region.bytes))
        .collect();
    let deadline = Instant::now() + PATIENCE;
    let mut stopped = stopped;
    loop {
        let mut inside = false;
        let threads: Vec<i32> = stopped.threads().collect();
        for tid in threads {
            inside |= is_inside(process, &mut stopped, tid, &code, departures, lent)?;
        }
        let late = Instant::now() > deadline;
        if !inside || late {
            put_back(&mut stopped)?;
        }
        if !inside {
            unmap(&mut stopped, regions)?;
            detached.stopped += stopped.release();
            return Ok(());
        }
        detached.stopped += stopped.release();
        if late {
            detached.left_bytes = regions.iter().filter(|region| region.kind != REGION_ARENA).map(|region| region.bytes).sum();
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(200));
        stopped = process.stop()?;
    }
}

/// Whether a thread is in our code and cannot be moved out of it.
fn is_inside(
    process: &Process,
    stopped: &mut Stopped,
    tid: i32,
    code: &[Range<u64>],
    departures: &BTreeMap<u64, u64>,
    lent: u64,
) -> Result<bool, SessionError> {
    let ours = |address: u64| code.iter().any(|range| range.contains(&address));
    let mut registers = stopped.registers(tid)?;
    let mut changed = false;
    if lent != 0 && registers.fs_base == lent {
        registers.fs_base = 0;
        changed = true;
    }
    let mut inside = false;
    if ours(registers.rip) {
        match departures.get(&registers.rip) {
            Some(original) => {
                registers.rip = *original;
                changed = true;
            }
            None => inside = true,
        }
    }
    if changed {
        stopped.set_registers(tid, &registers)?;
    }
    Ok(inside || has_pending_trap(process.pid(), tid) || stack_holds(process.memory(), registers.rsp, ours))
}

/// Whether a thread has met one of our trapping bytes, and its signal is still to be delivered: our action must be there
/// when it is.
fn has_pending_trap(pid: i32, tid: i32) -> bool {
    const TRAPS: u64 = 1 << (5 - 1) | 1 << (4 - 1);
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & TRAPS != 0)
}

/// Whether a word between the stack pointer and the stack's end is an address of ours: a return address into a handler,
/// or the instruction pointer in a signal frame. What lies there by chance is taken for one too.
fn stack_holds(memory: &Memory, rsp: u64, ours: impl Fn(u64) -> bool) -> bool {
    let start = rsp & !7;
    let mut bytes = vec![0; STACK_BYTES_MAX];
    let read = memory.read_some(TargetAddress(start), &mut bytes).unwrap_or(0);
    let words = bytes.get(..read).unwrap_or_default().chunks_exact(8);
    words.filter_map(|word| word.try_into().ok()).any(|word| ours(u64::from_le_bytes(word)))
}

/// The arena last: until then the target describes itself.
fn unmap(stopped: &mut Stopped, regions: &[Region]) -> Result<(), SessionError> {
    let tid = stopped.best_thread()?;
    let mut remote = stopped.remote(tid)?;
    let (arenas, others): (Vec<&Region>, Vec<&Region>) = regions.iter().partition(|region| region.kind == REGION_ARENA);
    for region in others.into_iter().chain(arenas) {
        remote.unmap(TargetAddress(region.address), region.bytes)?;
    }
    Ok(remote.finish()?)
}

/// What `restore` needs of an arena in another process: the head and the two tables behind it.
fn read_arena(memory: &Memory, address: TargetAddress) -> Result<Option<Bytes>, SessionError> {
    let mut head = vec![0; Control::BYTES];
    if memory.read(address, &mut head).is_err() {
        return Ok(None);
    }
    let Some(control) = Control::from_bytes(&head) else { return Ok(None) };
    let end_of = |offset: u64, count: u32, bytes: usize| offset.saturating_add(u64::from(count) * bytes as u64);
    let end = end_of(control.sites_offset, control.site_count, Site::BYTES)
        .max(end_of(control.regions_offset, control.region_count, Region::BYTES))
        .max(Control::BYTES as u64);
    const END_MAX: u64 = 256 << 20;
    if end > END_MAX || end > control.arena_bytes {
        return Ok(None);
    }
    let mut bytes = vec![0; end as usize];
    memory.read(address, &mut bytes)?;
    Ok(Some(Bytes::from(bytes.as_slice())))
}

/// Whether a process of that number lives and is one of ours.
fn is_tracer(pid: u32) -> bool {
    let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let zombie = state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']));
    !zombie && name(&pid.to_string()).is_some_and(|other| Some(other) == name("self"))
}
