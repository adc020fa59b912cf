//! Patches as the arena's site table has them: what `nanoprobe restore` reads.

use nanoprobe_arena::layout::{
    Site, TACTIC_EVICT, TACTIC_HOST, TACTIC_JUMP, TACTIC_MADE, TACTIC_PUN, TACTIC_RUN, TACTIC_SHIM, TACTIC_SPRINGBOARD,
    TACTIC_TRAP,
};
use nanoprobe_patch::{MadeCall, Tactic, TargetAddress};
use nanoprobe_text::Patch;

/// A patch without its springboard, as an entry of the arena's site table.
pub fn site_of(patch: &Patch) -> Site {
    let number = match patch.built.carries {
        Some(_) => TACTIC_HOST,
        None if is_made(patch) => TACTIC_MADE,
        None if patch.shim => TACTIC_SHIM,
        None => tactic_number(patch.tactic),
    };
    let built = &patch.built;
    site(built.address, &built.original, &built.patched, number)
}

/// Whether a patch lies in code that the program has made. Only its own byte is changed, and only these bytes count as
/// ours.
pub fn is_made(patch: &Patch) -> bool {
    patch.built.patched == MadeCall::PATCHED
}

/// The springboard of a patch, as an entry of the arena's site table.
pub fn springboard_sites(patch: &Patch) -> impl Iterator<Item = Site> {
    let springboard = patch.built.springboard.iter();
    springboard.map(|range| site(range.address, &range.original, &range.patched, TACTIC_SPRINGBOARD))
}

/// An entry of the site table.
pub(crate) fn site(address: TargetAddress, original: &[u8], patched: &[u8], tactic: u32) -> Site {
    let mut site = Site {
        address: address.0,
        length: original.len() as u32,
        tactic,
        ..Site::default()
    };
    for (to, from) in site.original.iter_mut().zip(original) {
        *to = *from;
    }
    for (to, from) in site.patched.iter_mut().zip(patched) {
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
