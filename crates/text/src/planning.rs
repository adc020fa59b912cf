//! Planning: from functions with points to runs that do not conflict, to the places of detours, to bytes. Pure: the
//! near memory that planning takes is a value of the caller, which keeps it or drops it.
//!
//! ```text
//!   part of a function, points     patch::plan, each by itself        Planning::add
//!     -> runs                      reconcile, plan_again: together    Planning::settle
//!     -> places of detours         NearSpace::place_with_fallbacks
//!     -> patches, detours          patch::build                       build_all
//! ```

use std::ops::Range;

use nanoprobe_patch::consume::in_parts;
use nanoprobe_patch::{
    Built, FunctionMap, FunctionPlan, PlanOptions, Point, Refusal, RunPlan, Runtime, Tactic, TargetAddress, build,
    plan, plan_again, reconcile, why_not,
};

use crate::in_halves;

/// Functions that are planned together, so that no two of them need the same bytes.
#[derive(Debug, Default)]
pub struct Planning {
    options: PlanOptions,
    /// For how many more sites the reason for a missing jump is searched. The search plans the site several times.
    explanations_left: usize,
    runs: Vec<RunPlan>,
    refusals: Vec<(TargetAddress, Refusal)>,
    parts: Vec<Range<TargetAddress>>,
}

impl Planning {
    /// A planning without any function yet.
    pub fn new(options: PlanOptions, explanations: usize) -> Planning {
        Planning {
            options,
            explanations_left: explanations,
            ..Planning::default()
        }
    }

    /// Plans a part of a function that has its surroundings. `force`: a tactic for this part, in place of the general
    /// one. Yields the runs of the part, which may still change.
    pub fn add(&mut self, part: &FunctionMap, points: &[Point], force: Option<Tactic>) -> &[RunPlan] {
        let options = PlanOptions { force, ..self.options };
        let mut made = plan(part, points, &options);
        self.explain(part, &mut made, &options);
        let end = part.start().0.saturating_add(part.size());
        self.parts.push(part.start()..TargetAddress(end));
        self.refusals.extend(made.refusals);
        let first = self.runs.len();
        self.runs.extend(made.runs);
        self.runs.get(first..).unwrap_or_default()
    }

    /// The refusals in the parts that were added since the last call.
    pub fn take_refusals(&mut self) -> Vec<(TargetAddress, Refusal)> {
        std::mem::take(&mut self.refusals)
    }

    /// Resolves conflicts between the runs. `taken`: text that is not free. A function that has lost padding to another
    /// function is planned again. For this, `map_of` yields its part with its surroundings, except for padding that is
    /// in use by now.
    pub fn settle(
        self,
        taken: &[Range<TargetAddress>],
        map_of: &mut dyn FnMut(&Range<TargetAddress>) -> Option<FunctionMap>,
    ) -> FunctionPlan {
        // Functions may overlap (aliases with other sizes, shared tails): patches must not.
        let reconciled = reconcile(self.runs, taken, &self.options);
        let mut settled = plan_again(reconciled, taken, &self.parts, &self.options, map_of);
        settled.refusals.extend(self.refusals);
        settled
    }

    /// Adds to a plan the reasons why sites trap, or why they cannot have the tactic that the user has requested.
    fn explain(&mut self, part: &FunctionMap, made: &mut FunctionPlan, options: &PlanOptions) {
        let mut find = |site| {
            self.explanations_left = self.explanations_left.checked_sub(1)?;
            Some(why_not(part, site, options))
        };
        let traps = made.runs.iter_mut().filter(|run| run.tactic == Tactic::Trap);
        for trap in traps.filter(|trap| options.force.is_none() && trap.obstacle.is_none()) {
            trap.obstacle = find(trap.start);
        }
        for (_, refusal) in &mut made.refusals {
            if let Refusal::TacticUnavailable { site, obstacle, .. } = refusal {
                *obstacle = obstacle.or_else(|| find(*site));
            }
        }
    }
}

/// Builds runs at their places, on two processors if there are many. `progress` gets the number of runs
/// that come next. The result is incomplete if it was cancelled.
pub fn build_all(
    runs: Vec<(RunPlan, TargetAddress)>,
    runtime: &Runtime,
    options: &PlanOptions,
    progress: &mut dyn FnMut(usize),
    take: &mut dyn FnMut(RunPlan, TargetAddress, Result<Built, Refusal>),
) {
    in_parts(runs, |some| {
        if options.is_cancelled.is_some_and(|is_cancelled| is_cancelled()) {
            return false;
        }
        progress(some.len());
        let built = in_halves(&some, |(run, detour)| build(run, *detour, runtime));
        for ((run, detour), built) in some.into_iter().zip(built) {
            take(run, detour, built);
        }
        true
    });
}
