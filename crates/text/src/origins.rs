//! What faults in detours are reported as.

use std::collections::BTreeMap;

use nanoprobe_arena::layout::ORIGIN_PUSHED_SHIFT;
use nanoprobe_patch::{Built, Origin, TargetAddress};

use crate::Patch;

/// Which original address a relocated one stands for, sorted for the agent's binary search; an entry holds up to the
/// next, and 0 stands for none ([`nanoprobe_patch::Built::origins`]). The words that are pushed too many are in the top
/// byte, which addresses leave free.
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
