//! Patches as text: the ranges that they change, what the arena's table says of these, and the bytes that are written.

use std::collections::{BTreeMap, HashSet};

use nanoprobe_arena::layout::{
    Site, TACTIC_EVICT, TACTIC_HOST, TACTIC_JUMP, TACTIC_PUN, TACTIC_RUN, TACTIC_SHIM, TACTIC_SPRINGBOARD, TACTIC_TRAP,
};
use nanoprobe_patch::{Tactic, TargetAddress, TextRange};
use nanoprobe_text::Patch;

use super::bytes::Bytes;
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

/// A patch as the arena's site table has it, and as it is taken back: without its springboard.
pub fn sites(patch: &Patch) -> Vec<Site> {
    let number = match patch.built.carries {
        Some(_) => TACTIC_HOST,
        None if patch.shim => TACTIC_SHIM,
        None => tactic_number(patch.tactic),
    };
    ranges(patch).iter().map(|range| site(range, number)).collect()
}

/// The springboard of a patch, as the arena's site table has it.
pub fn springboard_sites(patch: &Patch) -> Vec<Site> {
    patch
        .built
        .springboard
        .iter()
        .map(|range| site(range, TACTIC_SPRINGBOARD))
        .collect()
}

fn site(range: &TextRange, tactic: u32) -> Site {
    let mut site = Site {
        address: range.address.0,
        length: range.original.len() as u32,
        tactic,
        ..Site::default()
    };
    for (to, from) in site.original.iter_mut().zip(&range.original) {
        *to = *from;
    }
    for (to, from) in site.patched.iter_mut().zip(&range.patched) {
        *to = *from;
    }
    site
}

/// Where every trapping byte leads that these patches need, the passing ones of the protocol included. Of two patches at
/// one place the later counts: it took the place of the earlier.
pub fn redirects<'a>(patches: impl Iterator<Item = &'a Patch>) -> BTreeMap<u64, u64> {
    let mut redirects = BTreeMap::new();
    for patch in patches {
        // The head traps while the jump behind it is not whole.
        redirects.insert(patch.built.address.0, patch.detour.0);
        redirects.extend(
            patch
                .built
                .redirects
                .iter()
                .map(|redirect| (redirect.from.0, redirect.to.0)),
        );
    }
    redirects
}

/// What a range holds now, where `now` tells of patches that are in it.
pub(super) fn expected(range: &TextRange, now: &Bytes) -> Vec<u8> {
    let original = (range.address.0..).zip(&range.original);
    original
        .map(|(address, byte)| now.get(address).unwrap_or(*byte))
        .collect()
}

/// How many pages these touch.
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

pub(super) fn bytes_of<'a>(
    ranges: &'a [TextRange],
    which: impl Fn(&'a TextRange) -> &'a Vec<u8> + 'a,
) -> impl Iterator<Item = (u64, u8)> + 'a {
    ranges
        .iter()
        .flat_map(move |range| (range.address.0..).zip(which(range).iter().copied()))
}

/// Where, and the bytes.
pub(super) type Piece = (TargetAddress, Vec<u8>);

/// Bytes that follow each other, in one piece.
pub(super) fn pieces(text: &Bytes) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (address, byte) in text.iter() {
        match pieces.last_mut() {
            Some((start, bytes)) if start.0 + bytes.len() as u64 == address => bytes.push(byte),
            _ => pieces.push((TargetAddress(address), vec![byte])),
        }
    }
    pieces
}

/// Where, what is there, and what is to be.
pub(super) type Exchange = (TargetAddress, Vec<u8>, Vec<u8>);

/// Pieces, with what is there now.
pub(super) fn exchanges(pieces: &[Piece], now: &Bytes) -> Vec<Exchange> {
    let before = |(address, bytes): &Piece| now.from(address.0, bytes.len());
    pieces
        .iter()
        .map(|piece| (piece.0, before(piece), piece.1.clone()))
        .collect()
}

pub(super) fn borrowed(exchanges: &[Exchange]) -> Vec<(TargetAddress, &[u8], &[u8])> {
    exchanges
        .iter()
        .map(|(address, before, after)| (*address, before.as_slice(), after.as_slice()))
        .collect()
}

fn tactic_number(tactic: Tactic) -> u32 {
    match tactic {
        Tactic::Jump => TACTIC_JUMP,
        Tactic::Run => TACTIC_RUN,
        Tactic::Pun => TACTIC_PUN,
        Tactic::Evict => TACTIC_EVICT,
        _ => TACTIC_TRAP,
    }
}
