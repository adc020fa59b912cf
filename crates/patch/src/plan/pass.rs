//! The plan of a function: one pass over its sites, and more where springboards are scarce.
//!
//! Points are taken in the order of their sites. A site that no earlier run covers gets the best run over it
//! (`choose.rs`). A site that would get a trap is given to the run before it, if that run can be extended up to it:
//!
//! ```text
//!   41 5e  pop r14    run      e9 ..        the jump
//!   41 5f  pop r15             ..           its boundaries: offsets 2 and 4
//!   5d     pop rbp             06
//!   c3     ret        site     cc           after the jump: traps, since a branch to it would not be seen otherwise
//! ```
//!
//! Sites without a run after the pass may get a springboard in an instruction nearby (`neighbour.rs`). Runs do not
//! overlap, so a thread that flows into a later site executes that site's own patch.

use std::collections::BTreeSet;

use super::assign::assign;
use super::displace::trap;
use super::obstacle::Obstacle;
use super::planner::{Choice, Planner, Previous, Quality};
use super::run::{FunctionPlan, PlanOptions, RunPlan};
use super::sites::{Site, sites};
use super::successor::Member;
use crate::order::sort_by_number;
use crate::{FunctionMap, Point, Refusal, Tactic};

/// How often planning begins anew without the springboards that others took.
const ROUNDS_MAX: usize = 4;

/// Plans the patches for `points` in one function. Every point is either in exactly one run or refused.
pub fn plan(map: &FunctionMap, points: &[Point], options: &PlanOptions) -> FunctionPlan {
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
        let pass = Pass {
            planner: &planner,
            plan: FunctionPlan::default(),
            rest: sites.iter().rev().cloned().collect(),
            floor: 0,
            previous: None,
        };
        let mut plan = pass.run();
        let (runs, homeless) = assign(plan.runs, &[]);
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
            sort_by_number(&mut plan.runs, |run| run.start.0);
            refusals.append(&mut plan.refusals);
            return FunctionPlan { refusals, ..plan };
        }
        round += 1;
    }
}

/// The state of one pass over the sites of a function.
struct Pass<'a, 'map> {
    planner: &'a Planner<'map>,
    plan: FunctionPlan,
    /// The remaining sites in reverse order: the next site is the last element.
    rest: Vec<Site>,
    /// Text below this offset belongs to earlier patches.
    floor: u32,
    previous: Option<Previous>,
}

impl Pass<'_, '_> {
    fn run(mut self) -> FunctionPlan {
        while let Some(site) = self.rest.pop() {
            self.serve(site);
        }
        self.plan
    }

    /// Plans the best possible run over a site.
    fn serve(&mut self, site: Site) {
        let (chosen, is_extended) = self.choose(&site);
        let is_good = chosen
            .as_ref()
            .is_some_and(|choice| choice.quality < Quality::OnSuccessor);
        if !is_good && let Some(chain) = self.planner.choose_with_successor(&site, &self.rest, self.floor) {
            self.take_chain(&site, chain);
            return;
        }
        let last_resort = || self.planner.last_resort(&site, &self.rest);
        match chosen.or_else(last_resort) {
            Some(choice) => self.take(site, choice, is_extended),
            None => self.trap(&site),
        }
    }

    /// A run over a site: its own run, or the previous run, extended. The second result is true for an extended run.
    fn choose(&self, site: &Site) -> (Option<Choice>, bool) {
        if self.planner.force == Some(Tactic::Trap) {
            return (None, false);
        }
        let own = self.planner.choose(site, &self.rest, self.floor);
        let extended = match (&own, &self.previous) {
            (Some(own), _) if own.quality < Quality::Extended => None,
            (_, Some(previous)) => self.planner.extend(previous, site, &self.rest),
            _ => None,
        };
        let is_extended = match (&own, &extended) {
            (Some(own), Some(extended)) => extended.quality < own.quality,
            (None, extended) => extended.is_some(),
            (_, None) => false,
        };
        (if is_extended { extended } else { own }, is_extended)
    }

    /// Takes a run, and the runs with whose first bytes its jump ends.
    fn take_chain(&mut self, site: &Site, chain: Vec<Member>) {
        let map = self.planner.map;
        for Member { choice, sites } in chain {
            let taken = sites.iter().filter(|taken| taken.index > site.index).count();
            self.rest.truncate(self.rest.len().saturating_sub(taken));
            self.floor = self.end_of(&choice.run);
            // If the run lies in the next function, no site of this function lies after it.
            let start = map.offset(choice.run.start);
            let is_own = start.is_some_and(|start| start < map.code_size());
            let first = choice.first;
            self.previous = is_own.then_some(Previous { first, sites });
            self.plan.runs.push(choice.run);
        }
    }

    /// Takes a run over a site. `is_extended`: the run replaces the previous run.
    fn take(&mut self, site: Site, choice: Choice, is_extended: bool) {
        let mut sites = Vec::new();
        if is_extended {
            self.plan.runs.pop();
            sites = self.previous.take().map_or(Vec::new(), |previous| previous.sites);
        }
        let following = self.rest.split_off(self.rest.len() - choice.covered);
        sites.push(site);
        sites.extend(following.into_iter().rev());
        self.floor = self.end_of(&choice.run);
        self.plan.runs.push(choice.run);
        let first = choice.first;
        self.previous = Some(Previous { first, sites });
    }

    /// Plans a trap, if nothing else is left and a trap is allowed.
    fn trap(&mut self, site: &Site) {
        self.previous = None;
        if site.points.is_empty() {
            return;
        }
        let map = self.planner.map;
        let instruction = map.code().get(site.index);
        let address = instruction.map_or(map.start(), |instruction| map.address(instruction.offset));
        let trap = match self.planner.force {
            None | Some(Tactic::Trap) => trap(map, site),
            Some(tactic) => Err(Refusal::TacticUnavailable {
                site: address,
                tactic,
                obstacle: None,
            }),
        };
        match trap {
            Ok(run) => {
                self.floor = instruction.map_or(self.floor, |instruction| instruction.end());
                self.plan.runs.push(run);
            }
            Err(refusal) => self.plan.refusals.push((address, refusal)),
        }
    }

    /// The offset of the end of the text that a run takes.
    fn end_of(&self, run: &RunPlan) -> u32 {
        let end = run.claimed_end().offset_from(self.planner.map.start());
        end.and_then(|end| u32::try_from(end).ok()).unwrap_or(u32::MAX)
    }
}
