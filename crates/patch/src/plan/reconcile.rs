//! Runs of functions that overlap.
//!
//! Functions share text: an entry in the middle of another function (hand-written assembly, `_chk` variants), aliases
//! with different sizes, a symbol that is too long. Planned one by one they may displace the same bytes:
//!
//! ```text
//!   run of f    [------------)
//!   run of g            [---------)          a jump into the middle of a jump
//! ```
//!
//! Two runs of the same shape become one with the points of both. Other runs that overlap all become traps. A trap
//! displaces one instruction, which is copied from the original text, and changes no byte at which another instruction
//! starts. So traps never conflict.

use std::ops::Range;

use super::assign::assign;
use super::displace::measure;
use super::obstacle::Obstacle;
use super::run::{FunctionPlan, PlanOptions, RunPlan};
use crate::order::{sort_by_number, sort_by_numbers};
use crate::{Refusal, Tactic, TargetAddress};

/// Makes runs from any number of plans disjoint and ascending (traps on overlapping instructions may overlap), and
/// gives each `evict` a springboard of its own. Every point is in exactly one run afterwards, or refused. `taken`:
/// text of patches of earlier plans, which stay.
pub fn reconcile(runs: Vec<RunPlan>, taken: &[Range<TargetAddress>], options: &PlanOptions) -> FunctionPlan {
    let mut plan = disjoint(without_taken(runs, taken));
    if options.cancelled() {
        return plan;
    }
    let (runs, homeless) = assign(std::mem::take(&mut plan.runs), taken);
    plan.runs = runs;
    for run in homeless {
        let fallback = run.fallback_under(options, Obstacle::Springboards);
        plan.runs.extend(fallback.runs);
        plan.refusals.extend(fallback.refusals);
    }
    sort_by_number(&mut plan.runs, |run| run.start.0);
    plan
}

/// Leaves out silent runs whose text already belongs to another patch. A run that needs such a silent run is refused
/// when it is placed.
fn without_taken(mut runs: Vec<RunPlan>, taken: &[Range<TargetAddress>]) -> Vec<RunPlan> {
    if runs.iter().any(RunPlan::is_silent) {
        let overlaps =
            |run: &RunPlan, range: &Range<TargetAddress>| run.start < range.end && range.start < run.claimed_end();
        runs.retain(|run| !run.is_silent() || !taken.iter().any(|range| overlaps(run, range)));
    }
    runs
}

/// Runs that overlap with no other are not moved in memory, because they may be those of all functions of a program.
fn disjoint(mut runs: Vec<RunPlan>) -> FunctionPlan {
    sort_by_numbers(&mut runs, |run| (run.start.0, run.end().0));
    let mut crossing = crossing(&runs).into_iter();
    let crossed = runs.extract_if(.., |_| crossing.next().unwrap_or(false));
    let crossed: Vec<RunPlan> = crossed.collect();
    let mut plan = FunctionPlan {
        runs,
        ..FunctionPlan::default()
    };
    if crossed.is_empty() {
        return plan;
    }
    let mut cluster: Vec<RunPlan> = Vec::new();
    let mut cluster_end = TargetAddress(0);
    for run in crossed {
        if run.start >= cluster_end {
            resolve(std::mem::take(&mut cluster), &mut plan);
        }
        cluster_end = cluster_end.max(run.claimed_end());
        cluster.push(run);
    }
    resolve(cluster, &mut plan);
    sort_by_number(&mut plan.runs, |run| run.start.0);
    plan
}

/// For each run, whether it overlaps with another run. The runs are sorted by their starts.
fn crossing(runs: &[RunPlan]) -> Vec<bool> {
    let mut crossing = vec![false; runs.len()];
    let mut cluster_end = TargetAddress(0);
    for (index, run) in runs.iter().enumerate() {
        if run.start < cluster_end {
            // The run before this run belongs to the same cluster.
            crossing
                .iter_mut()
                .take(index + 1)
                .skip(index.saturating_sub(1))
                .for_each(|one| *one = true);
        }
        cluster_end = cluster_end.max(run.claimed_end());
    }
    crossing
}

/// Resolves a chain of runs, each of which overlaps the next.
fn resolve(cluster: Vec<RunPlan>, plan: &mut FunctionPlan) {
    let mut merged = merge(cluster, &mut plan.refusals);
    if merged.len() > 1 && merged.iter().any(RunPlan::is_silent) {
        let others = disjoint(without_overlapping_silent(merged));
        plan.runs.extend(others.runs);
        plan.refusals.extend(others.refusals);
        return;
    }
    if merged.len() > 1 {
        let mut traps = Vec::new();
        for run in merged {
            if run.tactic == Tactic::Trap {
                traps.push(run);
                continue;
            }
            let mut split = run.as_traps();
            split
                .runs
                .iter_mut()
                .for_each(|trap| trap.obstacle = Some(Obstacle::Crossing));
            traps.extend(split.runs);
            plan.refusals.extend(split.refusals);
        }
        sort_by_number(&mut traps, |trap| trap.start.0);
        merged = merge(traps, &mut plan.refusals);
        let starts: Vec<TargetAddress> = merged.iter().map(|trap| trap.start).collect();
        for (trap, next) in merged.iter_mut().zip(starts.iter().skip(1)) {
            // The bytes of an instruction that starts within another one stay unchanged.
            let room = next.offset_from(trap.start).unwrap_or(0).max(1);
            trap.original.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        }
    }
    plan.runs.extend(merged);
}

/// Leaves out silent runs that overlap a run with points, or a shorter silent run. The run that needs such a silent run
/// finds another jump at the same place, or is refused when it is placed.
fn without_overlapping_silent(runs: Vec<RunPlan>) -> Vec<RunPlan> {
    let (mut silent, mut kept): (Vec<RunPlan>, Vec<RunPlan>) = runs.into_iter().partition(RunPlan::is_silent);
    sort_by_numbers(&mut silent, |run| (run.claimed_end().0, run.start.0));
    for run in silent {
        let overlaps = |other: &RunPlan| run.start < other.claimed_end() && other.start < run.claimed_end();
        if !kept.iter().any(overlaps) {
            kept.push(run);
        }
    }
    kept
}

/// Merges neighbours of the same shape.
fn merge(runs: Vec<RunPlan>, refusals: &mut Vec<(TargetAddress, Refusal)>) -> Vec<RunPlan> {
    let mut merged: Vec<RunPlan> = Vec::with_capacity(runs.len());
    let mut changed = Vec::with_capacity(runs.len());
    for run in runs {
        match merged.last_mut() {
            Some(last) if same_shape(last, &run) => {
                merge_into(last, run);
                if let Some(changed) = changed.last_mut() {
                    *changed = true;
                }
            }
            _ => {
                merged.push(run);
                changed.push(false);
            }
        }
    }
    let mut measured = Vec::with_capacity(merged.len());
    for (run, changed) in merged.into_iter().zip(changed) {
        let start = run.start;
        match if changed { measure_again(run) } else { Ok(run) } {
            Ok(run) => measured.push(run),
            Err(refusal) => refusals.push((start, refusal)),
        }
    }
    measured
}

/// Adds the points of a run of the same shape.
fn merge_into(into: &mut RunPlan, from: RunPlan) {
    // The patch of a jump reaches up to the last site. The patch of a trap ends before the targets of either function's
    // branches.
    let wider = from.original.len() > into.original.len();
    if wider == (into.tactic != Tactic::Trap) {
        into.original = from.original;
    }
    for (into, from) in into.instructions.iter_mut().zip(from.instructions) {
        into.points.extend(from.points);
    }
    for address in from.entered {
        if !into.entered.contains(&address) {
            into.entered.push(address);
        }
    }
    for range in from.inside {
        if !into.inside.contains(&range) {
            into.inside.push(range);
        }
    }
    // If both runs have guests, the second guest finds no room.
    into.guest = into.guest.or(from.guest);
    // If the merged run loses its alternative, it falls back to traps, which have the points of both runs.
    into.alternative = match (into.alternative.take(), from.alternative) {
        (Some(mut left), Some(right)) if same_shape(&left, &right) => {
            merge_into(&mut left, *right);
            Some(left)
        }
        _ => None,
    };
}

fn measure_again(mut run: RunPlan) -> Result<RunPlan, Refusal> {
    run.alternative = run
        .alternative
        .take()
        .and_then(|alternative| measure(*alternative).ok())
        .map(Box::new);
    measure(run)
}

fn same_shape(left: &RunPlan, right: &RunPlan) -> bool {
    let instructions = || left.instructions.iter().zip(&right.instructions);
    left.start == right.start
        && left.length == right.length
        && left.kept == right.kept
        && left.successor == right.successor
        && left.tactic == right.tactic
        && left.constraint == right.constraint
        && left.padding_boundaries == right.padding_boundaries
        && left.instructions.len() == right.instructions.len()
        && instructions().all(|(left, right)| left.address == right.address && left.bytes == right.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodeView, Fire, FireCondition, FunctionExtent, Point, Position, analyze, plan};

    /// push rbp; mov rbp, rsp; push r12; push rbx; mov eax, 1; pop rbx; pop r12; pop rbp; ret; int3 ...
    const CODE: [u8; 24] = [
        0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x53, 0xb8, 1, 0, 0, 0, 0x5b, 0x41, 0x5c, 0x5d, 0xc3, 0xcc, 0xcc, 0xcc,
        0xcc, 0xcc, 0xcc, 0xcc,
    ];
    const START: u64 = 0x40_1000;

    fn points_at(offsets: &[u64], counter: u32) -> Vec<Point> {
        let point = |offset: &u64| Point {
            site: TargetAddress(START + offset),
            condition: FireCondition::Always,
            position: Position::Inside,
            full_frame: false,
            fires: vec![Fire::Count {
                context_offset: counter,
            }],
        };
        offsets.iter().map(point).collect()
    }

    /// The runs of the function that starts at `offset`.
    fn runs(offset: u64, points: &[Point]) -> Vec<RunPlan> {
        let start = TargetAddress(START + offset);
        let bytes = &CODE[offset as usize..];
        let extent = FunctionExtent {
            start,
            size: 17 - offset,
            fragments: Vec::new(),
        };
        plan(
            &analyze(&CodeView { start, bytes }, &extent),
            points,
            &PlanOptions::default(),
        )
        .runs
    }

    fn reconciled(runs: Vec<RunPlan>) -> FunctionPlan {
        reconcile(runs, &[], &PlanOptions::default())
    }

    fn summary(runs: &[RunPlan]) -> Vec<(u64, Tactic, usize)> {
        let points = |run: &RunPlan| run.instructions.iter().map(|displaced| displaced.points.len()).sum();
        runs.iter()
            .map(|run| (run.start.0 - START, run.tactic, points(run)))
            .collect()
    }

    #[test]
    fn disjoint_runs_stay_as_they_are() {
        let all = runs(0, &points_at(&[0, 7, 16], 8));
        assert_eq!(reconciled(all.iter().rev().cloned().collect()).runs, all);
    }

    #[test]
    fn the_same_run_twice_becomes_one_with_the_points_of_both() {
        let mut all = runs(0, &points_at(&[16], 8));
        let alone = all[0].detour_length;
        all.extend(runs(4, &points_at(&[16], 16)));
        let plan = reconciled(all);
        assert_eq!(summary(&plan.runs), [(16, Tactic::Run, 2)]);
        assert_eq!(plan.runs[0].detour_length, alone + 7, "one more inc");
        assert_eq!(plan.runs[0].inside.len(), 2);
    }

    #[test]
    fn runs_without_points_give_way() {
        let mut silent = runs(4, &points_at(&[4], 8));
        silent.extend(runs(0, &points_at(&[7], 8)));
        for run in &mut silent {
            run.instructions
                .iter_mut()
                .for_each(|displaced| displaced.points.clear());
        }
        assert_eq!(summary(&silent), [(4, Tactic::Run, 0), (7, Tactic::Jump, 0)]);
        // Runs with fires stay. Of two silent runs that overlap, the shorter one stays.
        let all = silent.into_iter().chain(runs(0, &points_at(&[0], 8)));
        let plan = reconciled(all.collect());
        assert_eq!(summary(&plan.runs), [(0, Tactic::Run, 1), (7, Tactic::Jump, 0)]);
    }

    #[test]
    fn runs_that_cross_become_traps() {
        let mut all = runs(0, &points_at(&[0], 8));
        all.extend(runs(4, &points_at(&[4], 16)));
        assert_eq!(summary(&all), [(0, Tactic::Run, 1), (4, Tactic::Run, 1)]);
        let plan = reconciled(all);
        assert_eq!(summary(&plan.runs), [(0, Tactic::Trap, 1), (4, Tactic::Trap, 1)]);
        assert!(plan.refusals.is_empty());
    }

    #[test]
    fn a_trap_inside_of_a_run_is_not_overtaken() {
        let mut all = runs(0, &points_at(&[0, 4], 8));
        all.extend(plan_traps(&points_at(&[4], 16)));
        assert_eq!(
            summary(&reconciled(all).runs),
            [(0, Tactic::Trap, 1), (4, Tactic::Trap, 2)]
        );
    }

    fn plan_traps(points: &[Point]) -> Vec<RunPlan> {
        let start = TargetAddress(START);
        let extent = FunctionExtent {
            start,
            size: 17,
            fragments: Vec::new(),
        };
        let map = analyze(&CodeView { start, bytes: &CODE }, &extent);
        plan(
            &map,
            points,
            &PlanOptions {
                force: Some(Tactic::Trap),
                ..PlanOptions::default()
            },
        )
        .runs
    }
}
