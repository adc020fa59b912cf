//! Placement: from enablings to bytes. What is to be patched, with what, and where the detours lie. Pure: it reads
//! modules and decides; [`crate::apply`] carries it out.
//!
//! ```text
//!   enablings at probes            grouped by the function they fire in
//!     -> points                    sites with what fires there, in the order of the clauses
//!     -> runs                      patch::plan
//!     -> detours' addresses        NearSpace, in holes of the target's map
//!     -> patches, detours          patch::build
//! ```

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{Enabling as EnablingLayout, OFFSET_RETURNED, ORIGIN_PUSHED_SHIFT};
use nanoprobe_lang::options::ReturnForm;
use nanoprobe_patch::{
    Built, Fire, FireCondition, FunctionMap, NearSpace, Origin, PlanOptions, Point, Position, Refusal, RunPlan,
    Runtime, Tactic, TargetAddress, TextRange, build, build_return_stub, plan, plan_again, reconcile,
};
use nanoprobe_symbols::{FunctionKind, ImageAddress, Module};

use crate::code::{Neighbours, extent_around};
use crate::enable::{Enabling, Enablings, probe_kind};
use crate::probes::{Place, Probe, ProbeList, Spot};
use crate::returns::{self, ReturnPolicy, ReturnRefusal};
use crate::space::{Full, Space};
use crate::statics::Statics;

/// Where an IFUNC's resolver sent the program: resolver to implementation.
pub type Choices = HashMap<TargetAddress, TargetAddress>;

/// A patch with its detour, ready to be written.
#[derive(Clone, Debug)]
pub struct Patch {
    /// How.
    pub tactic: Tactic,
    /// Where the detour lies.
    pub detour: TargetAddress,
    /// The bytes.
    pub built: Built,
    /// The sites that fire in it.
    pub sites: Vec<TargetAddress>,
    /// Those to which branches lead that trap there: see [`RunPlan::entered`].
    pub entered: Vec<TargetAddress>,
    /// Start of the function for whose probes it was made.
    pub function: TargetAddress,
    /// No probe, but a call of ours in front of the program's own (see [`crate::shims`]).
    pub shim: bool,
    /// Whether a return address is replaced in it.
    pub takes_return: bool,
    /// An unwinder's entry, or the linker's, where replaced return addresses are put back: it stays as long as there may be
    /// any, that is, until all threads stand still at the end.
    pub guards_returns: bool,
}

impl Patch {
    /// The tactic, and of a trap its form: what `-v` shows.
    pub fn how(&self) -> String {
        match self.built.form {
            Some(form) => format!("{} ({form})", self.tactic),
            None if self.entered.is_empty() => self.tactic.to_string(),
            None => {
                let entered: Vec<String> = self.entered.iter().map(TargetAddress::to_string).collect();
                format!("{} (branches to {} trap)", self.tactic, entered.join(", "))
            }
        }
    }
}

/// A probe that has no place, or one of whose sites has none.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The site, as far as it is known.
    pub site: Option<TargetAddress>,
    /// Module and function.
    pub function: String,
    /// Why.
    pub reason: RefusedBecause,
}

/// Why there is no place.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RefusedBecause {
    /// The planner's reason.
    #[error("{0}")]
    Patch(#[from] Refusal),
    /// The module's file does not have the code.
    #[error("its code is not in the file")]
    NoCode,
    /// An IFUNC that was not resolved.
    #[error("an IFUNC whose choice is not known yet")]
    Unresolved,
    /// A function without any way out: it ends in a call that does not return.
    #[error("no way out was found: the function never returns")]
    NoExit,
    /// A computed branch leads nobody knows where, and some of the function is reached by nothing else. The ways out that
    /// are known fire nevertheless.
    #[error(
        "a computed branch may lead to code that nobody knows of: returns from there are missed (-x return=address sees them)"
    )]
    ExitsUnknown,
    /// The arena or the code block is full.
    #[error("{0}")]
    Full(#[from] Full),
    /// The target's text is not what the file says.
    #[error("the text in memory differs from the file: somebody else patched it (a kernel uprobe, a debugger?)")]
    TextDiffers,
    /// The jump ends with the bytes of the patch behind it, and that one is not there, or another is now.
    #[error("the patch behind it, whose bytes its jump shares, could not be had or was replaced")]
    SuccessorGone,
    /// The return address was to be replaced, and may not be.
    #[error("its return address cannot be replaced: {0}")]
    ReturnAddress(ReturnRefusal),
    /// Neither form of a return probe.
    #[error("not all of its exits can be found ({at} is no known instruction), nor can its return address be replaced: {0}", at = .1)]
    NoReturnForm(ReturnRefusal, TargetAddress),
    /// An argument of a static probe that a clause uses.
    #[error("{0}")]
    Argument(String),
    /// See [`crate::shims`].
    #[error("the program sets its signal mask here, where nanoprobe itself must intervene")]
    Shim,
}

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
    /// What fires in each function that was planned so far, by its start.
    pub placed: &'a mut Fired,
    /// The patches that are there.
    pub patches: &'a [Patch],
    /// Those that were replaced: their springboards are there.
    pub retired: &'a [Patch],
    /// The functions around those that are planned.
    pub neighbours: Neighbours,
}

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

/// A module, code of it, whether that begins at a function's entry, and a spot in it.
type Located = (usize, Range<u64>, bool, Spot);

/// A function in which something fires.
struct Group {
    module: usize,
    name: String,
    extent: Range<u64>,
    /// Whether the extent begins at a function's entry, where nothing below the stack pointer is live.
    is_function: bool,
    members: Vec<(usize, Spot)>,
    hooks: Vec<Fire>,
}

impl Planner<'_> {
    /// Plans all enablings from index `first` on, and the hooks.
    pub fn place(&mut self, first: usize, hooks: &[Hook]) -> Placement {
        let mut placement = Placement::default();
        let known = self.near.regions();
        let free = self.near.free();
        let mut planned = Planned::default();
        for (start, mut group) in self.groups(first, hooks, &mut placement.refused) {
            // A function that is patched already (an IFUNC of a new library chose it) is planned anew, with all that
            // fires in it.
            if let Some((members, hooks)) = self.placed.get(&start) {
                group.members.splice(0..0, members.iter().copied());
                group.hooks.extend(hooks);
                placement.replaced.push(TargetAddress(start));
            }
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
        let options = PlanOptions { force: self.force };
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
        for (run, detour) in placed.runs {
            self.build_run(&run, detour, function_of(run.start), &mut placement);
        }
        for (site, reason) in settled.refusals.into_iter().chain(placed.refusals) {
            let reason = RefusedBecause::Patch(reason);
            placement.refused.push(Refused {
                site: Some(site),
                function: name_of(site),
                reason,
            });
        }
        placement.regions = self
            .near
            .regions()
            .into_iter()
            .flat_map(|region| without(region, &known))
            .collect();
        placement
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
                    detour,
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

    fn groups(&self, first: usize, hooks: &[Hook], refused: &mut Vec<Refused>) -> BTreeMap<u64, Group> {
        let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
        for (number, enabling) in self.enablings.list().iter().enumerate().skip(first) {
            let Some(probe) = self.probes.get(enabling.probe) else {
                continue;
            };
            for located in self.located(&probe.place) {
                let (module, extent, is_function, spot) = match located {
                    Ok(located) => located,
                    Err(reason) => {
                        refused.push(Refused {
                            site: None,
                            function: format!("{}`{}", probe.module, probe.function),
                            reason,
                        });
                        continue;
                    }
                };
                let group = groups.entry(extent.start).or_insert_with(|| Group {
                    module,
                    name: format!("{}`{}", probe.module, probe.function),
                    extent,
                    is_function,
                    members: Vec::new(),
                    hooks: Vec::new(),
                });
                group.is_function |= is_function;
                group.members.push((number, spot));
            }
        }
        for hook in hooks {
            let Some(module) = self.modules.get(hook.module) else {
                continue;
            };
            let Some(extent) = module.extent_at(hook.address) else {
                continue;
            };
            let start = module.bias().to_target(extent.start).0;
            let group = groups.entry(start).or_insert_with(|| Group {
                module: hook.module,
                name: format!("{}`(hook)", module.name()),
                extent: start..module.bias().to_target(extent.end).0,
                is_function: true,
                members: Vec::new(),
                hooks: Vec::new(),
            });
            group.hooks.push(hook.fire);
        }
        groups
    }

    /// The code that a function's probes stand in: the function itself, or what its IFUNC chose.
    fn locate(&self, module: usize, function: usize) -> Result<(usize, Range<u64>), RefusedBecause> {
        let home = self.modules.get(module).ok_or(RefusedBecause::NoCode)?;
        let function = home.functions().get(function).ok_or(RefusedBecause::NoCode)?;
        let FunctionKind::Ifunc { resolver } = function.kind else {
            let extent = function.extent();
            return Ok((
                module,
                home.bias().to_target(extent.start).0..home.bias().to_target(extent.end).0,
            ));
        };
        let choice = self
            .choices
            .get(&home.bias().to_target(resolver))
            .ok_or(RefusedBecause::Unresolved)?;
        extent_of_choice(self.modules, *choice).ok_or(RefusedBecause::Unresolved)
    }

    /// Where a probe fires; nowhere: in the tracer.
    fn located(&self, place: &Place) -> Vec<Result<Located, RefusedBecause>> {
        match *place {
            Place::Function { module, function, spot } => {
                let located = self.locate(module, function);
                vec![located.map(|(module, extent)| (module, extent, true, spot))]
            }
            Place::Address { module, address } => vec![self.locate_address(module, address)],
            Place::Static { module, number } => {
                let sites = self.statics.get(number).map_or(&[][..], |known| &known.sites);
                let located = sites.iter().map(|site| self.locate_address(module, site.address));
                located.collect()
            }
            _ => Vec::new(),
        }
    }

    /// What arguments mean at a site of a probe.
    fn kind_at(&self, probe: &Probe, site: TargetAddress) -> Option<nanoprobe_codegen::ProbeKind> {
        let Place::Static { module, number } = probe.place else {
            return probe_kind(probe);
        };
        let address = self.modules.get(module)?.bias().to_image(site);
        let sites = &self.statics.get(number)?.sites;
        sites
            .iter()
            .find(|known| known.address == address)
            .map(|known| known.kind)
    }

    /// The code around an address, and its spot in it.
    fn locate_address(&self, module: usize, address: ImageAddress) -> Result<Located, RefusedBecause> {
        let home = self.modules.get(module).ok_or(RefusedBecause::NoCode)?;
        let (extent, is_function) = extent_around(home, address).ok_or(RefusedBecause::NoCode)?;
        let offset = home.bias().to_target(address).0.wrapping_sub(extent.start);
        Ok((module, extent, is_function, Spot::Offset(offset)))
    }

    fn plan_group(
        &mut self,
        group: &Group,
        free: &Arc<[Range<u64>]>,
        planned: &mut Planned,
        refused: &mut Vec<Refused>,
    ) {
        let refuse = |site, reason| Refused {
            site,
            function: group.name.clone(),
            reason,
        };
        let module = self.modules.get(group.module);
        let Some(mut parts) = module.and_then(|module| self.neighbours.parts(module, &group.extent)) else {
            refused.push(refuse(None, RefusedBecause::NoCode));
            return;
        };
        if let Some(module) = module {
            self.neighbours.show(module, &mut parts);
            parts = parts.into_iter().map(|part| self.shown(part, free)).collect();
        }
        let mut points: Vec<Vec<Point>> = parts.iter().map(|_| Vec::new()).collect();
        let entry = TargetAddress(group.extent.start);
        for fire in &group.hooks {
            let hook = point(entry, FireCondition::Always, Position::Entry, false, vec![*fire]);
            if let Some(points) = points.first_mut() {
                points.push(hook);
            }
        }
        let enablings = self.enablings;
        let member = |(number, spot): &(usize, Spot)| Some((enablings.list().get(*number)?, *spot));
        let has_exits = group.members.iter().any(|(_, spot)| *spot == Spot::Exits);
        let by_address = match self.returns_by_address(group, &parts) {
            Ok(by_address) => by_address,
            Err(reason) => {
                if has_exits {
                    refused.push(refuse(Some(entry), reason));
                }
                let others = group.members.iter().filter(|(_, spot)| *spot != Spot::Exits);
                for (enabling, spot) in others.filter_map(member) {
                    if let Err(reason) = self.add_points(group, enabling, spot, &parts, &mut points) {
                        refused.push(refuse(Some(entry), reason));
                    }
                }
                return self.plan_parts(group, &parts, &points, planned, refused);
            }
        };
        let mut returns = Vec::new();
        for (enabling, spot) in group.members.iter().filter_map(member) {
            let added = if spot == Spot::Exits && by_address {
                self.point_of(enabling, entry, OFFSET_RETURNED, FireCondition::Always, Position::Entry)
                    .map(|point| returns.push(point))
            } else {
                self.add_points(group, enabling, spot, &parts, &mut points)
            };
            if let Err(reason) = added {
                refused.push(refuse(Some(entry), reason));
            }
        }
        if !returns.is_empty() {
            // Behind all that fires at the entry.
            match self.take_return(entry, returns) {
                Ok(taken) => points.iter_mut().take(1).for_each(|points| points.push(taken.clone())),
                Err(reason) => refused.push(refuse(Some(entry), reason)),
            }
        }
        self.plan_parts(group, &parts, &points, planned, refused);
    }

    /// A part that is shown what holds for all of the target.
    fn shown(&self, mut part: FunctionMap, free: &Arc<[Range<u64>]>) -> FunctionMap {
        part.show_near_memory(free.clone());
        if self.shadow_stack {
            part.show_shadow_stack();
        }
        part
    }

    /// Which form the return probes of a function take.
    fn returns_by_address(&self, group: &Group, parts: &[FunctionMap]) -> Result<bool, RefusedBecause> {
        if !group.is_function {
            return Ok(false);
        }
        let undecodable = parts.iter().find_map(FunctionMap::undecodable);
        let by_choice = match self.returns.form {
            ReturnForm::Exits => return Ok(false),
            ReturnForm::Auto => false,
            ReturnForm::Address => true,
        };
        if undecodable.is_none() && (!by_choice || parts.iter().all(|part| part.exits().is_empty())) {
            return Ok(false);
        }
        let names = self.modules.get(group.module).into_iter().flat_map(|module| {
            let at = module.bias().to_image(TargetAddress(group.extent.start));
            let here = move |function: &&nanoprobe_symbols::Function| function.extent().start == at;
            module
                .functions()
                .iter()
                .filter(here)
                .flat_map(|function| function.names())
        });
        match (returns::check_function(&self.returns, names, parts), undecodable) {
            (Ok(()), _) => Ok(true),
            (Err(refusal), Some(at)) if !by_choice => Err(RefusedBecause::NoReturnForm(refusal, at)),
            (Err(refusal), _) => Err(RefusedBecause::ReturnAddress(refusal)),
        }
    }

    fn add_points(
        &mut self,
        group: &Group,
        enabling: &Enabling,
        spot: Spot,
        parts: &[FunctionMap],
        points: &mut [Vec<Point>],
    ) -> Result<(), RefusedBecause> {
        let entry = TargetAddress(group.extent.start);
        spread(spot, entry, parts, points, |site, offset, condition, position| {
            // Where nobody enters, something may be live below the stack pointer.
            let is_entry = spot == Spot::Entry || group.is_function;
            let position = if is_entry { position } else { Position::Inside };
            self.point_of(enabling, site, offset, condition, position)
        })
    }

    /// The point that replaces the return address, with the stub in which the points of the return fire.
    fn take_return(&mut self, entry: TargetAddress, returns: Vec<Point>) -> Result<Point, RefusedBecause> {
        let full_frame = returns.iter().any(|point| point.full_frame);
        let fires: Vec<Fire> = returns.into_iter().flat_map(|point| point.fires).collect();
        let stub = build_return_stub(&fires, full_frame, &self.runtime, self.returns.exits)?;
        let stub = self.code.put(stub, 16)?;
        let take = self.returns.take;
        let fires = vec![Fire::TakeReturn { take, stub }];
        Ok(point(entry, FireCondition::Always, Position::Entry, false, fires))
    }

    fn plan_parts(
        &mut self,
        group: &Group,
        parts: &[FunctionMap],
        points: &[Vec<Point>],
        planned: &mut Planned,
        refused: &mut Vec<Refused>,
    ) {
        let entry = TargetAddress(group.extent.start);
        // Whatever tactic is to be measured, the linker's hook takes the one that fits.
        let options = PlanOptions {
            force: self.force.filter(|_| group.hooks.is_empty()),
        };
        for (part, points) in parts.iter().zip(points) {
            if points.is_empty() {
                continue;
            }
            let made = plan(part, points, &options);
            self.neighbours.take(&made.runs);
            let function = Function {
                start: entry,
                name: group.name.clone(),
            };
            let whole = Part {
                end: TargetAddress(part.start().0.saturating_add(part.size())),
                module: group.module,
                extent: group.extent.clone(),
                function: function.clone(),
            };
            planned.parts.insert(part.start(), whole);
            let runs = made.runs.into_iter().map(|run| (run, function.clone()));
            planned.runs.extend(runs);
            let reasons = made.refusals.into_iter();
            refused.extend(reasons.map(|(site, reason)| Refused {
                site: Some(site),
                function: group.name.clone(),
                reason: RefusedBecause::Patch(reason),
            }));
        }
    }

    fn point_of(
        &mut self,
        enabling: &Enabling,
        site: TargetAddress,
        offset: u64,
        condition: FireCondition,
        position: Position,
    ) -> Result<Point, RefusedBecause> {
        if let Some(counters) = &enabling.counters {
            let fires = counters
                .iter()
                .map(|offset| Fire::Count {
                    context_offset: *offset,
                })
                .collect();
            return Ok(point(site, condition, position, false, fires));
        }
        let probe = self.probes.get(enabling.probe).ok_or(RefusedBecause::NoCode)?;
        let kind = self.kind_at(probe, site).ok_or(RefusedBecause::NoCode)?;
        if let Some(reason) = self.enablings.unreadable(enabling.clause, kind) {
            return Err(RefusedBecause::Argument(format!("{probe}: {reason}")));
        }
        let compiled = self
            .enablings
            .handler(enabling.clause, kind)
            .ok_or(RefusedBecause::NoCode)?;
        let handler = match self.handlers.get(&(enabling.clause, kind)) {
            Some(address) => *address,
            None => {
                let address = self.code.reserve(compiled.placed_bytes() as u64, 16)?;
                self.code.place(address, compiled.place(address.0, self.agent));
                self.handlers.insert((enabling.clause, kind), address);
                address
            }
        };
        let mut string = |text: &str| self.growth.string(text, self.strsize).map(|address| address.0);
        let layout = EnablingLayout {
            epid: enabling.epid,
            probe_id: probe.id,
            site: site.0,
            offset,
            provider: string(&probe.provider)?,
            module: string(&probe.module)?,
            function: string(&probe.function)?,
            name: string(&probe.name())?,
            slot_base: enabling.slot_base,
            ..EnablingLayout::default()
        };
        let enabling = self.growth.put(layout.to_bytes(), 8)?;
        Ok(point(
            site,
            condition,
            position,
            compiled.full_frame,
            vec![Fire::Call { handler, enabling }],
        ))
    }
}

/// Adds the points at which a probe of a function fires to those of its parts, also where it says why some may be missing. `make` is given the site, its offset from
/// the entry, and when and where it fires.
pub fn spread(
    spot: Spot,
    entry: TargetAddress,
    parts: &[FunctionMap],
    points: &mut [Vec<Point>],
    mut make: impl FnMut(TargetAddress, u64, FireCondition, Position) -> Result<Point, RefusedBecause>,
) -> Result<(), RefusedBecause> {
    match spot {
        Spot::Entry | Spot::Offset(_) => {
            let offset = if let Spot::Offset(offset) = spot { offset } else { 0 };
            let site = TargetAddress(entry.0.wrapping_add(offset));
            let position = if offset == 0 { Position::Entry } else { Position::Inside };
            let made = make(site, offset, FireCondition::Always, position)?;
            // What lies in no part is the first one's to refuse.
            let holds = |part: &FunctionMap| {
                site.offset_from(part.start())
                    .is_some_and(|inside| inside < part.size())
            };
            let part = parts.iter().position(holds).unwrap_or(0);
            points.get_mut(part).ok_or(RefusedBecause::NoCode)?.push(made);
        }
        Spot::Exits => {
            let mut any = false;
            for (part, points) in parts.iter().zip(points) {
                for exit in part.exits() {
                    let offset = exit.site.0.wrapping_sub(entry.0);
                    points.push(make(exit.site, offset, exit.condition, Position::Inside)?);
                    any = true;
                }
            }
            if !any {
                return Err(RefusedBecause::NoExit);
            }
            if !parts.iter().all(FunctionMap::has_all_exits) {
                return Err(RefusedBecause::ExitsUnknown);
            }
        }
    }
    Ok(())
}

/// The module that an IFUNC's choice lies in, and the code from there to its end.
pub fn extent_of_choice(modules: &[Module], choice: TargetAddress) -> Option<(usize, Range<u64>)> {
    modules.iter().enumerate().find_map(|(index, module)| {
        let extent = module.extent_at(module.bias().to_image(choice))?;
        let end = module.bias().to_target(extent.end);
        (choice.0 < end.0).then_some((index, choice.0..end.0))
    })
}

/// Everything that fires in a run.
fn fires(run: &RunPlan) -> impl Iterator<Item = &Fire> {
    let points = run.instructions.iter().flat_map(|displaced| &displaced.points);
    points.flat_map(|point| &point.fires)
}

/// Which original address a relocated one stands for, sorted for the agent's binary search; an entry holds up to the
/// next, and 0 stands for none ([`nanoprobe_patch::Built::origins`]). The words that are pushed too many are in the top
/// byte, which addresses leave free.
pub fn origins<'a>(patches: impl Iterator<Item = &'a Patch>) -> Vec<(u64, u64)> {
    let mut origins = BTreeMap::new();
    for patch in patches {
        for (relocated, original) in origins_of(patch.detour, &patch.built) {
            // One detour may begin where another one ends.
            let entry = origins.entry(relocated).or_insert(0);
            if original != 0 {
                *entry = original;
            }
        }
    }
    origins.into_iter().collect()
}

/// The same of one detour.
pub fn origins_of(detour: TargetAddress, built: &Built) -> BTreeMap<u64, u64> {
    let origin = |origin: Origin| {
        let original = origin.original.map_or(0, |original| original.0);
        (
            origin.relocated.0,
            original | u64::from(origin.pushed) << ORIGIN_PUSHED_SHIFT,
        )
    };
    built.origins(detour).into_iter().map(origin).collect()
}

fn point(
    site: TargetAddress,
    condition: FireCondition,
    position: Position,
    full_frame: bool,
    fires: Vec<Fire>,
) -> Point {
    Point {
        site,
        condition,
        position,
        full_frame,
        fires,
    }
}

/// What of a region is not mapped yet: regions merge with their neighbours as they grow.
pub fn without(region: Range<TargetAddress>, known: &[Range<TargetAddress>]) -> Vec<Range<TargetAddress>> {
    let mut rest = vec![region];
    for taken in known {
        let parts = |part: Range<TargetAddress>| {
            let before = part.start..part.end.min(taken.start);
            let behind = part.start.max(taken.end)..part.end;
            [before, behind].into_iter().filter(|part| part.start < part.end)
        };
        rest = rest.into_iter().flat_map(parts).collect();
    }
    rest
}
