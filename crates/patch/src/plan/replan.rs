//! Functions that lost a springboard, planned again.
//!
//! When a function is planned, only the functions before it have plans. A later function may need the same padding
//! for a run that reaches into it, and such a run has precedence:
//!
//! ```text
//!   f:  short jump --> [springboard]          planned first
//!   g:  ... ret        [run over the ret ]    planned after it: [`crate::reconcile`] takes the padding from f
//! ```
//!
//! Now that every run's place is known, f is planned once more, with the padding that is still free. It finds another
//! springboard, or a tactic that needs none. The new plan is used if it has fewer traps and touches no text of others.
//! It must keep its jump at the start if the function before it needs that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::assign::Claims;
use super::obstacle::Obstacle;
use super::pass::plan;
use super::run::{FunctionPlan, PlanOptions, RunPlan};
use crate::order::{gather, sort_by_numbers};
use crate::{FunctionMap, Point, Tactic, TargetAddress};

/// The distance within which taken text matters to a function: the reach of a short jump, and the longest run.
const REACH_BYTES: u64 = 256;

/// Plans those parts of functions again in which a site traps because another patch has its springboard. `plan` is the
/// result of [`crate::reconcile`], and `taken` its input. `parts` are the ranges of the functions' parts. `map_of`
/// yields the map of a part as it was when the part was first planned, but without padding that is taken now.
pub fn plan_again(
    plan: FunctionPlan,
    taken: &[Range<TargetAddress>],
    parts: &[Range<TargetAddress>],
    options: &PlanOptions,
    map_of: &mut dyn FnMut(&Range<TargetAddress>) -> Option<FunctionMap>,
) -> FunctionPlan {
    let is_lost = |run: &&RunPlan| run.tactic == Tactic::Trap && run.obstacle == Some(Obstacle::Springboards);
    let lost: BTreeSet<TargetAddress> = gather(plan.runs.iter().filter(is_lost).map(|run| run.start));
    if lost.is_empty() || options.force.is_some() {
        return plan;
    }
    let mut all = All::new(plan, taken);
    for part in alone(parts) {
        if options.cancelled() {
            break;
        }
        if lost.range(part.clone()).next().is_some() {
            all.plan_part(&part, options, map_of);
        }
    }
    FunctionPlan {
        runs: all.runs.into_values().collect(),
        refusals: all.refusals,
    }
}

/// Parts that share no text with another part, in ascending order.
fn alone(parts: &[Range<TargetAddress>]) -> Vec<Range<TargetAddress>> {
    let mut sorted = parts.to_vec();
    sort_by_numbers(&mut sorted, |part| (part.start.0, part.end.0));
    sorted.dedup();
    let mut end_before = TargetAddress(0);
    let mut found = Vec::new();
    for (index, part) in sorted.iter().enumerate() {
        let next = sorted.get(index + 1);
        if part.start >= end_before && next.is_none_or(|next| next.start >= part.end) {
            found.push(part.clone());
        }
        end_before = end_before.max(part.end);
    }
    found
}

/// The runs of all functions.
struct All {
    runs: BTreeMap<TargetAddress, RunPlan>,
    refusals: Vec<(TargetAddress, crate::Refusal)>,
    /// The text and the springboards of the runs, and the text that was taken before.
    claims: Claims,
    successors: BTreeSet<TargetAddress>,
}

impl All {
    fn new(plan: FunctionPlan, taken: &[Range<TargetAddress>]) -> All {
        let mut claims = Claims::default();
        taken.iter().cloned().for_each(|range| claims.add(range));
        for run in &plan.runs {
            claimed_by(run).for_each(|range| claims.add(range));
        }
        All {
            successors: gather(plan.runs.iter().filter_map(|run| run.successor)),
            runs: gather(plan.runs.into_iter().map(|run| (run.start, run))),
            refusals: plan.refusals,
            claims,
        }
    }

    fn plan_part(
        &mut self,
        part: &Range<TargetAddress>,
        options: &PlanOptions,
        map_of: &mut dyn FnMut(&Range<TargetAddress>) -> Option<FunctionMap>,
    ) {
        let Some(mut map) = map_of(part) else { return };
        let old: Vec<RunPlan> = self.runs.range(part.clone()).map(|(_, run)| run.clone()).collect();
        for range in old.iter().flat_map(claimed_by) {
            self.claims.remove(&range);
        }
        let low = TargetAddress(part.start.0.saturating_sub(REACH_BYTES));
        map.show_taken(
            self.claims
                .within(&(low..TargetAddress(part.end.0.saturating_add(REACH_BYTES)))),
        );
        let is_successor = self.successors.contains(&part.start);
        if is_successor {
            map.show_that_it_is_successor();
        }
        let points: Vec<Point> = points_of(&old).cloned().collect();
        let mut new = plan(&map, &points, options);
        // No silent run is needed if the next function has a jump at the same place for its own sites.
        new.runs
            .retain(|run| !(run.is_silent() && self.begins_with_jump(run.start, part)));
        let keeps_word = !is_successor || new.runs.iter().any(|run| run.start == part.start && is_long_jump(run));
        let is_free = new
            .runs
            .iter()
            .flat_map(claimed_by)
            .all(|range| self.claims.is_free(&range));
        let traps = |runs: &[RunPlan]| runs.iter().filter(|run| run.tactic == Tactic::Trap).count();
        let is_better = new.refusals.is_empty() && traps(&new.runs) < traps(&old);
        let chosen = if keeps_word && is_free && is_better {
            old.iter().for_each(|run| drop(self.runs.remove(&run.start)));
            new.runs
        } else {
            old
        };
        for run in chosen {
            claimed_by(&run).for_each(|range| self.claims.add(range));
            self.successors.extend(run.successor);
            self.runs.insert(run.start, run);
        }
    }

    /// Whether another function's run, outside of `part`, starts at this address with a jump of five bytes.
    fn begins_with_jump(&self, start: TargetAddress, part: &Range<TargetAddress>) -> bool {
        !part.contains(&start) && self.runs.get(&start).is_some_and(is_long_jump)
    }
}

fn is_long_jump(run: &RunPlan) -> bool {
    match run.tactic {
        Tactic::Jump | Tactic::Run | Tactic::Pun => true,
        Tactic::Evict => run.successor.is_some(),
        Tactic::Trap => false,
    }
}

fn points_of(runs: &[RunPlan]) -> impl Iterator<Item = &Point> {
    let displaced = runs.iter().flat_map(|run| &run.instructions);
    displaced.flat_map(|displaced| &displaced.points)
}

fn claimed_by(run: &RunPlan) -> impl Iterator<Item = Range<TargetAddress>> + use<> {
    let springboard = run.springboard().map(super::Springboard::range);
    std::iter::once(run.start..run.claimed_end()).chain(springboard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodeView, Fire, FireCondition, FunctionExtent, Position, analyze, reconcile};

    const F: u64 = 0x5540_1000;
    const G: u64 = 0x5540_1010;

    /// `f` begins with a short instruction and a call, and has no padding; `g` ends in a `ret` to which a branch leads,
    /// with six bytes of `int3` after it: enough for its run, or for one springboard.
    const CODE: [u8; 32] = [
        0x48, 0x83, 0xec, 0x08, // f: sub rsp, 8
        0xe8, 0xf7, 0x0f, 0x00, 0x00, // call
        0x48, 0x83, 0xc4, 0x08, // add rsp, 8
        0x31, 0xc0, 0xc3, // xor eax, eax; ret
        0x85, 0xff, // g: test edi, edi
        0x74, 0x05, // je the ret
        0xb8, 1, 0, 0, 0,    // mov eax, 1
        0xc3, // ret
        0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
    ];

    fn map_of(part: &Range<TargetAddress>) -> FunctionMap {
        let map = |start: u64, end: usize| {
            let bytes = &CODE[(start - F) as usize..end];
            let size = if start == F { 16 } else { 10 };
            let start = TargetAddress(start);
            let extent = FunctionExtent {
                start,
                size,
                fragments: Vec::new(),
            };
            analyze(&CodeView { start, bytes }, &extent)
        };
        let mut wanted = map(part.start.0, if part.start.0 == F { 16 } else { 32 });
        wanted.show_padding(map(G, 32).padding());
        // No memory is free where the call's bytes would lead.
        let near = std::iter::once(F - 0x100_0000..F - 0x10_0000);
        wanted.show_near_memory(near.collect());
        wanted
    }

    fn parts() -> [Range<TargetAddress>; 2] {
        [(F, F + 16), (G, G + 10)].map(|(start, end)| TargetAddress(start)..TargetAddress(end))
    }

    fn point(site: u64) -> Point {
        Point {
            site: TargetAddress(site),
            condition: FireCondition::Always,
            position: Position::Inside,
            full_frame: false,
            fires: vec![Fire::Count { context_offset: 8 }],
        }
    }

    fn tactics(plan: &FunctionPlan) -> Vec<(u64, Tactic)> {
        plan.runs.iter().map(|run| (run.start.0, run.tactic)).collect()
    }

    #[test]
    fn a_function_that_lost_a_springboard_is_planned_again() {
        let options = PlanOptions::default();
        let [f, g] = parts().map(|part| map_of(&part));
        // Both f's entry and its call are probed, so only a short jump fits the entry.
        let mut runs = plan(&f, &[point(F), point(F + 4)], &options).runs;
        assert_eq!(runs[0].tactic, Tactic::Evict, "{runs:?}");
        runs.extend(plan(&g, &[point(G + 9)], &options).runs);
        let reconciled = reconcile(runs, &[], &options);
        assert_eq!(
            tactics(&reconciled),
            [(F, Tactic::Trap), (F + 4, Tactic::Jump), (G + 9, Tactic::Run)]
        );
        assert_eq!(reconciled.runs[0].obstacle, Some(Obstacle::Springboards));
        let settled = plan_again(reconciled.clone(), &[], &parts(), &options, &mut |part| {
            Some(map_of(part))
        });
        // The call is displaced together with the instruction before it.
        assert_eq!(tactics(&settled), [(F, Tactic::Run), (G + 9, Tactic::Run)]);
        let points: usize = points_of(&settled.runs).count();
        assert_eq!(points, 3, "each point once");
        // If the map of `f` is not known, the plan stays unchanged.
        let unknown = plan_again(reconciled.clone(), &[], &parts(), &options, &mut |_| None);
        assert_eq!(unknown, reconciled);
        // A function that shares its text with another is not planned again.
        let [f, g] = parts();
        let shared = [f.clone(), f.start..TargetAddress(F + 20), g];
        let same = plan_again(reconciled.clone(), &[], &shared, &options, &mut |part| {
            Some(map_of(part))
        });
        assert_eq!(same, reconciled);
    }
}
