//! Taking everything back: from a session that ends, and ([`restore`]) from one whose tracer was killed.
//!
//! 1. The sites get their original bytes, by the breakpoint protocol ([`crate::arming`]): the program runs on.
//! 2. All threads are stopped. All text that is still patched gets its original bytes, also at the shims and the hooks
//!    of unwinders; return addresses that were replaced are put back; the state becomes RESTORED. From here on no
//!    thread enters our code any more, except one that has met one of our traps and waits for its signal, and one that
//!    stands on a springboard, between two jumps. The patches that carry springboards of others are taken back in the
//!    first stop in which no thread is on one of these.
//! 3. Which threads are inside of our code, or on their way? A thread whose instruction pointer is in a detour, where
//!    the detour corresponds to the original text, is moved there. All other threads in our code (in a handler, in the
//!    agent, with a trap pending) run on, and are looked at again. So do threads whose stacks lead back to us (a signal
//!    handler interrupted a detour; see `stacks`).
//! 4. When no thread is, the springboards become padding again, the signal actions are put back and everything is
//!    unmapped. When a thread stays inside (it sleeps in a signal handler for hours), springboards and mappings stay,
//!    harmless, and the user is told.
//!
//! The tracer may be killed between any two of these steps, and each of them may be done again. An unmapped region
//! leaves the arena's region table. So a later `restore` does not unmap memory that the program has mapped there since.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use nanoprobe_agent::Function;
use nanoprobe_arena::ControlBlock;
use nanoprobe_arena::layout::{
    REGION_ARENA, REGION_CODE, REGION_RETURNS, Region, STATE_RESTORED, Site, TACTIC_HOST, TACTIC_SPRINGBOARD,
};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Map, Pauses, Process, Registers, RemoteError, Sandbox, StopError, Stopped};

use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::progress::{self, Work};
use crate::returns::{PutBack, put_back as put_back_returns};
use crate::site_table::{site_of, springboard_sites};
use crate::{records, semaphores, signals};

pub use rehearsal::{Standing, rehearse_restore};
pub use restore::restore;
pub(crate) use restore::restore_child;
pub use survey::{Carried, has_abandoned_arena, survey};
pub use unmapping::has_arena;

mod rehearsal;
mod remains;
mod restore;
mod sites;
pub(crate) mod stacks;
mod survey;
pub(crate) mod unmapping;

use sites::restore_sites;
use stacks::{OurCode, Restorer};
use unmapping::unmap;

/// How long threads may take to leave our code. On a machine that is twenty times too busy, a thread may wait for a
/// processor for seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// The least time between two looks at all threads.
const LOOKS_APART_MIN: Duration = Duration::from_micros(200);
/// The greatest time between two looks at all threads, as a multiple of the time that they stood for the last look.
const LOOKS_APART_MAX: u32 = 9;
/// How long a debugger may hold the target before detaching gives up (`nanoprobe restore` then does it later).
const PATIENCE_WITH_DEBUGGERS: Duration = Duration::from_secs(10);
/// TF of the flags.
const TRAP_FLAG: u64 = 0x100;

/// The result of taking everything back.
#[derive(Debug, Default)]
pub struct Detached {
    /// For how long threads were stopped, in total.
    pub pauses: Pauses,
    /// The number of sites that got their original bytes back.
    pub restored: usize,
    /// The number of sites that no longer held our bytes: their library is gone, or another program has changed them.
    pub foreign: usize,
    /// The number of entries of a dead tracer's tables that no tracer can have written. Sites or mappings that they
    /// should describe may be left behind.
    pub damaged: usize,
    /// The number of calls that had not returned yet, and whose return addresses were put back.
    pub calls: u64,
    /// The number of calls that were left without a return (longjmp, exception), or whose return was not seen.
    pub abandoned_calls: u64,
    /// Bytes that stay mapped because a thread is still inside, or because of the sandbox; 0: all is gone.
    pub left_bytes: u64,
    /// The seccomp filter that the program has installed meanwhile, and that forbids to unmap anything.
    pub sandbox: Option<Sandbox>,
}

/// Stops the target. Waits a while for a debugger or strace that holds it, since one process has one tracer at a
/// time.
fn stop(process: &Process) -> Result<Stopped, StopError> {
    let deadline = Instant::now() + PATIENCE_WITH_DEBUGGERS;
    loop {
        match process.stop() {
            Err(StopError::Refused { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20))
            }
            other => return other,
        }
    }
}

/// Removes everything that a session has in its target.
///
/// # Errors
/// The target cannot be stopped or written. It may also have ended, which the caller checks first.
pub fn detach(attachment: &mut Attachment) -> Result<Detached, SessionError> {
    let _restoring = progress::doing(Work::Restoring, 0);
    let mut detached = Detached::default();
    // A damaged table of semaphores must not keep the rest from being taken back.
    let arena = attachment.memory();
    let _ = arena.and_then(|arena| semaphores::lower_all(&attachment.process, arena));
    // Other programs' breakpoints stay in the text. After an error some of them may be taken for ours, which harms
    // only their owners.
    let _ = attachment.look_beside(true);
    // Patches that cannot be taken back here, for example because a debugger holds a thread, are taken back in the
    // stop.
    if let Ok(restored) = attachment.disarm_before_stop(&mut detached.pauses) {
        detached.restored += restored;
    }
    let left = attachment.patches.iter().filter(|patch| !attachment.is_disarmed(patch));
    let left = left.chain(&attachment.retired).map(site_of);
    let (hosts, left): (Vec<Site>, Vec<Site>) = left.partition(is_host);
    let with_springboards = attachment.patches.iter().chain(&attachment.retired);
    let springboards: Vec<Site> = with_springboards.flat_map(springboard_sites).collect();
    let mut departures = BTreeMap::new();
    for patch in attachment
        .patches
        .iter()
        .chain(&attachment.retired)
        .chain(&attachment.gone)
    {
        for entry in patch.built.moves.iter().chain(&patch.built.departures) {
            departures.insert(entry.relocated.0, entry.original.0);
        }
    }
    let regions = attachment.regions.clone();
    let lent = attachment.lent_thread_pointer();
    let process = attachment.process.clone();
    // The map shows where stacks end. It is read while the program still runs.
    let map = process.map()?;
    let restorer = Restorer::of(process.pid(), attachment.agent(Function::Restorer).0);
    let mut code = our_code(&regions, &springboards, &hosts, restorer);
    // A signal handler may have interrupted a thread just before a call that waits. Until the handler returns, the
    // thread's registers may hold a mask of ours.
    for call in attachment
        .patches
        .iter()
        .filter(|patch| patch.shim)
        .flat_map(|patch| patch.built.departures.first())
    {
        code.add(call.original.0);
        departures.insert(call.original.0, call.original.0);
    }
    let sharers = process.sharers();
    // An error is ignored: the stop looks again.
    let looked = signals::look_at_recorded(attachment.addresses.table, &process)
        .ok()
        .flatten();
    let (known, held) = looked.unwrap_or_default();
    detached.pauses.add_single(process.pid(), held);
    let mut stopped = stop(&process)?;
    restore_sites(process.memory(), &left, &mut detached)?;
    if let Ok(control) = attachment
        .memory()
        .and_then(|memory| Ok(ControlBlock::open(memory)?.read()?))
    {
        signals::restore_masks(&control, attachment.addresses.table.0, known, &mut stopped, |rip| {
            is_code(&regions, rip)
        })?;
    }
    // A damaged arena must not keep the rest from being taken back.
    if let Ok(control) = attachment.memory().map(ControlBlock::open) {
        let _ = control.and_then(|control| control.set_state(STATE_RESTORED));
    }
    // Freed after all threads run again.
    let patches = std::mem::take(&mut attachment.patches);
    let presence = Presence {
        arena: attachment.memory().is_ok().then_some(attachment.addresses.arena),
        regions: &regions,
        springboards: &springboards,
        hosts: &hosts,
        code,
        map: &map,
        departures: &departures,
        lent,
        table: attachment.addresses.table.0,
        sharers,
    };
    let arena = attachment.arena.clone();
    let arena = arena.as_ref().map(|arena| arena.memory());
    let put_back = |stopped: &mut Stopped| signals::restore(&mut attachment.actions, arena, stopped);
    leave(&process, stopped, &presence, put_back, &mut detached)?;
    drop(patches);
    if detached.left_bytes == 0 {
        attachment.regions.clear();
    }
    Ok(detached)
}

/// Whether a site is the second part of an `evict`.
fn is_springboard(site: &Site) -> bool {
    site.tactic == TACTIC_SPRINGBOARD
}

/// The address of a springboard's jump: no thread can stand at another address of a springboard.
fn springboard_jump(site: &Site) -> Option<u64> {
    const JUMP: u8 = 0xe9;
    let (_, patched) = bytes_of(site);
    let offset = patched.iter().position(|byte| *byte == JUMP)?;
    site.address.checked_add(offset as u64)
}

/// Whether a site carries the springboard of another site.
fn is_host(site: &Site) -> bool {
    site.tactic == TACTIC_HOST
}

/// The address of the springboard's jump, with which the carrying patch ends. A thread can stand at no other address of
/// the springboard.
fn carried_jump(site: &Site) -> u64 {
    const JUMP_BYTES: u64 = 5;
    site.address
        .saturating_add(u64::from(site.length).saturating_sub(JUMP_BYTES))
}

/// The original and the patched bytes of a site.
fn bytes_of(site: &Site) -> (&[u8], &[u8]) {
    let length = site.length as usize;
    let cut = |bytes: &'_ [u8; 16]| length.min(bytes.len());
    (
        site.original.get(..cut(&site.original)).unwrap_or_default(),
        site.patched.get(..cut(&site.patched)).unwrap_or_default(),
    )
}

fn is_code(regions: &[Region], address: u64) -> bool {
    let holds = |region: &Region| address.wrapping_sub(region.address) < region.bytes;
    regions.iter().any(|region| region.kind == REGION_CODE && holds(region))
}

fn our_code(regions: &[Region], springboards: &[Site], hosts: &[Site], restorer: Restorer) -> OurCode {
    let code = regions.iter().filter(|region| region.kind == REGION_CODE);
    let mut ranges: Vec<Range<u64>> = code
        .map(|region| region.address..region.address.saturating_add(region.bytes))
        .collect();
    let jumps = springboards
        .iter()
        .filter_map(springboard_jump)
        .chain(hosts.iter().map(carried_jump));
    ranges.extend(jumps.map(|jump| jump..jump.saturating_add(1)));
    ranges.sort_unstable_by_key(|range| range.start);
    // The agent's image comes first in its block.
    let block = ranges
        .iter()
        .find(|range| range.contains(&restorer.address))
        .map_or(0, |range| range.start);
    OurCode {
        ranges,
        image: block..block.saturating_add(nanoprobe_agent::IMAGE.len() as u64),
        restorer: restorer.programs_handlers(),
    }
}

/// The things that a session owns in its target, without the sites that are already restored.
struct Presence<'a> {
    /// The arena's address, if there is an arena.
    arena: Option<TargetAddress>,
    /// The mappings, as the arena's table lists them.
    regions: &'a [Region],
    /// The springboards. They are taken back when no thread is in our code.
    springboards: &'a [Site],
    /// Patches that carry springboards. They are taken back when no thread is on a springboard: until then each of
    /// them leads threads into our code.
    hosts: &'a [Site],
    /// Our code within the regions, and the jumps of the springboards.
    code: OurCode,
    /// The target's map, read a moment ago.
    map: &'a Map,
    /// The addresses in detours at which a thread may be moved, each with its address in the original text.
    departures: &'a BTreeMap<u64, u64>,
    /// The lent thread pointer; 0: none.
    lent: u64,
    /// The thread table; 0: none.
    table: u64,
    /// Processes with the same memory, read before the stop.
    sharers: Vec<i32>,
}

/// Carries out steps 2 and 3 of the module's description.
fn leave(
    process: &Process,
    stopped: Stopped,
    presence: &Presence,
    mut put_back: impl FnMut(&mut Stopped) -> Result<(), SessionError>,
    detached: &mut Detached,
) -> Result<(), SessionError> {
    let Presence { arena, regions, .. } = *presence;
    let deadline = Instant::now() + PATIENCE;
    let pool = regions.iter().find(|region| region.kind == REGION_RETURNS);
    let mut stopped = stopped;
    let mut sharers = presence.sharers.clone();
    let carried = on_hosts(presence);
    let mut hosts_are_there = !presence.hosts.is_empty();
    let mut looks = 0;
    loop {
        // Addresses are put back at every look: a thread in a detour may have replaced another one meanwhile.
        if let Some(pool) = pool {
            let PutBack { put_back, abandoned } = put_back_returns(process.memory(), TargetAddress(pool.address))?;
            // Calls whose return addresses were put back at an earlier look do not count as abandoned.
            detached.abandoned_calls = abandoned.saturating_sub(detached.calls);
            detached.calls += put_back;
        }
        let mut inside = false;
        let threads: Vec<i32> = stopped.threads().collect();
        for tid in &threads {
            inside |= is_inside(process, &mut stopped, *tid, presence)?;
        }
        if hosts_are_there && !is_anyone_on(&carried, process, &mut stopped, &threads, presence)? {
            restore_sites(process.memory(), presence.hosts, detached)?;
            hosts_are_there = false;
        }
        inside |= hosts_are_there;
        // A process that shares the memory is not stopped, and may execute our code at any place.
        inside |= sharers.iter().any(|other| process.is_shared_with(*other));
        let late = Instant::now() > deadline;
        if !inside {
            restore_sites(process.memory(), presence.springboards, detached)?;
        }
        let mut stay = late;
        if !inside || late {
            match put_back(&mut stopped) {
                // No call can be made in the process any more. Our signal handlers stay, and hand signals on to the
                // program's.
                Err(SessionError::Remote(RemoteError::Sandboxed { sandbox, .. })) => {
                    detached.sandbox = Some(sandbox);
                    stay = true;
                }
                other => other?,
            }
        }
        if !inside && detached.sandbox.is_none() {
            // Nothing leads to our code any more, and no thread is inside: one thread is enough for the rest.
            let tid = stopped.best_thread()?;
            detached.pauses.add_whole(stopped.release_others(tid));
            let unmapped = unmap(&mut stopped, arena, regions);
            detached.pauses.add_single(tid, stopped.release());
            return unmapped;
        }
        let stood = stopped.release();
        detached.pauses.add_whole(stood);
        looks += 1;
        if stay {
            detached.left_bytes = regions
                .iter()
                .filter(|region| region.kind != REGION_ARENA)
                .map(|region| region.bytes)
                .sum();
            return Ok(());
        }
        // A thread that stays inside must not hold up the others: they are stopped for a tenth of the time at most.
        std::thread::sleep(until_next_look(
            stood,
            looks,
            deadline.saturating_duration_since(Instant::now()),
        ));
        sharers = process.sharers();
        stopped = process.stop()?;
    }
}

/// How long all threads run before the next look at them. `stood` is how long the last look stopped them, `looks` the
/// number of looks so far, `left` the time that remains.
fn until_next_look(stood: Duration, looks: u32, left: Duration) -> Duration {
    let apart = stood.saturating_mul(looks.min(LOOKS_APART_MAX));
    apart.min(left).max(LOOKS_APART_MIN)
}

/// Whether any thread is in our code, or on its way there or back. All threads are stopped.
pub(crate) fn is_anyone_inside(
    process: &Process,
    stopped: &mut Stopped,
    regions: &[Region],
    springboards: &[Site],
    restorer: TargetAddress,
    answer: TargetAddress,
    map: &Map,
) -> Result<bool, SessionError> {
    let code = our_code(regions, springboards, &[], Restorer::of(process.pid(), restorer.0));
    // Such a thread is in no look-up, and goes back to the detour of the linker's hook, which stays.
    let waits_for_answer = |registers: &Registers| {
        registers.orig_rax == libc::SYS_futex as u64 && registers.rdi == answer.0 && code.image.contains(&registers.rip)
    };
    let threads: Vec<i32> = stopped.threads().collect();
    for tid in threads {
        let registers = stopped.registers(tid)?;
        let stands = code.holds(registers.rip) && !waits_for_answer(&registers);
        if stands || code.is_awaited_on(process.memory(), map, registers.rsp) || stopped.has_queued_trap(tid) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The code that consists only of the springboards in displaced instructions.
fn on_hosts(presence: &Presence) -> OurCode {
    let mut ranges: Vec<Range<u64>> = presence
        .hosts
        .iter()
        .map(carried_jump)
        .map(|jump| jump..jump.saturating_add(1))
        .collect();
    ranges.sort_unstable_by_key(|range| range.start);
    OurCode {
        ranges,
        image: 0..0,
        restorer: presence.code.restorer,
    }
}

/// Whether a thread stands on our code, or returns to it from a signal handler.
fn is_anyone_on(
    places: &OurCode,
    process: &Process,
    stopped: &mut Stopped,
    threads: &[i32],
    presence: &Presence,
) -> Result<bool, SessionError> {
    for tid in threads {
        let registers = stopped.registers(*tid)?;
        if places.holds(registers.rip) || places.is_awaited_on(process.memory(), presence.map, registers.rsp) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a thread is in our code and cannot be moved out of it.
fn is_inside(process: &Process, stopped: &mut Stopped, tid: i32, presence: &Presence) -> Result<bool, SessionError> {
    let Presence { code, map, .. } = presence;
    let mut registers = stopped.registers(tid)?;
    let mut changed = false;
    if presence.lent != 0 && registers.fs_base == presence.lent {
        registers.fs_base = 0;
        changed = true;
    }
    changed |= records::take_back_mask(presence.table, process.memory(), &mut registers);
    let mut inside = false;
    if code.holds(registers.rip) {
        match presence.departures.get(&registers.rip) {
            // A thread that steps through a copy is not moved: its own signal handler must restore its flags and
            // its mask.
            Some(original) if registers.eflags & TRAP_FLAG == 0 => {
                registers.rip = *original;
                changed = true;
            }
            _ => inside = true,
        }
    }
    if changed {
        stopped.set_registers(tid, &registers)?;
    }
    Ok(inside || stopped.has_queued_trap(tid) || code.is_awaited_on(process.memory(), map, registers.rsp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_ever_further_apart_within_the_time_that_is_left() {
        let (stood, left) = (Duration::from_millis(10), Duration::from_secs(1));
        assert_eq!(until_next_look(stood, 1, left), Duration::from_millis(10));
        assert_eq!(until_next_look(stood, 5, left), Duration::from_millis(50));
        assert_eq!(until_next_look(stood, 1000, left), Duration::from_millis(90));
        assert_eq!(until_next_look(Duration::from_micros(1), 1, left), LOOKS_APART_MIN);
        assert_eq!(
            until_next_look(Duration::from_secs(5), 9, left),
            left,
            "a machine twenty times too busy"
        );
        assert_eq!(until_next_look(stood, 9, Duration::ZERO), LOOKS_APART_MIN);
    }
}
