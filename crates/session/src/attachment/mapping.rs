//! The mappings that we make in the target.

use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use nanoprobe_arena::layout::{
    Control, FOLLOWS, FOLLOWS_ANCESTORS, FOLLOWS_NOT, MAGIC, REGION_ARENA, REGION_CODE, REGION_RETURNS, REGION_STACKS,
    REGION_TABLE, RETURN_POOL_BYTES, Region, STATE_RESTORED, TABLE_BYTES, TABLE_INHERITED, TABLE_MAGIC,
};
use nanoprobe_arena::{ControlBlock, Memory as _};
use nanoprobe_patch::{TargetAddress, ThreadKey};
use nanoprobe_target::{Process, Protection, Remote, SharedFile, Stopped};
use nanoprobe_text::{NearMemory, map_missing};

use super::places::without;
use super::{Attachment, LENT_THREAD_POINTER, MADV_DONTDUMP, MADV_WIPEONFORK, Parameters, stacks_bytes};
use crate::arena_memory::ArenaMemory;
use crate::clock::Clock;
use crate::error::SessionError;
use crate::layout::{PAGE_BYTES, round_up};

/// The target's memory, while one of its threads is borrowed.
struct TargetMemory<'a, 's> {
    attachment: &'a mut Attachment,
    remote: Remote<'s>,
}

/// A place that is taken is an error: the arena's table has had an entry for it, which is withdrawn.
impl NearMemory for TargetMemory<'_, '_> {
    type Error = SessionError;

    fn map(&mut self, region: &Range<TargetAddress>) -> Result<bool, SessionError> {
        let bytes = region.end.0.saturating_sub(region.start.0);
        let TargetMemory { attachment, remote } = self;
        attachment.map_known(remote, REGION_CODE, region.start, bytes)?;
        Ok(true)
    }
}

impl Parameters {
    /// `follows` of the agent's image.
    pub(super) fn follows_in_agent(&self) -> u64 {
        match (self.follows, self.follows_ancestors) {
            (false, _) => FOLLOWS_NOT,
            (true, false) => FOLLOWS,
            (true, true) => FOLLOWS_ANCESTORS,
        }
    }
}

impl Attachment {
    /// Step 2 and the arena's half of step 3: makes the arena, the table and the code block.
    ///
    /// # Errors
    /// The target refuses the mappings.
    pub fn map(&mut self, stopped: &mut Stopped, clock: &Clock) -> Result<(), SessionError> {
        let tid = stopped.best_thread()?;
        let table_bytes = round_up(TABLE_BYTES as u64, PAGE_BYTES);
        {
            let mut remote = stopped.remote(tid)?;
            let shared = remote.create_shared("nanoprobe", self.addresses.arena, self.layout.bytes)?;
            if let Err(error) = self.begin_arena(shared.file, clock) {
                // No table lists the arena yet, so no later clean-up would find it.
                remote.unmap(self.addresses.arena, self.layout.bytes)?;
                return Err(error);
            }
            // A core dump of the target does not need the arena.
            remote.advise(self.addresses.arena, self.layout.bytes, MADV_DONTDUMP)?;
            self.map_known(&mut remote, REGION_TABLE, self.addresses.table, table_bytes)?;
            // Children that are not followed need nothing of the thread table, so a fork wipes all of it.
            let wiped = match self.parameters.follows {
                true => TABLE_INHERITED as u64,
                false => table_bytes,
            };
            remote.advise(self.addresses.table, wiped, MADV_WIPEONFORK)?;
            self.map_known(&mut remote, REGION_CODE, self.addresses.code, self.layout.code_bytes)?;
            if let Some(stacks) = self.addresses.stacks {
                self.map_known(&mut remote, REGION_STACKS, stacks, stacks_bytes(&self.layout))?;
            }
            remote.finish()?;
        }
        self.write_example()?;
        let scratch = self.room.growth.reserve(Process::SCRATCH_BYTES, 64)?;
        self.process.set_scratch(Some(scratch));
        let table = self.addresses.table;
        let lent = TargetAddress(table.0 + LENT_THREAD_POINTER);
        self.process.memory().write(lent, &lent.0.to_le_bytes())?;
        self.lend_thread_pointers(stopped)?;
        self.process
            .memory()
            .write(TargetAddress(table.0 + TABLE_MAGIC as u64), &MAGIC.to_le_bytes())?;
        Ok(())
    }

    /// Maps the arena into the tracer, too, and begins its tables.
    fn begin_arena(&mut self, file: SharedFile, clock: &Clock) -> Result<(), SessionError> {
        let arena = ArenaMemory::shared(file, self.layout.bytes).map_err(SessionError::Arena)?;
        self.arena = Some(Arc::new(arena));
        self.write_control(clock)?;
        self.publish(REGION_ARENA, self.addresses.arena, self.layout.bytes)
    }

    /// Checks that no other program has taken our patches back, and that no page of the arena was lost.
    ///
    /// # Errors
    /// The patches were taken back, or a page was lost.
    pub fn check_present(&self) -> Result<(), SessionError> {
        let Some(arena) = &self.arena else {
            return Ok(());
        };
        if let Some(error) = arena.damage() {
            return Err(error.into());
        }
        if self.regions.is_empty() || arena.memory().load_u32(offset_of!(Control, state) as u64)? != STATE_RESTORED {
            return Ok(());
        }
        Err(SessionError::TakenBack {
            pid: self.process.pid(),
        })
    }

    /// Checks that the other tracers of the process leave room for this one, and finds the host among them.
    ///
    /// # Errors
    /// Those of [`crate::others::Others::check`], or the map cannot be read.
    pub fn check_others(&mut self) -> Result<(), SessionError> {
        self.find_others()?.check(self.process.pid())
    }

    /// Finds the holes in which near memory may now be mapped. The target may have loaded libraries into the former
    /// holes.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn look_for_holes(&mut self) -> Result<(), SessionError> {
        let holes = self.process.map()?.holes(&self.process.hole_rules());
        let free = holes
            .iter()
            .flat_map(|hole| without(hole.start.0..hole.end.0, &self.reserved));
        self.room.near.set_holes(free.collect());
        Ok(())
    }

    /// Maps near memory.
    ///
    /// # Errors
    /// The target refuses the mappings.
    pub fn map_regions(&mut self, stopped: &mut Stopped, regions: &[Range<TargetAddress>]) -> Result<(), SessionError> {
        let tid = stopped.best_thread()?;
        let mut memory = TargetMemory {
            remote: stopped.remote(tid)?,
            attachment: self,
        };
        let _whole = map_missing(&mut memory, regions, &mut Vec::new())?;
        Ok(memory.remote.finish()?)
    }

    /// Maps the pool of instances for replaced return addresses, unless it is mapped already.
    ///
    /// # Errors
    /// The target refuses the mapping.
    pub fn map_returns(&mut self, stopped: &mut Stopped) -> Result<(), SessionError> {
        if self.returns.mapped {
            return Ok(());
        }
        let bytes = round_up(RETURN_POOL_BYTES, PAGE_BYTES);
        let tid = stopped.best_thread()?;
        let mut remote = stopped.remote(tid)?;
        self.map_known(&mut remote, REGION_RETURNS, self.returns.pool, bytes)?;
        remote.finish()?;
        self.returns.write_head(self.process.memory())?;
        self.returns.mapped = true;
        Ok(())
    }

    /// Maps a region after it was entered in the arena's table. An entry without a mapping is harmless, but a
    /// mapping without an entry would never be unmapped. If another mapping lies there by now, the entry is taken
    /// out, so that it is not unmapped.
    pub(super) fn map_known(
        &mut self,
        remote: &mut Remote<'_>,
        kind: u32,
        address: TargetAddress,
        bytes: u64,
    ) -> Result<(), SessionError> {
        let protection = if kind == REGION_CODE {
            Protection::ReadExecute
        } else {
            Protection::ReadWrite
        };
        self.publish(kind, address, bytes)?;
        let mapped = remote.map_anonymous(address, bytes, protection);
        if mapped.is_err() {
            ControlBlock::open(self.memory()?)?.withdraw_region()?;
            self.regions.pop();
        }
        Ok(mapped?)
    }

    pub(crate) fn publish(&mut self, kind: u32, address: TargetAddress, bytes: u64) -> Result<(), SessionError> {
        let region = Region {
            address: address.0,
            bytes,
            kind,
            reserved: 0,
        };
        if !ControlBlock::open(self.memory()?)?.publish_region(&region)? {
            return Err(SessionError::TooManyRegions);
        }
        self.regions.push(region);
        Ok(())
    }

    /// Where detours read a thread's key at its thread pointer, lends a thread pointer to each thread that has none
    /// yet.
    pub(super) fn lend_thread_pointers(&self, stopped: &mut Stopped) -> Result<(), SessionError> {
        if self.parameters.thread_key != ThreadKey::TlsSelf {
            return Ok(());
        }
        let threads: Vec<i32> = stopped.threads().collect();
        for tid in threads {
            let mut registers = stopped.registers(tid)?;
            if registers.fs_base == 0 {
                registers.fs_base = self.lent_thread_pointer();
                stopped.set_registers(tid, &registers)?;
            }
        }
        Ok(())
    }
}
