//! Where detours lie: a pure allocator of near memory.
//!
//! A detour must lie within +-2 GiB of its site, and where its run has boundaries, some bytes of the distance must be
//! trapping bytes (see [`crate::JumpConstraint`]). Most runs have a boundary at offset 4 or so, which fixes the
//! distance's top byte: then the text and its detours must be, say, 0x06xxxxxx apart. So regions are opened in the
//! windows that those bytes leave, even for runs without a boundary. They are opened in the middle of a window's 16
//! MiB. All of the text can then share them, and no site aliases with its detour ([`ALIAS_DISTANCE`]):
//!
//! ```text
//!   text        +96 MiB              +128 MiB
//!   |==|          [     window 06, 07     ]          [0e]     [ 16, 17 ]  ...  and below: [ea] [d6] ...
//!                       ^ region
//! ```
//!
//! A punned jump has one window, of 16 MiB or less: it, too, is used from its middle on, so that the puns of
//! neighbouring sites share it.
//!
//! A region is 64 KiB (or what the hole leaves of it, in pages). The first suitable gap is taken. Gaps in pages that
//! are already in use come first, so that few pages are touched.

mod chain;
mod neighbour;
mod region;
mod request;

use std::ops::Range;
use std::sync::Arc;

use crate::consume::in_parts;
use crate::order::{sort_by_number, sort_by_numbers};
use crate::{Obstacle, PlanOptions, Refusal, RunPlan, Tactic, TargetAddress};
use region::{Pages, Region};
use request::{Request, jump_constraint};

/// The size of a new region, if the hole has that much room.
const REGION_BYTES: u64 = 64 << 10;

/// How far from a multiple of 16 MiB from the text the first detours of a window lie. Processors distinguish branches
/// by the low bits of their addresses, some of them by 24. A detour that lies a multiple of 16 MiB from its site is
/// taken for the text after the site. It is then mispredicted again and again, five times slower where it was
/// measured.
const ALIAS_DISTANCE: i64 = 8 << 20;

/// The ranges of distances whose top byte is a trapping one, nearest first. The list is written out rather than derived
/// from `TRAPPING_BYTES`; a test compares them.
const WINDOWS: [Range<i64>; 15] = [
    0x0600_0000..0x0800_0000,
    0x0e00_0000..0x0f00_0000,
    -0x1600_0000..-0x1500_0000, // ea
    0x1600_0000..0x1800_0000,
    0x1e00_0000..0x2000_0000,
    0x2700_0000..0x2800_0000,
    -0x2a00_0000..-0x2900_0000, // d6
    -0x2c00_0000..-0x2b00_0000, // d4
    0x2f00_0000..0x3000_0000,
    -0x3200_0000..-0x3100_0000, // ce
    -0x3400_0000..-0x3300_0000, // cc
    0x3700_0000..0x3800_0000,
    0x3f00_0000..0x4000_0000,
    0x6000_0000..0x6200_0000,
    -0x6600_0000..-0x6500_0000, // 9a
];

/// The result of [`NearSpace::place_with_fallbacks`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The runs to build, each with the address of its detour; ascending.
    pub runs: Vec<(RunPlan, TargetAddress)>,
    /// The sites for which no tactic found a place, each with the reason.
    pub refusals: Vec<(TargetAddress, Refusal)>,
}

/// Near memory, to be mapped in holes of the target's address space. It only decides; the caller maps
/// [`NearSpace::regions`].
#[derive(Clone, Debug)]
pub struct NearSpace {
    /// The free memory: ascending, disjoint, page-aligned.
    holes: Vec<Range<u64>>,
    page: u64,
    /// In the order in which they were opened.
    regions: Vec<Region>,
}

impl NearSpace {
    /// An allocator over the holes of the target's address map. The caller has taken out of them the memory that must
    /// stay free: above the heap, below stacks, and the first pages. `page_size` is a power of two.
    pub fn new(mut holes: Vec<Range<u64>>, page_size: u64) -> Self {
        let page = page_size.max(1).next_power_of_two();
        for hole in &mut holes {
            hole.start = hole.start.checked_next_multiple_of(page).unwrap_or(u64::MAX);
            hole.end &= !(page - 1);
        }
        holes.retain(|hole| hole.start < hole.end);
        sort_by_number(&mut holes, |hole| hole.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(holes.len());
        for hole in holes {
            match merged.last_mut() {
                Some(last) if hole.start <= last.end => last.end = last.end.max(hole.end),
                _ => merged.push(hole),
            }
        }
        Self {
            holes: merged,
            page,
            regions: Vec::new(),
        }
    }

    /// Sets the present holes: the target has mapped and unmapped memory meanwhile. Open regions stay ours.
    pub fn set_holes(&mut self, holes: Vec<Range<u64>>) {
        let mut free = Self::new(holes, self.page).holes;
        for region in &self.regions {
            let taken = &region.range;
            let parts = |hole: Range<u64>| {
                let before = hole.start..hole.end.min(taken.start);
                let behind = hole.start.max(taken.end)..hole.end;
                [before, behind].into_iter().filter(|part| part.start < part.end)
            };
            free = free.into_iter().flat_map(parts).collect();
        }
        self.holes = free;
    }

    /// Forgets regions in this range that could not be mapped. They are not ours, and nothing may have been written
    /// into them.
    pub fn forget(&mut self, range: &Range<TargetAddress>) {
        let (start, end) = (range.start.0, range.end.0);
        self.regions
            .retain(|region| region.range.end <= start || end <= region.range.start);
    }

    /// Releases the place of a detour. No thread may be in the detour, and none may come to it.
    pub fn release(&mut self, detour: TargetAddress, length: usize) {
        let mut regions = self.regions.iter_mut();
        if let Some(region) = regions.find(|region| region.range.contains(&detour.0)) {
            region.release(detour.0, length as u64);
        }
    }

    /// Takes `length` bytes for the detour of `run`, so that its constraint and its reach are satisfied; opens a new
    /// region if no open region has such a place. `None` if there is no such place at all.
    pub fn place(&mut self, run: &RunPlan, length: usize) -> Option<TargetAddress> {
        let request = Request::of(run, length)?;
        for pages in [Pages::Touched, Pages::All] {
            for region in &mut self.regions {
                if let Some(address) = region.place(&request, pages) {
                    return Some(TargetAddress(address));
                }
            }
        }
        let address = self.open(&request)?;
        self.regions.last_mut()?.place_at(address, request.length);
        Some(TargetAddress(address))
    }

    /// Places many runs (each with its `detour_length`); the answers are in the order of the runs. This is denser than
    /// one by one. The most constrained runs go first, since the others fill the gaps that those leave. Among equally
    /// constrained runs the highest goes first: a window's lower end moves down with the site, so regions in use stay
    /// in the window.
    pub fn place_all(&mut self, runs: &[&RunPlan]) -> Vec<Option<TargetAddress>> {
        let mut order: Vec<(usize, &&RunPlan)> = runs.iter().enumerate().collect();
        sort_by_numbers(&mut order, |(_, run)| {
            (!u64::from(jump_constraint(run).rank()), !run.start.0)
        });
        let mut places = vec![None; runs.len()];
        for (index, run) in order {
            if let Some(place) = places.get_mut(index) {
                *place = self.place(run, run.detour_length);
            }
        }
        places
    }

    /// Places many runs. A run without a place gives way to its fallback ([`RunPlan::fallback`]), until everything has
    /// a place. With a forced tactic, runs do not give way to fallbacks.
    pub fn place_with_fallbacks(&mut self, runs: Vec<RunPlan>, options: &PlanOptions) -> Placed {
        let mut placed = Placed::default();
        placed.runs.reserve_exact(runs.len());
        let mut pending = runs;
        while !pending.is_empty() && !options.cancelled() {
            let neighbour::Sorted {
                pairs,
                homeless,
                others,
            } = neighbour::pairs(std::mem::take(&mut pending));
            for guest in homeless {
                fall_back(Some(guest), Obstacle::Host, options, &mut pending, &mut placed);
            }
            let (chains, alone) = chain::chains(others);
            let places = self.place_all(&alone.iter().collect::<Vec<_>>());
            let mut places = places.into_iter();
            in_parts(alone, |part| {
                for (run, place) in part.into_iter().zip(&mut places) {
                    match place {
                        Some(place) => placed.runs.push((run, place)),
                        None => fall_back(Some(run), Obstacle::Address, options, &mut pending, &mut placed),
                    }
                }
                true
            });
            for pair in pairs {
                if options.cancelled() {
                    break;
                }
                match self.place_pair(&pair) {
                    Some(both) => placed.runs.extend(both),
                    None => {
                        fall_back(Some(pair.guest), Obstacle::Address, options, &mut pending, &mut placed);
                        pending.push(RunPlan {
                            guest: None,
                            ..pair.host
                        });
                    }
                }
            }
            // Chains come after the other runs: each chain opens regions that leave room for little else.
            for chain in chains {
                if options.cancelled() {
                    break;
                }
                match self.place_chain(&chain) {
                    Some(members) => placed.runs.extend(members),
                    None => {
                        let is_whole = chain.last().is_some_and(|last| last.successor.is_none());
                        let obstacle = if is_whole {
                            Obstacle::Address
                        } else {
                            Obstacle::Successor
                        };
                        let mut members = chain.into_iter();
                        let first = members.next();
                        pending.extend(members);
                        fall_back(first, obstacle, options, &mut pending, &mut placed);
                    }
                }
            }
        }
        sort_by_number(&mut placed.runs, |(run, _)| run.start.0);
        placed
    }

    /// The memory where detours can lie: the holes and the open regions, ascending.
    pub fn free(&self) -> Arc<[Range<u64>]> {
        let regions = self.regions.iter().map(|region| region.range.clone());
        let mut free: Vec<Range<u64>> = self.holes.iter().cloned().chain(regions).collect();
        sort_by_number(&mut free, |range| range.start);
        free.into()
    }

    /// The memory to map: ascending, disjoint, neighbours merged, whole pages.
    pub fn regions(&self) -> Vec<Range<TargetAddress>> {
        let mut ranges: Vec<Range<u64>> = self.regions.iter().map(|region| region.range.clone()).collect();
        sort_by_number(&mut ranges, |range| range.start);
        let mut merged: Vec<Range<TargetAddress>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.end.0 == range.start => last.end = TargetAddress(range.end),
                _ => merged.push(TargetAddress(range.start)..TargetAddress(range.end)),
            }
        }
        merged
    }

    /// Opens a region in which the request can be placed, and says where.
    fn open(&mut self, request: &Request) -> Option<u64> {
        let address = self.find(request)?;
        self.open_around(address, request.length)?;
        Some(address)
    }

    /// Opens a region around `length` bytes in a hole.
    fn open_around(&mut self, address: u64, length: u64) -> Option<()> {
        let end = address.checked_add(length)?;
        let hole = self
            .holes
            .iter()
            .position(|hole| hole.start <= address && end <= hole.end)?;
        let Range { start, end: hole_end } = self.holes.get(hole)?.clone();
        // The 64 KiB block around the address, cut to the hole, and extended by pages if the detour needs them.
        let low = (address & !(REGION_BYTES - 1)).max(start);
        let needed = end.checked_next_multiple_of(self.page)?;
        let high = (address & !(REGION_BYTES - 1))
            .saturating_add(REGION_BYTES)
            .max(needed)
            .min(hole_end);
        let left = [start..low, high..hole_end].into_iter().filter(|rest| !rest.is_empty());
        self.holes.splice(hole..=hole, left);
        self.regions.push(Region::new(low..high, self.page));
        Some(())
    }

    fn find(&self, request: &Request) -> Option<u64> {
        // A pun has only one window.
        let punned = request.constraint.window();
        let has_pun = request.constraint.punned() != 0;
        let windows = if has_pun {
            std::slice::from_ref(&punned)
        } else {
            &WINDOWS
        };
        // First from the middle of the window's first 16 MiB upwards, then below that. So sites on both sides can
        // share the memory that is found.
        for window in windows {
            let middle = window.start.saturating_add(ALIAS_DISTANCE).min(window.end);
            for part in [middle..window.end, window.start..middle] {
                if let Some(address) = self.find_within(request, part) {
                    return Some(address);
                }
            }
        }
        if has_pun {
            return None;
        }
        if request.constraint.has_boundary_at(4) {
            return None;
        }
        self.find_within(request, 0..1 << 31)
            .or_else(|| self.find_within(request, -(1 << 31)..0))
    }

    /// The lowest suitable address in the holes whose distance from the jump lies in `distances`.
    fn find_within(&self, request: &Request, distances: Range<i64>) -> Option<u64> {
        let low = request
            .base
            .saturating_add_signed(distances.start)
            .max(request.starts.start);
        let high = request
            .base
            .saturating_add_signed(distances.end)
            .min(request.starts.end);
        let first = self.holes.partition_point(|hole| hole.end <= low);
        for hole in self.holes.get(first..)?.iter().take_while(|hole| hole.start < high) {
            let last = hole.end.saturating_sub(request.length).saturating_add(1).min(high);
            if let Some(address) = request.first_in(hole.start.max(low)..last) {
                return Some(address);
            }
        }
        None
    }
}

/// The replacement of a run that has no place.
fn fall_back(
    run: Option<RunPlan>,
    obstacle: Obstacle,
    options: &PlanOptions,
    pending: &mut Vec<RunPlan>,
    placed: &mut Placed,
) {
    let Some(run) = run else { return };
    if run.tactic == Tactic::Trap {
        let refusal = Refusal::TacticUnavailable {
            site: run.start,
            tactic: Tactic::Trap,
            obstacle: Some(obstacle),
        };
        placed.refusals.push((run.start, refusal));
        return;
    }
    let fallback = run.fallback_under(options, obstacle);
    pending.extend(fallback.runs);
    placed.refusals.extend(fallback.refusals);
}

#[cfg(test)]
mod tests;
