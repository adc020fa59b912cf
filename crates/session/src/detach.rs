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
    REGION_CODE, Region, STATE_RESTORED, Site, TACTIC_HOST, TACTIC_MADE, TACTIC_SPRINGBOARD,
};
use nanoprobe_target::{Pauses, Process, Sandbox, StopError, Stopped};

use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::others::{Host, Others};
use crate::progress::{self, Work};
use crate::returns::put_back as put_back_returns;
use crate::semaphores;
use crate::signals::{self, guests};
use crate::site_table::{site_of, springboard_sites};

pub(crate) use leaving::is_anyone_inside;
pub use rehearsal::{Standing, rehearse_restore};
pub use restore::restore;
pub(crate) use restore::{restore_child, turn_off_in_child};
pub use survey::{Carried, has_abandoned_arena, survey};
pub use unmapping::has_arena;

mod copies;
mod dispatching;
mod leaving;
mod rehearsal;
pub(crate) mod remains;
mod restore;
mod sites;
pub(crate) mod stacks;
mod survey;
pub(crate) mod unmapping;

use leaving::{Presence, leave};
use sites::restore_sites;
use stacks::{OurCode, Restorer};

/// How long threads may take to leave our code. On a machine that is twenty times too busy, a thread may wait for a
/// processor for seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a debugger may hold the target before detaching gives up (`nanoprobe restore` then does it later).
const PATIENCE_WITH_DEBUGGERS: Duration = Duration::from_secs(10);

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
    /// The number of another tracer that needs some of the patches, which stay in the text for as long as it runs.
    pub needed_by: Option<u32>,
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
    let _claim = attachment.process.claim()?;
    // A dead tracer may have stacked its patches on ours.
    restore::sweep(&attachment.process);
    // A damaged table of semaphores must not keep the rest from being taken back.
    let arena = attachment.memory();
    let _ = arena.and_then(|arena| semaphores::lower_all(&attachment.process, arena));
    // Other programs' breakpoints stay in the text. After an error some of them may be taken for ours, which harms
    // only their owners.
    let _ = attachment.look_beside(true);
    if leave_to_others(attachment, &mut detached)? {
        return Ok(detached);
    }
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
    let host = attachment.actions.host;
    let mut code = our_code(&regions, &springboards, &hosts, restorer, host.as_ref());
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
    let looked = match host {
        Some(_) => None,
        None => signals::look_at_recorded(attachment.addresses.table, &process)
            .ok()
            .flatten(),
    };
    let (known, held) = looked.unwrap_or_default();
    detached.pauses.add_single(process.pid(), held);
    let mut stopped = stop(&process)?;
    restore_sites(process.memory(), &left, &mut detached)?;
    if left.iter().any(|site| site.tactic == TACTIC_MADE) {
        copies::mend(process.memory(), &process.map()?, &left, &regions)?;
    }
    // A guest has neither recorded nor changed a mask.
    if host.is_none()
        && let Ok(control) = attachment
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
        is_guest: host.is_some(),
    };
    let arena = attachment.arena.clone();
    let arena = arena.as_ref().map(|arena| arena.memory());
    let put_back = |stopped: &mut Stopped| match &host {
        Some(host) => guests::unregister(stopped.process().memory(), host, |address| is_code(&regions, address)),
        None => signals::restore(&mut attachment.actions, arena, stopped),
    };
    leave(&process, stopped, &presence, put_back, &mut detached)?;
    drop(patches);
    if detached.left_bytes == 0 {
        restore::sweep(&process);
    }
    if detached.left_bytes == 0 {
        attachment.regions.clear();
    }
    Ok(detached)
}

/// Where another tracer needs what we have in the target, takes back the sites that it does not need. The rest stays,
/// counts for nobody, and is taken back with that tracer, or after it. Yields whether that is so.
fn leave_to_others(attachment: &mut Attachment, detached: &mut Detached) -> Result<bool, SessionError> {
    let arena = attachment.addresses.arena;
    let others = Others::of(&attachment.process, Some(arena))?;
    let sites = attachment.own_sites();
    let own = attachment.own(&sites);
    if !others.need(&own) {
        return Ok(false);
    }
    detached.needed_by = others.living_need(&own);
    let gone = attachment.set_armed(false, &mut |_| true)?;
    detached.pauses.add(&gone.pauses);
    detached.restored += gone.patches;
    let ours = attachment.regions.iter().filter(|region| unmapping::is_ours(region));
    detached.left_bytes = ours.map(|region| region.bytes).sum();
    attachment.process.set_scratch(None);
    attachment.regions.clear();
    attachment.patches.clear();
    Ok(true)
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

pub(crate) fn our_code(
    regions: &[Region],
    springboards: &[Site],
    hosts: &[Site],
    restorer: Restorer,
    host: Option<&Host>,
) -> OurCode {
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
        host: host.map_or(0..0, Host::image_range),
    }
}
