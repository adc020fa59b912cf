//! Probes are planned, written and armed: when a session begins, and whenever libraries come.

use std::mem::offset_of;
use std::ops::Range;
use std::time::Duration;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_arena::Memory as _;
use nanoprobe_arena::layout::Control;
use nanoprobe_patch::{Replacement, TargetAddress};
use nanoprobe_target::{Pauses, Seccomp, Stopped};
use nanoprobe_text::code::Neighbours;
use nanoprobe_text::modules::{Modules, permanent};

use super::entering::release_one;
use super::returns::return_policy;
use super::{Placed, Presence};
use crate::arming::Armed;
use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::occupied::Occupied;
use crate::others::Others;
use crate::placement::{CallPlaces, Changes, EXPLANATIONS_MAX, Fired, Holder, Hook, Placement, Planner, Room, There};
use crate::probes::Place;
use crate::session::known::Known;
use crate::session::output::Begun;
use crate::session::timers::Timers;
use crate::session::tracing::Tracing;
use crate::small_stack::small_stacks;
use crate::{interrupt, shims, unwinding};

impl Presence {
    /// Fires BEGIN, and places the probes. `stopped`: the threads that are stopped since the arena was mapped.
    ///
    /// # Errors
    /// [`SessionError`]; the caller must take back all changes of the target by then.
    pub(in crate::session) fn attach(
        &mut self,
        tracing: &mut Tracing,
        timers: &mut Timers,
        stopped: Stopped,
        mut pauses: Pauses,
    ) -> Result<Begun, SessionError> {
        let started = stopped.is_whole_process();
        // A program that stands at its start has the filters with which it was opened, and its shims see each new one.
        let may_be_filtered = !stopped.process().stands_at_start();
        // A command that starts to run must find a fresh heartbeat, however long its probes took.
        let _heartbeat = self.heartbeat();
        // Before a program's first instruction, resolvers would choose by processor features that have not been
        // read yet. A running target keeps running while its probes are matched and planned.
        let stopped = if started {
            Some(stopped)
        } else {
            self.resolve_ifuncs(tracing, stopped, 0, &mut pauses)?;
            None
        };
        if tracing.known.loaded {
            tracing.known.match_choices()?;
            tracing.known.check_matches()?;
        }
        let mut first = tracing.known.enablings.list().len();
        if !self.listing {
            if !tracing.known.is_member() {
                tracing.fire_all(|place| *place == Place::Begin, [0; 10])?;
            }
            if self.attachment.parameters.follows_programs {
                tracing.keep_variables()?;
            }
            timers.start(tracing);
            first = 0;
        }
        let mut hooks = self.hooks(&tracing.known);
        if stopped.is_none() && self.takes_returns(&tracing.known) {
            pauses.add(&self.prepare_returns(tracing, std::mem::take(&mut hooks))?);
        }
        self.begin_to_watch_handlers(tracing)?;
        let mut armed = self.place(tracing, first, 0, &hooks, stopped)?;
        // A program that begins has no handlers yet.
        if !started && !self.listing && tracing.known.watches_handlers() {
            let of_handlers = self.place_in_handlers(tracing)?;
            armed.pauses.add(&of_handlers.pauses);
            armed.patches += of_handlers.patches;
        }
        if self.attachment.actions.host.is_some() && self.attachment.parameters.follows_programs {
            let warning = "another nanoprobe traces this process: the programs that it executes are not followed";
            tracing.warn(warning.to_owned());
        }
        pauses.add(&armed.pauses);
        self.look_at_made_code(tracing, true)?;
        if may_be_filtered {
            self.look_for_sandbox()?;
        }
        match self.serve_returns(tracing) {
            Err(SessionError::Memory(_) | SessionError::Stop(_) | SessionError::Remote(_))
                if tracing.known.target_is_gone() => {}
            other => other?,
        }
        self.attachment.complete()?;
        self.claim = None;
        // The first interval of a tick is as long as all later ones, however long the placing took.
        timers.count_from_now();
        Ok(Begun {
            pauses,
            patches: armed.patches,
            took: Duration::ZERO,
        })
    }

    /// Plans, writes and arms the enablings from index `first` on;
    /// publishes unwinding tables of modules from `module` on.
    pub(super) fn place(
        &mut self,
        tracing: &mut Tracing,
        first: usize,
        module: usize,
        hooks: &[Hook],
        stopped: Option<Stopped>,
    ) -> Result<Armed, SessionError> {
        // The text is planned as it is now, and must be the same when it is written.
        let _claim = self.attachment.process.claim()?;
        let others = self.attachment.find_others()?;
        let known = &tracing.known;
        let knows_all = stopped.is_some() && known.is_static() && self.takes_returns(known);
        let whole = knows_all.then_some(known);
        let unwinders = whole.map_or_else(Vec::new, |known| self.missing_return_hooks(known));
        let addresses = unwinders.iter().filter_map(|hook| known.address_of(hook));
        let hooked: Vec<u64> = addresses.map(|address| address.0).collect();
        let hooks: Vec<Hook> = hooks.iter().chain(&unwinders).copied().collect();
        let (placement, coming, has_shims) = self.plan_among(&mut tracing.known, first, &hooks, &others)?;
        let known = &tracing.known;
        if interrupt::requested() {
            return Ok(Armed::default());
        }
        let placement = self.commit(placement);
        let attachment = &mut self.attachment;
        if has_shims {
            attachment.shimmed = Some(known.modules.list().len());
            self.placed.shims.extend(&coming);
            self.placed.shims.sort_unstable();
        }
        attachment.permanent = permanent_ranges(&known.modules);
        let (process, mut pauses) = (attachment.process.clone(), Pauses::default());
        let takes_returns = placement.patches.iter().any(|patch| patch.takes_return) && !attachment.returns.mapped;
        let map = |attachment: &mut Attachment, stopped: &mut Stopped| {
            attachment.make_room(stopped, &known.modules, &placement)?;
            match takes_returns {
                true => attachment.map_returns(stopped),
                false => Ok(()),
            }
        };
        // The only thread waits for the answer anyway: nothing runs that a short stop could hold up, and the protocol
        // for running threads has three rounds. In a long stop the tracer would keep a processor for itself.
        let stopped = match stopped {
            None if attachment.waits_alone_for(placement.patches.len()) => Some(process.stop()?),
            other => other,
        };
        let stopped = match stopped {
            Some(mut stopped) => {
                map(attachment, &mut stopped)?;
                let sites = || placement.patches.iter().flat_map(|patch| &patch.sites);
                if takes_returns && knows_all && hooked.iter().all(|hook| sites().any(|site| site.0 == *hook)) {
                    // No linker can bring more modules, so the program's first calls are seen, too.
                    let event = attachment.returns.events(process.memory())?;
                    attachment.returns.answer(process.memory(), event)?;
                    self.return_hooks.extend(hooked);
                }
                Some(stopped)
            }
            None if placement.regions.is_empty() && !takes_returns => None,
            None => {
                let mut stopped = process.stop_one()?;
                map(attachment, &mut stopped)?;
                release_one(stopped, &mut pauses);
                None
            }
        };
        tracing.known.modules.forget_bytes();
        self.publish_needs(tracing, module)?;
        if interrupt::requested() {
            return Ok(Armed::default());
        }
        // A program that is being started is still stopped here. After `arm` it runs on, may read its semaphores
        // with its first instructions, and may have ended.
        self.attachment.raise_semaphores(&tracing.known.semaphores(first))?;
        self.attachment.write(&placement.patches)?;
        let mut armed = self.attachment.arm(stopped, placement)?;
        armed.pauses.add(&pauses);
        tracing.known.refused.append(&mut armed.refused);
        Ok(armed)
    }

    /// As [`Presence::plan_with_shims`], where other tracers have patches. Instructions that these have displaced are
    /// looked for only where they are wanted.
    fn plan_among(
        &self,
        known: &mut Known,
        first: usize,
        hooks: &[Hook],
        others: &Others,
    ) -> Result<(Placement, Vec<TargetAddress>, bool), SessionError> {
        let memory = self.attachment.process.memory();
        let mut occupied = others.occupied(memory);
        let planned = self.plan_with_shims(known, first, hooks, &occupied)?;
        let displaced = planned.0.displaced_by_others();
        if displaced.is_empty() {
            return Ok(planned);
        }
        occupied.homes = others.homes(memory, displaced.into_iter(), &self.attachment.asked());
        self.plan_with_shims(known, first, hooks, &occupied)
    }

    /// Plans the enablings from index `first` on, the hooks, and the shims that belong to them. Yields also the system
    /// calls whose probes became parts of shims, and whether shims were planned.
    fn plan_with_shims(
        &self,
        known: &mut Known,
        first: usize,
        hooks: &[Hook],
        occupied: &Occupied,
    ) -> Result<(Placement, Vec<TargetAddress>, bool), SessionError> {
        let indexes = self.without_shims(known);
        // Probes before a system call at which a shim will stand become a part of the shim.
        let fires = known.traces_calls() && !self.listing && self.attachment.actions.host.is_none();
        let found = fires.then(|| known.take_shims(&indexes));
        let all = found.iter().flatten().flatten();
        let mut coming: Vec<TargetAddress> = all.map(Replacement::syscall).collect();
        coming.sort_unstable();
        let mut placement = planned(known, &self.placed, &self.attachment, first, hooks, &coming, occupied)?;
        let has_shims = !interrupt::requested() && self.wants_shims(known, &placement);
        if has_shims {
            let found = found.unwrap_or_else(|| known.take_shims(&indexes));
            self.add_shims(known, &indexes, found, &mut placement);
        }
        Ok((placement, coming, has_shims))
    }

    /// Whether the agent must stand before system calls.
    fn wants_shims(&self, known: &Known, placement: &Placement) -> bool {
        let attachment = &self.attachment;
        if attachment.actions.host.is_some() {
            // The host's shims watch the masks.
            return false;
        }
        let follows = attachment.parameters.follows_programs;
        let fires = !placement.changes.patches.is_empty() || !placement.shim_points.is_empty();
        follows || attachment.shimmed.is_some() || fires || !self.listing && known.watches_handlers()
    }

    /// Adds the shims of modules to a placement.
    fn add_shims(&self, known: &Known, modules: &[usize], found: Vec<Vec<Replacement>>, placement: &mut Placement) {
        let list = known.modules.list();
        let modules = modules.iter().filter_map(|index| list.get(*index));
        let runtime = self.attachment.runtime();
        shims::add(placement, modules.zip(found), &runtime, |function| {
            self.attachment.agent(function)
        });
    }

    /// The indexes of the modules that have come since the last shims were placed.
    fn without_shims(&self, known: &Known) -> Vec<usize> {
        let first = self.attachment.shimmed.unwrap_or(0);
        let indexes = known.loaded_modules().map(|(index, _)| index);
        indexes.filter(|index| *index >= first).collect()
    }

    /// Publishes what handlers read besides their arguments: unwinding tables (of the modules from index `module`
    /// on), readable memory, errno. A command's first handlers may come with a library, long after the parameters
    /// were made.
    fn publish_needs(&mut self, tracing: &mut Tracing, module: usize) -> Result<(), SessionError> {
        let known = &tracing.known;
        let needs = known.enablings.needs();
        let attachment = &mut self.attachment;
        let parameters = &mut attachment.parameters;
        let walks_anew = needs.walks_stacks && !parameters.walks_stacks;
        parameters.walks_stacks |= needs.walks_stacks;
        parameters.reads_memory |= needs.reads_memory;
        if attachment.parameters.walks_stacks {
            let first = if walks_anew { 0 } else { module };
            let interpreted = &mut known.interpreted.borrow_mut();
            unwinding::publish(attachment, interpreted, &known.modules, first)?;
            interpreted.tell_makers(&known.modules, || known.perf_map.borrow().exists());
        }
        if attachment.parameters.reads_memory {
            self.ranges.publish(attachment)?;
        }
        self.publish_errno(tracing)
    }

    /// Commits a placement: the only call that applies a plan.
    pub(super) fn commit(&mut self, placement: Placement) -> Changes {
        placement.commit(Holder {
            near: &mut self.attachment.room.near,
            code: &mut self.attachment.room.code,
            growth: &mut self.attachment.room.growth,
            handlers: &mut self.placed.handlers,
            call_tables: &mut self.placed.call_tables,
            fired: &mut self.placed.fired,
        })
    }

    /// A filter may have been installed between the first look and the shims. From now on the shims see every new
    /// one.
    fn look_for_sandbox(&self) -> Result<(), SessionError> {
        let process = &self.attachment.process;
        if !process.has_seccomp() || process.facts().seccomp != Seccomp::Disabled {
            return Ok(());
        }
        let memory = self.attachment.memory()?;
        Ok(memory.store_u64(offset_of!(Control, sandboxed) as u64, 1)?)
    }
}

/// Plans the enablings from index `first` on, and the hooks. Changes nothing.
pub(super) fn planned(
    known: &Known,
    placed: &Placed,
    attachment: &Attachment,
    first: usize,
    hooks: &[Hook],
    coming: &[TargetAddress],
    occupied: &Occupied,
) -> Result<Placement, SessionError> {
    with_planner(known, placed, attachment, coming, occupied, |planner| {
        planner.place(first, hooks)
    })
}

/// Plans the patches of calls in code that the program has made. Changes nothing.
pub(super) fn planned_made(
    known: &Known,
    placed: &Placed,
    attachment: &Attachment,
    calls: &[TargetAddress],
) -> Result<Placement, SessionError> {
    let occupied = Occupied::default();
    with_planner(known, placed, attachment, &[], &occupied, |planner| {
        planner.place_made(calls)
    })
}

fn with_planner(
    known: &Known,
    placed: &Placed,
    attachment: &Attachment,
    coming: &[TargetAddress],
    occupied: &Occupied,
    plan: impl FnOnce(Planner<'_>) -> Placement,
) -> Result<Placement, SessionError> {
    let refusal = known.return_refusal();
    let shadow_stack = known.has_shadow_stack();
    let returns = return_policy(known, attachment, refusal.as_ref());
    let code = attachment.addresses.code.0;
    let agent = move |function: AgentFunction| code + u64::from(function.offset());
    let runtime = attachment.runtime();
    let planner = Planner {
        modules: known.modules.list(),
        probes: &known.probes,
        enablings: &known.enablings,
        statics: &known.statics,
        calls: CallPlaces {
            known: &known.calls,
            shims: &placed.shims,
            coming,
        },
        choices: &known.choices,
        runtime,
        room: Room {
            near: attachment.room.near.clone(),
            code: attachment.room.code.draft(),
            growth: attachment.room.growth.draft(),
            handlers: placed.handlers.clone(),
            call_tables: placed.call_tables.clone(),
            fired: Fired::new(),
        },
        is_cancelled: interrupt::requested,
        agent: &agent,
        force: known.compiled.tactic,
        strsize: known.compiled.limits.string_limit(),
        returns,
        shadow_stack,
        small_stacks: small_stacks(known.modules.list(), attachment.parameters.small_stacks),
        placed: &placed.fired,
        there: There {
            patches: &attachment.patches,
            retired: &attachment.retired,
            occupied,
        },
        neighbours: Neighbours::default(),
        explanations: EXPLANATIONS_MAX,
    };
    Ok(plan(planner))
}

/// How the probes would be placed, for `-l -v`. Nothing is written into the target; IFUNCs stay unresolved.
///
/// # Errors
/// There is no target, or no room in its address space.
pub(in crate::session) fn plan(known: &Known, placed: &Placed) -> Result<Changes, SessionError> {
    let process = known.process().cloned().ok_or(SessionError::NotAttached)?;
    let parameters = known.parameters(&process, None)?;
    let layout = known.compiled.layout.clone();
    let attachment = Attachment::prepare(process.clone(), &process.map()?, layout, parameters)?;
    Ok(planned(known, placed, &attachment, 0, &[], &[], &Occupied::default())?.changes)
}

/// Where the modules lie that the program keeps.
fn permanent_ranges(modules: &Modules) -> Vec<Range<u64>> {
    let permanent = permanent(modules.list()).into_iter();
    permanent.filter_map(|index| modules.range(index)).collect()
}
