//! The program's signal handlers: when a running process is attached to, they are asked for. Later the agent notes them
//! (`agent/handlers.c`). Both are kept in the thread table.

use std::mem::offset_of;

use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{HANDLERS, Inherited, TABLE_INHERITANCE};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Process, SignalAction, Stopped};

use super::calls::look_at;
use super::{Actions, SA_SIGINFO, SIGNALS, caught_signals, loaded};
use crate::error::SessionError;

/// Notes the handlers that are installed, for signals of which the agent has noted none. All threads are stopped, so
/// none of them notes one at the same time.
pub(crate) fn note_handlers(
    actions: &Actions,
    table: TargetAddress,
    stopped: &mut Stopped,
) -> Result<(), SessionError> {
    let process = stopped.process().clone();
    let caught = caught_signals(process.pid());
    let signals = (1..=64).filter(|signal| caught & 1 << (signal - 1) != 0);
    let mut found = look_at(stopped, signals.collect())?;
    let mut inherited = read(&process, table)?;
    // Our actions stand before the program's. Those of a host do, too, and the program's are in the host's table.
    for (slot, signal, _) in SIGNALS {
        match (actions.host.is_some(), inherited.actions.get(slot)) {
            (false, Some(own)) if actions.are_installed() => drop(found.insert(signal, loaded(own))),
            (true, _) => drop(found.remove(&signal)),
            _ => {}
        }
    }
    let listed = inherited.places.iter_mut().flatten();
    let count = (inherited.handler_count as usize).min(HANDLERS);
    let mut listed: Vec<&mut u64> = listed.collect();
    let mut used = count;
    for (noted, signal) in inherited.handlers.iter_mut().flatten().zip(1..) {
        let Some(SignalAction { handler, flags, .. }) = found.get(&signal).filter(|action| action.handler > 1) else {
            continue;
        };
        if *noted == 0 {
            *noted = *handler;
            inherited.with_information |= u64::from(flags & SA_SIGINFO != 0) << (signal - 1);
        }
        let is_new = !listed.iter().take(used).any(|known| **known == *handler);
        if let Some(free) = listed.get_mut(used).filter(|_| is_new) {
            **free = *handler;
            used += 1;
        }
    }
    inherited.handler_count = used as u32;
    let bytes = inherited.to_bytes();
    // The rest is not ours to write: the agent's threads change it.
    let (from, to) = (
        offset_of!(Inherited, handlers),
        offset_of!(Inherited, dispatch_registers),
    );
    let place = place_of(table, from);
    Ok(process.memory().write(place, bytes.get(from..to).unwrap_or_default())?)
}

/// The handlers on the list.
pub(crate) fn listed_handlers(process: &Process, table: TargetAddress) -> Result<Vec<TargetAddress>, SessionError> {
    let inherited = read(process, table)?;
    let listed = inherited.places.iter().flatten();
    let listed = listed.take(inherited.handler_count as usize);
    // A thread may just be writing the next one. It asks after that.
    let written = listed.take_while(|handler| **handler != 0);
    Ok(written.map(|handler| TargetAddress(*handler)).collect())
}

/// Tells the agent that the first so many handlers of the list have been seen to.
pub(crate) fn answer_handlers(process: &Process, table: TargetAddress, count: u32) -> Result<(), SessionError> {
    let place = place_of(table, offset_of!(Inherited, handlers_placed));
    Ok(process.memory().write(place, &count.to_le_bytes())?)
}

fn read(process: &Process, table: TargetAddress) -> Result<Inherited, SessionError> {
    let mut bytes = vec![0; Inherited::BYTES];
    process.memory().read(place_of(table, 0), &mut bytes)?;
    Ok(Inherited::from_bytes(&bytes).unwrap_or_default())
}

fn place_of(table: TargetAddress, field: usize) -> TargetAddress {
    TargetAddress(table.0 + (TABLE_INHERITANCE + field) as u64)
}
