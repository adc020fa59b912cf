//! Bytes that belong together when some of them cannot be written, because the program has unloaded the library, or
//! another program has changed the text. Either all of a patch is written, or nothing more of it.

use std::collections::{BTreeMap, HashMap, HashSet};

use nanoprobe_patch::{TargetAddress, TextRange};

use crate::Patch;
use crate::pieces::Pieces;

/// Bytes by the group that they belong to. A group consists of the bytes of a patch and of the patches next to it,
/// since adjacent patches may share a jump.
///
/// There may be a million patches, so groups are computed only when a byte is lost, which is very rare.
#[derive(Default)]
pub struct Groups {
    group_of: HashMap<u64, usize>,
    lost: HashSet<usize>,
}

impl Groups {
    fn of(old: &[TextRange], new: &[Patch]) -> HashMap<u64, usize> {
        let of_patch = |patch: &Patch| [patch.built.springboard.clone(), patch.built.ranges()].concat();
        let units = old
            .iter()
            .map(|range| vec![range.clone()])
            .chain(new.iter().map(of_patch));
        let mut parents: Vec<usize> = Vec::new();
        let mut unit_of: BTreeMap<u64, usize> = BTreeMap::new();
        for (unit, ranges) in units.enumerate() {
            parents.push(unit);
            let bytes = ranges
                .iter()
                .flat_map(|range| (range.address.0..).take(range.original.len()));
            for address in bytes {
                if let Some(other) = unit_of.insert(address, unit) {
                    join(&mut parents, other, unit);
                }
            }
        }
        let mut before: Option<(u64, usize)> = None;
        for (&address, &unit) in &unit_of {
            if let Some((last, other)) = before
                && last + 1 == address
            {
                join(&mut parents, other, unit);
            }
            before = Some((address, unit));
        }
        let group_of = unit_of
            .into_iter()
            .map(|(address, unit)| (address, root(&parents, unit)));
        group_of.collect()
    }

    /// Marks the groups of these bytes as lost: no more bytes of them may be written. `old` and `new` are all ranges
    /// that are being written: ranges that get their original bytes, and patches with their springboards.
    pub fn lose(&mut self, bytes: impl Iterator<Item = u64>, old: &[TextRange], new: &[Patch]) {
        if self.group_of.is_empty() {
            self.group_of = Groups::of(old, new);
        }
        for address in bytes {
            self.lost.extend(self.group_of.get(&address));
        }
    }

    /// Notes the loss of pieces that were left out of a step, given by their starts.
    pub fn lose_pieces(&mut self, pieces: &Pieces, left_out: &[TargetAddress], old: &[TextRange], new: &[Patch]) {
        if left_out.is_empty() {
            return;
        }
        let left_out: HashSet<TargetAddress> = left_out.iter().copied().collect();
        let lost = pieces.iter().filter(|piece| left_out.contains(&piece.address));
        let bytes = lost.flat_map(|piece| (piece.address.0..).take(piece.before.len()));
        self.lose(bytes, old, new);
    }

    /// Whether a byte may still be written.
    pub fn has(&self, address: u64) -> bool {
        let is_lost = |group| self.lost.contains(group);
        self.is_whole() || !self.group_of.get(&address).is_some_and(is_lost)
    }

    /// Whether no byte is lost.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty()
    }
}

fn root(parents: &[usize], mut unit: usize) -> usize {
    while let Some(&parent) = parents.get(unit).filter(|&&parent| parent != unit) {
        unit = parent;
    }
    unit
}

fn join(parents: &mut [usize], one: usize, other: usize) {
    let (one, other) = (root(parents, one), root(parents, other));
    if let Some(parent) = parents.get_mut(one.max(other)) {
        *parent = one.min(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(address: u64, bytes: usize) -> TextRange {
        TextRange {
            address: TargetAddress(address),
            original: vec![0x90; bytes],
            patched: vec![0xcc; bytes],
            is_head: true,
        }
    }

    #[test]
    fn adjoining_patches_are_lost_together() {
        let mut groups = Groups::default();
        assert!(groups.is_whole() && groups.has(0x10));
        let old = [range(0x10, 5), range(0x15, 2), range(0x20, 5)];
        groups.lose([0x16].into_iter(), &old, &[]);
        assert!(!groups.has(0x10) && !groups.has(0x15));
        assert!(groups.has(0x20) && !groups.is_whole());
    }
}
