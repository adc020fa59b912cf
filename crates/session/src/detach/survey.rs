//! The data in the arena of a process about its tracing. Nothing is stopped or written.
//!
//! The process may have forged the arena, so its numbers are only shown. Whether the tracer lives is known from the
//! kernel, by the lock on the arena's file.

use nanoprobe_arena::layout::{TACTIC_SHIM, TACTIC_SPRINGBOARD};
use nanoprobe_target::{Map, Mapping, Process};

use super::remains::{self, Found, is_child, is_held};
use super::unmapping::is_arena;
use crate::error::SessionError;
use crate::others::{ARENAS_MAX, Others};

/// The tracing of a process, as its arena describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The number that the tracer has in its own pid namespace.
    pub tracer: u32,
    /// Whether a process holds the lock on the arena's file.
    pub is_live: bool,
    /// Whether another tracer that lives needs what the arena lists.
    pub is_needed: bool,
    /// The number of sites that the arena lists for probes.
    pub sites: usize,
    /// When the tracer attached, in ns of CLOCK_MONOTONIC; 0: unknown.
    pub began_ns: u64,
    /// Device and inode of the arena's file, which the tracer has mapped as well.
    pub file: ((u32, u32), u64),
    /// Whether the process was forked from the process to which the tracer attached.
    pub is_forked: bool,
}

/// The data in the arenas of the process, by tracer. Empty: no tracer has attached.
///
/// # Errors
/// The process has ended; its map or the locks cannot be read; or it has only arenas whose heads are destroyed.
pub fn survey(process: &Process) -> Result<Vec<Carried>, SessionError> {
    let map = process.map()?;
    let mut all = Vec::new();
    let mut is_destroyed = false;
    for (mapping, rest) in arenas(&map).take(ARENAS_MAX) {
        let is_live = is_held(process.pid(), mapping)?;
        // A tracer maps the arenas of its targets, too, but at other addresses. If a live arena has no address yet, the
        // tracer cannot be told from its target.
        let is_own = |found: &Found| found.describes_itself() && !(is_live && found.head.arena_address == 0);
        let Some(found) = remains::found(process.memory(), rest) else {
            continue;
        };
        match (is_own(&found), is_live) {
            (true, _) => all.push(carried(process, mapping, found, is_live)?),
            // The lock of a tracer's own mapping is held.
            (false, false) => is_destroyed = true,
            (false, true) => {}
        }
    }
    match all.is_empty() && is_destroyed {
        true => Err(SessionError::Overwritten { pid: process.pid() }),
        false => Ok(all),
    }
}

/// Whether a map has an arena without a live tracer.
///
/// # Errors
/// The locks cannot be read.
pub fn has_abandoned_arena(pid: i32, map: &Map) -> Result<bool, SessionError> {
    for (mapping, _) in arenas(map).take(ARENAS_MAX) {
        if !is_held(pid, mapping)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The mappings with which arenas begin, each with all mappings from there on.
fn arenas(map: &Map) -> impl Iterator<Item = (&Mapping, &[Mapping])> {
    let mappings = map.mappings();
    let starts = mappings.iter().enumerate();
    let starts = starts.filter(|(_, mapping)| is_arena(mapping) && mapping.offset == 0);
    starts.map(|(index, mapping)| (mapping, mappings.get(index..).unwrap_or_default()))
}

fn carried(process: &Process, mapping: &Mapping, found: Found, is_live: bool) -> Result<Carried, SessionError> {
    let found = found.told();
    let head = found.head;
    let is_forked = is_child(process, &head);
    let remains = remains::read(process.memory(), &found, is_forked)?;
    let own = remains.own(found.start);
    let is_needed = || Ok::<_, SessionError>(Others::of(process, None)?.living_need(&own).is_some());
    let is_probed = |tactic: u32| ![TACTIC_SHIM, TACTIC_SPRINGBOARD].contains(&tactic);
    Ok(Carried {
        tracer: head.tracer_pid,
        is_live,
        is_needed: !is_live && is_needed()?,
        sites: remains.sites.iter().filter(|site| is_probed(site.tactic)).count(),
        began_ns: head.clock_ns,
        file: (mapping.device, mapping.inode),
        is_forked,
    })
}
