//! Placement: from enablings to bytes. What is to be patched, with what, and where the detours lie. Pure: it reads
//! modules and decides; [`crate::arming`] carries it out.
//!
//! ```text
//!   enablings at probes            grouped by the function they fire in
//!     -> points                    sites with what fires there, in the order of the clauses
//!     -> runs                      patch::plan
//!     -> detours' addresses        NearSpace, in holes of the target's map
//!     -> patches, detours          patch::build
//! ```

mod functions;
mod groups;
mod points;
mod refused;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use nanoprobe_patch::{
    Fire, NearSpace, PlanOptions, Refusal, RunPlan, Runtime, Tactic, TargetAddress, TextRange, build, plan_again,
    reconcile,
};
use nanoprobe_symbols::{ImageAddress, Module};
use nanoprobe_text::code::Neighbours;
use nanoprobe_text::space::Space;
use nanoprobe_text::{Patch, without};

use crate::enable::Enablings;
use crate::interrupt;
use crate::probes::{ProbeList, Spot};
use crate::progress::{self, Work};
use crate::returns::ReturnPolicy;
use crate::small_stack::SmallStack;
use crate::statics::Statics;

pub use groups::{extent_of_choice, locate};
pub use points::spread;
pub use refused::{Refused, RefusedBecause};

/// Where an IFUNC's resolver sent the program: resolver to implementation.
pub type Choices = HashMap<TargetAddress, TargetAddress>;

/// The result of planning.
#[derive(Debug, Default)]
pub struct Placement {
    /// What to write into the text, in any order.
    pub patches: Vec<Patch>,
    /// What could not be had.
    pub refused: Vec<Refused>,
    /// Near memory to map: new regions since the last placement.
    pub regions: Vec<Range<TargetAddress>>,
    /// Functions that had patches and are planned anew, because more fires in them now: their old patches go.
    pub replaced: Vec<TargetAddress>,
}

/// An internal probe: the dynamic linker's debugger hook.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Index of the module.
    pub module: usize,
    /// The function's entry.
    pub address: ImageAddress,
    /// What is called there.
    pub fire: Fire,
}

/// Everything that planning reads and fills.
pub struct Planner<'a> {
    /// The target's modules, in the order of loading.
    pub modules: &'a [Module],
    /// The probes.
    pub probes: &'a ProbeList,
    /// The enablings and handlers.
    pub enablings: &'a Enablings,
    /// The static probes.
    pub statics: &'a Statics,
    /// Choices of IFUNCs.
    pub choices: &'a Choices,
    /// What detours need to know.
    pub runtime: Runtime,
    /// Where each handler was put.
    pub handlers: &'a mut HashMap<(usize, nanoprobe_codegen::ProbeKind), TargetAddress>,
    /// Where handlers are put.
    pub code: &'a mut Space,
    /// Where enablings and their strings are put.
    pub growth: &'a mut Space,
    /// Where detours are put.
    pub near: &'a mut NearSpace,
    /// Addresses of the agent's functions.
    pub agent: &'a dyn Fn(nanoprobe_codegen::AgentFunction) -> u64,
    /// The tactic that is forced.
    pub force: Option<Tactic>,
    /// Bytes of a string.
    pub strsize: u32,
    /// How return probes are made.
    pub returns: ReturnPolicy<'a>,
    /// The target's threads have shadow stacks.
    pub shadow_stack: bool,
    /// How small the stacks are on which each module's functions run.
    pub small_stacks: Vec<SmallStack>,
    /// What fires in each function that was planned so far, by its start.
    pub placed: &'a mut Fired,
    /// The patches that are there.
    pub patches: &'a [Patch],
    /// Those that were replaced: their springboards are there.
    pub retired: &'a [Patch],
    /// The functions around those that are planned.
    pub neighbours: Neighbours,
    /// For how many more sites it is found out why they have no jump.
    pub explanations_left: usize,
}

/// [`Planner::explanations_left`], of one placement.
pub const EXPLANATIONS_MAX: usize = 64;

/// What fires in functions, by their start: enablings (by index) at spots, and hooks.
pub type Fired = HashMap<u64, (Vec<(usize, Spot)>, Vec<Fire>)>;

/// Whose a run is.
#[derive(Clone, Debug, Default)]
struct Function {
    start: TargetAddress,
    name: String,
}

/// What is planned so far.
#[derive(Default)]
struct Planned {
    runs: Vec<(RunPlan, Function)>,
    /// The parts of functions in which something fires, by start.
    parts: BTreeMap<TargetAddress, Part>,
}

/// A part of a function: where it ends, and where to find the function again.
struct Part {
    end: TargetAddress,
    module: usize,
    extent: Range<u64>,
    function: Function,
}

impl Planner<'_> {
    /// Plans all enablings from index `first` on, and the hooks.
    pub fn place(&mut self, first: usize, hooks: &[Hook]) -> Placement {
        let mut placement = Placement::default();
        let known = self.near.regions();
        let free = self.near.free();
        let mut planned = Planned::default();
        let groups = self.groups(first, hooks, &mut placement.refused);
        let planning = progress::doing(Work::Planning, groups.len());
        for (start, mut group) in groups {
            if interrupt::requested() {
                break;
            }
            progress::done(1);
            // A function that is patched already (an IFUNC of a new library chose it) is planned anew, with all that
            // fires in it.
            if let Some((members, hooks)) = self.placed.get(&start) {
                if self.has_host(start) {
                    placement.refused.push(Refused {
                        site: Some(TargetAddress(start)),
                        function: group.name.clone(),
                        reason: RefusedBecause::Host,
                    });
                    continue;
                }
                group.members.splice(0..0, members.iter().copied());
                group.hooks.extend(hooks);
                placement.replaced.push(TargetAddress(start));
            }
            // Where probes share an instruction a return fires last, as in DTrace, where it fires behind the instruction.
            group.members.sort_by_key(|(_, spot)| *spot == Spot::Exits);
            self.placed.insert(start, (group.members.clone(), group.hooks.clone()));
            self.plan_group(&group, &free, &mut planned, &mut placement.refused);
        }
        // Functions may overlap (aliases with other sizes, shared tails): patches must not.
        let Planned { runs, parts } = planned;
        let of_parts = parts.iter().map(|(start, part)| (*start, part.function.clone()));
        let of_runs = runs.iter().map(|(run, function)| (run.start, function.clone()));
        let functions: BTreeMap<TargetAddress, Function> = of_parts.chain(of_runs).collect();
        let function_of = |site: TargetAddress| {
            functions
                .range(..=site)
                .next_back()
                .map(|(_, function)| function.clone())
                .unwrap_or_default()
        };
        let name_of = |site: TargetAddress| function_of(site).name;
        let taken = self.taken(&placement.replaced);
        let options = PlanOptions {
            force: self.force,
            is_cancelled: Some(interrupt::requested),
        };
        let reconciled = reconcile(runs.into_iter().map(|(run, _)| run).collect(), &taken, &options);
        let ranges: Vec<Range<TargetAddress>> = parts.iter().map(|(start, part)| *start..part.end).collect();
        let settled = plan_again(reconciled, &taken, &ranges, &options, &mut |range| {
            let part = parts.get(&range.start)?;
            let map = self
                .neighbours
                .part_again(self.modules.get(part.module)?, &part.extent, range.start)?;
            Some(self.shown(map, &free))
        });
        let placed = self.near.place_with_fallbacks(settled.runs, &options);
        drop(planning);
        let _building = progress::doing(Work::Building, placed.runs.len());
        for (run, detour) in placed.runs {
            if interrupt::requested() {
                break;
            }
            progress::done(1);
            self.build_run(&run, detour, function_of(run.start), &mut placement);
        }
        let refusals = settled.refusals.into_iter().chain(placed.refusals);
        placement.refused.extend(refusals.map(|(site, reason)| Refused {
            site: Some(site),
            function: name_of(site),
            reason: RefusedBecause::Patch(reason),
        }));
        let regions = self.near.regions().into_iter();
        placement.regions = regions.flat_map(|region| without(region, &known)).collect();
        placement
    }

    /// Whether a patch of a function must stay as it is.
    fn has_host(&self, start: u64) -> bool {
        let mut patches = self.patches.iter();
        patches.any(|patch| patch.function.0 == start && patch.built.carries.is_some())
    }

    /// The text that earlier patches have and keep.
    fn taken(&self, replaced: &[TargetAddress]) -> Vec<Range<TargetAddress>> {
        let kept = self
            .patches
            .iter()
            .filter(|patch| patch.shim || !replaced.contains(&patch.function));
        let sites = kept.flat_map(|patch| patch.built.ranges());
        // Springboards stay until the end.
        let all = self.patches.iter().chain(self.retired);
        let springboards = all.flat_map(|patch| patch.built.springboard.iter().cloned());
        let taken = sites.chain(springboards);
        let end = |part: &TextRange| TargetAddress(part.address.0.saturating_add(part.original.len() as u64));
        taken.map(|part| part.address..end(&part)).collect()
    }

    /// Builds a run at its place.
    fn build_run(&mut self, run: &RunPlan, detour: TargetAddress, function: Function, placement: &mut Placement) {
        let refuse = |reason: Refusal| Refused {
            site: Some(run.start),
            function: function.name.clone(),
            reason: RefusedBecause::Patch(reason),
        };
        match build(run, detour, &self.runtime) {
            Ok(built) => {
                let sites = run.instructions.iter().filter(|displaced| !displaced.points.is_empty());
                let sites = sites.map(|displaced| displaced.address).collect();
                placement.patches.push(Patch {
                    tactic: run.tactic,
                    obstacle: run.obstacle.filter(|_| run.tactic == Tactic::Trap),
                    detour,
                    room: run.detour_length,
                    built,
                    sites,
                    entered: run.entered.clone(),
                    function: function.start,
                    shim: false,
                    takes_return: fires(run).any(|fire| matches!(fire, Fire::TakeReturn { .. })),
                    guards_returns: fires(run).any(|fire| matches!(fire, Fire::Unconditional { .. })),
                });
            }
            Err(refusal) => placement.refused.push(refuse(refusal)),
        }
    }
}

/// Everything that fires in a run.
fn fires(run: &RunPlan) -> impl Iterator<Item = &Fire> {
    let points = run.instructions.iter().flat_map(|displaced| &displaced.points);
    points.flat_map(|point| &point.fires)
}
