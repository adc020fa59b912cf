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
//! alternatives. A site that would get a trap is given to the run in front of it, if that can be extended up
//! to it. Runs do not overlap, so whoever flows into a later site comes through that site's own patch.

use std::collections::BTreeSet;

use super::displace::{displace, trap};
use super::shape::{BranchTargets, Followers, JUMP, SHORT_JUMP, Shape, pun_at, shape_at};
use super::sites::{Site, sites};
use super::{FunctionPlan, PlanOptions, RunPlan, springboard};
use crate::function::{FunctionMap, Padding};
use crate::{Point, Refusal, Tactic};

/// How good a shape is: what a hit costs, and then how likely it finds a place. Best first. The figures are what a hit
/// costs more than a jump, in nanoseconds, where they were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Quality {
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
    /// Three or four bytes are punned: a window of 256 bytes or one, that is a page of its own.
    NarrowPun,
    /// Whoever comes by a known branch traps, others do not.
    PartlyTrapping,
}

/// What planning reads.
struct Planner<'a> {
    map: &'a FunctionMap,
    force: Option<Tactic>,
    /// Where springboards may lie.
    padding: &'a [Padding],
    /// Sites (by instruction) for which there was no springboard.
    barred: BTreeSet<usize>,
}

/// A run for a site.
struct Choice {
    quality: Quality,
    /// Index of the run's first instruction.
    first: usize,
    run: RunPlan,
    /// How many of the following sites it covers.
    covered: usize,
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
            let fallback = run.fallback_under(options);
            plan.runs.extend(fallback.runs);
            plan.refusals.extend(fallback.refusals);
        }
        if !again {
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
            let mut before = Vec::new();
            let chosen = if self.force == Some(Tactic::Trap) {
                None
            } else {
                let own = self.choose(&site, &rest, floor);
                let extended = match (&own, &previous) {
                    (Some(own), _) if own.quality < Quality::Extended => None,
                    (_, Some(previous)) => self.extend(previous, &site, &rest),
                    _ => None,
                };
                match (own, extended) {
                    (Some(own), Some(extended)) if own.quality <= extended.quality => Some(own),
                    (_, Some(extended)) => {
                        plan.runs.pop();
                        before = previous.take().map_or(Vec::new(), |previous| previous.sites);
                        Some(extended)
                    }
                    (own, None) => own,
                }
            };
            if let Some(choice) = chosen {
                let following = rest.split_off(rest.len() - choice.covered);
                before.push(site);
                before.extend(following.into_iter().rev());
                previous = Some(Previous {
                    first: choice.first,
                    sites: before,
                });
                floor = choice
                    .run
                    .claimed_end()
                    .offset_from(map.start())
                    .and_then(|end| u32::try_from(end).ok())
                    .unwrap_or(u32::MAX);
                plan.runs.push(choice.run);
                continue;
            }
            previous = None;
            let address = map
                .code()
                .get(site.index)
                .map_or(map.start(), |instruction| map.address(instruction.offset));
            let trap = match self.force {
                None | Some(Tactic::Trap) => trap(map, &site),
                Some(tactic) => Err(Refusal::TacticUnavailable { site: address, tactic }),
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

    /// The best run over a site that starts at or behind `floor`. `rest`: the sites behind it, the next one last.
    fn choose(&self, site: &Site, rest: &[Site], floor: u32) -> Option<Choice> {
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
    fn shapes(&self, first: usize, site: usize) -> Vec<(Quality, Shape)> {
        let map = self.map;
        let with_call = |shape: &Shape, without, with| if shape.avoided { with } else { without };
        let run = shape_at(map, first, site, JUMP, BranchTargets::Refuse)
            .map(|shape| (with_call(&shape, Quality::Jump, Quality::JumpWithCall), shape));
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
        let evict = evict.filter(|_| !self.barred.contains(&site));
        let partly =
            shape_at(map, first, site, JUMP, BranchTargets::BehindJump).map(|shape| (Quality::PartlyTrapping, shape));
        let [copied, executed] = puns;
        let mut shapes: Vec<(Quality, Shape)> = [run, copied, executed, evict, partly].into_iter().flatten().collect();
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
            let quality = match targets {
                BranchTargets::Refuse if shape.avoided => Quality::ExtendedWithCall,
                BranchTargets::Refuse => Quality::Extended,
                BranchTargets::BehindJump => Quality::PartlyTrapping,
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

    /// The run of a shape over `sites` and those of `rest` that it reaches, with their number. `None` when it cannot be
    /// moved, has no springboard, or claims text in which another site lies: a padding nop is not executed any more, a
    /// punned instruction must stay as it is, so neither can have handlers.
    fn cover(&self, shape: &Shape, sites: &[Site], rest: &[Site]) -> Option<(RunPlan, usize)> {
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
        if shape.tactic() == Tactic::Evict {
            let start = map.address(map.code().get(shape.first)?.offset);
            springboards = springboard::candidates(start, shape.constraint.has_boundary_at(1), self.padding);
            // A run that reaches into padding needs some for itself.
            let own = start..map.address(shape.claimed_end());
            springboards.retain(|springboard| {
                let range = springboard.range();
                range.end <= own.start || own.end <= range.start
            });
            if springboards.is_empty() {
                return None;
            }
        }
        let sites: Vec<&Site> = sites.iter().chain(rest.iter().rev().take(covered)).collect();
        let run = displace(map, shape, &sites, springboards).ok()?;
        Some((run, covered))
    }
}
