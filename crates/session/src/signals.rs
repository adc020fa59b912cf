//! Signal actions: ours for what our code raises on purpose, the program's own kept in the arena, so that the agent can
//! hand on what is not ours, and so that everything can be put back.
//!
//! | signal | needed for |
//! |---|---|
//! | SIGTRAP | `int3` at boundaries and trap sites |
//! | SIGILL | boundaries that hold another invalid opcode |
//! | SIGSEGV, SIGBUS | reading the target's memory and stack; a fault in a relocated instruction, whose address the program must not see |
//! | SIGFPE | the same for a division |
//!
//! The kernel kills a process that blocks a signal which one of its instructions raises. So, from the first of our actions
//! to the last, no thread blocks any of the four, and no action of the program's does: [`unblock`] sees to what is so when
//! tracing begins, the agent (`shims.c`) to what the program does later. Both record, in the thread table, what the
//! program believes, which is what [`restore_masks`] makes true again when the text is as it was.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::time::Duration;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_arena::Memory as _;
use nanoprobe_arena::layout::{
    Control, SLOT_BUS, SLOT_FPE, SLOT_ILL, SLOT_SEGV, SLOT_TRAP, SYNCHRONOUS, SignalAction as StoredAction,
};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Process, Registers, SignalAction, Stopped};

use crate::attachment::Attachment;
use crate::detach::stacks::{block_behind_handlers, mask_after_handlers, unblock_behind_handlers};
use crate::error::SessionError;
use crate::held::{Blocking, give_back};
use crate::records::{action_place, blocked_place, recorded_actions, recorded_bits};
use crate::thread_key;

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
    /// What was there, and what we put there: the arena, where the agent keeps the first up to date, may be damaged.
    kept: [(SignalAction, SignalAction); 5],
}

impl Actions {
    /// What an arena tells of the actions, corrected: where it does not even tell our own, what it tells of the program's is
    /// not to be made true, and what we saw is put back.
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

/// Whether our actions are in place.
pub(crate) fn are_installed(attachment: &Attachment) -> bool {
    attachment.actions.installed != [false; 5]
}

/// Looks at the actions that [`install`] is going to change, while one thread is enough: in the stop of all they are
/// changed by what is known by then.
pub(crate) fn look(attachment: &Attachment, stopped: &mut Stopped) -> Result<Known, SessionError> {
    let wanted = wanted(attachment);
    if wanted.is_empty() {
        return Ok(Known::new());
    }
    let signals = wanted.iter().map(|(_, signal, _)| *signal);
    let caught = caught_by_others(attachment, stopped);
    look_at(stopped, signals.chain(caught).collect())
}

/// Installs what is needed and not there yet. All threads stand still, so nobody sees a half of it.
pub(crate) fn install(attachment: &mut Attachment, known: Known, stopped: &mut Stopped) -> Result<(), SessionError> {
    let wanted = wanted(attachment);
    if wanted.is_empty() {
        return Ok(());
    }
    let table = attachment.addresses.table;
    let caught = caught_by_others(attachment, stopped);
    if !are_installed(attachment) {
        unblock(table, stopped)?;
    }
    let signals: Vec<i32> = wanted.iter().map(|(_, signal, _)| *signal).chain(caught).collect();
    let process = stopped.process().clone();
    let mut ours_of = BTreeMap::new();
    let before = exchange(stopped, &signals, known, &mut |signal, before| {
        let Some((slot, _, handler)) = wanted.iter().find(|(_, wanted, _)| *wanted == signal) else {
            // The record comes first: see `unblock`.
            let bits = before.mask & SYNCHRONOUS;
            process
                .memory()
                .write(action_place(table, signal), &(bits as u16).to_le_bytes())?;
            let mask = before.mask & !SYNCHRONOUS;
            return Ok(SignalAction { mask, ..before });
        };
        let ours = ours(attachment, signal, *handler, &before);
        store(attachment, offset_of!(Control, actions), *slot, &before)?;
        store(attachment, offset_of!(Control, installed), *slot, &ours)?;
        let memory = attachment.memory()?;
        let mask = memory.load_u32(offset_of!(Control, action_mask) as u64)?;
        memory.store_u32(offset_of!(Control, action_mask) as u64, mask | 1 << slot)?;
        ours_of.insert(signal, ours);
        Ok(ours)
    })?;
    let actions = &mut attachment.actions;
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

/// Signal actions by their signals.
pub(crate) type Known = BTreeMap<i32, SignalAction>;

/// What is not installed yet.
fn wanted(attachment: &Attachment) -> Vec<(usize, i32, AgentFunction)> {
    let is_wanted = |slot: usize| !attachment.actions.installed.get(slot).copied().unwrap_or(true);
    SIGNALS.into_iter().filter(|(slot, ..)| is_wanted(*slot)).collect()
}

/// The other signals whose actions are changed with the first of ours: their handlers block none of the four from then on.
fn caught_by_others(attachment: &Attachment, stopped: &Stopped) -> Vec<i32> {
    if are_installed(attachment) {
        return Vec::new();
    }
    let caught = caught_signals(stopped.process().pid());
    let is_others = |signal: &i32| !SIGNALS.iter().any(|(_, ours, _)| ours == signal);
    (1..=64)
        .filter(|signal| caught & 1 << (signal - 1) != 0)
        .filter(is_others)
        .collect()
}

fn ours(attachment: &Attachment, signal: i32, handler: AgentFunction, before: &SignalAction) -> SignalAction {
    // Where the program has no handler its choices mean nothing; the alternate stack is then the safer.
    let has_handler = before.handler > 1;
    let chosen = if has_handler {
        before.flags & (SA_ONSTACK | SA_RESTART)
    } else {
        SA_ONSTACK | SA_RESTART
    };
    SignalAction {
        handler: attachment.agent(handler).0,
        flags: SA_SIGINFO | SA_RESTORER | chosen,
        restorer: attachment.agent(AgentFunction::Restorer).0,
        mask: blocked_in(signal, attachment.is_sandboxed()),
    }
}

fn look_at(stopped: &mut Stopped, signals: Vec<i32>) -> Result<Known, SessionError> {
    if signals.is_empty() {
        return Ok(Known::new());
    }
    let tid = stopped.best_thread()?;
    let mut remote = stopped.remote(tid)?;
    let asked: Vec<_> = signals.iter().map(|signal| (*signal, None)).collect();
    let found = remote.signal_actions(&asked)?;
    remote.finish()?;
    Ok(signals.into_iter().zip(found).collect())
}

/// Changes actions to what `change` makes of them, while all threads stand: in one go where they are as they are known
/// to be, and once more for those that are not. What they were.
fn exchange(
    stopped: &mut Stopped,
    signals: &[i32],
    known: Known,
    change: &mut dyn FnMut(i32, SignalAction) -> Result<SignalAction, SessionError>,
) -> Result<Known, SessionError> {
    let mut before = Known::new();
    if signals.is_empty() {
        return Ok(before);
    }
    let mut left: Vec<i32> = signals.to_vec();
    let mut known = known;
    let tid = stopped.best_thread()?;
    let mut remote = stopped.remote(tid)?;
    while !left.is_empty() {
        let mut calls = Vec::with_capacity(left.len());
        for signal in &left {
            let Some(action) = known.get(signal) else {
                calls.push((*signal, None));
                continue;
            };
            let changed = change(*signal, *action)?;
            calls.push((
                *signal,
                (changed != *action || before.contains_key(signal)).then_some(changed),
            ));
        }
        let found = remote.signal_actions(&calls)?;
        let mut again = Vec::new();
        for (signal, found) in left.into_iter().zip(found) {
            // Once we have changed an action, what is found is no longer the program's; and nobody else changes it.
            if before.contains_key(&signal) {
                continue;
            }
            before.insert(signal, found);
            if known.insert(signal, found) != Some(found) {
                again.push(signal);
            }
        }
        left = again;
    }
    remote.finish()?;
    Ok(before)
}

/// What is blocked while our handler of a signal runs: everything, since whatever interrupted it would run with our own
/// signal blocked, and die of the next trap. But at a trap site our handler fires, and reads and writes the program's
/// memory as its instruction does, so that faults must arrive; one of these that is sent is handed on with a mask of its
/// own, which takes a system call.
fn blocked_in(signal: i32, sandboxed: bool) -> u64 {
    if signal == SIGTRAP && !sandboxed {
        !(1 << (SIGSEGV - 1) | 1 << (SIGBUS - 1))
    } else {
        u64::MAX
    }
}

/// Puts the program's own actions back, where ours are still there.
pub(crate) fn restore(attachment: &mut Attachment, stopped: &mut Stopped) -> Result<(), SessionError> {
    if attachment.actions.installed == [false; 5] {
        return Ok(());
    }
    let told: Control = attachment.memory()?.structure(0)?;
    put_back(&attachment.actions.believed(told), stopped)?;
    attachment.actions = Actions::default();
    Ok(())
}

/// Puts back the actions that a control block speaks of.
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
    // All threads stand, so nobody sees a mistake before it is mended: one go, where two are rarely needed.
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

/// By what the agent knows this thread.
fn key_of(stopped: &Stopped, tid: i32, registers: &Registers) -> u64 {
    thread_key::of_pointer(stopped.process(), tid, registers.fs_base)
}

/// Takes the four signals out of all threads' masks, and records what they were. (Those of the actions go with [`install`].)
fn unblock(table: TargetAddress, stopped: &mut Stopped) -> Result<(), SessionError> {
    let threads: Vec<i32> = stopped.threads().collect();
    // A thread that is just being created may have its creator's thread pointer still (Go's do), and blocks what that one
    // blocked meanwhile. What only one of the two blocks is recorded for neither.
    let mut believed: BTreeMap<u64, u64> = BTreeMap::new();
    let mut masks = Vec::new();
    let mut stacks = Vec::new();
    let map = stopped.process().map().ok();
    for tid in threads {
        let mask = stopped.signal_mask(tid)?;
        let bits = mask & SYNCHRONOUS;
        let registers = stopped.registers(tid)?;
        let key = key_of(stopped, tid, &registers);
        // What a handler blocks ends with it, and nobody tells us when.
        let lasting = match &map {
            Some(map) if bits != 0 => bits & mask_after_handlers(stopped.process().memory(), map, registers.rsp),
            _ => bits,
        };
        *believed.entry(key).or_insert(lasting) &= lasting;
        // Whoever waits under a mask of his own, as rt_sigsuspend does, would run the handler that ends it under that
        // mask. He is to wait again, by way of the shims: setting what he blocks otherwise makes the kernel forget it.
        let waits = Stopped::in_restart(&registers) && bits_of_wait(stopped, tid) != 0;
        masks.extend((bits != 0 || waits).then_some((tid, mask)));
        stacks.push(registers.rsp);
    }
    for (key, bits) in believed.into_iter().filter(|(_, bits)| *bits != 0) {
        if let Some(place) = blocked_place(table, stopped, key, true)? {
            stopped.process().memory().write(place, &(bits as u16).to_le_bytes())?;
        }
    }
    // After the records: a tracer that is killed in between leaves what can be undone.
    for (tid, mask) in masks {
        stopped.set_signal_mask(tid, mask & !SYNCHRONOUS)?;
    }
    for rsp in stacks {
        if let Some(map) = &map {
            unblock_behind_handlers(stopped.process().memory(), map, rsp, SYNCHRONOUS)?;
        }
    }
    Ok(())
}

/// Makes true what the program believes of its masks, in the moment in which the shims leave its text: from then on it
/// changes them without us, and a record tells what was. A thread that is still in our code needs the signals there. When
/// it has left, it may have unblocked them itself: so its record is not carried out later, either. What is not blocked and
/// should be does no harm until somebody sends one of the four; what is blocked and should not be kills.
pub(crate) fn restore_masks(
    control: &Control,
    table: u64,
    known: Known,
    stopped: &mut Stopped,
    is_ours: impl Fn(u64) -> bool,
) -> Result<(), SessionError> {
    // A table may not be there yet, or no more: what cannot be read records nothing.
    if table == 0 || control.arena_address == 0 {
        return Ok(());
    }
    let table = TargetAddress(table);
    let threads: Vec<i32> = stopped.threads().collect();
    let mut keys: BTreeMap<u64, usize> = BTreeMap::new();
    let map = stopped.process().map().ok();
    for tid in &threads {
        let registers = stopped.registers(*tid)?;
        *keys.entry(key_of(stopped, *tid, &registers)).or_default() += 1;
        if let Some(map) = &map {
            block_behind_handlers(stopped.process().memory(), map, registers.rsp, SYNCHRONOUS, &is_ours)?;
        }
    }
    let (mut blocking, mut all) = (Vec::new(), true);
    for tid in threads {
        let registers = stopped.registers(tid)?;
        // Of two threads with one thread pointer one is just being created: nobody can tell whose record it is. Both set
        // their masks next, and what is not blocked meanwhile harms less than what is.
        if is_ours(registers.rip)
            || keys
                .get(&key_of(stopped, tid, &registers))
                .is_some_and(|threads| *threads > 1)
        {
            all = false;
            continue;
        }
        let Ok(Some(place)) = blocked_place(table, stopped, key_of(stopped, tid, &registers), false) else {
            continue;
        };
        let bits = recorded_bits(stopped, place);
        if bits != 0 {
            // The record goes last: a tracer that is killed in between leaves what can be done again.
            let mask = stopped.signal_mask(tid)?;
            stopped.set_signal_mask(tid, mask | bits)?;
            stopped.process().memory().write(place, &[0; 2])?;
            blocking.push(Blocking { tid, bits });
        }
    }
    give_back(table, stopped, &blocking, all)?;
    let recorded = recorded_actions(table, stopped);
    let signals: Vec<i32> = recorded.keys().copied().collect();
    exchange(stopped, &signals, known, &mut |signal, action| {
        let bits = recorded.get(&signal).copied().unwrap_or(0);
        let mask = action.mask | if action.handler > 1 { bits } else { 0 };
        Ok(SignalAction { mask, ..action })
    })?;
    for signal in signals {
        stopped.process().memory().write(action_place(table, signal), &[0; 2])?;
    }
    Ok(())
}

/// Looks at the actions that [`restore_masks`] is going to change, while one thread is enough. `None`: there are none.
pub(crate) fn look_at_recorded(
    table: TargetAddress,
    process: &Process,
) -> Result<Option<(Known, Duration)>, SessionError> {
    let mut any = [0; 2 * 64];
    process.memory().read(action_place(table, 1), &mut any)?;
    if any.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let mut stopped = process.stop_one()?;
    let signals = recorded_actions(table, &stopped).into_keys().collect();
    let known = look_at(&mut stopped, signals)?;
    Ok(Some((known, stopped.release())))
}

/// Signals for which the program has a handler; all, where the kernel does not say.
fn caught_signals(pid: i32) -> u64 {
    signals_of(pid, pid, "SigCgt:").unwrap_or(u64::MAX)
}

/// Which of the four a thread blocks this moment, be it only while it waits.
fn bits_of_wait(stopped: &Stopped, tid: i32) -> u64 {
    signals_of(stopped.process().pid(), tid, "SigBlk:").unwrap_or(0) & SYNCHRONOUS
}

fn signals_of(pid: i32, tid: i32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let text = status.lines().find_map(|line| line.strip_prefix(field))?;
    u64::from_str_radix(text.trim(), 16).ok()
}

fn store(attachment: &Attachment, field: usize, slot: usize, action: &SignalAction) -> Result<(), SessionError> {
    let offset = field + slot * size_of::<StoredAction>();
    Ok(attachment.memory()?.write_structure(offset as u64, &stored(action))?)
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
