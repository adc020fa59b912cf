//! The runs for the active sites of some functions. They are planned together, as the tracer plans them
//! ([`nanoprobe_text::planning`]). The same active sites yield the same runs as before.
//!
//! Detours stay mapped, and springboards stay in padding for good. So a function is first planned as if all padding
//! were unused: then the same sites find their old springboards and detours. Where other springboards are in the
//! way, it is planned with the rest of the padding, and a site that needs the springboards' bytes traps.
//!
//! Only when a site would trap, a function gets the padding of its neighbours, and may displace an instruction to
//! make room for the one before it. Looking at the neighbours takes time, and hardly any function needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use nanoprobe_patch::order::gather;
use nanoprobe_patch::{FunctionMap, PlanOptions, Point, RunPlan, Tactic, TargetAddress};
use nanoprobe_text::code::Neighbours;
use nanoprobe_text::planning::Planning;

use super::Engine;
use super::function::Function;
use super::springboards::Springboards;
use crate::error::Error;

/// How far from a function padding is useful: the reach of a short jump plus the padding's own length.
const NEIGHBOURHOOD_BYTES: u64 = 192;

/// Runs, by the start of their function.
type Runs = BTreeMap<u64, Vec<RunPlan>>;

impl Engine {
    /// The runs for the sites of some functions that are active now.
    ///
    /// # Errors
    /// The planner's first refusal.
    pub(super) fn runs(&mut self, functions: &[u64]) -> Result<Runs, Error> {
        let planned = self.runs_that_see_enough(functions)?;
        let (mut good, crowded): (Runs, Runs) = planned.into_iter().partition(|(start, runs)| {
            let known = self.functions.get(start).map(|function| &function.known);
            runs.iter().all(|run| self.springboards.leave_room_for(run, known))
        });
        let mut taken = self.text_of_others(functions);
        taken.extend(good.values().flatten().flat_map(claims));
        for start in crowded.keys() {
            let runs = self.runs_of_crowded(*start, &taken)?;
            taken.extend(runs.iter().flat_map(claims));
            good.insert(*start, runs);
        }
        Ok(good)
    }

    /// Plans as if all padding were unused. A function with a site that would trap gets the padding of its
    /// neighbours.
    fn runs_that_see_enough(&mut self, functions: &[u64]) -> Result<Runs, Error> {
        let others = self.text_of_others(functions);
        let planned = self.plan_together(functions, &others, &Springboards::default(), &BTreeSet::new())?;
        let mut are_shown = false;
        for (start, runs) in &planned {
            let Some(function) = self
                .functions
                .get_mut(start)
                .filter(|function| !function.sees_neighbours)
            else {
                continue;
            };
            let Some(module) = self.own.modules().list().get(function.module) else {
                continue;
            };
            if runs.iter().any(|run| function.could_jump(run)) {
                let mut neighbours = Neighbours::default();
                let parts = function.parts.iter_mut();
                parts.for_each(|part| neighbours.show_all_but_hosts(module, part));
                function.sees_neighbours = true;
                are_shown = true;
            }
        }
        match are_shown {
            true => self.plan_together(functions, &others, &Springboards::default(), &BTreeSet::new()),
            false => Ok(planned),
        }
    }

    /// The runs of a function whose padding holds springboards of other functions.
    fn runs_of_crowded(&self, start: u64, others: &[Range<TargetAddress>]) -> Result<Vec<RunPlan>, Error> {
        let mut traps = BTreeSet::new();
        loop {
            let mut runs = self.plan_together(&[start], others, &self.springboards, &traps)?;
            let runs = runs.remove(&start).unwrap_or_default();
            let before = traps.len();
            let is_free = |range: Range<TargetAddress>| {
                !others
                    .iter()
                    .any(|other| other.start < range.end && range.start < other.end)
            };
            let fits = |run: &RunPlan| self.springboards.leave_room_for(run, None) && claims(run).all(is_free);
            for run in runs.iter().filter(|run| !fits(run)) {
                let displaced = run.instructions.iter().filter(|displaced| !displaced.points.is_empty());
                traps.extend(displaced.map(|displaced| displaced.address.0));
            }
            if traps.len() == before {
                return Ok(runs);
            }
        }
    }

    /// Plans functions together. Other patches already use the text in `others` and in `springboards`; the sites in
    /// `traps` must trap.
    fn plan_together(
        &self,
        functions: &[u64],
        others: &[Range<TargetAddress>],
        springboards: &Springboards,
        traps: &BTreeSet<u64>,
    ) -> Result<Runs, Error> {
        let mut planning = Planning::new(PlanOptions::default(), 0);
        let mut all_taken = others.to_vec();
        let mut parts: BTreeMap<TargetAddress, &FunctionMap> = BTreeMap::new();
        for trap in [false, true] {
            for start in functions {
                let Some(function) = self.functions.get(start) else {
                    continue;
                };
                for part in &function.parts {
                    let points = function.points_in(part, traps, trap);
                    if points.is_empty() {
                        continue;
                    }
                    let around = around(part);
                    let near = others
                        .iter()
                        .filter(|range| range.start.0 < around.end && around.start < range.end.0);
                    let mut taken = springboards.within(&around);
                    all_taken.extend(taken.iter().cloned());
                    taken.extend(near.cloned());
                    let force = trap.then_some(Tactic::Trap);
                    if taken.is_empty() {
                        planning.add(part, &points, force);
                    } else {
                        let mut shown = part.clone();
                        shown.show_taken(taken);
                        planning.add(&shown, &points, force);
                    }
                    // A part with sites that must trap is not planned again: the new plan would not know about these
                    // sites.
                    match trap {
                        true => parts.remove(&part.start()),
                        false => parts.insert(part.start(), part),
                    };
                }
            }
        }
        let mut map_of = |range: &Range<TargetAddress>| parts.get(&range.start).map(|part| (*part).clone());
        let settled = planning.settle(&all_taken, &mut map_of);
        if let Some((_, refusal)) = settled.refusals.into_iter().next() {
            return Err(refusal.into());
        }
        let mut runs: Runs = gather(functions.iter().map(|start| (*start, Vec::new())));
        // A run in which nothing fires exists only to make room for the run directly before it, and belongs to that
        // run's function.
        let mut before = None;
        for run in settled.runs {
            let wanting = before.filter(|(successor, _)| *successor == run.start);
            let start = match (run.is_silent(), wanting) {
                (true, None) => continue,
                (true, Some((_, start))) => start,
                (false, _) => self.function_of(&run, functions)?,
            };
            before = run.successor.map(|successor| (successor, start));
            runs.entry(start).or_default().push(run);
        }
        Ok(runs)
    }

    /// Which of these functions has the sites that are in a run.
    ///
    /// # Errors
    /// Two functions overlap, and a run has sites of both, so that removing one would remove the other.
    fn function_of(&self, run: &RunPlan, functions: &[u64]) -> Result<u64, Error> {
        let points = run.instructions.iter().flat_map(|displaced| &displaced.points);
        let sites: Vec<u64> = points.map(|point| point.site.0).collect();
        let has_all = |start: &&u64| {
            let function = self.functions.get(start);
            function.is_some_and(|function| sites.iter().all(|site| function.sites.contains_key(site)))
        };
        let mut near = functions.iter().rev().skip_while(|start| **start > run.start.0);
        let found = near.find(has_all).or_else(|| functions.iter().find(has_all));
        found
            .copied()
            .ok_or(nanoprobe_patch::Refusal::Breakpoint { site: run.start }.into())
    }

    /// The ranges near these functions that patches of other functions use.
    fn text_of_others(&self, functions: &[u64]) -> Vec<Range<TargetAddress>> {
        let mut starts = BTreeSet::new();
        for function in functions.iter().filter_map(|start| self.functions.get(start)) {
            for around in function.parts.iter().map(around) {
                // The last function that begins before this neighbourhood may reach into it.
                let first = self.functions.range(..around.start).next_back();
                let first = first.map_or(around.start, |(start, _)| *start);
                starts.extend(self.functions.range(first..around.end).map(|(start, _)| *start));
            }
        }
        let others = starts.iter().filter(|start| functions.binary_search(start).is_err());
        let others = others.filter_map(|start| self.functions.get(start));
        let patches = others.flat_map(|function| &function.patches).chain(&self.signals.shims);
        patches.flat_map(|patch| claims(&patch.run)).collect()
    }
}

impl Function {
    /// The points of those sites in a part that must trap. If `trap` is false: the points of the other sites.
    fn points_in(&self, part: &FunctionMap, traps: &BTreeSet<u64>, trap: bool) -> Vec<Point> {
        let range = part.start().0..part.start().0.saturating_add(part.size());
        let sites = self.sites.range(range).map(|(_, state)| state);
        let active = sites.filter(|state| {
            let must_trap = state.wanted().trap || traps.contains(&state.site.address);
            state.wanted().active && must_trap == trap
        });
        active.flat_map(|state| self.points(state)).collect()
    }

    /// Whether threads trap at a run although no probe asks for a trap. Yields true even if only those threads trap
    /// that come by a branch.
    fn could_jump(&self, run: &RunPlan) -> bool {
        let wants_trap = |address: &TargetAddress| {
            let state = self.sites.get(&address.0);
            state.is_none_or(|state| state.wanted().trap)
        };
        let displaced = run.instructions.iter().filter(|displaced| !displaced.points.is_empty());
        let mut sites = displaced.map(|displaced| displaced.address);
        let traps = run.tactic == Tactic::Trap && sites.any(|site| !wants_trap(&site));
        traps || !run.entered.iter().all(wants_trap)
    }
}

/// The range around a part in which padding is useful to it.
fn around(part: &FunctionMap) -> Range<u64> {
    let end = part.start().0.saturating_add(part.size());
    part.start().0.saturating_sub(NEIGHBOURHOOD_BYTES)..end.saturating_add(NEIGHBOURHOOD_BYTES)
}

/// The text that a run needs exclusively.
fn claims(run: &RunPlan) -> impl Iterator<Item = Range<TargetAddress>> + use<> {
    let springboard = run.springboard().map(nanoprobe_patch::Springboard::range);
    std::iter::once(run.start..run.claimed_end()).chain(springboard)
}
