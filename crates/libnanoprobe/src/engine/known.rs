//! The patches and detours that were built for a function. Detours are never freed, so the same runs find their old
//! detours again.
//!
//! Runs whose jumps share bytes are placed together, and found together: the last bytes of the first jump are the
//! first bytes of the second jump. The latter depend on where the second detour lies.
//!
//! ```text
//!   first    e9 |                     its displacement is d2 d1 d0 e9
//!   second     e9 d0 d1 d2 d3         alone it may have another detour: then these are other bytes
//! ```

use std::ops::Range;

use nanoprobe_patch::order::sort_by_number;
use nanoprobe_patch::{NearSpace, PlanOptions, RunPlan, Runtime, TargetAddress};
use nanoprobe_text::planning::build_all;

use super::patch::KeptPatch;
use crate::error::Error;

/// All patches that were ever built for a function.
#[derive(Default)]
pub struct Known(Vec<Group>);

/// Runs that were placed together.
struct Group {
    /// The runs as they were planned, ascending.
    planned: Vec<RunPlan>,
    /// The patches that were built. A run that found no place is replaced by other runs.
    patches: Vec<KeptPatch>,
}

impl Known {
    /// The patches for some runs: those that were built before, and new ones in near memory.
    ///
    /// # Errors
    /// There is no room near enough.
    pub fn patches_for(
        &mut self,
        runs: Vec<RunPlan>,
        near: &mut NearSpace,
        runtime: &Runtime,
    ) -> Result<Vec<KeptPatch>, Error> {
        let mut patches = Vec::new();
        let mut unknown = Vec::new();
        for planned in groups(runs) {
            match self.0.iter().find(|group| group.planned == planned) {
                Some(group) => patches.extend(group.patches.iter().cloned()),
                None => unknown.push(planned),
            }
        }
        // Groups with the least choice of places come first.
        let rank = |run: &RunPlan| {
            run.springboard()
                .map_or(run.constraint, |board| board.constraint)
                .rank()
        };
        sort_by_number(&mut unknown, |planned| {
            !u64::from(planned.iter().map(rank).max().unwrap_or(0))
        });
        for planned in unknown {
            let group = Group::build(planned, near, runtime)?;
            patches.extend(group.patches.iter().cloned());
            self.0.push(group);
        }
        sort_by_number(&mut patches, |patch| patch.run.start.0);
        Ok(patches)
    }

    /// The patch of a run that was placed by itself.
    pub fn patch_of(&self, run: &RunPlan) -> Option<&KeptPatch> {
        let group = self.0.iter().find(|group| group.planned == std::slice::from_ref(run))?;
        group.patches.iter().find(|patch| patch.run == *run)
    }

    /// Forgets the detours in this memory, which now has another owner.
    pub fn forget(&mut self, memory: &Range<TargetAddress>) {
        let is_there = |group: &Group| group.patches.iter().any(|patch| memory.contains(&patch.detour));
        self.0.retain(|group| !is_there(group));
    }
}

impl Group {
    fn build(planned: Vec<RunPlan>, near: &mut NearSpace, runtime: &Runtime) -> Result<Group, Error> {
        let options = PlanOptions::default();
        let placed = near.place_with_fallbacks(planned.clone(), &options);
        if let Some((_, refusal)) = placed.refusals.into_iter().next() {
            return Err(refusal.into());
        }
        let mut patches = Vec::new();
        let mut refused = None;
        let mut add = |run, detour, built| match built {
            Ok(built) => patches.push(KeptPatch { run, detour, built }),
            Err(refusal) => refused = Some(refusal),
        };
        build_all(placed.runs, runtime, &options, &mut |_| (), &mut add);
        match refused {
            Some(refusal) => Err(refusal.into()),
            None => Ok(Group { planned, patches }),
        }
    }
}

/// Groups ascending runs that must be placed together: a run, and the run in whose bytes its jump ends.
fn groups(runs: Vec<RunPlan>) -> Vec<Vec<RunPlan>> {
    let mut groups: Vec<Vec<RunPlan>> = Vec::new();
    for run in runs {
        let leads_there = |group: &&mut Vec<RunPlan>| group.last().and_then(|last| last.successor) == Some(run.start);
        match groups.last_mut().filter(leads_there) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}
