//! Patches as text: the ranges that they change.

use std::collections::HashSet;

use nanoprobe_patch::TextRange;
use nanoprobe_text::Patch;
use nanoprobe_text::bytes::Bytes;

use crate::layout::PAGE_BYTES;

/// The text that a patch changes, its head first.
pub fn ranges(patch: &Patch) -> Vec<TextRange> {
    patch.built.ranges()
}

/// The padding that patches change.
pub(super) fn springboards(patches: &[Patch]) -> Vec<TextRange> {
    let parts = patches.iter().flat_map(|patch| &patch.built.springboard);
    parts.cloned().collect()
}

/// What a range should hold now, where `now` has the bytes of the patches in it.
pub(super) fn expected(range: &TextRange, now: &Bytes) -> Vec<u8> {
    let original = (range.address.0..).zip(&range.original);
    original
        .map(|(address, byte)| now.get(address).unwrap_or(*byte))
        .collect()
}

/// How many pages these changes touch.
pub(super) fn pages(old: &[TextRange], new: &[Patch]) -> usize {
    let ranges = new.iter().flat_map(ranges);
    let touched = old.iter().cloned().chain(ranges).flat_map(|range| {
        let last = range
            .address
            .0
            .saturating_add(range.original.len() as u64)
            .saturating_sub(1);
        [range.address.0 / PAGE_BYTES, last / PAGE_BYTES]
    });
    touched.collect::<HashSet<u64>>().len()
}
