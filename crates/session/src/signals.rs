//! Signal actions: ours for what our code raises on purpose, the program's own kept in the arena, so that the agent can
//! hand on what is not ours, and so that everything can be put back.
//!
//! | signal | needed for |
//! |---|---|
//! | SIGTRAP | `int3` at boundaries and trap sites |
//! | SIGILL | boundaries that hold another invalid opcode |
//! | SIGSEGV, SIGBUS | reading the target's memory and stack |

use std::mem::offset_of;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_arena::layout::{Control, SLOT_BUS, SLOT_ILL, SLOT_SEGV, SLOT_TRAP, SignalAction as StoredAction};
use nanoprobe_arena::Memory as _;
use nanoprobe_target::{SignalAction, Stopped};

use crate::attachment::Attachment;
use crate::error::SessionError;

const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;
const SIGBUS: i32 = 7;
const SIGSEGV: i32 = 11;

const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTART: u64 = 0x1000_0000;

/// Which actions are ours.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Actions {
    installed: [bool; 4],
}

/// Slot, signal and handler.
const SIGNALS: [(usize, i32, AgentFunction); 4] = [
    (SLOT_TRAP, SIGTRAP, AgentFunction::OnTrap),
    (SLOT_SEGV, SIGSEGV, AgentFunction::OnFault),
    (SLOT_BUS, SIGBUS, AgentFunction::OnFault),
    (SLOT_ILL, SIGILL, AgentFunction::OnTrap),
];

/// Installs what is needed and not there yet. All threads stand still, so nobody sees a half of it.
pub(crate) fn install(attachment: &mut Attachment, stopped: &mut Stopped, traps: bool) -> Result<(), SessionError> {
    let reads = attachment.parameters.reads_memory;
    let wanted: Vec<_> = SIGNALS
        .into_iter()
        .filter(|(slot, ..)| match *slot {
            SLOT_TRAP | SLOT_ILL => traps,
            _ => reads,
        })
        .filter(|(slot, ..)| !attachment.actions.installed.get(*slot).copied().unwrap_or(true))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let tid = stopped.best_thread()?;
    let mut remote = stopped.remote(tid)?;
    for (slot, signal, handler) in wanted {
        let before = remote.signal_action(signal, None)?;
        // Where the program has no handler its choice of stack means nothing; the alternate one is then the safer.
        let has_handler = before.handler > 1;
        let stack = if has_handler { before.flags & SA_ONSTACK } else { SA_ONSTACK };
        let ours = SignalAction {
            handler: attachment.agent(handler).0,
            flags: SA_SIGINFO | SA_RESTORER | SA_RESTART | stack,
            restorer: attachment.agent(AgentFunction::Restorer).0,
            mask: 0,
        };
        store(attachment, offset_of!(Control, actions), slot, &before)?;
        store(attachment, offset_of!(Control, installed), slot, &ours)?;
        let memory = attachment.memory()?;
        let mask = memory.load_u32(offset_of!(Control, action_mask) as u64)?;
        memory.store_u32(offset_of!(Control, action_mask) as u64, mask | 1 << slot)?;
        remote.signal_action(signal, Some(ours))?;
        if let Some(installed) = attachment.actions.installed.get_mut(slot) {
            *installed = true;
        }
    }
    remote.finish()?;
    Ok(())
}

/// Puts the program's own actions back, where ours are still there.
pub(crate) fn restore(attachment: &mut Attachment, stopped: &mut Stopped) -> Result<(), SessionError> {
    if attachment.actions.installed == [false; 4] {
        return Ok(());
    }
    let control: Control = attachment.memory()?.structure(0)?;
    put_back(&control, stopped)?;
    attachment.actions = Actions::default();
    Ok(())
}

/// Puts back the actions that a control block speaks of.
pub(crate) fn put_back(control: &Control, stopped: &mut Stopped) -> Result<(), SessionError> {
    let tid = stopped.best_thread()?;
    let mut remote = stopped.remote(tid)?;
    for (slot, signal, _) in SIGNALS {
        if control.action_mask & 1 << slot == 0 {
            continue;
        }
        let (Some(original), Some(installed)) = (control.actions.get(slot), control.installed.get(slot)) else { continue };
        let now = remote.signal_action(signal, None)?;
        if now.handler == installed.handler {
            remote.signal_action(signal, Some(loaded(original)))?;
        }
    }
    remote.finish()?;
    Ok(())
}

fn store(attachment: &Attachment, field: usize, slot: usize, action: &SignalAction) -> Result<(), SessionError> {
    let stored = StoredAction {
        handler: action.handler,
        flags: action.flags,
        restorer: action.restorer,
        mask: action.mask,
    };
    let offset = field + slot * size_of::<StoredAction>();
    Ok(attachment.memory()?.write_structure(offset as u64, &stored)?)
}

fn loaded(action: &StoredAction) -> SignalAction {
    SignalAction {
        handler: action.handler,
        flags: action.flags,
        restorer: action.restorer,
        mask: action.mask,
    }
}
