//! The end of leaving a process: no thread may be in our code, or come back to it. Steps 2 to 4 of [`super`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::{REGION_ARENA, REGION_RETURNS, Region, Site};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Map, Process, Registers, RemoteError, Stopped};

use super::dispatching;
use super::sites::restore_sites;
use super::stacks::OurCode;
use super::unmapping::{is_ours, unmap};
use super::{Detached, PATIENCE, carried_jump};
use crate::error::SessionError;
use crate::records;
use crate::returns::{PutBack, put_back as put_back_returns};

/// The least time between two looks at all threads.
const LOOKS_APART_MIN: Duration = Duration::from_micros(200);
/// The greatest time between two looks at all threads, as a multiple of the time that they stood for the last look.
const LOOKS_APART_MAX: u32 = 9;
/// TF of the flags.
const TRAP_FLAG: u64 = 0x100;

/// The things that a session owns in its target, without the sites that are already restored.
pub(super) struct Presence<'a> {
    /// The arena's address, if there is an arena.
    pub arena: Option<TargetAddress>,
    /// The mappings, as the arena's table lists them.
    pub regions: &'a [Region],
    /// The springboards. They are taken back when no thread is in our code.
    pub springboards: &'a [Site],
    /// Patches that carry springboards. They are taken back when no thread is on a springboard: until then each of
    /// them leads threads into our code.
    pub hosts: &'a [Site],
    /// Our code within the regions, and the jumps of the springboards.
    pub code: OurCode,
    /// The target's map, read a moment ago.
    pub map: &'a Map,
    /// The addresses in detours at which a thread may be moved, each with its address in the original text.
    pub departures: &'a BTreeMap<u64, u64>,
    /// The lent thread pointer; 0: none.
    pub lent: u64,
    /// The thread table; 0: none.
    pub table: u64,
    /// Processes with the same memory, read before the stop.
    pub sharers: Vec<i32>,
    /// Whether another tracer's agent calls ours in its signal handlers.
    pub is_guest: bool,
}

/// How a guest leaves: its host's handler may be about to call it, or to let it redirect one of its traps.
///
/// 1. No trap of the guest's is in the text any more. Each thread is seen once outside of the host's code, and of the
///    guest's: whatever it had trapped on is over.
/// 2. The guest is taken off the host's list. Each thread that was in the host's code, or the guest's, is seen once
///    more outside of both: it has not read the list before.
///
/// A thread that traps all the time, for another tracer, need only be seen in the right moment once, and not together
/// with all others.
#[derive(Default)]
struct Parting {
    /// The threads that have not been seen outside yet; `None` before the first look.
    unseen: Option<BTreeSet<i32>>,
    is_off: bool,
}

impl Parting {
    /// Takes note of a look; `within`: the threads in the guest's code, or on their way. Yields whether the guest is
    /// off the list, and no thread can come to it any more.
    fn look(
        &mut self,
        stopped: &mut Stopped,
        presence: &Presence,
        mut within: BTreeSet<i32>,
        take_off: &mut dyn FnMut(&mut Stopped) -> Result<(), SessionError>,
    ) -> Result<bool, SessionError> {
        let threads: Vec<i32> = stopped.threads().collect();
        for tid in threads {
            if presence.code.host.contains(&stopped.registers(tid)?.rip) {
                within.insert(tid);
            }
        }
        let mut unseen = match self.unseen.take() {
            None => within.clone(),
            // A thread that has come since has not trapped for the guest, or reads a list without it.
            Some(unseen) => unseen.intersection(&within).copied().collect(),
        };
        if unseen.is_empty() && !self.is_off {
            take_off(stopped)?;
            self.is_off = true;
            unseen = within;
        }
        let is_over = self.is_off && unseen.is_empty();
        self.unseen = Some(unseen);
        Ok(is_over)
    }
}

/// Carries out steps 2 and 3 of the module's description.
pub(super) fn leave(
    process: &Process,
    stopped: Stopped,
    presence: &Presence,
    mut put_back: impl FnMut(&mut Stopped) -> Result<(), SessionError>,
    detached: &mut Detached,
) -> Result<(), SessionError> {
    let regions = presence.regions;
    let deadline = Instant::now() + PATIENCE;
    let pool = regions.iter().find(|region| region.kind == REGION_RETURNS);
    let mut stopped = stopped;
    let mut sharers = presence.sharers.clone();
    let carried = on_hosts(presence);
    let mut hosts_are_there = !presence.hosts.is_empty();
    let mut looks = 0;
    let mut parting = Parting::default();
    loop {
        // Addresses are put back at every look: a thread in a detour may have replaced another one meanwhile.
        if let Some(pool) = pool {
            put_back_addresses(process, pool, detached)?;
        }
        let threads: Vec<i32> = stopped.threads().collect();
        let mut within = inside_of(process, &mut stopped, &threads, presence)?;
        let waiting = dispatching::waiting(&mut stopped, presence.table, &presence.code, presence.departures)?;
        if let Some((tid, _)) = &waiting {
            within.remove(tid);
        }
        let mut inside = !within.is_empty();
        if presence.is_guest {
            inside |= !parting.look(&mut stopped, presence, within, &mut put_back)?;
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
        // It makes its call when all of ours have been made: the rest happens in this stop.
        if let Some((tid, registers)) = waiting.filter(|_| !inside || late) {
            stopped.set_registers(tid, &registers)?;
        }
        let mut stay = late;
        if (!inside || late) && !presence.is_guest {
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
            return unmap_by_one_thread(stopped, presence, detached);
        }
        let stood = stopped.release();
        detached.pauses.add_whole(stood);
        looks += 1;
        if stay {
            detached.left_bytes = bytes_left(regions);
            return Ok(());
        }
        // A thread that stays inside must not hold up the others: they are stopped for a tenth of the time at most.
        let left = deadline.saturating_duration_since(Instant::now());
        std::thread::sleep(until_next_look(stood, looks, left));
        sharers = process.sharers();
        stopped = process.stop()?;
    }
}

/// The last step: nothing leads to our code any more, and no thread is inside, so one stopped thread is enough.
fn unmap_by_one_thread(mut stopped: Stopped, presence: &Presence, detached: &mut Detached) -> Result<(), SessionError> {
    let tid = stopped.best_thread()?;
    detached.pauses.add_whole(stopped.release_others(tid));
    let unmapped = unmap(&mut stopped, presence.arena, presence.regions);
    detached.pauses.add_single(tid, stopped.release());
    match unmapped {
        // A guest has no signal actions to put back, which would have shown it.
        Err(SessionError::Remote(RemoteError::Sandboxed { sandbox, .. })) => {
            detached.sandbox = Some(sandbox);
            detached.left_bytes = bytes_left(presence.regions);
            Ok(())
        }
        other => other,
    }
}

/// Puts the real return addresses back.
fn put_back_addresses(process: &Process, pool: &Region, detached: &mut Detached) -> Result<(), SessionError> {
    let PutBack { put_back, abandoned } = put_back_returns(process.memory(), TargetAddress(pool.address))?;
    // Calls whose return addresses were put back at an earlier look do not count as abandoned.
    detached.abandoned_calls = abandoned.saturating_sub(detached.calls);
    detached.calls += put_back;
    Ok(())
}

/// The threads in our code, or on their way there.
fn inside_of(
    process: &Process,
    stopped: &mut Stopped,
    threads: &[i32],
    presence: &Presence,
) -> Result<BTreeSet<i32>, SessionError> {
    let mut inside = BTreeSet::new();
    for tid in threads {
        if is_inside(process, stopped, *tid, presence)? {
            inside.insert(*tid);
        }
    }
    Ok(inside)
}

/// The memory that stays mapped, besides the arena.
fn bytes_left(regions: &[Region]) -> u64 {
    let ours = regions
        .iter()
        .filter(|region| region.kind != REGION_ARENA && is_ours(region));
    ours.map(|region| region.bytes).sum()
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
    code: &OurCode,
    answer: TargetAddress,
    map: &Map,
) -> Result<bool, SessionError> {
    // Such a thread is in no look-up, and goes back to the detour of the linker's hook, which stays.
    let waits_for_answer = |registers: &Registers| {
        registers.orig_rax == libc::SYS_futex as u64 && registers.rdi == answer.0 && code.image.contains(&registers.rip)
    };
    let threads: Vec<i32> = stopped.threads().collect();
    for tid in threads {
        let registers = stopped.registers(tid)?;
        let stands = (code.holds(registers.rip) || code.host.contains(&registers.rip)) && !waits_for_answer(&registers);
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
        host: presence.code.host.clone(),
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
