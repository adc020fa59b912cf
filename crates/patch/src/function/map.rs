//! The map of a function: its instructions, its branches, and its surroundings.

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
    /// The original bytes, without patches.
    pub bytes: &'a [u8],
}

/// The range of a function, and of its further parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionExtent {
    /// The function's first instruction, which is also the view's start.
    pub start: TargetAddress,
    /// The function's size in bytes, without padding.
    pub size: u64,
    /// Further ranges that count as inside: the `.cold` parts of the function. For a cold part: the function to which
    /// it belongs.
    pub fragments: Vec<Range<TargetAddress>>,
}

/// One function, decoded. Made by [`analyze`]; owns a copy of the bytes.
#[derive(Clone, Debug)]
pub struct FunctionMap {
    pub(super) start: TargetAddress,
    pub(super) bytes: Vec<u8>,
    /// The number of bytes that belong to the function; the rest is padding.
    pub(super) size: u32,
    pub(super) fragments: Vec<Range<TargetAddress>>,
    /// Instructions of the function, then those of the nop padding directly after it, ascending.
    pub(super) instructions: Vec<Instruction>,
    /// One bit for each byte, which is set if a known branch leads there.
    pub(super) branch_targets: Vec<u64>,
    /// The known branches, sorted: the offsets of target and branch. The branch's offset is [`ELSEWHERE`] for
    /// computed branches and those of other functions.
    pub(super) branches: Vec<(u32, u32)>,
    /// Direct branch targets outside of the view.
    pub(super) outgoing: Vec<TargetAddress>,
    /// Operands relative to the instruction pointer that refer to bytes of this view.
    pub(super) references: Vec<Reference>,
    /// The offsets of indirect jumps all of whose targets are known to be inside.
    pub(super) stays_inside: Vec<u32>,
    /// Whether a computed branch has unknown targets.
    pub(super) computed: bool,
    /// Whether control flow was followed. If so, bytes that are not reached are not instructions.
    pub(super) followed: bool,
    pub(super) undecodable: Option<TargetAddress>,
    /// The end of the bytes that a run may use: the instructions, then padding of nops, int3 or zeros.
    pub(super) usable: u32,
    /// The surroundings that the caller of the planner passed.
    pub(super) shown: Shown,
    /// Instructions that stay in place.
    pub(super) fixed: Fixed,
}

/// The surroundings of a function, as the caller of the planner passed them (`shown.rs`).
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// Padding near the function that jumps may use.
    pub(super) padding: Vec<Padding>,
    /// The parts of the padding that are taken.
    pub(super) taken: Vec<Range<TargetAddress>>,
    pub(super) evicts: Evicts,
    /// The ranges in which detours can lie; `None`: wherever a program can have memory.
    pub(super) near: Option<Arc<[Range<u64>]>>,
    /// The function that begins where this function ends.
    pub(super) next: Option<Arc<FunctionMap>>,
    /// Whether the first instruction is displaced to make room for a jump of the instruction before it.
    pub(super) is_successor: bool,
    /// Whether calls stay in place.
    pub(super) keeps_calls: bool,
}

/// Which instructions may be displaced to make room for jumps of other instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Evicts {
    /// None.
    #[default]
    Nothing,
    /// Instructions directly after a short instruction.
    Successors,
    /// Successors, and instructions that can carry the springboard of another run.
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

    /// The first byte inside of the function that is no known instruction, if any. Nothing is probed from there on.
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

    /// The instructions `pause` among them, ascending: a loop that waits for another processor has one.
    pub fn pauses(&self) -> impl Iterator<Item = TargetAddress> + '_ {
        const PAUSE: [u8; 2] = [0xf3, 0x90];
        let all = self.instructions.iter();
        let own = all.take_while(|instruction| instruction.offset < self.size);
        own.filter(|instruction| !instruction.padding && self.bytes_of(**instruction) == PAUSE)
            .map(|instruction| self.address(instruction.offset))
    }

    /// Targets of direct branches and calls outside of this view. Add them to the maps of the functions in which they
    /// lie.
    pub fn outgoing_branch_targets(&self) -> &[TargetAddress] {
        &self.outgoing
    }

    /// Adds branch targets that are known from other sources: other functions' branches, jump tables, landing pads.
    /// Targets outside of this function are ignored.
    pub fn add_branch_targets(&mut self, targets: impl IntoIterator<Item = TargetAddress>) {
        for target in targets {
            self.mark_branch_target(target, ELSEWHERE);
        }
        self.sort_branches();
    }

    /// Whether a decoded instruction of the function starts at this address.
    pub(crate) fn starts_instruction(&self, address: TargetAddress) -> bool {
        let Some(offset) = self.offset(address).filter(|offset| *offset < self.size) else {
            return false;
        };
        let search = self
            .instructions
            .binary_search_by_key(&offset, |instruction| instruction.offset);
        search.is_ok()
    }

    /// Whether a known branch leads to the inside of an instruction, for example around a prefix.
    pub(crate) fn is_entered_inside(&self, instruction: Instruction) -> bool {
        (instruction.offset + 1..instruction.end()).any(|offset| self.is_target_at(offset))
    }

    /// The ranges that no known control flow of the function reaches, and that are no padding: data, or code that only
    /// an unforeseeable branch reaches. Empty before [`follow`].
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

    /// Whether [`FunctionMap::exits`] lists every exit. False if the target of a computed branch is not known and it
    /// may lead to unreached bytes.
    pub fn has_all_exits(&self) -> bool {
        !self.computed || self.unreached().is_empty()
    }

    /// Whether the function has no `.cold` part and is not such a part.
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

    /// The first `int3` of the program's own that control flow reaches. It is known to be followed by code only if it
    /// stands in the middle of a line.
    pub fn breakpoint(&self) -> Option<TargetAddress> {
        let own = self.code().iter().take_while(|found| found.offset < self.code_size());
        let mut breakpoints = own.filter(|found| found.kind == Kind::Breakpoint);
        breakpoints.next().map(|found| self.address(found.offset))
    }

    /// Makes planning ignore all known branches, to find out whether they are the reason why a site has no jump.
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

    /// Marks a branch target. Returns whether it lies in this view.
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
