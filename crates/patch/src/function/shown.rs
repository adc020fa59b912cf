//! The surroundings of a function that planning was shown, and the instructions that it may displace.

use std::ops::Range;
use std::sync::Arc;

use super::instruction::Instruction;
use super::kind::Kind;
use super::map::{Evicts, FunctionMap};
use super::padding::Padding;
use crate::TargetAddress;
use crate::order::sort_by_number;

/// No program can map memory outside of these addresses (with pages of four levels). Libraries lie near the upper end,
/// so half of the addresses to which their puns could lead lie beyond that end.
const EVERYWHERE: Range<u64> = 1 << 16..(1 << 47) - 4096;

impl FunctionMap {
    /// Shows padding in which a jump of this function may have a springboard: its own ([`FunctionMap::padding`]), and
    /// that of the functions around it. Without padding, planning uses no springboard, and displaces instructions
    /// only for their own points. The caller can then ignore [`crate::Built::springboard`],
    /// [`crate::Built::successor`] and [`crate::Built::host`].
    pub fn show_padding(&mut self, padding: impl IntoIterator<Item = Padding>) {
        self.shown.evicts = Evicts::Neighbours;
        self.add_padding(padding);
    }

    /// As [`FunctionMap::show_padding`], but only for springboards: no instruction is displaced to make room for
    /// another, so no patch has a [`crate::Built::successor`] or a [`crate::Built::host`].
    pub fn show_padding_for_springboards(&mut self, padding: impl IntoIterator<Item = Padding>) {
        self.add_padding(padding);
    }

    /// Allows planning to displace an instruction to make room for the jump of the instruction before it
    /// ([`crate::Built::successor`]).
    pub fn allow_successors(&mut self) {
        self.shown.evicts = self.shown.evicts.max(Evicts::Successors);
    }

    fn add_padding(&mut self, padding: impl IntoIterator<Item = Padding>) {
        let shown = &mut self.shown.padding;
        shown.extend(padding);
        sort_by_number(shown, |padding| padding.start.0);
        shown.dedup_by_key(|padding| padding.start);
    }

    /// Adds the padding that holds springboards of other functions: [`crate::RunPlan::springboard`].
    pub fn show_taken(&mut self, taken: impl IntoIterator<Item = Range<TargetAddress>>) {
        self.shown.taken.extend(taken);
    }

    /// Whether part of this padding is taken.
    pub(crate) fn is_taken(&self, range: &Range<TargetAddress>) -> bool {
        let mut taken = self.shown.taken.iter();
        taken.any(|taken| taken.start < range.end && range.start < taken.end)
    }

    /// Whether planning may displace instructions to make room for jumps of the instructions before them.
    pub(crate) fn evicts_successors(&self) -> bool {
        self.shown.evicts >= Evicts::Successors
    }

    /// Whether springboards may lie in displaced instructions.
    pub(crate) fn evicts_neighbours(&self) -> bool {
        self.shown.evicts >= Evicts::Neighbours
    }

    /// Sets where detours can lie ([`crate::NearSpace::free`]), so that no jump is planned that cannot lead there.
    pub fn show_near_memory(&mut self, free: Arc<[Range<u64>]>) {
        self.shown.near = Some(free);
    }

    /// The ranges in which detours can lie, as far as known.
    pub(crate) fn near_memory(&self) -> &[Range<u64>] {
        self.shown.near.as_deref().unwrap_or(std::slice::from_ref(&EVERYWHERE))
    }

    /// Shows the next function in memory. Its first instructions may then be displaced to make room for jumps at the
    /// end of this function. This helps if that function begins within a jump's length of them.
    pub fn show_next(&mut self, next: Arc<FunctionMap>) {
        self.shown.next = Some(next);
    }

    /// The function that begins after this function, if it was shown.
    pub(crate) fn next(&self) -> Option<&FunctionMap> {
        self.shown.next.as_deref()
    }

    /// Says that a jump of the previous function ends with the first bytes of this function
    /// ([`crate::RunPlan::successor`]). So these bytes will belong to a jump, whatever is probed here.
    pub fn show_that_it_is_successor(&mut self) {
        self.shown.is_successor = true;
    }

    /// Says that the threads have shadow stacks. Only a call in place leaves the original return address on both
    /// stacks. So no call is displaced, a site at a call is refused, and no return address may be replaced.
    pub fn show_shadow_stack(&mut self) {
        self.shown.keeps_calls = true;
    }

    /// Whether an instruction is a call that must be executed in place.
    pub(crate) fn is_kept_call(&self, instruction: Instruction) -> bool {
        self.shown.keeps_calls && instruction.kind == Kind::Call
    }

    /// Whether the first instruction must begin with a jump.
    pub(crate) fn is_successor(&self) -> bool {
        self.shown.is_successor
    }

    /// Makes planning ignore springboards of other patches, to find out whether they are the reason why a site has no
    /// jump.
    pub(crate) fn forget_taken(&mut self) {
        self.shown.taken.clear();
    }

    pub(crate) fn forget_near_memory(&mut self) {
        self.shown.near = None;
    }

    /// The padding that jumps of this function may use, ascending.
    pub(crate) fn shown_padding(&self) -> &[Padding] {
        &self.shown.padding
    }
}
