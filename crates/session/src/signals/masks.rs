//! Signal masks: of all threads, and of the program's actions, while our code may raise signals anywhere.

use std::collections::BTreeMap;
use std::time::Duration;

use nanoprobe_arena::layout::{Control, SYNCHRONOUS};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Process, Registers, SignalAction, Stopped};

use super::calls::{Known, exchange, look_at, signals_of};
use crate::detach::stacks::{block_behind_handlers, mask_after_handlers, unblock_behind_handlers};
use crate::error::SessionError;
use crate::held::{Blocking, give_back};
use crate::records::{action_place, blocked_place, note_blocking, recorded_actions, recorded_bits};
use crate::thread_key;

/// The key by which the agent knows this thread.
fn key_of(stopped: &Stopped, tid: i32, registers: &Registers) -> u64 {
    thread_key::of_pointer(stopped.process(), tid, registers.fs_base)
}

/// Takes the four signals out of all threads' masks, and records the old masks. (The masks of the actions are changed
/// by [`super::install`].)
pub(super) fn unblock(table: TargetAddress, stopped: &mut Stopped) -> Result<(), SessionError> {
    let threads: Vec<i32> = stopped.threads().collect();
    // A thread that is just being created may still have its creator's thread pointer (Go's do), and blocks the signals
    // that its creator blocked meanwhile. A signal that only one of the two blocks is recorded for neither.
    let mut believed: BTreeMap<u64, u64> = BTreeMap::new();
    let mut masks = Vec::new();
    let mut stacks = Vec::new();
    let map = stopped.process().map().ok();
    for tid in threads {
        let mask = stopped.signal_mask(tid)?;
        let bits = mask & SYNCHRONOUS;
        let registers = stopped.registers(tid)?;
        let key = key_of(stopped, tid, &registers);
        // A handler's mask ends with the handler, and we do not see that end.
        let lasting = match &map {
            Some(map) if bits != 0 => bits & mask_after_handlers(stopped.process().memory(), map, registers.rsp),
            _ => bits,
        };
        *believed.entry(key).or_insert(lasting) &= lasting;
        // A thread that waits under another mask than its own, as in rt_sigsuspend, would run the handler that ends
        // the wait under the wait's mask. The thread must begin the wait again, by way of the shims: otherwise the
        // kernel forgets the thread's own mask when we set a mask.
        let waits = Stopped::in_restart(&registers) && bits_of_wait(stopped, tid) != 0;
        masks.extend((bits != 0 || waits).then_some((tid, mask)));
        stacks.push(registers.rsp);
    }
    for (key, bits) in believed.into_iter().filter(|(_, bits)| *bits != 0) {
        if let Some(place) = blocked_place(table, stopped, key, true)? {
            note_blocking(table, stopped)?;
            stopped.process().memory().write(place, &(bits as u16).to_le_bytes())?;
        }
    }
    // After the records: if the tracer is killed in between, `restore` can undo the rest.
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

/// Gives the kernel the masks that the program has set, in the stop in which the shims leave the program's text. From
/// then on the program changes its masks without the agent, and the records are out of date. A thread that is still
/// in our code needs the four signals there. When the thread has left, it may have unblocked them itself: so its record
/// is not applied later, either. If a signal stays unblocked that should be blocked, that does no harm until the signal
/// is sent. If one is blocked that should not be, that kills the process.
pub(crate) fn restore_masks(
    control: &Control,
    table: u64,
    known: Known,
    stopped: &mut Stopped,
    is_ours: impl Fn(u64) -> bool,
) -> Result<(), SessionError> {
    // A table may be missing, at the start or at the end: then nothing is recorded.
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
        // Of two threads with the same thread pointer one is just being created, and the record may belong to either.
        // Both set their masks next. Until then, too small a mask does less harm than too large a mask.
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
            // The record is cleared last: if the tracer is killed in between, this can be done again.
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

/// Reads the actions that [`restore_masks`] is going to change, while one thread is stopped. `None`: there are
/// none.
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

/// Which of the four signals a thread blocks at this moment, even if only while it waits.
fn bits_of_wait(stopped: &Stopped, tid: i32) -> u64 {
    signals_of(stopped.process().pid(), tid, "SigBlk:").unwrap_or(0) & SYNCHRONOUS
}
