//! Signal actions. Ours handle what our code raises on purpose. The program's own are kept in the thread table, so that
//! the agent can hand on other signals, and in the arena, so that all actions can be put back.
//!
//! | signal | needed for |
//! |---|---|
//! | SIGTRAP | `int3` at boundaries and trap sites |
//! | SIGILL | boundaries that hold another invalid opcode |
//! | SIGSEGV, SIGBUS | reading the target's memory and stack; a fault in a relocated instruction |
//! | SIGFPE | the same for a division |
//!
//! The program must not see the address of a relocated instruction.
//!
//! The kernel kills a process that blocks a signal which one of its instructions raises. So, from the first of our
//! actions to the last, no thread blocks any of the four, and no action of the program's does: `unblock` changes the
//! masks when tracing begins, and the agent (`shims.c`) changes the masks that the program sets later. Both record in
//! the thread table what the program believes to block. [`restore_masks`] makes that true again when the text is the
//! original one.

mod calls;
pub(crate) mod guests;
pub(crate) mod handlers;
mod masks;

use std::collections::BTreeMap;
use std::mem::offset_of;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_arena::layout::{
    Control, SLOT_BUS, SLOT_FPE, SLOT_ILL, SLOT_SEGV, SLOT_TRAP, SYNCHRONOUS, SignalAction as StoredAction,
    TABLE_INHERITANCE,
};
use nanoprobe_arena::{Mapping, Memory as _, Structure as _};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Process, SignalAction, Stopped};

use self::calls::{exchange, look_at, signals_of};
use self::masks::unblock;
use crate::error::SessionError;
use crate::others::Host;
use crate::records::action_place;

pub(crate) use self::calls::Known;
pub(crate) use self::masks::{look_at_recorded, restore_masks};

const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;

const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTART: u64 = 0x1000_0000;

/// Which actions are ours.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Actions {
    installed: [bool; 5],
    /// The program's action and ours, for each slot. The arena has them too, where the agent keeps the first up to
    /// date, but the arena may be damaged.
    kept: [(SignalAction, SignalAction); 5],
    /// The agent of another tracer that handles the signals for ours, too: see [`guests`].
    pub host: Option<Host>,
    /// Whether it does already.
    pub are_hosts: bool,
}

/// The agent in the target, and the memory that it shares with us.
pub(crate) struct Agent<'a> {
    pub arena: &'a Mapping,
    /// The thread table.
    pub table: TargetAddress,
    /// The agent's code.
    pub code: TargetAddress,
    /// Whether a seccomp filter may refuse system calls, or kill the process for them.
    pub is_sandboxed: bool,
}

impl Agent<'_> {
    fn function(&self, function: AgentFunction) -> u64 {
        self.code.0 + u64::from(function.offset())
    }
}

impl Actions {
    /// Whether our actions are in place.
    pub fn are_installed(&self) -> bool {
        self.are_hosts || self.installed != [false; 5]
    }

    /// The actions in an arena, corrected. If even our own action is wrong in the arena, its copy of the program's
    /// action cannot be trusted, and the action that we saw is used.
    fn believed(&self, mut told: Control) -> Control {
        for (slot, (before, ours)) in self.kept.iter().enumerate() {
            let bit = 1 << slot;
            if !self.installed.get(slot).copied().unwrap_or(false) {
                told.action_mask &= !bit;
                continue;
            }
            let (Some(action), Some(installed)) = (told.actions.get_mut(slot), told.installed.get_mut(slot)) else {
                continue;
            };
            if told.action_mask & bit == 0 || *installed != stored(ours) {
                (*action, *installed) = (stored(before), stored(ours));
                told.action_mask |= bit;
            }
        }
        told
    }
}

/// Slot, signal and handler.
const SIGNALS: [(usize, i32, AgentFunction); 5] = [
    (SLOT_TRAP, SIGTRAP, AgentFunction::OnTrap),
    (SLOT_SEGV, SIGSEGV, AgentFunction::OnFault),
    (SLOT_BUS, SIGBUS, AgentFunction::OnFault),
    (SLOT_ILL, SIGILL, AgentFunction::OnTrap),
    (SLOT_FPE, SIGFPE, AgentFunction::OnFault),
];

/// Reads the actions that [`install`] is going to change, while one thread is stopped. With that knowledge they can
/// be changed quickly in the stop of all threads.
pub(crate) fn look(actions: &Actions, stopped: &mut Stopped) -> Result<Known, SessionError> {
    let wanted = wanted(actions);
    if wanted.is_empty() {
        return Ok(Known::new());
    }
    let signals = wanted.iter().map(|(_, signal, _)| *signal);
    let caught = caught_by_others(actions, stopped);
    look_at(stopped, signals.chain(caught).collect())
}

/// Installs the actions that are needed and missing. All threads are stopped, so none can see half of it.
pub(crate) fn install(
    actions: &mut Actions,
    agent: &Agent<'_>,
    known: Known,
    stopped: &mut Stopped,
) -> Result<(), SessionError> {
    let wanted = wanted(actions);
    if wanted.is_empty() {
        return Ok(());
    }
    let table = agent.table;
    let caught = caught_by_others(actions, stopped);
    if !actions.are_installed() {
        unblock(table, stopped)?;
    }
    let signals: Vec<i32> = wanted.iter().map(|(_, signal, _)| *signal).chain(caught).collect();
    let process = stopped.process().clone();
    let known = match process.stands_at_start() {
        true => actions_at_start(&process, &signals),
        false => known,
    };
    let mut ours_of = BTreeMap::new();
    let before = exchange(stopped, &signals, known, &mut |signal, before| {
        let Some((slot, _, handler)) = wanted.iter().find(|(_, wanted, _)| *wanted == signal) else {
            // The record is written first: see `unblock`.
            let bits = before.mask & SYNCHRONOUS;
            process
                .memory()
                .write(action_place(table, signal), &(bits as u16).to_le_bytes())?;
            let mask = before.mask & !SYNCHRONOUS;
            return Ok(SignalAction { mask, ..before });
        };
        let ours = ours(agent, signal, *handler, &before);
        store(agent.arena, offset_of!(Control, actions), *slot, &before)?;
        store(agent.arena, offset_of!(Control, installed), *slot, &ours)?;
        // The agent hands signals on to the action in private memory; forked children inherit it.
        let own = table.0 + (TABLE_INHERITANCE + slot * size_of::<StoredAction>()) as u64;
        process
            .memory()
            .write(TargetAddress(own), &stored(&before).to_bytes())?;
        let memory = agent.arena;
        let mask = memory.load_u32(offset_of!(Control, action_mask) as u64)?;
        memory.store_u32(offset_of!(Control, action_mask) as u64, mask | 1 << slot)?;
        ours_of.insert(signal, ours);
        Ok(ours)
    })?;
    for (slot, signal, _) in wanted {
        if let (Some(installed), Some(kept), Some(before), Some(ours)) = (
            actions.installed.get_mut(slot),
            actions.kept.get_mut(slot),
            before.get(&signal),
            ours_of.get(&signal),
        ) {
            *installed = true;
            *kept = (*before, *ours);
        }
    }
    Ok(())
}

/// Our actions that are not installed yet.
fn wanted(actions: &Actions) -> Vec<(usize, i32, AgentFunction)> {
    let is_wanted = |slot: usize| !actions.installed.get(slot).copied().unwrap_or(true);
    SIGNALS.into_iter().filter(|(slot, ..)| is_wanted(*slot)).collect()
}

/// The other signals that the program catches. The actions of these signals are changed together with the first of our
/// own: from then on their handlers block none of the four.
fn caught_by_others(actions: &Actions, stopped: &Stopped) -> Vec<i32> {
    if actions.are_installed() {
        return Vec::new();
    }
    let caught = caught_signals(stopped.process().pid());
    let is_others = |signal: &i32| !SIGNALS.iter().any(|(_, ours, _)| ours == signal);
    (1..=64)
        .filter(|signal| caught & 1 << (signal - 1) != 0)
        .filter(is_others)
        .collect()
}

/// The actions of a program that has executed nothing: execve(2) leaves those that ignore, and no flags.
fn actions_at_start(process: &Process, signals: &[i32]) -> Known {
    let Some(ignored) = signals_of(process.pid(), process.pid(), "SigIgn:") else {
        return Known::new();
    };
    let action = |signal: &i32| SignalAction {
        handler: ignored >> (signal - 1) & 1,
        ..SignalAction::default()
    };
    signals.iter().map(|signal| (*signal, action(signal))).collect()
}

fn ours(agent: &Agent<'_>, signal: i32, handler: AgentFunction, before: &SignalAction) -> SignalAction {
    // Where the program has no handler its flags mean nothing, and the alternate stack is safer.
    let has_handler = before.handler > 1;
    let chosen = if has_handler {
        before.flags & (SA_ONSTACK | SA_RESTART)
    } else {
        SA_ONSTACK | SA_RESTART
    };
    SignalAction {
        handler: agent.function(handler),
        flags: SA_SIGINFO | SA_RESTORER | chosen,
        restorer: agent.function(AgentFunction::Restorer),
        mask: blocked_in(signal, agent.is_sandboxed),
    }
}

/// The signals that are blocked while our handler of `signal` runs. In general these are all signals: if a handler of
/// the program interrupted ours, it would run with `signal` blocked, and the next trap would kill the program. But our
/// handler of SIGTRAP fires probes, and reads and writes the program's memory as the instruction at the site does. So
/// there SIGSEGV and SIGBUS stay unblocked. If another process has sent one of these two, our handler passes it on with
/// the right mask, which takes a system call.
fn blocked_in(signal: i32, sandboxed: bool) -> u64 {
    if signal == SIGTRAP && !sandboxed {
        !(1 << (SIGSEGV - 1) | 1 << (SIGBUS - 1))
    } else {
        u64::MAX
    }
}

/// Puts the program's own actions back, where ours are still there.
pub(crate) fn restore(
    actions: &mut Actions,
    arena: Option<&Mapping>,
    stopped: &mut Stopped,
) -> Result<(), SessionError> {
    if !actions.are_installed() {
        return Ok(());
    }
    let told: Control = arena.ok_or(SessionError::NotAttached)?.structure(0)?;
    put_back(&actions.believed(told), stopped)?;
    *actions = Actions::default();
    Ok(())
}

/// Puts back the actions that a control block holds.
pub(crate) fn put_back(control: &Control, stopped: &mut Stopped) -> Result<(), SessionError> {
    let mut calls = Vec::new();
    let mut installed_by_us = Vec::new();
    for (slot, signal, _) in SIGNALS {
        if control.action_mask & 1 << slot == 0 {
            continue;
        }
        let (Some(original), Some(installed)) = (control.actions.get(slot), control.installed.get(slot)) else {
            continue;
        };
        calls.push((signal, Some(loaded(original))));
        installed_by_us.push(installed.handler);
    }
    if calls.is_empty() {
        return Ok(());
    }
    let tid = stopped.best_thread()?;
    let mut remote = stopped.remote(tid)?;
    // All threads are stopped, so no thread sees a mistake before it is corrected. One pass is tried first, and a
    // second is rarely needed.
    let found = remote.signal_actions(&calls)?;
    let of_others = calls.iter().zip(found).zip(installed_by_us);
    let mended: Vec<_> = of_others
        .filter(|((_, found), handler)| found.handler != *handler)
        .map(|(((signal, _), found), _)| (*signal, Some(found)))
        .collect();
    remote.signal_actions(&mended)?;
    remote.finish()?;
    Ok(())
}

/// The signals for which the program has a handler; all, where the kernel does not say.
fn caught_signals(pid: i32) -> u64 {
    signals_of(pid, pid, "SigCgt:").unwrap_or(u64::MAX)
}

fn store(arena: &Mapping, field: usize, slot: usize, action: &SignalAction) -> Result<(), SessionError> {
    let offset = field + slot * size_of::<StoredAction>();
    Ok(arena.write_structure(offset as u64, &stored(action))?)
}

fn stored(action: &SignalAction) -> StoredAction {
    StoredAction {
        handler: action.handler,
        flags: action.flags,
        restorer: action.restorer,
        mask: action.mask,
    }
}

fn loaded(action: &StoredAction) -> SignalAction {
    SignalAction {
        handler: action.handler,
        flags: action.flags,
        restorer: action.restorer,
        mask: action.mask,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(handler: u64) -> SignalAction {
        SignalAction {
            handler,
            ..SignalAction::default()
        }
    }

    #[test]
    fn of_a_damaged_arena_nothing_is_made_a_signal_action() {
        let mut actions = Actions::default();
        actions.installed[SLOT_TRAP] = true;
        actions.kept[SLOT_TRAP] = (action(10), action(20));
        let mut told = Control {
            action_mask: 1 << SLOT_TRAP,
            ..Control::default()
        };
        told.installed[SLOT_TRAP] = stored(&action(20));
        // The program has changed its action since.
        told.actions[SLOT_TRAP] = stored(&action(11));
        assert_eq!(actions.believed(told), told);

        let mut damaged = told;
        damaged.installed[SLOT_TRAP].mask ^= 1;
        damaged.action_mask = u32::MAX;
        let believed = actions.believed(damaged);
        assert_eq!(believed.actions[SLOT_TRAP], stored(&action(10)));
        assert_eq!(believed.installed[SLOT_TRAP], stored(&action(20)));
        assert_eq!(believed.action_mask & 0b11111, 1 << SLOT_TRAP);
    }
}
