//! Takes back what a dead tracer left, with memory and a map in place of a process. The fuzzer runs this
//! (`fuzz/targets`).
//!
//! All that a target may forge is read here as [`restore`](super::restore()) reads it: the head and the tables of
//! its arenas, the text, the pool of replaced return addresses, the words of a stack.

use nanoprobe_arena::layout::REGION_RETURNS;
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Map, Memory};

use super::remains::{self, Remains};
use super::restore::{Taken, lower_semaphores, restorer_of, say_restored, take_back_sites};
use super::sites::restore_sites;
use super::stacks::Restorer;
use super::unmapping::{is_arena, is_ours, mapped_parts};
use super::{Detached, our_code, put_back_returns};
use crate::error::SessionError;
use crate::records;

/// The state of the only thread: where it stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    /// The next instruction.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// The registers from which masks of system calls are found.
    pub held: [u64; 4],
}

/// Takes back what the arenas of `map` describe, for the traced process or for a child of it. The process has only one
/// thread. The bytes that would be unmapped are reported as the bytes left.
///
/// # Errors
/// Those of `restore`.
pub fn rehearse_restore(
    memory: &Memory,
    map: &Map,
    is_child: bool,
    standing: Standing,
) -> Result<Detached, SessionError> {
    let mut detached = Detached::default();
    let mappings = map.mappings();
    let arenas = (0..mappings.len()).filter_map(|index| mappings.get(index..));
    for arena in arenas.filter(|arena| arena.first().is_some_and(is_arena)) {
        let Some(found) = remains::found(memory, arena).filter(remains::Found::describes_itself) else {
            continue;
        };
        let remains = remains::read(memory, &found.told(), is_child)?;
        take_back(memory, map, is_child, standing, remains, &mut detached)?;
    }
    Ok(detached)
}

fn take_back(
    memory: &Memory,
    map: &Map,
    is_child: bool,
    standing: Standing,
    remains: Remains,
    detached: &mut Detached,
) -> Result<(), SessionError> {
    let Remains {
        head,
        sites,
        semaphores,
        regions,
        damaged,
    } = remains;
    detached.damaged += damaged;
    say_restored(memory, is_child, &head);
    lower_semaphores(memory, map, is_child, &head, &semaphores)?;
    let Taken {
        springboards,
        hosts,
        table,
        ..
    } = take_back_sites(memory, map, sites, &regions, detached)?;
    let restorer = Restorer {
        address: restorer_of(&head),
        has_shadow_stack: true,
    };
    let code = our_code(&regions, &springboards, &hosts, restorer, None);
    if let Some(pool) = regions.iter().find(|region| region.kind == REGION_RETURNS) {
        let put_back = put_back_returns(memory, TargetAddress(pool.address))?;
        detached.calls += put_back.put_back;
        detached.abandoned_calls += put_back.abandoned;
    }
    let Standing { rip, rsp, mut held } = standing;
    records::take_back_held(table, memory, held.each_mut());
    let inside = code.holds(rip) || code.is_awaited_on(memory, map, rsp);
    if !inside {
        restore_sites(memory, &hosts, detached)?;
        restore_sites(memory, &springboards, detached)?;
    }
    let ours = regions.iter().filter(|region| is_ours(region));
    let parts = ours.flat_map(|region| mapped_parts(map, region));
    detached.left_bytes = parts.fold(0, |sum: u64, (start, end)| sum.saturating_add(end - start));
    Ok(())
}
