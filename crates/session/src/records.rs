//! The thread table's records of signal masks: which signals each thread and each action should block according to the
//! program, and the masks that are lent to waiting calls (`agent/contract/image.h`).

use std::collections::BTreeMap;
use std::mem::offset_of;

use nanoprobe_arena::layout::{
    LENT_MASKS_BYTES, LentMask, SYNCHRONOUS, TABLE_ACTION_MASKS, TABLE_BITS, TABLE_BLOCKED, TABLE_BLOCKS, TABLE_FACTOR,
    TABLE_KEYS, TABLE_LENT_MASKS, TABLE_SLOTS, ThreadSlot,
};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Memory, MemoryError, Registers, Stopped};

/// Reads a record.
pub(crate) fn recorded_bits(stopped: &Stopped, place: TargetAddress) -> u64 {
    let bits = stopped.process().memory().read_array(place).map(u16::from_le_bytes);
    bits.map_or(0, u64::from) & SYNCHRONOUS
}

/// The record of which signals a thread should block according to the program. It lies at the slot of its thread
/// pointer. A thread without a slot gets one, as in `np_own_slot` of agent/threads.h.
pub(crate) fn blocked_place(
    table: TargetAddress,
    stopped: &Stopped,
    key: u64,
    claims: bool,
) -> Result<Option<TargetAddress>, MemoryError> {
    const PROBES: u64 = 128;
    let memory = stopped.process().memory();
    let first = key.wrapping_mul(TABLE_FACTOR) >> (64 - TABLE_BITS);
    for probe in 0..if key == 0 { 0 } else { PROBES } {
        let index = (first + probe) % TABLE_SLOTS as u64;
        let slot = TargetAddress(table.0 + index * size_of::<ThreadSlot>() as u64);
        let found = memory.read_u64(slot)?;
        if found == 0 && claims {
            memory.write(slot, &key.to_le_bytes())?;
            let kept = table.0 + (TABLE_KEYS + size_of::<u64>() * index as usize) as u64;
            memory.write(TargetAddress(kept), &key.to_le_bytes())?;
        }
        if found == key || (found == 0 && claims) {
            return Ok(Some(TargetAddress(table.0 + TABLE_BLOCKED as u64 + 2 * index)));
        }
        if found == 0 {
            break;
        }
    }
    Ok(None)
}

/// Notes that a thread may have a record of blocked signals: a forked child then looks for its own
/// (`np_inherited.blocks`).
pub(crate) fn note_blocking(table: TargetAddress, stopped: &Stopped) -> Result<(), MemoryError> {
    let place = TargetAddress(table.0 + TABLE_BLOCKS as u64);
    stopped.process().memory().write(place, &1_u64.to_le_bytes())
}

pub(crate) fn action_place(table: TargetAddress, signal: i32) -> TargetAddress {
    TargetAddress(table.0 + TABLE_ACTION_MASKS as u64 + 2 * (signal as u64 - 1))
}

/// The recorded masks of the program's actions.
pub(crate) fn recorded_actions(table: TargetAddress, stopped: &Stopped) -> BTreeMap<i32, u64> {
    let bits = (1..=64_i32).map(|signal| (signal, recorded_bits(stopped, action_place(table, signal))));
    bits.filter(|(_, bits)| *bits != 0).collect()
}

/// If a thread holds one of our masks (`lent_masks` of the thread table), gives it back its own mask. False: it holds
/// none of ours.
pub(crate) fn take_back_mask(table: u64, memory: &Memory, registers: &mut Registers) -> bool {
    let held = [
        &mut registers.rdi,
        &mut registers.r8,
        &mut registers.r9,
        &mut registers.r10,
    ];
    take_back_held(table, memory, held)
}

/// Restores a thread's own mask in the registers that hold a mask and its length.
pub(crate) fn take_back_held(table: u64, memory: &Memory, held: [&mut u64; 4]) -> bool {
    let mut changed = false;
    for register in held {
        if let Some(original) = lent_for(table, *register).and_then(|place| memory.read_u64(place).ok()) {
            *register = original;
            changed = true;
        }
    }
    changed
}

/// The record of the value that a register held before it got this address; `None`: at this address there is no lent
/// mask.
fn lent_for(table: u64, address: u64) -> Option<TargetAddress> {
    const FIELDS: [usize; 2] = [offset_of!(LentMask, mask), offset_of!(LentMask, pair)];
    let start = table.checked_add(TABLE_LENT_MASKS as u64).filter(|_| table != 0)?;
    let offset = usize::try_from(address.checked_sub(start)?).ok()?;
    let (slot, within) = (offset / LENT_MASKS_BYTES, offset % LENT_MASKS_BYTES);
    let is_one = slot < TABLE_SLOTS && FIELDS.contains(&(within % size_of::<LentMask>()));
    let entry = address.checked_sub((within % size_of::<LentMask>()) as u64)?;
    is_one.then_some(TargetAddress(entry + offset_of!(LentMask, original) as u64))
}
