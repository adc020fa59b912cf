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
//! The best [`Quality`] wins. A site that would get a trap is given to the run in front of it, if that can be extended up
//! to it. Runs do not overlap, so whoever flows into a later site comes through that site's own patch.

use std::ops::Range;

use super::shape::{BranchTargets, JUMP, Shape, pun_at, shape_at};
use super::{Displaced, FunctionPlan, PlanOptions, RunPlan};
use crate::detour::{Runtime, compose};
use crate::function::{FunctionMap, Kind};
use crate::{JumpConstraint, Point, Refusal, Tactic, TargetAddress};

/// The points at one instruction.
#[derive(Clone)]
struct Site {
    /// Index of the instruction.
    index: usize,
    points: Vec<Point>,
}

/// How good a shape is: what a hit costs, and then how likely it finds a place. Best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Quality {
    /// A jump, no call in it.
    Jump,
    /// A pun with windows of 64 KiB or more.
    Pun,
    /// A call or system call is executed out of line: its return is mispredicted.
    JumpWithCall,
    PunWithCall,
    /// The run in front, extended.
    Extended,
    /// Three bytes are punned: a window of 256 bytes, that is a page of its own.
    NarrowPun,
    /// Whoever comes by a known branch traps, others do not.
    PartlyTrapping,
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

pub(super) fn plan(map: &FunctionMap, points: &[Point], options: &PlanOptions) -> FunctionPlan {
    let mut plan = FunctionPlan::default();
    // The next site is the last of these.
    let mut rest = sites(map, points, &mut plan.refusals);
    rest.reverse();
    // Text below this offset is taken by the patches so far.
    let mut floor = 0;
    let mut previous: Option<Previous> = None;
    while let Some(site) = rest.pop() {
        let mut before = Vec::new();
        let chosen = match options.force {
            Some(Tactic::Trap) => None,
            force => {
                let own = choose(map, &site, &rest, floor, force);
                let extended = match (&own, &previous) {
                    (Some(own), _) if own.quality < Quality::Extended => None,
                    (_, Some(previous)) => extend(map, previous, &site, &rest, force),
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
        let trap = match options.force {
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

/// Groups the points by instruction, ascending; refuses those that name none.
fn sites(map: &FunctionMap, points: &[Point], refusals: &mut Vec<(TargetAddress, Refusal)>) -> Vec<Site> {
    let mut sorted: Vec<&Point> = points.iter().collect();
    sorted.sort_by_key(|point| point.site);
    let mut sites: Vec<Site> = Vec::new();
    for point in sorted {
        match instruction_at(map, point.site) {
            Ok(index) => match sites.last_mut() {
                Some(site) if site.index == index => site.points.push(point.clone()),
                _ => sites.push(Site {
                    index,
                    points: vec![point.clone()],
                }),
            },
            Err(refusal) => refusals.push((point.site, refusal)),
        }
    }
    sites
}

fn instruction_at(map: &FunctionMap, site: TargetAddress) -> Result<usize, Refusal> {
    if map
        .undecodable()
        .is_some_and(|at| site >= at && site < map.address(map.code_size()))
    {
        return Err(Refusal::Undecodable {
            site,
            at: map.undecodable().unwrap_or(site),
        });
    }
    let offset = map.offset(site).filter(|offset| *offset < map.code_size());
    let offset = offset.ok_or(Refusal::OutsideFunction { site })?;
    let code = map.code();
    match code.binary_search_by_key(&offset, |instruction| instruction.offset) {
        Ok(index)
            if code
                .get(index)
                .is_some_and(|instruction| instruction.kind == Kind::Breakpoint) =>
        {
            Err(Refusal::Breakpoint { site })
        }
        Ok(index) if code.get(index).is_some_and(|instruction| instruction.padding) => Err(Refusal::Padding { site }),
        Ok(index) => Ok(index),
        Err(behind) => {
            let around = behind.checked_sub(1).and_then(|index| code.get(index));
            if map.is_followed() && around.is_none_or(|around| around.end() <= offset) {
                return Err(Refusal::Unreached { site });
            }
            let start = around.map_or(map.start(), |instruction| map.address(instruction.offset));
            Err(Refusal::NotAnInstruction { site, start })
        }
    }
}

/// The best run over a site that starts at or behind `floor`. `rest`: the sites behind it, the next one last.
fn choose(map: &FunctionMap, site: &Site, rest: &[Site], floor: u32, force: Option<Tactic>) -> Option<Choice> {
    let site_offset = map.code().get(site.index)?.offset;
    let mut best: Option<Choice> = None;
    for first in (0..=site.index).rev() {
        let start = map.code().get(first)?.offset;
        if start < floor {
            break;
        }
        let shapes = [
            shape_at(map, first, site.index, BranchTargets::Refuse).map(|shape| {
                let quality = if shape.avoided {
                    Quality::JumpWithCall
                } else {
                    Quality::Jump
                };
                (quality, shape)
            }),
            pun_at(map, first, site.index).and_then(|shape| {
                let quality = match (shape.punned, shape.avoided) {
                    (1 | 2, false) => Quality::Pun,
                    (1 | 2, true) => Quality::PunWithCall,
                    (3, false) => Quality::NarrowPun,
                    _ => return None,
                };
                Some((quality, shape))
            }),
            shape_at(map, first, site.index, BranchTargets::BehindJump).map(|shape| (Quality::PartlyTrapping, shape)),
        ];
        for (quality, shape) in shapes.into_iter().flatten() {
            let forced_otherwise = force.is_some_and(|tactic| tactic != shape.tactic());
            if forced_otherwise || best.as_ref().is_some_and(|best| best.quality <= quality) {
                continue;
            }
            if let Some((run, covered)) = cover(map, &shape, std::slice::from_ref(site), rest) {
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
    if matches!(best.quality, Quality::Pun | Quality::PunWithCall) && force.is_none() {
        best.run.alternative = shape_at(map, best.first, site.index, BranchTargets::Refuse)
            .and_then(|shape| cover(map, &shape, std::slice::from_ref(site), rest))
            .filter(|(_, covered)| *covered == best.covered)
            .map(|(run, _)| Box::new(run));
    }
    Some(best)
}

/// The previous run, made longer so that it covers this site, too.
fn extend(map: &FunctionMap, previous: &Previous, site: &Site, rest: &[Site], force: Option<Tactic>) -> Option<Choice> {
    let mut sites = previous.sites.clone();
    sites.push(site.clone());
    let attempts = [
        (Quality::Extended, BranchTargets::Refuse),
        (Quality::PartlyTrapping, BranchTargets::BehindJump),
    ];
    attempts.into_iter().find_map(|(quality, targets)| {
        let shape = shape_at(map, previous.first, site.index, targets)?;
        if force.is_some_and(|tactic| tactic != shape.tactic()) {
            return None;
        }
        let (run, covered) = cover(map, &shape, &sites, rest)?;
        Some(Choice {
            quality,
            first: previous.first,
            run,
            covered,
        })
    })
}

/// The run of a shape over `sites` and those of `rest` that it reaches, with their number. `None` when it cannot be
/// moved, or claims text in which another site lies: a padding nop is not executed any more, a punned instruction must
/// stay as it is, so neither can have handlers.
fn cover(map: &FunctionMap, shape: &Shape, sites: &[Site], rest: &[Site]) -> Option<(RunPlan, usize)> {
    let covered = rest.iter().rev().take_while(|other| other.index < shape.behind).count();
    let next_site = rest
        .iter()
        .rev()
        .nth(covered)
        .and_then(|other| map.code().get(other.index));
    if next_site.is_some_and(|next| next.offset < shape.claimed_end()) {
        return None;
    }
    let sites: Vec<&Site> = sites.iter().chain(rest.iter().rev().take(covered)).collect();
    displace(map, shape, &sites).ok().map(|run| (run, covered))
}

fn trap(map: &FunctionMap, site: &Site) -> Result<RunPlan, Refusal> {
    let Some(instruction) = map.code().get(site.index) else {
        return Err(Refusal::OutsideFunction { site: map.start() });
    };
    let displaced = Displaced {
        address: map.address(instruction.offset),
        bytes: map.bytes_of(*instruction).to_vec(),
        points: site.points.clone(),
    };
    trap_at(displaced, map.ranges().collect())
}

fn trap_at(displaced: Displaced, inside: Vec<Range<TargetAddress>>) -> Result<RunPlan, Refusal> {
    measure(RunPlan {
        start: displaced.address,
        tactic: Tactic::Trap,
        length: displaced.bytes.len(),
        original: displaced.bytes.iter().take(1).copied().collect(),
        instructions: vec![displaced],
        constraint: JumpConstraint::FREE,
        padding_boundaries: Vec::new(),
        detour_length: 0,
        reach: TargetAddress(0)..TargetAddress(0),
        inside,
        alternative: None,
    })
}

pub(super) fn as_traps(run: &RunPlan) -> FunctionPlan {
    let mut plan = FunctionPlan::default();
    for displaced in run.instructions.iter().filter(|displaced| !displaced.points.is_empty()) {
        match trap_at(displaced.clone(), run.inside.clone()) {
            Ok(trap) => plan.runs.push(trap),
            Err(refusal) => plan.refusals.push((displaced.address, refusal)),
        }
    }
    plan
}

fn displace(map: &FunctionMap, shape: &Shape, sites: &[&Site]) -> Result<RunPlan, Refusal> {
    let indices = shape.first..shape.behind;
    let instructions: Vec<Displaced> = map
        .code()
        .get(indices.clone())
        .unwrap_or_default()
        .iter()
        .zip(indices)
        .map(|(instruction, index)| Displaced {
            address: map.address(instruction.offset),
            bytes: map.bytes_of(*instruction).to_vec(),
            points: sites
                .iter()
                .find(|site| site.index == index)
                .map_or(Vec::new(), |site| site.points.clone()),
        })
        .collect();
    let offset = map.code().get(shape.first).map_or(0, |instruction| instruction.offset);
    let last_point = instructions
        .iter()
        .rev()
        .find(|instruction| !instruction.points.is_empty());
    let patch_end = last_point
        .and_then(|last| map.offset(last.address))
        .map_or(0, |offset| offset + 1);
    measure(RunPlan {
        start: map.address(offset),
        tactic: shape.tactic(),
        instructions,
        length: (shape.end - offset) as usize,
        original: map
            .bytes_at(offset..patch_end.max(offset + JUMP).min(shape.claimed_end()))
            .to_vec(),
        constraint: shape.constraint,
        padding_boundaries: shape.padding.iter().map(|offset| map.address(*offset)).collect(),
        detour_length: 0,
        reach: TargetAddress(0)..TargetAddress(0),
        inside: map.ranges().collect(),
        alternative: None,
    })
}

/// Composes the run once, to know that all of it can be moved, how long its detour is, and from where it reaches.
pub(super) fn measure(run: RunPlan) -> Result<RunPlan, Refusal> {
    let composed = compose(run.content(), &Runtime::LONGEST)?;
    let detour_length = composed.code.len();
    let reach = reach(std::iter::once(run.start).chain(composed.code.targets()), detour_length);
    if reach.is_empty() {
        let target = composed
            .code
            .targets()
            .find(|target| target.displacement_from(run.start).is_none());
        return Err(Refusal::OutOfReach {
            from: run.start,
            target: target.unwrap_or(run.end()),
        });
    }
    Ok(RunPlan {
        detour_length,
        reach,
        ..run
    })
}

/// The addresses from which all targets are within 2 GiB, with room for the instruction that refers to them.
fn reach(targets: impl Iterator<Item = TargetAddress>, detour_length: usize) -> Range<TargetAddress> {
    let distance = (1_u64 << 31) - 64 - (detour_length as u64).min(1 << 30);
    let mut reach = 0..u64::MAX;
    for target in targets {
        reach.start = reach.start.max(target.0.saturating_sub(distance));
        reach.end = reach.end.min(target.0.saturating_add(distance));
    }
    if reach.is_empty() {
        TargetAddress(0)..TargetAddress(0)
    } else {
        TargetAddress(reach.start)..TargetAddress(reach.end)
    }
}
