//! The map of a function: its instructions, its branches, and what planning was shown.

use std::ops::Range;
use std::sync::Arc;

use super::instruction::{ELSEWHERE, Instruction, Reference};
use super::kind::Kind;
use super::padding::Padding;
use super::restartable::Fixed;
use crate::TargetAddress;

/// The bytes of a function *and* the padding after it, up to the next function's start or the section's end.
#[derive(Clone, Copy, Debug)]
pub struct CodeView<'a> {
    /// Address of the first byte.
    pub start: TargetAddress,
    /// The original bytes: with no patches in them.
    pub bytes: &'a [u8],
}

/// Where a function lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionExtent {
    /// Its first instruction; the same as the view's start.
    pub start: TargetAddress,
    /// Its size in bytes, without padding.
    pub size: u64,
    /// Further ranges that count as inside: its `.cold` parts (and for a cold part: the function it belongs to).
    pub fragments: Vec<Range<TargetAddress>>,
}

/// One function, decoded. Made by [`analyze`]; owns a copy of the bytes.
#[derive(Clone, Debug)]
pub struct FunctionMap {
    pub(super) start: TargetAddress,
    pub(super) bytes: Vec<u8>,
    /// Bytes that belong to the function; what follows is padding.
    pub(super) size: u32,
    pub(super) fragments: Vec<Range<TargetAddress>>,
    /// Instructions of the function, then those of the nop padding directly after it, ascending.
    pub(super) instructions: Vec<Instruction>,
    /// One bit a byte: a known branch leads there.
    pub(super) branch_targets: Vec<u64>,
    /// Where they come from, sorted: offsets of the target and of the branch; [`ELSEWHERE`] for those of other
    /// functions and for computed ones.
    pub(super) branches: Vec<(u32, u32)>,
    /// Direct branch targets outside of the view.
    pub(super) outgoing: Vec<TargetAddress>,
    /// References to bytes of this view, relative to the instruction pointer.
    pub(super) references: Vec<Reference>,
    /// Indirect jumps, by offset, all of whose targets are known to be inside.
    pub(super) stays_inside: Vec<u32>,
    /// There are computed branches whose targets are not known.
    pub(super) computed: bool,
    /// Control flow was followed: what is not reached is no instruction.
    pub(super) followed: bool,
    pub(super) undecodable: Option<TargetAddress>,
    /// End of what a run may use: the instructions, then padding of nops, int3 or zeros.
    pub(super) usable: u32,
    /// What lies around it, as planning was shown.
    pub(super) shown: Shown,
    /// Instructions that stay in place.
    pub(super) fixed: Fixed,
}

/// What lies around a function, as planning was shown (`shown.rs`).
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// Padding that jumps may use, near the function.
    pub(super) padding: Vec<Padding>,
    /// Parts of it that are taken.
    pub(super) taken: Vec<Range<TargetAddress>>,
    pub(super) evicts: Evicts,
    /// Where detours can lie; `None`: wherever a program can have memory.
    pub(super) near: Option<Arc<[Range<u64>]>>,
    /// The function that begins where this one ends.
    pub(super) next: Option<Arc<FunctionMap>>,
    /// The first instruction is displaced for the sake of the one before it.
    pub(super) is_successor: bool,
    /// Calls stay in place.
    pub(super) keeps_calls: bool,
}

/// Which instructions may be displaced for the sake of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Evicts {
    /// None.
    #[default]
    Nothing,
    /// Those directly after a short one.
    Successors,
    /// These, and those that can carry another one's springboard.
    Neighbours,
}

impl FunctionMap {
    /// Address of the first instruction.
    pub fn start(&self) -> TargetAddress {
        self.start
    }

    /// Size of the function in bytes, without padding.
    pub fn size(&self) -> u64 {
        u64::from(self.size)
    }

    /// The first byte inside of the function that is no known instruction, if any: nothing from there on is probed.
    pub fn undecodable(&self) -> Option<TargetAddress> {
        self.undecodable
    }

    /// The starts of the function's instructions (padding excluded), ascending, with their lengths.
    pub fn instructions(&self) -> impl Iterator<Item = (TargetAddress, usize)> + '_ {
        self.instructions
            .iter()
            .take_while(|instruction| instruction.offset < self.size)
            .filter(|instruction| !instruction.padding)
            .map(|instruction| (self.address(instruction.offset), usize::from(instruction.length)))
    }

    /// Targets of direct branches and calls that lie outside of this view: feed them to the maps of the functions they
    /// lie in.
    pub fn outgoing_branch_targets(&self) -> &[TargetAddress] {
        &self.outgoing
    }

    /// Adds branch targets that are known from elsewhere: other functions' branches, jump tables, landing pads. Those
    /// outside of this function are ignored.
    pub fn add_branch_targets(&mut self, targets: impl IntoIterator<Item = TargetAddress>) {
        for target in targets {
            self.mark_branch_target(target, ELSEWHERE);
        }
        self.sort_branches();
    }

    /// Whether an instruction of the function starts there, as far as it is decoded.
    pub(crate) fn starts_instruction(&self, address: TargetAddress) -> bool {
        let Some(offset) = self.offset(address).filter(|offset| *offset < self.size) else {
            return false;
        };
        let search = self
            .instructions
            .binary_search_by_key(&offset, |instruction| instruction.offset);
        search.is_ok()
    }

    /// Whether a known branch leads to the inside of an instruction: around a prefix, for example.
    pub(crate) fn is_entered_inside(&self, instruction: Instruction) -> bool {
        (instruction.offset + 1..instruction.end()).any(|offset| self.is_target_at(offset))
    }

    /// What no known control flow of the function reaches, and is no padding: data, or code that only an unforeseeable
    /// branch reaches. Nothing before [`follow`].
    pub fn unreached(&self) -> Vec<Range<TargetAddress>> {
        let mut ranges = Vec::new();
        let mut end = 0;
        let starts = self
            .instructions
            .iter()
            .map(|instruction| (instruction.offset, instruction.end()));
        let known = starts
            .take_while(|(start, _)| *start < self.size)
            .chain([(self.size, self.size)]);
        for (start, next) in known.filter(|_| self.followed) {
            if start > end {
                ranges.push(self.address(end)..self.address(start));
            }
            end = next;
        }
        ranges
    }

    /// Whether [`FunctionMap::exits`] has every way out. False where the target of a computed branch is not known, and
    /// there are bytes that it may lead to.
    pub fn has_all_exits(&self) -> bool {
        !self.computed || self.unreached().is_empty()
    }

    /// Whether it has no other part: no `.cold` one, and is none.
    pub(crate) fn is_of_one_piece(&self) -> bool {
        self.fragments.is_empty()
    }

    /// Whether control flow was followed.
    pub(crate) fn is_followed(&self) -> bool {
        self.followed
    }

    /// Whether a known branch leads to this address.
    pub fn is_branch_target(&self, address: TargetAddress) -> bool {
        self.offset(address).is_some_and(|offset| self.is_target_at(offset))
    }

    /// The first `int3` of the program's own that control flow reaches. Whether control flow goes on after one is known
    /// only where it stands in the midst of a line.
    pub fn breakpoint(&self) -> Option<TargetAddress> {
        let own = self.code().iter().take_while(|found| found.offset < self.code_size());
        let mut breakpoints = own.filter(|found| found.kind == Kind::Breakpoint);
        breakpoints.next().map(|found| self.address(found.offset))
    }

    /// Plans as if no branch were known, or there were padding after the function: to find out what keeps a jump from a
    /// site.
    pub(crate) fn forget_branches(&mut self) {
        self.branches.clear();
        self.branch_targets.fill(0);
    }

    pub(crate) fn pad(&mut self) {
        let size = self.size;
        self.instructions.retain(|instruction| instruction.offset < size);
        self.bytes.truncate(size as usize);
        self.bytes.resize(size as usize + 16, 0xcc);
        self.branch_targets.resize(self.bytes.len().div_ceil(64), 0);
        self.usable = size.saturating_add(16);
    }

    /// Whether an address lies in the function or one of its fragments.
    pub fn is_inside(&self, address: TargetAddress) -> bool {
        self.ranges().any(|range| range.contains(&address))
    }

    /// The function's own range and its fragments.
    pub fn ranges(&self) -> impl Iterator<Item = Range<TargetAddress>> + '_ {
        std::iter::once(self.start..self.address(self.size)).chain(self.fragments.iter().cloned())
    }

    /// Returns whether the target lies in this view.
    pub(super) fn mark_branch_target(&mut self, target: TargetAddress, from: u32) -> bool {
        let Some(offset) = self.offset(target) else {
            return false;
        };
        self.branches.push((offset, from));
        if let Some(word) = self.branch_targets.get_mut(offset as usize / 64) {
            *word |= 1 << (offset % 64);
        }
        true
    }

    pub(super) fn sort_branches(&mut self) {
        self.branches.sort_unstable();
        self.branches.dedup();
    }

    /// Whether a known branch leads to `offset` from outside of `start..offset`. A branch from within, in a run from
    /// `start` on, stays in the detour.
    pub(crate) fn is_target_from_outside(&self, offset: u32, start: u32) -> bool {
        let first = self.branches.partition_point(|(target, _)| *target < offset);
        let branches = self.branches.get(first..).unwrap_or_default().iter();
        let mut sources = branches
            .take_while(|(target, _)| *target == offset)
            .map(|(_, from)| *from);
        self.is_target_at(offset) && sources.any(|from| !(start..offset).contains(&from))
    }

    pub(crate) fn is_target_at(&self, offset: u32) -> bool {
        self.branch_targets
            .get(offset as usize / 64)
            .is_some_and(|word| word & 1 << (offset % 64) != 0)
    }

    pub(crate) fn address(&self, offset: u32) -> TargetAddress {
        TargetAddress(self.start.0.saturating_add(u64::from(offset)))
    }

    /// Offset in the view, `None` outside of it.
    pub(crate) fn offset(&self, address: TargetAddress) -> Option<u32> {
        let offset = address.offset_from(self.start)?;
        u32::try_from(offset)
            .ok()
            .filter(|offset| (*offset as usize) < self.bytes.len())
    }

    pub(crate) fn code(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Index of the instruction that starts at an address.
    pub(crate) fn index_at(&self, address: TargetAddress) -> Option<usize> {
        let offset = self.offset(address)?;
        let code = &self.instructions;
        code.binary_search_by_key(&offset, |instruction| instruction.offset)
            .ok()
    }

    pub(crate) fn code_size(&self) -> u32 {
        self.size
    }

    pub(crate) fn usable(&self) -> u32 {
        self.usable
    }

    pub(crate) fn bytes_of(&self, instruction: Instruction) -> &[u8] {
        self.bytes
            .get(instruction.offset as usize..instruction.end() as usize)
            .unwrap_or_default()
    }

    pub(crate) fn bytes_at(&self, range: Range<u32>) -> &[u8] {
        self.bytes
            .get(range.start as usize..range.end as usize)
            .unwrap_or_default()
    }
}
