//! Placing detours whose jumps share bytes: see `plan/successor.rs`.
//!
//! ```text
//!   first    e9 x0 |                   x0: free; the rest of the displacement is the second one's jump: d1 d0 e9 x0
//!   second         e9 d0 d1 d2 d3      d0, d1: as the first one's place has them; d2, d3: free
//! ```
//!
//! So the first detour has as many places as any pun whose bytes are free. For each of them, the second detour has
//! one place in every 2^8, 2^16 or 2^24 bytes. In the last case a page may hold a single detour. The second detours
//! of neighbouring sites lie near to each other, since their distances to the first ones' region are similar.

use std::collections::{BTreeMap, HashSet};

use super::NearSpace;
use super::region::Pages;
use super::request::Request;
use crate::order::sort_by_number;
use crate::{RunPlan, Tactic, TargetAddress};

/// How many places for the first detour are tried: in open regions, and (the next constant) in holes.
const REGIONS_MAX: usize = 8;
const IN_HOLES_MAX: i64 = 32;

/// Runs that are placed together, in the order of their addresses.
pub(super) type Chain = Vec<RunPlan>;

/// Separates the runs that must be placed together from the others, which stay where they are in memory. A run that
/// was displaced only to make room for another, and is no longer needed, is left out.
pub(super) fn chains(runs: Vec<RunPlan>) -> (Vec<Chain>, Vec<RunPlan>) {
    let mut alone = runs;
    if !alone.iter().any(|run| run.successor.is_some() || run.is_silent()) {
        return (Vec::new(), alone);
    }
    let successors: HashSet<TargetAddress> = alone.iter().filter_map(|run| run.successor).collect();
    let is_behind = |run: &RunPlan| {
        let is_jump = run.successor.is_some() || matches!(run.tactic, Tactic::Jump | Tactic::Run | Tactic::Pun);
        is_jump && successors.contains(&run.start)
    };
    let behind = alone.extract_if(.., |run| is_behind(run));
    let mut behind: BTreeMap<TargetAddress, RunPlan> = behind.map(|run| (run.start, run)).collect();
    let mut firsts: Vec<RunPlan> = alone.extract_if(.., |run| run.successor.is_some()).collect();
    alone.retain(|run| !run.is_silent());
    // From the highest to the lowest, like all placing.
    sort_by_number(&mut firsts, |run| !run.start.0);
    let chains = firsts.into_iter().map(|first| {
        let mut chain = vec![first];
        while let Some(next) = chain
            .last()
            .and_then(|run| run.successor)
            .and_then(|next| behind.remove(&next))
        {
            chain.push(next);
        }
        chain
    });
    let chains: Vec<Chain> = chains.collect();
    alone.extend(behind.into_values().filter(|run| !run.is_silent()));
    (chains, alone)
}

impl NearSpace {
    /// Places a whole chain; the returned runs have the constraints that their places satisfy.
    pub(super) fn place_chain(&mut self, chain: &[RunPlan]) -> Option<Vec<(RunPlan, TargetAddress)>> {
        let mut chain = chain.to_vec();
        // The successor of the last run is missing: another plan has displaced it, or it traps.
        if chain.len() < 2 || chain.last()?.successor.is_some() {
            return None;
        }
        for index in (0..chain.len() - 1).rev() {
            let behind = chain.get(index + 1)?.constraint;
            let run = chain.get_mut(index)?;
            run.constraint = run.constraint.over(run.length, behind);
        }
        let mut placed = Vec::with_capacity(chain.len());
        let mut rest = chain.into_iter().peekable();
        while let Some(run) = rest.next() {
            let place = match rest.peek_mut() {
                Some(next) => {
                    let under = |next: &mut RunPlan, displacement: i32| {
                        next.constraint = next.constraint.under(run.length, displacement);
                    };
                    let place = self.place_before(&run, next, &under)?;
                    under(next, displacement(&run, place)?);
                    place
                }
                None => self.place(&run, run.detour_length)?,
            };
            placed.push((run, place));
        }
        Some(placed)
    }

    /// A place for a run that leaves a place for the next one. The first run's displacement narrows the choice for the
    /// next run: `under`.
    pub(super) fn place_before(
        &mut self,
        run: &RunPlan,
        next: &RunPlan,
        under: &dyn Fn(&mut RunPlan, i32),
    ) -> Option<TargetAddress> {
        let request = Request::of(run, run.detour_length)?;
        let leaves_room = |space: &NearSpace, address: u64| {
            let mut next = next.clone();
            let Some(displacement) = displacement(run, TargetAddress(address)) else {
                return false;
            };
            under(&mut next, displacement);
            Request::of(&next, next.detour_length).is_some_and(|request| space.has_place(&request))
        };
        // The newest regions hold other chains and have most space. The older ones are full of gaps that are too short.
        let newest = self.regions.len().saturating_sub(REGIONS_MAX)..self.regions.len();
        for pages in [Pages::Touched, Pages::All] {
            for index in newest.clone().rev() {
                let place = self.regions.get(index).and_then(|region| region.peek(&request, pages));
                if let Some(address) = place.filter(|address| leaves_room(self, *address)) {
                    self.regions.get_mut(index)?.place_at(address, request.length);
                    return Some(TargetAddress(address));
                }
            }
        }
        let window = request.constraint.window();
        let step = ((window.end - window.start) / IN_HOLES_MAX).max(1);
        let mut last = None;
        for number in 0..IN_HOLES_MAX {
            // The place is not at a step's start, because of branch prediction: see ALIAS_DISTANCE.
            let from = window.start + number * step + (step / 2).min(super::ALIAS_DISTANCE);
            let Some(address) = self.find_within(&request, from..window.end) else {
                break;
            };
            if last != Some(address) && leaves_room(self, address) {
                self.open_around(address, request.length)?;
                self.regions.last_mut()?.place_at(address, request.length);
                return Some(TargetAddress(address));
            }
            last = Some(address);
        }
        None
    }

    fn has_place(&self, request: &Request) -> bool {
        let in_region = self
            .regions
            .iter()
            .any(|region| region.peek(request, Pages::All).is_some());
        in_region || self.find(request).is_some()
    }
}

pub(super) fn displacement(run: &RunPlan, detour: TargetAddress) -> Option<i32> {
    detour.displacement_from(run.jump().checked_add(5)?)
}
