//! The agent's tables: the destinations of traps, and the original addresses of faults in detours.

use nanoprobe_arena::layout::ORIGIN_PUSHED_SHIFT;
use nanoprobe_patch::{Built, Origin, TargetAddress};

use crate::Patch;

/// The destination of every trapping byte of these patches, including those that trap only during the protocol;
/// ascending. If two patches are at one place, the later one counts, because it has replaced the earlier one.
pub fn redirects<'a>(patches: impl Iterator<Item = &'a Patch>) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for patch in patches {
        // The head traps while the rest of its jump is not whole.
        all.push((patch.built.address.0, patch.detour.0));
        let redirects = patch.built.redirects.iter();
        all.extend(redirects.map(|redirect| (redirect.from.0, redirect.to.0)));
    }
    sort(&mut all, &|_, later| later);
    all
}

/// The original address for each relocated address, sorted for the agent's binary search. An entry applies up to the
/// next one; 0 means no address ([`nanoprobe_patch::Built::origins`]). The number of extra words on the stack is in
/// the top byte, which addresses do not use.
pub fn origins<'a>(patches: impl Iterator<Item = &'a Patch>) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = patches
        .flat_map(|patch| origins_of(patch.detour, &patch.built))
        .collect();
    // One detour may begin where another detour ends.
    sort(&mut all, &|earlier, later| if later == 0 { earlier } else { later });
    all
}

/// The origins of one detour.
pub fn origins_of(detour: TargetAddress, built: &Built) -> impl Iterator<Item = (u64, u64)> + use<> {
    let origin = |origin: Origin| {
        let original = origin.original.map_or(0, |original| original.0);
        (
            origin.relocated.0,
            original | u64::from(origin.pushed) << ORIGIN_PUSHED_SHIFT,
        )
    };
    built.origins(detour).into_iter().map(origin)
}

/// Sorts by address. `of` merges the earlier and the later of two entries at one address.
pub fn sort(all: &mut Vec<(u64, u64)>, of: &dyn Fn(u64, u64) -> u64) {
    // This sort is stable, and quick if most entries are in order. Its code is large, so all callers share it.
    all.sort_by_key(|(address, _)| *address);
    all.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        if is_same {
            earlier.1 = of(earlier.1, later.1);
        }
        is_same
    });
}
