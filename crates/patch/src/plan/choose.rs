//! The choice between shapes, and their grouping.
//!
//! Points are taken in the order of their sites. For each that no earlier run covers, the shapes that could cover it are
//! tried: those that start at the site, then those that start before it, nearest first, until a run has five bytes in
//! front of the site - if a shorter one does not do, a longer one does not either - as far down as the text is free.
//!
//! ```text
//!   41 5e  pop r14    run      e9 ..        the jump
//!   41 5f  pop r15             ..           its boundaries: offsets 2 and 4
//!   5d     pop rbp             06
//!   c3     ret        site     cc           behind the jump: traps, since a branch to it would not be seen otherwise
//! ```
//!
//! The best [`Quality`] wins; where it needs a springboard or an address that there may not be, the others are its
//! alternatives. Sites that have none in the end may have a springboard in an instruction nearby (`neighbour.rs`).
//! A site that would get a trap is given to the run in front of it, if that can be extended up
//! to it. Runs do not overlap, so whoever flows into a later site comes through that site's own patch.

use std::collections::BTreeSet;
use std::ops::Range;

use super::displace::{displace, trap};
use super::shape::{BranchTargets, Followers, JUMP, SHORT_JUMP, Shape, pun_at, shape_at};
use super::sites::{Site, sites};
use super::successor::Member;
use super::{FunctionPlan, Obstacle, PlanOptions, RunPlan, springboard};
use crate::function::{FunctionMap, Padding};
use crate::{JumpConstraint, Point, Refusal, Tactic};

/// How good a shape is: what a hit costs, and then how likely it finds a place. Best first. The figures are what a hit
/// costs more than a jump, in nanoseconds, where they were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Quality {
    /// A jump, no call in it.
    Jump,
    /// A pun with windows of 64 KiB or more, whose detour executes what it shares bytes with: 0.
    Pun,
    /// The run in front, extended: 0. Whoever comes to the site by an unknown branch traps.
    Extended,
    /// A short jump to a springboard: 0.2. There are not many places for springboards.
    Evict,
    /// A pun whose detour jumps back to the bytes that are shared: 5.
    SharedPun,
    /// A call or system call is executed out of line: its return is mispredicted, 11.
    JumpWithCall,
    EvictWithCall,
    PunWithCall,
    ExtendedWithCall,
    /// Three or four bytes are punned: a window of 256 bytes or one, that is a page of its own; or bytes are shared with what
    /// nobody is known to execute.
    NarrowPun,
    /// The jump lies on the successor's: 5, and 1 for whoever comes to the successor.
    OnSuccessor,
    /// Whoever comes by a known branch traps, others do not.
    PartlyTrapping,
}

/// What planning reads.
pub(super) struct Planner<'a> {
    pub(super) map: &'a FunctionMap,
    pub(super) force: Option<Tactic>,
    /// Where springboards may lie.
    pub(super) padding: &'a [Padding],
    /// Where detours may lie.
    pub(super) near: &'a [Range<u64>],
    /// Sites (by instruction) for which there was no springboard.
    pub(super) barred: BTreeSet<usize>,
}

/// A run for a site.
pub(super) struct Choice {
    pub quality: Quality,
    /// Index of the run's first instruction.
    pub first: usize,
    pub run: RunPlan,
    /// How many of the following sites it covers.
    pub covered: usize,
}

/// A run that is planned, and what it covers.
struct Previous {
    first: usize,
    sites: Vec<Site>,
}

/// How often planning starts anew without the springboards that others took.
const ROUNDS_MAX: usize = 4;

pub(super) fn plan(map: &FunctionMap, points: &[Point], options: &PlanOptions) -> FunctionPlan {
    let mut refusals = Vec::new();
    let sites = sites(map, points, &mut refusals);
    let mut planner = Planner {
        map,
        force: options.force,
        padding: map.shown_padding(),
        near: map.near_memory(),
        barred: BTreeSet::new(),
    };
    let mut round = 1;
    loop {
        let mut plan = planner.plan(sites.clone());
        let (runs, homeless) = springboard::assign(plan.runs, &[]);
        plan.runs = runs;
        let last = round == ROUNDS_MAX;
        let mut again = false;
        for run in homeless {
            if run.alternative.is_none() && !last {
                let probed = run.instructions.iter().filter(|displaced| !displaced.points.is_empty());
                let indices = probed.filter_map(|displaced| map.index_at(displaced.address));
                planner.barred.extend(indices);
                again = true;
                continue;
            }
            let fallback = run.fallback_under(options, Obstacle::Springboards);
            plan.runs.extend(fallback.runs);
            plan.refusals.extend(fallback.refusals);
        }
        if !again {
            planner.evict_neighbours(&sites, &mut plan);
            plan.runs.sort_by_key(|run| run.start);
            refusals.append(&mut plan.refusals);
            return FunctionPlan { refusals, ..plan };
        }
        round += 1;
    }
}

impl Planner<'_> {
    fn plan(&self, sites: Vec<Site>) -> FunctionPlan {
        let map = self.map;
        let mut plan = FunctionPlan::default();
        // The next site is the last of these.
        let mut rest = sites;
        rest.reverse();
        // Text below this offset is taken by the patches so far.
        let mut floor = 0;
        let mut previous: Option<Previous> = None;
        while let Some(site) = rest.pop() {
            let unforced = self.force != Some(Tactic::Trap);
            let own = if unforced {
                self.choose(&site, &rest, floor)
            } else {
                None
            };
            let extended = match (&own, &previous) {
                (Some(own), _) if own.quality < Quality::Extended => None,
                (_, Some(previous)) if unforced => self.extend(previous, &site, &rest),
                _ => None,
            };
            let is_extended = match (&own, &extended) {
                (Some(own), Some(extended)) => extended.quality < own.quality,
                (None, extended) => extended.is_some(),
                (_, None) => false,
            };
            let chosen = if is_extended { extended } else { own };
            let is_good = chosen
                .as_ref()
                .is_some_and(|choice| choice.quality < Quality::OnSuccessor);
            if !is_good && let Some(chain) = self.choose_with_successor(&site, &rest, floor) {
                for Member { choice, sites } in chain {
                    let taken = sites.iter().filter(|taken| taken.index > site.index).count();
                    rest.truncate(rest.len().saturating_sub(taken));
                    floor = self.end_of(&choice.run);
                    // In the next function, no site of this one lies behind it.
                    let is_own = self
                        .map
                        .offset(choice.run.start)
                        .is_some_and(|start| start < map.code_size());
                    let first = choice.first;
                    previous = is_own.then_some(Previous { first, sites });
                    plan.runs.push(choice.run);
                }
                continue;
            }
            let last_resort = || self.last_resort(&site, &rest);
            if let Some(choice) = chosen.or_else(last_resort) {
                let mut sites = Vec::new();
                if is_extended {
                    plan.runs.pop();
                    sites = previous.take().map_or(Vec::new(), |previous| previous.sites);
                }
                let following = rest.split_off(rest.len() - choice.covered);
                sites.push(site);
                sites.extend(following.into_iter().rev());
                floor = self.end_of(&choice.run);
                plan.runs.push(choice.run);
                let first = choice.first;
                previous = Some(Previous { first, sites });
                continue;
            }
            previous = None;
            if site.points.is_empty() {
                continue;
            }
            let address = map
                .code()
                .get(site.index)
                .map_or(map.start(), |instruction| map.address(instruction.offset));
            let trap = match self.force {
                None | Some(Tactic::Trap) => trap(map, &site),
                Some(tactic) => Err(Refusal::TacticUnavailable {
                    site: address,
                    tactic,
                    obstacle: None,
                }),
            };
            match trap {
                Ok(run) => {
                    floor = map
                        .code()
                        .get(site.index)
                        .map_or(floor, |instruction| instruction.end());
                    plan.runs.push(run);
                }
                Err(refusal) => plan.refusals.push((address, refusal)),
            }
        }
        plan
    }

    /// The offset behind what a run takes.
    fn end_of(&self, run: &RunPlan) -> u32 {
        let end = run.claimed_end().offset_from(self.map.start());
        end.and_then(|end| u32::try_from(end).ok()).unwrap_or(u32::MAX)
    }

    /// The best run over a site that starts at or behind `floor`. `rest`: the sites behind it, the next one last.
    pub(super) fn choose(&self, site: &Site, rest: &[Site], floor: u32) -> Option<Choice> {
        let map = self.map;
        let sites = std::slice::from_ref(site);
        let site_offset = map.code().get(site.index)?.offset;
        let mut best: Option<Choice> = None;
        for first in (0..=site.index).rev() {
            let start = map.code().get(first)?.offset;
            if start < floor {
                break;
            }
            for (quality, shape) in self.shapes(first, site.index) {
                if best.as_ref().is_some_and(|best| best.quality <= quality) {
                    continue;
                }
                if let Some((run, covered)) = self.cover(&shape, sites, rest) {
                    best = Some(Choice {
                        quality,
                        first,
                        run,
                        covered,
                    });
                }
            }
            let found = best.as_ref().is_some_and(|best| best.quality == Quality::Jump);
            // From five bytes in front of the site on, a longer run is no better than a shorter one.
            if found || start + JUMP <= site_offset {
                break;
            }
        }
        let mut best = best?;
        if best.quality != Quality::Jump && self.force.is_none() {
            best.run.alternative = self.alternative(&best, site, rest);
        }
        Some(best)
    }

    /// Every shape that starts with instruction `first` and contains instruction `site`, the best first.
    pub(super) fn shapes(&self, first: usize, site: usize) -> Vec<(Quality, Shape)> {
        let map = self.map;
        let with_call = |shape: &Shape, without, with| if shape.avoided { with } else { without };
        let run = shape_at(map, first, site, JUMP, BranchTargets::Refuse).map(|shape| match shape.keeps_unreached {
            true => (Quality::NarrowPun, shape),
            false => (with_call(&shape, Quality::Jump, Quality::JumpWithCall), shape),
        });
        let puns = [Followers::Copied, Followers::Executed].map(|followers| {
            let shape = pun_at(map, first, site, followers)?;
            let quality = if shape.punned > 2 {
                Quality::NarrowPun
            } else if shape.avoided {
                Quality::PunWithCall
            } else if shape.shared {
                Quality::SharedPun
            } else {
                Quality::Pun
            };
            Some((quality, shape))
        });
        let evict = shape_at(map, first, site, SHORT_JUMP, BranchTargets::Refuse)
            .map(|shape| (with_call(&shape, Quality::Evict, Quality::EvictWithCall), shape));
        let is_shared = first == 0 && map.is_successor();
        let evict = evict.filter(|_| !self.barred.contains(&site) && !is_shared);
        let partly =
            shape_at(map, first, site, JUMP, BranchTargets::BehindJump).map(|shape| (Quality::PartlyTrapping, shape));
        let [copied, executed] = puns;
        let mut shapes: Vec<(Quality, Shape)> = [copied, executed, run, evict, partly].into_iter().flatten().collect();
        shapes.retain(|(_, shape)| self.force.is_none_or(|tactic| tactic == shape.tactic()));
        shapes.sort_by_key(|(quality, _)| *quality);
        shapes
    }

    /// What comes next when a choice finds no place: the other shapes from the same start that cover the same sites, each
    /// the alternative of the one before.
    fn alternative(&self, best: &Choice, site: &Site, rest: &[Site]) -> Option<Box<RunPlan>> {
        let mut shapes = self.shapes(best.first, site.index);
        shapes.retain(|(quality, _)| *quality > best.quality);
        let mut chain: Option<Box<RunPlan>> = None;
        for (_, shape) in shapes.iter().rev().filter(|(_, shape)| shape.tactic() != Tactic::Evict) {
            let covered = self.cover(shape, std::slice::from_ref(site), rest);
            if let Some((mut run, _)) = covered.filter(|(_, covered)| *covered == best.covered) {
                run.alternative = chain.take();
                chain = Some(Box::new(run));
            }
        }
        chain
    }

    /// The previous run, made longer so that it covers this site, too.
    fn extend(&self, previous: &Previous, site: &Site, rest: &[Site]) -> Option<Choice> {
        let mut sites = previous.sites.clone();
        sites.push(site.clone());
        let attempts = [BranchTargets::Refuse, BranchTargets::BehindJump];
        attempts.into_iter().find_map(|targets| {
            let shape = shape_at(self.map, previous.first, site.index, JUMP, targets)?;
            if shape.keeps_unreached {
                return None;
            }
            let quality = match targets {
                BranchTargets::Refuse if shape.avoided => Quality::ExtendedWithCall,
                BranchTargets::Refuse => Quality::Extended,
                BranchTargets::BehindJump | BranchTargets::Trapping(_) => Quality::PartlyTrapping,
            };
            if self.force.is_some_and(|tactic| tactic != shape.tactic()) {
                return None;
            }
            let (run, covered) = self.cover(&shape, &sites, rest)?;
            Some(Choice {
                quality,
                first: previous.first,
                run,
                covered,
            })
        })
    }

    /// Whether there is near memory where a jump at the run's start must lead. Nearly always, unless it puns.
    pub(super) fn has_place(&self, run: &RunPlan, constraint: JumpConstraint) -> bool {
        if constraint.punned() == 0 {
            return true;
        }
        let window = constraint.window();
        let behind = run.start.0.saturating_add(u64::from(JUMP));
        let starts = run.detour_starts(run.detour_length);
        let low = behind.saturating_add_signed(window.start).max(starts.start.0);
        let high = behind.saturating_add_signed(window.end).min(starts.end.0);
        let first = self.near.partition_point(|hole| hole.end <= low);
        low < high && self.near.get(first).is_some_and(|hole| hole.start < high)
    }

    /// The run of a shape over `sites` and those of `rest` that it reaches, with their number. `None` when it cannot be
    /// moved, has no springboard, or claims text in which another site lies: a padding nop is not executed any more, a
    /// punned instruction must stay as it is, so neither can have handlers.
    pub(super) fn cover(&self, shape: &Shape, sites: &[Site], rest: &[Site]) -> Option<(RunPlan, usize)> {
        let map = self.map;
        let covered = rest.iter().rev().take_while(|other| other.index < shape.behind).count();
        let next_site = rest
            .iter()
            .rev()
            .nth(covered)
            .and_then(|other| map.code().get(other.index));
        if next_site.is_some_and(|next| next.offset < shape.claimed_end()) {
            return None;
        }
        let mut springboards = Vec::new();
        if shape.jump == SHORT_JUMP {
            let start = map.address(map.code().get(shape.first)?.offset);
            springboards = springboard::candidates(start, shape.constraint.has_boundary_at(1), self.padding);
            // A run that reaches into padding needs some for itself.
            let own = start..map.address(shape.claimed_end());
            springboards.retain(|springboard| {
                let range = springboard.range();
                (range.end <= own.start || own.end <= range.start) && !map.is_taken(&range)
            });
            if springboards.is_empty() {
                return None;
            }
        }
        let sites: Vec<&Site> = sites.iter().chain(rest.iter().rev().take(covered)).collect();
        let run = displace(map, shape, &sites, springboards).ok()?;
        let has_place = shape.jump == SHORT_JUMP || self.has_place(&run, run.constraint);
        has_place.then_some((run, covered))
    }
}
