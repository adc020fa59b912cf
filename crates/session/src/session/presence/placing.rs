//! Probes are planned, written and armed: when a session begins, and whenever libraries come.

use std::mem::offset_of;
use std::thread::Builder;
use std::time::Duration;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_arena::Memory as _;
use nanoprobe_arena::layout::Control;
use nanoprobe_patch::Replacement;
use nanoprobe_symbols::Module;
use nanoprobe_target::{Pauses, Seccomp, Stopped};
use nanoprobe_text::code::Neighbours;

use super::entering::release_one;
use super::returns::return_policy;
use super::{Placed, Presence};
use crate::arming::Armed;
use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::placement::{Changes, EXPLANATIONS_MAX, Fired, Holder, Hook, Placement, Planner, Room};
use crate::probes::Place;
use crate::session::known::Known;
use crate::session::output::Begun;
use crate::session::timers::Timers;
use crate::session::tracing::Tracing;
use crate::small_stack::small_stacks;
use crate::{interrupt, shims, unwinding};

/// So many probes are planned long enough for another thread to be of use meanwhile.
const PROBES_FOR_A_THREAD: usize = 256;

impl Presence {
    /// Fires BEGIN, and places the probes. `stopped`: the threads that are stopped since the arena was mapped.
    ///
    /// # Errors
    /// [`SessionError`]; the caller must take back what was done to the target by then.
    pub(in crate::session) fn attach(
        &mut self,
        tracing: &mut Tracing,
        timers: &mut Timers,
        mut stopped: Stopped,
        mut pauses: Pauses,
    ) -> Result<Begun, SessionError> {
        let started = stopped.is_whole_process();
        // A command that is let go must find a fresh heartbeat, however long its probes took.
        let _heartbeat = self.heartbeat();
        // Before a program's first instruction, resolvers would choose by processor features that have not been
        // read yet.
        if !started {
            self.resolve_ifuncs(tracing, &mut stopped, 0)?;
        }
        // A running target goes on while its probes are matched and planned.
        let stopped = if started {
            Some(stopped)
        } else {
            release_one(stopped, &mut pauses);
            None
        };
        tracing.initialise_dynamic()?;
        if tracing.known.loaded {
            tracing.known.match_choices()?;
            tracing.known.check_matches()?;
        }
        let mut first = tracing.known.enablings.list().len();
        if !self.listing {
            tracing.fire_all(|place| *place == Place::Begin, [0; 10])?;
            timers.start(tracing);
            first = 0;
        }
        let mut hooks = self.hooks(&tracing.known);
        if stopped.is_none() && self.takes_returns(&tracing.known) {
            pauses.add(&self.prepare_returns(tracing, std::mem::take(&mut hooks))?);
        }
        let armed = self.place(tracing, first, 0, &hooks, stopped)?;
        pauses.add(&armed.pauses);
        self.look_for_sandbox()?;
        match self.serve_returns(tracing) {
            Err(SessionError::Memory(_) | SessionError::Stop(_) | SessionError::Remote(_))
                if tracing.known.target_is_gone() => {}
            other => other?,
        }
        self.attachment.complete()?;
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
        let known = &tracing.known;
        let knows_all = stopped.is_some() && known.is_static() && self.takes_returns(known);
        let whole = knows_all.then_some(known);
        let unwinders = whole.map_or_else(Vec::new, |known| self.missing_return_hooks(known));
        let addresses = unwinders.iter().filter_map(|hook| known.address_of(hook));
        let hooked: Vec<u64> = addresses.map(|address| address.0).collect();
        let hooks: Vec<Hook> = hooks.iter().chain(&unwinders).copied().collect();
        let attachment = &self.attachment;
        let modules = self.without_shims(known);
        let (placement, found) = self.planned_with_shims(known, first, &hooks, &modules);
        let mut placement = placement?;
        if interrupt::requested() {
            return Ok(Armed::default());
        }
        let has_shims = !placement.changes.patches.is_empty() || attachment.shimmed.is_some();
        if has_shims {
            let found = found.unwrap_or_else(|| shims::find_all(&modules, interrupt::requested));
            let agent = |function| attachment.agent(function);
            shims::add(&mut placement, modules.into_iter().zip(found), agent);
        }
        if interrupt::requested() {
            return Ok(Armed::default());
        }
        let placement = self.commit(placement);
        let attachment = &mut self.attachment;
        if has_shims {
            attachment.shimmed = Some(known.modules.list().len());
        }
        let process = attachment.process.clone();
        let mut pauses = Pauses::default();
        let takes_returns = placement.patches.iter().any(|patch| patch.takes_return) && !attachment.returns.mapped;
        let map = |attachment: &mut Attachment, stopped: &mut Stopped| {
            attachment.map_regions(stopped, &placement.regions)?;
            match takes_returns {
                true => attachment.map_returns(stopped),
                false => Ok(()),
            }
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

    /// A placement, and where shims belong in some modules, as far as another thread has looked meanwhile.
    fn planned_with_shims(
        &self,
        known: &Known,
        first: usize,
        hooks: &[Hook],
        modules: &[&Module],
    ) -> (Result<Placement, SessionError>, Option<Vec<Vec<Replacement>>>) {
        let is_much = known.enablings.list().len() >= first + PROBES_FOR_A_THREAD;
        std::thread::scope(|scope| {
            let find = || shims::find_all(modules, interrupt::requested);
            let thread = is_much.then(|| Builder::new().spawn_scoped(scope, find));
            let placement = planned(known, &self.placed, &self.attachment, first, hooks);
            let found = thread.and_then(Result::ok).and_then(|thread| thread.join().ok());
            (placement, found)
        })
    }

    /// The modules that have come since the last shims were placed.
    fn without_shims<'k>(&self, known: &'k Known) -> Vec<&'k Module> {
        let first = self.attachment.shimmed.unwrap_or(0);
        let modules = known.loaded_modules().filter(|(index, _)| *index >= first);
        modules.map(|(_, module)| module).collect()
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
            unwinding::publish(attachment, &known.modules, first)?;
        }
        if attachment.parameters.reads_memory {
            self.ranges.publish(attachment)?;
        }
        self.publish_errno(tracing)
    }

    /// Commits a placement: the only call that applies a plan.
    fn commit(&mut self, placement: Placement) -> Changes {
        placement.commit(Holder {
            near: &mut self.attachment.room.near,
            code: &mut self.attachment.room.code,
            growth: &mut self.attachment.room.growth,
            handlers: &mut self.placed.handlers,
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
        choices: &known.choices,
        runtime,
        room: Room {
            near: attachment.room.near.clone(),
            code: attachment.room.code.draft(),
            growth: attachment.room.growth.draft(),
            handlers: placed.handlers.clone(),
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
        patches: &attachment.patches,
        retired: &attachment.retired,
        neighbours: Neighbours::default(),
        explanations: EXPLANATIONS_MAX,
    };
    Ok(planner.place(first, hooks))
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
    Ok(planned(known, placed, &attachment, 0, &[])?.changes)
}
