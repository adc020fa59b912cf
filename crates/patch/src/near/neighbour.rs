//! Placing hosts and guests: the springboard of the guest lies in the rear of the host's run. See `plan/neighbour.rs`.
//!
//! If the two jumps share bytes, the host is placed first, at a place that leaves room for the guest, as in a chain.
//! Otherwise, each has all places that it would have alone.

use std::collections::{BTreeMap, BTreeSet};

use super::NearSpace;
use super::chain::displacement;
use crate::order::gather;
use crate::{RunPlan, Tactic, TargetAddress};

/// A run, and the run whose springboard it carries.
pub(super) struct Pair {
    pub host: RunPlan,
    pub guest: RunPlan,
}

/// The result of [`pairs`].
pub(super) struct Sorted {
    pub pairs: Vec<Pair>,
    /// Guests whose host is gone, because another patch lies there.
    pub homeless: Vec<RunPlan>,
    pub others: Vec<RunPlan>,
}

/// Separates the runs that must be placed together. The others stay where they are in memory: they may be all functions
/// of a program.
pub(super) fn pairs(mut runs: Vec<RunPlan>) -> Sorted {
    let mut homeless = Vec::new();
    let mut pairs = Vec::new();
    if runs.iter().any(|run| run.guest.is_some() || run.host().is_some()) {
        let successors: BTreeSet<TargetAddress> = gather(runs.iter().filter_map(|run| run.successor));
        let guests = runs.extract_if(.., |run| run.host().is_some());
        let mut guests: BTreeMap<TargetAddress, RunPlan> = gather(guests.map(|run| (run.start, run)));
        let mut found = Vec::new();
        let hosts = runs.extract_if(.., |run| {
            let is_free = matches!(run.tactic, Tactic::Jump | Tactic::Run) && !successors.contains(&run.start);
            let wanted = run.guest.filter(|_| is_free);
            let fits = |guest: &RunPlan| {
                let theirs = guest
                    .springboard()
                    .map(|springboard| (springboard.host, springboard.jump));
                wanted.is_some_and(|wanted| theirs == Some((Some(run.start), wanted.jump)))
            };
            match wanted.and_then(|wanted| guests.remove(&wanted.start)) {
                Some(guest) if fits(&guest) => {
                    found.push(guest);
                    true
                }
                other => {
                    homeless.extend(other);
                    run.guest = None;
                    false
                }
            }
        });
        let hosts: Vec<RunPlan> = hosts.collect();
        pairs.extend(hosts.into_iter().zip(found).map(|(host, guest)| Pair { host, guest }));
        homeless.extend(guests.into_values());
    }
    Sorted {
        pairs,
        homeless,
        others: runs,
    }
}

impl NearSpace {
    /// Places both runs. The returned runs have the constraints that follow from their places.
    pub(super) fn place_pair(&mut self, pair: &Pair) -> Option<[(RunPlan, TargetAddress); 2]> {
        let (mut host, mut guest) = (pair.host.clone(), pair.guest.clone());
        let mut carried = host.guest?;
        let offset = usize::try_from(carried.jump.offset_from(host.start)?).ok()?;
        let (of_host, of_guest);
        if (1..=4).contains(&offset) {
            host.constraint = host.constraint_over(carried.jump);
            let under = |guest: &mut RunPlan, displacement: i32| {
                for springboard in guest.springboards.iter_mut().take(1) {
                    springboard.constraint = springboard.constraint.under(offset, displacement);
                }
            };
            of_host = self.place_before(&host, &guest, &under)?;
            under(&mut guest, displacement(&host, of_host)?);
            of_guest = self.place(&guest, guest.detour_length)?;
        } else {
            of_guest = self.place(&guest, guest.detour_length)?;
            of_host = self.place(&host, host.detour_length)?;
        }
        carried.detour = Some(of_guest);
        host.guest = Some(carried);
        Some([(host, of_host), (guest, of_guest)])
    }
}
