//! From shapes to plans: the displaced instructions, and the needs of their detour.

use std::ops::Range;

use super::run::{Displaced, FunctionPlan, RunPlan};
use super::shape::Shape;
use super::sites::Site;
use super::springboard::Springboard;
use crate::detour::{Content, Runtime, compose, trap_form};
use crate::function::FunctionMap;
use crate::{JumpConstraint, Refusal, Tactic, TargetAddress};

pub(super) fn trap(map: &FunctionMap, site: &Site) -> Result<RunPlan, Refusal> {
    let Some(instruction) = map.code().get(site.index) else {
        return Err(Refusal::OutsideFunction { site: map.start() });
    };
    let displaced = Displaced {
        address: map.address(instruction.offset),
        bytes: map.bytes_of(*instruction).to_vec(),
        points: site.points.clone(),
    };
    // All bytes of a trap's instruction trap. But if a branch leads into its middle (around a lock prefix), another
    // instruction begins there.
    let middle = instruction.offset + 1..instruction.end();
    let filled = 1 + middle.take_while(|offset| !map.is_target_at(*offset)).count();
    trap_at(displaced, filled, map.ranges().collect())
}

/// `filled`: the number of the instruction's bytes that become traps.
fn trap_at(displaced: Displaced, filled: usize, inside: Vec<Range<TargetAddress>>) -> Result<RunPlan, Refusal> {
    measure(RunPlan {
        start: displaced.address,
        tactic: Tactic::Trap,
        length: displaced.bytes.len(),
        original: displaced.bytes.iter().take(filled).copied().collect(),
        instructions: vec![displaced],
        kept: 0,
        springboards: Vec::new(),
        successor: None,
        guest: None,
        constraint: JumpConstraint::FREE,
        padding_boundaries: Vec::new(),
        detour_length: 0,
        reach: TargetAddress(0)..TargetAddress(0),
        inside,
        alternative: None,
        entered: Vec::new(),
        obstacle: None,
    })
}

impl RunPlan {
    /// A plan with the same points by `trap`, one for each instruction. The refusals are for instructions that cannot
    /// be moved alone.
    pub fn as_traps(&self) -> FunctionPlan {
        as_traps(self)
    }
}

fn as_traps(run: &RunPlan) -> FunctionPlan {
    let mut plan = FunctionPlan::default();
    for displaced in run.instructions.iter().filter(|displaced| !displaced.points.is_empty()) {
        match trap_at(displaced.clone(), 1, run.inside.clone()) {
            Ok(trap) => plan.runs.push(trap),
            Err(refusal) => plan.refusals.push((displaced.address, refusal)),
        }
    }
    plan
}

/// The plan of a shape, with the points of the `sites` in it.
pub(super) fn displace(
    map: &FunctionMap,
    shape: &Shape,
    sites: &[&Site],
    springboards: Vec<Springboard>,
) -> Result<RunPlan, Refusal> {
    let indices = shape.first..shape.back;
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
    let probed = instructions
        .iter()
        .skip(1)
        .filter(|displaced| !displaced.points.is_empty());
    let is_entered = |address: &TargetAddress| {
        let inside = map.offset(*address);
        inside.is_some_and(|inside| map.is_target_from_outside(inside, offset))
    };
    let entered = probed.map(|displaced| displaced.address).filter(is_entered).collect();
    measure(RunPlan {
        start: map.address(offset),
        tactic: shape.tactic(),
        instructions,
        kept: shape.back - shape.behind,
        springboards,
        successor: shape.on_successor.then(|| map.address(shape.end)),
        guest: None,
        length: (shape.back_end - offset) as usize,
        original: map
            .bytes_at(offset..patch_end.max(offset + shape.jump).min(shape.claimed_end()))
            .to_vec(),
        constraint: shape.constraint,
        padding_boundaries: shape.padding.iter().map(|offset| map.address(*offset)).collect(),
        detour_length: 0,
        reach: TargetAddress(0)..TargetAddress(0),
        inside: map.ranges().collect(),
        alternative: None,
        entered,
        obstacle: None,
    })
}

/// Composes the run once, to find out whether all of it can be moved, the detour's length, and the addresses from which
/// it reaches its targets.
pub(super) fn measure(run: RunPlan) -> Result<RunPlan, Refusal> {
    let content = Content {
        trap: trap_form(&run, &Runtime::LONGEST),
        ..run.content()
    };
    let composed = compose(content, &Runtime::LONGEST)?;
    let detour_length = composed.code.len();
    let reach = reach(
        std::iter::once(run.jump()).chain(composed.code.targets()),
        detour_length,
    );
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

/// Room for the length of the instruction that refers to a target, and for the distance of a springboard from its site.
const MARGIN: u64 = 512;

/// The addresses from which all targets are within 2 GiB, including the length of the instruction that refers to them.
fn reach(targets: impl Iterator<Item = TargetAddress>, detour_length: usize) -> Range<TargetAddress> {
    let distance = (1_u64 << 31) - MARGIN - (detour_length as u64).min(1 << 30);
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
