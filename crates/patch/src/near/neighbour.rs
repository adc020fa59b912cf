//! Hosts and guests: the springboard of the guest lies in the rear of the host's run. See `plan/neighbour.rs`.
//!
//! Where the two jumps share bytes, the host is placed first, such that there is room left for the guest, as in a
//! chain. Where they do not, each has all places that it would have alone.

use std::collections::{BTreeMap, BTreeSet};

use super::NearSpace;
use super::chain::displacement;
use crate::order::gather;
use crate::{RunPlan, Tactic, TargetAddress};

/// A run and the one whose springboard it carries.
pub(super) struct Pair {
    pub host: RunPlan,
    pub guest: RunPlan,
}

/// What [`pairs`] finds.
#[derive(Default)]
pub(super) struct Sorted {
    pub pairs: Vec<Pair>,
    /// Guests whose host is gone: another patch lies there.
    pub homeless: Vec<RunPlan>,
    pub others: Vec<RunPlan>,
}

/// Takes out of the runs those that must be placed together.
pub(super) fn pairs(runs: Vec<RunPlan>) -> Sorted {
    if !runs.iter().any(|run| run.guest.is_some() || run.host().is_some()) {
        return Sorted {
            others: runs,
            ..Sorted::default()
        };
    }
    let successors: BTreeSet<TargetAddress> = gather(runs.iter().filter_map(|run| run.successor));
    let mut sorted = Sorted::default();
    let (guests, others): (Vec<RunPlan>, Vec<RunPlan>) = runs.into_iter().partition(|run| run.host().is_some());
    let mut guests: BTreeMap<TargetAddress, RunPlan> = gather(guests.into_iter().map(|run| (run.start, run)));
    for mut run in others {
        let is_free = matches!(run.tactic, Tactic::Jump | Tactic::Run) && !successors.contains(&run.start);
        let wanted = run.guest.filter(|_| is_free);
        let fits = |guest: &RunPlan| {
            let theirs = guest
                .springboard()
                .map(|springboard| (springboard.host, springboard.jump));
            wanted.is_some_and(|wanted| theirs == Some((Some(run.start), wanted.jump)))
        };
        let found = wanted.and_then(|wanted| guests.remove(&wanted.start));
        match found {
            Some(guest) if fits(&guest) => sorted.pairs.push(Pair { host: run, guest }),
            other => {
                sorted.homeless.extend(other);
                run.guest = None;
                sorted.others.push(run);
            }
        }
    }
    sorted.homeless.extend(guests.into_values());
    sorted
}

impl NearSpace {
    /// Places both; the runs come back with what the places mean for them.
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
