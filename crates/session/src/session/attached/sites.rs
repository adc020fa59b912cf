//! The patches in which a probe fires, for turning some of them off ([`Attached::set_armed`]).

use std::collections::BTreeSet;

use nanoprobe_patch::TargetAddress;
use nanoprobe_text::Patch;

use super::Attached;
use crate::probes::{Place, ProbeIndex, Spot};
use crate::session::known::Known;

impl Attached {
    /// The patches in which a probe of the target fires now. Other probes may fire in the same patches.
    pub fn patches_of(&self, probe: ProbeIndex) -> Vec<&Patch> {
        let mut found: Vec<&Patch> = Vec::new();
        let known = self.known();
        let placed = self.presence.iter().flat_map(|presence| &presence.placed.fired);
        for (start, (members, _)) in placed {
            let of = |number: &usize| known.enablings.list().get(*number).map(|enabling| enabling.probe);
            let spots: BTreeSet<Spot> = members
                .iter()
                .filter(|(number, _)| of(number) == Some(probe))
                .map(|(_, spot)| *spot)
                .collect();
            if spots.is_empty() {
                continue;
            }
            let entered = *start + stack_check(known, probe, *start);
            let site_of = |spot: Spot| site_of(*start, entered, spot);
            let named: Vec<u64> = members.iter().filter_map(|(_, spot)| site_of(*spot)).collect();
            let fires = |patch: &&Patch, spot: &Spot| match site_of(*spot) {
                Some(site) => patch.sites.contains(&TargetAddress(site)),
                // An exit is a site without a name of its own. A function that is only a `ret` has its exit at its
                // entry, and return addresses are replaced at the entry.
                None => {
                    let here = patch.function.0 == *start;
                    here && (patch.takes_return || patch.sites.iter().any(|site| !named.contains(&site.0)))
                }
            };
            let patches = || self.inherited().iter().filter(|patch| !patch.shim);
            let mut of_spots: Vec<&Patch> = patches()
                .filter(|patch| spots.iter().any(|spot| fires(patch, spot)))
                .collect();
            if of_spots.is_empty() {
                let entry = |patch: &&Patch| patch.sites.contains(&TargetAddress(entered));
                of_spots = patches().filter(entry).collect();
            }
            found.extend(of_spots);
        }
        found
    }

    /// Whether any probe of the target has a place.
    pub fn has_places(&self) -> bool {
        let is_fired_in = |patch: &Patch| {
            let placed = self.presence.as_ref().map(|presence| &presence.placed.fired);
            let members = placed.and_then(|placed| placed.get(&patch.function.0));
            let members = members.map(|(members, _)| members);
            members.is_some_and(|members| !members.is_empty())
        };
        self.patches().iter().any(|patch| !patch.shim && is_fired_in(patch))
    }
}

/// The distance from the first instruction of a probe's function to where it is entered.
fn stack_check(known: &Known, probe: ProbeIndex, start: u64) -> u64 {
    let module = match known.probes.get(probe).map(|probe| &probe.place) {
        Some(Place::Function { module, .. }) => known.modules.list().get(*module),
        _ => None,
    };
    module.map_or(0, |module| {
        module.stack_check_bytes(module.bias().to_image(TargetAddress(start)))
    })
}

/// The one address of a spot of a function that is entered at `entered`; `None` for the exits.
fn site_of(start: u64, entered: u64, spot: Spot) -> Option<u64> {
    match spot {
        Spot::Entry => Some(entered),
        Spot::Offset(offset) => Some(start.wrapping_add(offset)),
        Spot::Exits => None,
    }
}
