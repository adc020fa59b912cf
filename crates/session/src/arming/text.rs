//! The ranges of text that patches change.

use std::borrow::Cow;
use std::collections::BTreeSet;

use nanoprobe_patch::{TargetAddress, TextRange};
use nanoprobe_text::Patch;
use nanoprobe_text::bytes::Bytes;
use nanoprobe_text::live::LiveText;
use nanoprobe_text::reader::Reader;

use crate::layout::PAGE_BYTES;

/// If all threads are stopped anyway, up to this many pages of text are written meanwhile.
const PAGES_IN_STOP: usize = 8;

/// The ranges of text that a patch changes. The first one is its head.
pub fn ranges(patch: &Patch) -> Vec<TextRange> {
    patch.built.ranges()
}

/// The ranges of padding that hold the springboards of patches.
pub(super) fn springboards(patches: &[Patch]) -> Vec<TextRange> {
    let parts = patches.iter().flat_map(|patch| &patch.built.springboard);
    parts.cloned().collect()
}

/// The shims among patches, or the patches that are no shims. A list may have a hundred thousand patches, with the
/// shims at its end: then it is not copied.
pub(super) fn of_kind(patches: &[Patch], shims: bool) -> Cow<'_, [Patch]> {
    let first = patches.iter().position(|patch| patch.shim).unwrap_or(patches.len());
    let (sites, rest) = patches.split_at(first);
    if rest.iter().all(|patch| patch.shim) {
        return if shims { rest } else { sites }.into();
    }
    patches.iter().filter(|patch| patch.shim == shims).cloned().collect()
}

/// Whether the text at a patch is the text for which it was made. `now` has the bytes of the patches that are in the
/// text.
pub(super) fn holds_original<T: LiveText>(patch: &Patch, now: &Bytes, reader: &mut Reader<'_, T>) -> bool {
    let head = (patch.built.address, &patch.built.original);
    let springboard = patch.built.springboard.iter();
    let mut parts = springboard.map(|range| (range.address, &range.original)).chain([head]);
    parts.all(|(address, original)| match now.is_empty() {
        true => reader.holds(address, original),
        false => reader.holds(address, &expected(address, original, now)),
    })
}

/// The bytes that a part of the text should hold now. `now` has the bytes of the patches that are in the text.
fn expected(address: TargetAddress, original: &[u8], now: &Bytes) -> Vec<u8> {
    let original = (address.0..).zip(original);
    original
        .map(|(address, byte)| now.get(address).unwrap_or(*byte))
        .collect()
}

/// Whether the ranges and patches touch so few pages that all may be written in one stop.
pub(super) fn are_few_pages<'a>(old: &[TextRange], mut new: impl Iterator<Item = &'a Patch>) -> bool {
    let mut pages = BTreeSet::new();
    let mut touch = |start: u64, bytes: usize| {
        let last = start.saturating_add(bytes as u64).saturating_sub(1);
        pages.extend([start / PAGE_BYTES, last / PAGE_BYTES]);
        pages.len() <= PAGES_IN_STOP
    };
    old.iter().all(|range| touch(range.address.0, range.original.len()))
        && new.all(|patch| touch(patch.built.address.0, patch.built.original.len()))
}
