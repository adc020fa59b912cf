//! The patches of calls in code that the program has made. They are written in one stop of all threads, each after a
//! look at the bytes around it. Their tables are kept whatever becomes of the code: the program may make the same code
//! there again.

use std::collections::HashMap;

use nanoprobe_arena::layout::Site;
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Pauses;
use nanoprobe_text::Patch;
use nanoprobe_text::moves::Moves;

use super::live::move_threads;
use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::made_calls::is_call;
use crate::site_table::{is_made, site_of};

impl Attachment {
    /// The calls that have a detour, whether or not the program still has its code there.
    pub(crate) fn made(&self) -> impl Iterator<Item = &Patch> {
        self.retired.iter().filter(|patch| is_made(patch))
    }

    /// Keeps patches whose detours and tables are written.
    ///
    /// # Errors
    /// The arena cannot be written, or its table is full.
    pub(crate) fn keep_made(&mut self, patches: Vec<Patch>) -> Result<(), SessionError> {
        let sites: Vec<Site> = patches.iter().map(site_of).collect();
        self.retired.extend(patches);
        self.publish_entries(&sites)
    }

    /// Patches these calls, or (`armed` is false) takes their patches back. Yields how many were changed: the program
    /// may have changed its code meanwhile.
    ///
    /// # Errors
    /// The target cannot be stopped or written.
    pub(crate) fn set_made(
        &self,
        armed: bool,
        calls: &[TargetAddress],
        pauses: &mut Pauses,
    ) -> Result<usize, SessionError> {
        let known: HashMap<TargetAddress, &Patch> = self.made().map(|patch| (patch.built.address, patch)).collect();
        let patches: Vec<Patch> = calls
            .iter()
            .filter_map(|call| Some((*known.get(call)?).clone()))
            .collect();
        if patches.is_empty() {
            return Ok(0);
        }
        let moves = Moves::new(&patches);
        let memory = self.process.memory();
        let mut stopped = self.process.stop()?;
        let there = patches
            .iter()
            .filter(|patch| is_call(memory, patch.built.address, !armed));
        let exchanges = there.map(|patch| {
            let built = &patch.built;
            let (original, patched) = (built.original.as_slice(), built.patched.as_slice());
            let (before, after) = if armed {
                (original, patched)
            } else {
                (patched, original)
            };
            (built.address, before, after)
        });
        let exchanges: Vec<_> = exchanges.collect();
        let left_out = memory.exchange_text(&exchanges)?;
        if armed {
            move_threads(&moves, &mut stopped)?;
        }
        pauses.add_whole(stopped.release());
        Ok(exchanges.len() - left_out.len())
    }
}
