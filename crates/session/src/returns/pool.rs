//! The instances of replaced return addresses in the target: made when the first is needed, taken back at the end.

use std::mem::offset_of;

use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{
    MAGIC, RETURN_ARMED, RETURN_CHAIN_MAX, RETURN_CHUNK, RETURN_INSTANCES, RETURN_POOL_INSTANCES, RETURN_THUNK_BYTES,
    ReturnInstance, Returns as Head, VERSION,
};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Memory;

use crate::error::SessionError;

/// Where the instances are, and which parts of the pool exist already.
#[derive(Clone, Copy, Debug)]
pub struct Returns {
    /// `struct np_return_pool`.
    pub pool: TargetAddress,
    /// The thunks.
    pub thunks: TargetAddress,
    /// Instances for each thread.
    pub maxactive: u32,
    /// Whether the pool is mapped, and its head is written.
    pub mapped: bool,
    /// The thunks are written.
    pub written: bool,
}

impl Returns {
    /// Writes the head. No library event is answered yet, so no instance is taken.
    ///
    /// # Errors
    /// The target's memory cannot be written.
    pub fn write_head(&self, memory: &Memory) -> Result<(), SessionError> {
        let head = Head {
            magic: MAGIC,
            version: VERSION,
            maxactive: self.maxactive,
            thunks: self.thunks.0,
            answered: u32::MAX,
            ..Head::default()
        };
        Ok(memory.write(self.pool, &head.to_bytes())?)
    }

    /// The number of library events so far.
    ///
    /// # Errors
    /// The target's memory cannot be read.
    pub fn events(&self, memory: &Memory) -> Result<u32, SessionError> {
        Ok(u32::from_le_bytes(
            memory.read_array(self.field(offset_of!(Head, events)))?,
        ))
    }

    /// Answers an event: from now on instances are taken, unless another event has come.
    ///
    /// # Errors
    /// The target's memory cannot be written.
    pub fn answer(&self, memory: &Memory, event: u32) -> Result<(), SessionError> {
        Ok(memory.write(self.field(offset_of!(Head, answered)), &event.to_le_bytes())?)
    }

    fn field(&self, offset: usize) -> TargetAddress {
        TargetAddress(self.pool.0 + offset as u64)
    }
}

/// The result of putting return addresses back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutBack {
    /// The number of slots that held a thunk, and now hold the real address: calls that had not returned yet.
    pub put_back: u64,
    /// The number of instances whose thunk was already gone: calls that were left without a return, or whose return was
    /// not seen.
    pub abandoned: u64,
}

/// Puts back every replaced return address. All threads are stopped. The target may have forged the pool, so each slot
/// is checked first, and nothing else is written.
///
/// # Errors
/// The target's memory cannot be written.
pub fn put_back(memory: &Memory, pool: TargetAddress) -> Result<PutBack, SessionError> {
    let mut result = PutBack::default();
    let mut bytes = [0; Head::BYTES];
    // The pool was published, but never mapped.
    if memory.read(pool, &mut bytes).is_err() {
        return Ok(result);
    }
    let Some(head) = Head::from_bytes(&bytes).filter(|head| head.magic == MAGIC) else {
        return Ok(result);
    };
    let instances = read_instances(memory, pool, &head)?;
    let index_of = |address: u64| {
        let offset = address.checked_sub(head.thunks)?;
        Some((offset / RETURN_THUNK_BYTES) as usize).filter(|index| *index < RETURN_INSTANCES as usize)
    };
    let real = |address: u64| {
        let mut address = address;
        for _ in 0..=RETURN_CHAIN_MAX {
            match index_of(address).and_then(|index| instances.get(index)) {
                Some(instance) => address = instance.address,
                None => break,
            }
        }
        address
    };
    for (index, instance) in instances.iter().enumerate() {
        if instance.state & 3 != RETURN_ARMED {
            continue;
        }
        // The pool is the target's memory, and may hold anything.
        let thunk = head.thunks.wrapping_add(index as u64 * RETURN_THUNK_BYTES);
        let slot = TargetAddress(instance.slot);
        match memory.read_u64(slot) {
            Ok(word) if word == thunk => {
                memory.write(slot, &real(instance.address).to_le_bytes())?;
                result.put_back += 1;
            }
            // In a chain of tail calls the slot holds the last one's thunk.
            Ok(word) if index_of(word).is_some_and(|other| other != index) => result.put_back += 1,
            _ => result.abandoned += 1,
        }
    }
    Ok(result)
}

fn read_instances(memory: &Memory, pool: TargetAddress, head: &Head) -> Result<Vec<ReturnInstance>, SessionError> {
    let count = head.chunk_count.saturating_mul(RETURN_CHUNK).min(RETURN_INSTANCES) as usize;
    let mut bytes = vec![0; count * ReturnInstance::BYTES];
    memory.read(TargetAddress(pool.0.saturating_add(RETURN_POOL_INSTANCES)), &mut bytes)?;
    let instances = bytes.chunks_exact(ReturnInstance::BYTES);
    Ok(instances
        .map(|bytes| ReturnInstance::from_bytes(bytes).unwrap_or_default())
        .collect())
}
