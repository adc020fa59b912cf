//! Springboards of `evict`s: padding that leads to a detour, for good.
//!
//! ```text
//!   site   eb 1c             jmp springboard    comes and goes by the protocol, as every patch does
//!   ...
//!   nops   e9 b0 b1 b2 b3    jmp detour         written once, before the first short jump leads there
//! ```
//!
//! Nothing shows whether a thread stands between the two jumps. So a springboard stays when its patch is taken back,
//! although nothing leads there then. When the same patch comes again, it uses the same springboard. No other
//! springboard and no other patch may use its bytes: a site that would need them traps.
//!
//! Springboards lie in padding only, a function's own or that of the functions around it. A springboard in a
//! displaced instruction would keep the other patch from being changed while threads run, and here threads always
//! run.

use std::collections::BTreeMap;
use std::ops::Range;

use nanoprobe_patch::{RunPlan, TargetAddress, TextRange};
use nanoprobe_target::Memory;

use super::known::Known;
use super::patch::KeptPatch;
use crate::error::Error;
use crate::self_process;

/// The longest springboard: a nop before the jump, and the jump.
const BYTES_MAX: u64 = 32;

/// The springboards in padding, by start.
#[derive(Default)]
pub struct Springboards(BTreeMap<u64, Board>);

struct Board {
    end: u64,
    /// Where the springboard leads; `None`: another program has changed the padding.
    detour: Option<TargetAddress>,
}

impl Springboards {
    /// The springboards that touch a range.
    pub fn within(&self, range: &Range<u64>) -> Vec<Range<TargetAddress>> {
        let from = range.start.saturating_sub(BYTES_MAX);
        let near = self.0.range(from..range.end);
        let near = near.filter(|(_, board)| board.end > range.start);
        near.map(|(start, board)| TargetAddress(*start)..TargetAddress(board.end))
            .collect()
    }

    /// Whether a run needs no bytes of springboards, except those of its own springboard. `known`: the patches that
    /// were built.
    pub fn leave_room_for(&self, run: &RunPlan, known: Option<&Known>) -> bool {
        let text = run.start.0..run.claimed_end().0;
        let Some(springboard) = run.springboard() else {
            return self.within(&text).is_empty();
        };
        let wanted = springboard.range();
        let there = self.within(&(wanted.start.0..wanted.end.0));
        let own = || known.and_then(|known| known.patch_of(run));
        there.is_empty() || there == [wanted] && own().is_some_and(|patch| self.is_there(patch))
    }

    /// Whether the springboards of some patches can be written, because the padding is unchanged. Changed padding
    /// is not used from now on.
    pub fn check(&mut self, patches: &[KeptPatch], memory: &Memory) -> bool {
        let mut are_whole = true;
        for patch in patches {
            let is_whole = |range: &TextRange| {
                let mut bytes = vec![0; range.original.len()];
                memory.read(range.address, &mut bytes).is_ok() && bytes == range.original
            };
            if !self.is_there(patch) && !patch.built.springboard.iter().all(is_whole) {
                self.note(patch, None);
                are_whole = false;
            }
        }
        are_whole
    }

    /// Writes the springboards of some patches: no jump leads there yet.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn write(&mut self, patches: &[KeptPatch], memory: &Memory) -> Result<(), Error> {
        for patch in patches {
            if patch.built.springboard.is_empty() || self.is_there(patch) {
                continue;
            }
            // If the springboard was written only in part, no other patch may use its bytes.
            self.note(patch, None);
            for range in &patch.built.springboard {
                self_process::write(memory, range.address.0, &range.patched)?;
            }
            self.note(patch, Some(patch.detour));
        }
        Ok(())
    }

    /// Forgets the springboards of a module that is gone.
    pub fn forget(&mut self, range: &Range<u64>) {
        self.0.retain(|start, _| !range.contains(start));
    }

    fn is_there(&self, patch: &KeptPatch) -> bool {
        let start = patch.run.springboard().map(|springboard| springboard.range().start.0);
        let board = start.and_then(|start| self.0.get(&start));
        board.is_some_and(|board| board.detour == Some(patch.detour))
    }

    fn note(&mut self, patch: &KeptPatch, detour: Option<TargetAddress>) {
        if let Some(springboard) = patch.run.springboard() {
            let Range { start, end } = springboard.range();
            self.0.insert(start.0, Board { end: end.0, detour });
        }
    }
}
