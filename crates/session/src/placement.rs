//! Placement: from enablings to bytes. It decides which text is patched, with which bytes, and where the detours lie.
//! Pure: it reads modules and changes nothing. The result is a value, [`Placement`], which alone holds the memory that
//! detours, handlers and enablings take. A placement that is thrown away leaves no trace. [`Placement::commit`] takes
//! the memory, and [`crate::arming`] writes the patches.
//!
//! ```text
//!   enablings at probes            grouped by the function they fire in
//!     -> points                    sites with what fires there, in the order of the clauses
//!     -> runs                      patch::plan
//!     -> detours' addresses        NearSpace, in holes of the target's map
//!     -> patches, detours          patch::build
//! ```

mod calls;
mod functions;
mod groups;
mod made;
mod points;
mod refused;
mod stacked;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use nanoprobe_patch::{Built, Fire, NearSpace, PlanOptions, RunPlan, Runtime, Tactic, TargetAddress, TextRange};
use nanoprobe_symbols::{ImageAddress, Module};
use nanoprobe_text::code::Neighbours;
use nanoprobe_text::planning::{Planning, build_all};
use nanoprobe_text::space::Space;
use nanoprobe_text::{Ahead, Patch, without};

use crate::enable::Enablings;
use crate::occupied::Occupied;
use crate::probes::{ProbeIndex, ProbeList, Spot};
use crate::progress::{self, Work};
use crate::returns::ReturnPolicy;
use crate::small_stack::SmallStack;
use crate::spare;
use crate::statics::Statics;

pub use calls::{CallPlaces, CallTables, ShimPoints};
use groups::Group;
pub use groups::{extent_of_choice, locate};
pub use points::spread;
pub use refused::{Refused, RefusedBecause};

/// Where an IFUNC's resolver sent the program: resolver to implementation.
pub type Choices = HashMap<TargetAddress, TargetAddress>;

/// The address of each handler.
pub type Handlers = HashMap<(usize, nanoprobe_codegen::ProbeKind), TargetAddress>;

/// The memory for detours, handlers and enablings, and a record of what lies there.
#[derive(Debug)]
pub struct Room {
    /// The memory for detours.
    pub near: NearSpace,
    /// The memory for handlers.
    pub code: Space,
    /// The memory for enablings and their strings.
    pub growth: Space,
    /// The address of each handler.
    pub handlers: Handlers,
    /// The tables by which clauses find the enablings of system calls.
    pub call_tables: CallTables,
    /// The probes that fire in the functions of this plan.
    pub fired: Fired,
}

/// The result of planning. It has no effect before it is committed.
#[derive(Debug)]
pub struct Placement {
    /// The changes of the text.
    pub changes: Changes,
    /// The probes that fire in the shims that will be added.
    pub shim_points: ShimPoints,
    /// The memory that these changes take.
    room: Room,
}

/// The changes of a placement in the text: the result of [`Placement::commit`], or of a plan that is shown but not
/// carried out.
#[derive(Debug, Default)]
pub struct Changes {
    /// The patches to write into the text, in any order.
    pub patches: Vec<Patch>,
    /// Probes that could not be placed.
    pub refused: Vec<Refused>,
    /// Near memory to map: new regions since the last placement.
    pub regions: Vec<Range<TargetAddress>>,
    /// Functions that had patches and are planned anew, because more probes fire in them now. Their old patches are
    /// taken back.
    pub replaced: Vec<TargetAddress>,
}

/// An internal probe: the dynamic linker's debugger hook.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Index of the module.
    pub module: usize,
    /// The function's entry.
    pub address: ImageAddress,
    /// The handler or counter at this place.
    pub fire: Fire,
}

/// The parts of a session that change when a placement is committed.
pub struct Holder<'a> {
    /// Near memory.
    pub near: &'a mut NearSpace,
    /// The code block.
    pub code: &'a mut Space,
    /// The arena.
    pub growth: &'a mut Space,
    /// The address of each handler.
    pub handlers: &'a mut Handlers,
    /// The tables of system calls.
    pub call_tables: &'a mut CallTables,
    /// The probes that fire in each function.
    pub fired: &'a mut Fired,
}

impl Placement {
    /// The data that shims need: the changes to which they are added, and the near memory that is left.
    pub fn parts(&mut self) -> (&mut Changes, &mut NearSpace) {
        (&mut self.changes, &mut self.room.near)
    }

    /// The sites whose instructions other tracers' patches have displaced.
    pub fn displaced_by_others(&self) -> Vec<TargetAddress> {
        let refused = self.changes.refused.iter();
        let others = refused.filter(|refused| matches!(refused.reason, RefusedBecause::OtherTracer));
        others.filter_map(|refused| refused.site).collect()
    }

    /// Takes the placement's memory, and makes its probes known to the next planning. No other placement may have been
    /// committed since this placement was planned.
    pub fn commit(self, holder: Holder<'_>) -> Changes {
        let Placement { changes, room, .. } = self;
        *holder.near = room.near;
        holder.code.commit(room.code);
        holder.growth.commit(room.growth);
        *holder.handlers = room.handlers;
        *holder.call_tables = room.call_tables;
        holder.fired.extend(room.fired);
        changes
    }
}

/// The patches that are in the text before planning.
pub struct There<'a> {
    /// The session's.
    pub patches: &'a [Patch],
    /// Those that newer ones have replaced. Their springboards are still in the text.
    pub retired: &'a [Patch],
    /// Those of other tracers.
    pub occupied: &'a Occupied,
}

/// All that planning reads, and the memory that it takes on trial.
pub struct Planner<'a> {
    /// The target's modules, in the order of loading.
    pub modules: &'a [Module],
    /// The probes.
    pub probes: &'a ProbeList,
    /// The enablings and handlers.
    pub enablings: &'a Enablings,
    /// The static probes.
    pub statics: &'a Statics,
    /// The system calls of the modules.
    pub calls: CallPlaces<'a>,
    /// Choices of IFUNCs.
    pub choices: &'a Choices,
    /// The addresses that detours need.
    pub runtime: Runtime,
    /// The memory that planning may take: drafts and copies of the real memory.
    pub room: Room,
    /// Whether planning should stop early. Its result is then useless.
    pub is_cancelled: fn() -> bool,
    /// Addresses of the agent's functions.
    pub agent: &'a dyn Fn(nanoprobe_codegen::AgentFunction) -> u64,
    /// The tactic that the user has asked for.
    pub force: Option<Tactic>,
    /// The size of a string in bytes.
    pub strsize: u32,
    /// How return probes are made.
    pub returns: ReturnPolicy<'a>,
    /// The target's threads have shadow stacks.
    pub shadow_stack: bool,
    /// For each module, how small the stacks of its functions are.
    pub small_stacks: Vec<SmallStack>,
    /// The probes that fire in each function that was planned so far, by the function's start.
    pub placed: &'a Fired,
    /// The patches that are in the text already.
    pub there: There<'a>,
    /// The functions around the planned functions.
    pub neighbours: Neighbours,
    /// For how many sites planning finds out why they have no jump.
    pub explanations: usize,
}

/// The value of [`Planner::explanations`] for one placement.
pub const EXPLANATIONS_MAX: usize = 64;

/// For each function, by its start, the enablings (by index) that fire at its spots, and its hooks.
pub type Fired = HashMap<u64, (Vec<(usize, Spot)>, Vec<Fire>)>;

/// The function that a run belongs to.
#[derive(Clone, Copy, Debug, Default)]
struct Function {
    start: TargetAddress,
    named: Option<Named>,
}

/// Where the name of a function comes from. The name itself is made on demand, because hardly any name is needed.
#[derive(Clone, Copy, Debug)]
enum Named {
    /// A probe in the function.
    Probe(ProbeIndex),
    /// The linker's hook of a module.
    Hook(usize),
}

/// The part of a placement that is planned so far.
struct Planned {
    planning: Planning,
    /// The function of each run, by the run's start.
    runs: Vec<(TargetAddress, Function)>,
    /// The parts of functions in which something fires, by start.
    parts: BTreeMap<TargetAddress, Part>,
    /// The runs at jumps of other tracers.
    stacked: Vec<RunPlan>,
}

/// A part of a function: where to find the function again.
struct Part {
    module: usize,
    extent: Range<u64>,
    function: Function,
}

impl Planner<'_> {
    /// Plans all enablings from index `first` on, and the hooks.
    pub fn place(mut self, first: usize, hooks: &[Hook]) -> Placement {
        let mut changes = Changes::default();
        let shim_points = self.shim_points(&mut changes.refused);
        let known = self.room.near.regions();
        let free = self.room.near.free();
        let groups = self.groups(first, hooks, &mut changes.refused);
        let planning_work = progress::doing(Work::Planning, groups.len());
        let planned = self.plan_groups(groups, &free, &mut changes);
        let Planned {
            planning,
            runs,
            parts,
            stacked,
        } = planned;
        let functions = functions(&parts, runs);
        let function_of = |site: TargetAddress| {
            let behind = functions.partition_point(|(start, _)| *start <= site);
            let function = behind.checked_sub(1).and_then(|index| functions.get(index));
            function.map(|(_, function)| *function).unwrap_or_default()
        };
        let (probes, modules) = (self.probes, self.modules);
        let name_of = |function: Function| {
            function
                .named
                .map_or_else(String::new, |named| named.name(probes, modules))
        };
        let taken = self.taken(&changes.replaced);
        let options = self.options();
        let mut settled = planning.settle(&taken, &mut |range| {
            let part = parts.get(&range.start)?;
            let map = self
                .neighbours
                .part_again(self.modules.get(part.module)?, &part.extent, range.start)?;
            Some(self.shown(map, &free))
        });
        drop(parts);
        stacked::keep_clear(&mut settled, self.there.occupied);
        self.neighbours = Neighbours::default();
        spare::give_back(settled.runs.len());
        let mut placed = self.room.near.place_with_fallbacks(settled.runs, &options);
        // Their tactic is chosen already.
        let any = PlanOptions { force: None, ..options };
        let on_top = self.room.near.place_with_fallbacks(stacked, &any);
        placed.runs.extend(on_top.runs);
        placed.refusals.extend(on_top.refusals);
        drop(planning_work);
        let _building = progress::doing(Work::Building, placed.runs.len());
        changes.patches.reserve_exact(placed.runs.len());
        let mut add = |run: RunPlan, detour, built| {
            let function = function_of(run.start);
            match built {
                Ok(built) => changes.patches.push(patch(&run, detour, built, function)),
                Err(reason) => changes.refused.push(Refused {
                    site: Some(run.start),
                    function: name_of(function),
                    reason: RefusedBecause::Patch(reason),
                }),
            }
        };
        build_all(placed.runs, &self.runtime, &options, &mut progress::done, &mut add);
        let refusals = settled.refusals.into_iter().chain(placed.refusals);
        changes.refused.extend(refusals.map(|(site, reason)| Refused {
            site: Some(site),
            function: name_of(function_of(site)),
            reason: RefusedBecause::Patch(reason),
        }));
        let regions = self.room.near.regions().into_iter();
        changes.regions = regions.flat_map(|region| without(region, &known)).collect();
        spare::give_back(changes.patches.len());
        Placement {
            changes,
            shim_points,
            room: self.room,
        }
    }

    /// A function that is patched already (an IFUNC of a new library chose it) is planned anew, with all that fires in
    /// it. False: the function must stay as it is.
    fn join_placed(&self, start: u64, group: &mut Group, changes: &mut Changes) -> bool {
        let Some((members, hooks)) = self.placed.get(&start) else {
            return true;
        };
        if self.has_host(start) {
            changes.refused.push(Refused {
                site: Some(TargetAddress(start)),
                function: self.name_of(group),
                reason: RefusedBecause::Host,
            });
            return false;
        }
        group.members.splice(0..0, members.iter().copied());
        group.hooks.extend(hooks);
        changes.replaced.push(TargetAddress(start));
        true
    }

    /// Plans each function by itself, in ascending order; a second thread decodes the functions that come next.
    fn plan_groups(
        &mut self,
        groups: BTreeMap<u64, Group>,
        free: &Arc<[Range<u64>]>,
        changes: &mut Changes,
    ) -> Planned {
        let mut planned = Planned {
            planning: Planning::new(self.options(), self.explanations),
            runs: Vec::new(),
            parts: BTreeMap::new(),
            stacked: Vec::new(),
        };
        let modules = self.modules;
        let extents = groups
            .values()
            .map(|group| (group.module, group.extent.clone()))
            .collect();
        std::thread::scope(|scope| {
            let mut ahead = Ahead::start(scope, modules, extents);
            for (start, mut group) in groups {
                if (self.is_cancelled)() {
                    break;
                }
                progress::done(1);
                ahead.hand_over(&mut self.neighbours);
                if !self.join_placed(start, &mut group, changes) {
                    continue;
                }
                // Where probes share an instruction, a return fires last, as in DTrace, where it fires after the
                // instruction.
                group.members.sort_by_key(|(_, spot)| *spot == Spot::Exits);
                self.room
                    .fired
                    .insert(start, (group.members.clone(), group.hooks.clone()));
                self.plan_group(&group, free, &mut planned, &mut changes.refused);
            }
        });
        planned
    }

    fn options(&self) -> PlanOptions {
        PlanOptions {
            force: self.force,
            is_cancelled: Some(self.is_cancelled),
        }
    }

    /// Whether a patch of a function must stay as it is.
    fn has_host(&self, start: u64) -> bool {
        let mut patches = self.there.patches.iter();
        patches.any(|patch| patch.function.0 == start && patch.built.carries.is_some())
    }

    /// The text that earlier patches occupy and will keep.
    fn taken(&self, replaced: &[TargetAddress]) -> Vec<Range<TargetAddress>> {
        let kept = self
            .there
            .patches
            .iter()
            .filter(|patch| patch.shim || !replaced.contains(&patch.function));
        let sites = kept.flat_map(|patch| patch.built.ranges());
        // Springboards stay in the text until the end.
        let all = self.there.patches.iter().chain(self.there.retired);
        let springboards = all.flat_map(|patch| patch.built.springboard.iter().cloned());
        let taken = sites.chain(springboards);
        let end = |part: &TextRange| TargetAddress(part.address.0.saturating_add(part.original.len() as u64));
        let ours = taken.map(|part| part.address..end(&part));
        ours.chain(self.there.occupied.ranges()).collect()
    }
}

impl Named {
    fn name(self, probes: &ProbeList, modules: &[Module]) -> String {
        let name = match self {
            Named::Probe(probe) => probes
                .get(probe)
                .map(|probe| format!("{}`{}", probe.module, probe.function)),
            Named::Hook(module) => modules.get(module).map(|module| format!("{}`(hook)", module.name())),
        };
        name.unwrap_or_default()
    }
}

/// To which function or run the code from an address on belongs. Sorted by the addresses at which parts of functions
/// and runs begin.
fn functions(
    parts: &BTreeMap<TargetAddress, Part>,
    runs: Vec<(TargetAddress, Function)>,
) -> Vec<(TargetAddress, Function)> {
    let mut all = runs;
    // If several runs have one address, the last one counts. A part of a function counts only if there is no run.
    all.reverse();
    all.extend(parts.iter().map(|(start, part)| (*start, part.function)));
    all.sort_by_key(|(start, _)| *start);
    all.dedup_by_key(|(start, _)| *start);
    all.shrink_to_fit();
    all
}

/// The patch of a run whose detour was built at its address.
fn patch(run: &RunPlan, detour: TargetAddress, built: Built, function: Function) -> Patch {
    let sites = run.instructions.iter().filter(|displaced| !displaced.points.is_empty());
    let sites = sites.map(|displaced| displaced.address).collect();
    Patch {
        tactic: run.tactic,
        obstacle: run.obstacle.filter(|_| run.tactic == Tactic::Trap),
        detour,
        room: run.detour_length,
        built: built.into(),
        sites,
        entered: run.entered.clone(),
        function: function.start,
        shim: false,
        takes_return: fires(run).any(|fire| matches!(fire, Fire::TakeReturn { .. })),
        guards_returns: fires(run).any(|fire| matches!(fire, Fire::Unconditional { .. })),
    }
}

/// Everything that fires in a run.
fn fires(run: &RunPlan) -> impl Iterator<Item = &Fire> {
    let points = run.instructions.iter().flat_map(|displaced| &displaced.points);
    points.flat_map(|point| &point.fires)
}
