//! What the agent looks up: where traps lead, and which original address a fault in a detour has.

use std::collections::BTreeMap;

use nanoprobe_arena::layout::ORIGIN_PUSHED_SHIFT;
use nanoprobe_patch::{Built, Origin, TargetAddress};

use crate::Patch;

/// Where every trapping byte of these patches leads, including those that trap only during the protocol. Of two
/// patches at one place the later counts: it has replaced the earlier one.
pub fn redirects<'a>(patches: impl Iterator<Item = &'a Patch>) -> BTreeMap<u64, u64> {
    let mut redirects = BTreeMap::new();
    for patch in patches {
        // The head traps while the rest of its jump is not whole.
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

/// Which original address a relocated one stands for, sorted for the agent's binary search; an entry applies up to
/// the next, and 0 means no address ([`nanoprobe_patch::Built::origins`]). The number of extra words on the stack
/// is in the top byte, which addresses do not use.
pub fn origins<'a>(patches: impl Iterator<Item = &'a Patch>) -> Vec<(u64, u64)> {
    let mut origins = BTreeMap::new();
    for patch in patches {
        for (relocated, original) in origins_of(patch.detour, &patch.built) {
            // One detour may begin where another one ends.
            let entry = origins.entry(relocated).or_insert(0);
            if original != 0 {
                *entry = original;
            }
        }
    }
    origins.into_iter().collect()
}

/// The same of one detour.
pub fn origins_of(detour: TargetAddress, built: &Built) -> BTreeMap<u64, u64> {
    let origin = |origin: Origin| {
        let original = origin.original.map_or(0, |original| original.0);
        (
            origin.relocated.0,
            original | u64::from(origin.pushed) << ORIGIN_PUSHED_SHIFT,
        )
    };
    built.origins(detour).into_iter().map(origin).collect()
}
