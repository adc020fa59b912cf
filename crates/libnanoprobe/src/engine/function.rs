//! One function's patches: planned from the sites that are active in it, kept where they are the same as before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use nanoprobe_patch::{
    Fire, FireCondition, FunctionMap, NearSpace, PlanOptions, Point, Position, RunPlan, Runtime, Tactic, TargetAddress,
    build, plan, reconcile,
};

use super::patch::Patch;
use super::site::{SiteState, Wanted, new_site};
use super::springboards::Springboards;
use crate::error::Error;
use crate::hit::{self, Site};

/// How far behind a part its padding is looked for.
const PADDING_BYTES: u64 = 192;

/// A function in which something is, or was, registered.
pub struct Function {
    /// Where it lies.
    pub extent: Range<u64>,
    /// Index of its module.
    pub module: usize,
    /// Its decoded parts: the main one first, then the cold ones.
    pub parts: Vec<FunctionMap>,
    /// What is registered, by address.
    pub sites: BTreeMap<u64, SiteState>,
    /// What is in the text.
    pub patches: Vec<Patch>,
    /// All that was ever built: detours are for ever, so the same run finds its own again.
    pub known: Vec<Patch>,
    /// The sites that it had before its module came again.
    pub retired: HashMap<u64, &'static Site>,
}

/// What outlives a function whose module is gone.
#[derive(Default)]
pub struct Retired {
    /// As [`Function::known`].
    pub known: Vec<Patch>,
    /// Its sites.
    pub sites: HashMap<u64, &'static Site>,
}

impl Function {
    /// The start of the instruction behind the one at `address`.
    ///
    /// # Errors
    /// None starts there.
    pub fn next(&self, address: u64) -> Result<u64, Error> {
        let part = self.parts.iter().find(|part| {
            let start = part.start().0;
            (start..start.saturating_add(part.size())).contains(&address)
        });
        let part = part.ok_or(Error::NotCode(TargetAddress(address)))?;
        if part.undecodable().is_some_and(|at| at.0 <= address) {
            return Err(Error::NotCode(TargetAddress(address)));
        }
        let mut before = part.start();
        for (start, length) in part.instructions() {
            if start.0 == address {
                return Ok(address.saturating_add(length as u64));
            }
            if start.0 > address {
                return Err(Error::Boundary {
                    at: TargetAddress(address),
                    before,
                    after: start,
                });
            }
            before = start;
        }
        Err(Error::NotCode(TargetAddress(address)))
    }

    /// What is registered at an instruction.
    ///
    /// # Errors
    /// None starts there.
    pub fn site(&mut self, address: u64) -> Result<&mut SiteState, Error> {
        let next = self.next(address)?;
        let retired = self.retired.get(&address).filter(|site| site.next == next);
        let transfer = || {
            self.parts
                .iter()
                .find_map(|part| part.transfer_at(TargetAddress(address)))
        };
        let make = || SiteState::of(retired.copied().unwrap_or_else(|| new_site(address, next, transfer())));
        Ok(self.sites.entry(address).or_insert_with(make))
    }

    /// The runs for what is active now.
    ///
    /// # Errors
    /// The first refusal.
    pub fn runs(&self, springboards: &Springboards) -> Result<Vec<RunPlan>, Error> {
        // As if the padding were whole: so the same sites find the springboards that they had.
        let runs = self.runs_beside(&Springboards::default(), &BTreeSet::new())?;
        if runs.iter().all(|run| springboards.leave_room_for(run, &self.known)) {
            return Ok(runs);
        }
        // Others of its springboards are in the way: what is left has the rest of the padding, and what needs their bytes
        // for itself traps.
        let mut traps = BTreeSet::new();
        loop {
            let runs = self.runs_beside(springboards, &traps)?;
            let before = traps.len();
            for run in runs.iter().filter(|run| !springboards.leave_room_for(run, &[])) {
                let displaced = run.instructions.iter().filter(|displaced| !displaced.points.is_empty());
                traps.extend(displaced.map(|displaced| displaced.address.0));
            }
            if traps.len() == before {
                return Ok(runs);
            }
        }
    }

    /// The runs for what is active now, where some padding is taken, and some sites must trap.
    fn runs_beside(&self, springboards: &Springboards, traps: &BTreeSet<u64>) -> Result<Vec<RunPlan>, Error> {
        let (mut runs, mut all_taken) = (Vec::new(), Vec::new());
        for trap in [false, true] {
            let force = trap.then_some(Tactic::Trap);
            let options = PlanOptions {
                force,
                ..PlanOptions::default()
            };
            for part in &self.parts {
                let range = part.start().0..part.start().0.saturating_add(part.size());
                let points: Vec<Point> = self
                    .sites
                    .range(range.clone())
                    .filter(|(_, state)| {
                        let must_trap = state.wanted().trap || traps.contains(&state.site.address);
                        state.wanted().active && must_trap == trap
                    })
                    .flat_map(|(_, state)| self.points(state))
                    .collect();
                if points.is_empty() {
                    continue;
                }
                let taken = springboards.within(&(range.start..range.end.saturating_add(PADDING_BYTES)));
                let planned = match taken.is_empty() {
                    true => plan(part, &points, &options),
                    false => {
                        let mut shown = part.clone();
                        shown.show_taken(taken.iter().cloned());
                        plan(&shown, &points, &options)
                    }
                };
                all_taken.extend(taken);
                if let Some((_, refusal)) = planned.refusals.into_iter().next() {
                    return Err(refusal.into());
                }
                runs.extend(planned.runs);
            }
        }
        let reconciled = reconcile(runs, &all_taken, &PlanOptions::default());
        match reconciled.refusals.into_iter().next() {
            Some((_, refusal)) => Err(refusal.into()),
            None => Ok(reconciled.runs),
        }
    }

    fn points(&self, state: &SiteState) -> Vec<Point> {
        let address = state.site.address;
        // A call that is emulated writes its return address where an entry's frame would be; and a detour may be hit when
        // the first post-handler has come already, and its own detour has not.
        let position = if address == self.extent.start && state.site.emulation == 0 {
            Position::Entry
        } else {
            Position::Inside
        };
        let quick = state.quick().filter(|_| position == Position::Entry);
        let point = |condition, position, dispatch| Point {
            site: TargetAddress(address),
            condition,
            position,
            full_frame: false,
            fires: vec![Fire::Function {
                dispatch: TargetAddress(dispatch),
                resume: TargetAddress(hit::resume_address()),
                cookie: std::ptr::from_ref(state.site) as u64,
                quick,
            }],
        };
        let Wanted { behind, .. } = state.wanted();
        let mut points = vec![point(FireCondition::Always, position, state.dispatch())];
        if behind {
            points.push(point(
                FireCondition::Behind,
                Position::Inside,
                hit::dispatch_behind_address(),
            ));
        }
        points
    }

    /// The patches for some runs: those that were built before, and new ones in near memory.
    ///
    /// # Errors
    /// No room near enough.
    pub fn patches_for(
        &mut self,
        runs: Vec<RunPlan>,
        near: &mut NearSpace,
        runtime: &Runtime,
    ) -> Result<Vec<Patch>, Error> {
        let (mut patches, mut unknown) = (Vec::new(), Vec::new());
        for run in runs {
            match self.known.iter().find(|patch| patch.run == run) {
                Some(patch) => patches.push(patch.clone()),
                None => unknown.push(run),
            }
        }
        let placed = near.place_with_fallbacks(unknown, &PlanOptions::default());
        if let Some((_, refusal)) = placed.refusals.into_iter().next() {
            return Err(refusal.into());
        }
        for (run, detour) in placed.runs {
            let built = build(&run, detour, runtime)?;
            let patch = Patch { run, detour, built };
            self.known.push(patch.clone());
            patches.push(patch);
        }
        Ok(patches)
    }

    /// The tactic of the patch that serves an address.
    pub fn tactic_at(&self, address: u64) -> Option<Tactic> {
        let serves = |patch: &&Patch| {
            let mut displaced = patch.run.instructions.iter();
            displaced.any(|displaced| displaced.address.0 == address && !displaced.points.is_empty())
        };
        self.patches.iter().find(serves).map(|patch| patch.run.tactic)
    }
}
