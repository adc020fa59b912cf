//! Patches as the arena's site table has them: what `nanoprobe restore` reads.

use nanoprobe_arena::layout::{
    Site, TACTIC_EVICT, TACTIC_HOST, TACTIC_JUMP, TACTIC_PUN, TACTIC_RUN, TACTIC_SHIM, TACTIC_SPRINGBOARD, TACTIC_TRAP,
};
use nanoprobe_patch::{Tactic, TextRange};
use nanoprobe_text::Patch;

/// A patch without its springboard, as an entry of the arena's site table.
pub fn sites(patch: &Patch) -> Vec<Site> {
    let number = match patch.built.carries {
        Some(_) => TACTIC_HOST,
        None if patch.shim => TACTIC_SHIM,
        None => tactic_number(patch.tactic),
    };
    patch.built.ranges().iter().map(|range| site(range, number)).collect()
}

/// The springboard of a patch, as an entry of the arena's site table.
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

fn tactic_number(tactic: Tactic) -> u32 {
    match tactic {
        Tactic::Jump => TACTIC_JUMP,
        Tactic::Run => TACTIC_RUN,
        Tactic::Pun => TACTIC_PUN,
        Tactic::Evict => TACTIC_EVICT,
        _ => TACTIC_TRAP,
    }
}
