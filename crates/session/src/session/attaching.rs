//! The beginning of a session: the target is opened, what dead tracers have left in it is taken away, our presence is
//! mapped, and probes are planned, written and armed.

use std::time::{Duration, Instant};

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Pauses, Process, StopError, Stopped};
use nanoprobe_text::code::Neighbours;

use super::{Begun, PATIENCE_WITH_TRACERS, Session};
use crate::acquire::clean_up;
use crate::arena_memory::ArenaMemory;
use crate::arming::Armed;
use crate::attachment::Attachment;
use crate::clock::Clock;
use crate::error::SessionError;
use crate::placement::{Changes, EXPLANATIONS_MAX, Fired, Holder, Hook, Placement, Planner, Room};
use crate::probes::Place;
use crate::small_stack::small_stacks;
use crate::thread_key::Seen;
use crate::{interrupt, shims, unwinding};

impl Session {
    /// Attaches, fires BEGIN, and places the probes.
    ///
    /// # Errors
    /// [`SessionError`]; what was done to the target by then is taken back.
    pub fn begin(&mut self) -> Result<Begun, SessionError> {
        let start = Instant::now();
        let clock = Clock::since(self.clock_start);
        self.clock = Some(clock);
        let Some(process) = self.process.clone() else {
            self.private = Some(ArenaMemory::private(self.layout.bytes).map_err(SessionError::Arena)?);
            self.initialise_dynamic()?;
            self.fire_all(|place| *place == Place::Begin, [0; 10])?;
            self.start_timers();
            return Ok(Begun {
                took: start.elapsed(),
                ..Begun::default()
            });
        };
        let mut pauses = Pauses::default();
        let entered = self.enter(&process, &clock, &mut pauses);
        match entered.and_then(|stopped| self.attach(stopped, pauses)) {
            Ok(mut begun) => {
                begun.took = start.elapsed();
                Ok(begun)
            }
            Err(error) => {
                // Whatever was mapped or patched goes again.
                let clean_up = self.detach().err();
                Err(self.or_left(self.or_ended(error), clean_up))
            }
        }
    }

    /// Where taking back failed, too, the error says what is left in the process. Nothing is in one that has ended.
    fn or_left(&self, error: SessionError, clean_up: Option<SessionError>) -> SessionError {
        let gone = |error: &SessionError| {
            matches!(
                error,
                SessionError::Executed { .. } | SessionError::Stop(StopError::Gone { .. })
            )
        };
        let (Some(clean_up), Some(process)) = (clean_up, &self.process) else {
            return error;
        };
        if gone(&error) || gone(&clean_up) || self.target_is_gone() || process.has_executed() {
            return error;
        }
        let is_armed = self.attachment.as_ref().is_some_and(crate::signals::are_installed);
        SessionError::NotCleanedUp {
            pid: process.pid(),
            error: Box::new(error),
            clean_up: Box::new(clean_up),
            left: if is_armed {
                "runs on with nanoprobe's probes in it, which count for nobody: the next attach, or `nanoprobe restore`, takes \
                 them back"
            } else {
                "runs on, its text untouched, with memory of nanoprobe's mapped that it does not use: the next attach, or \
                 `nanoprobe restore`, takes that back"
            },
        }
    }

    /// What is wrong with a process that has ended meanwhile is that: it has no memory, no threads and no files. Whatever
    /// is wrong with one that has executed another program meanwhile, may be wrong with the old one only.
    pub(super) fn or_ended(&self, error: SessionError) -> SessionError {
        use SessionError::{AtDescription, Interrupted, Memory, Stop};
        if let Interrupted = error {
            return error;
        }
        if let (Stop(StopError::Gone { .. }), Some(process)) = (&error, &self.process) {
            process.wait_for_its_fate();
        }
        if let Some(process) = self
            .process
            .as_ref()
            .filter(|process| !process.is_child() && process.has_executed())
        {
            return SessionError::Executed { pid: process.pid() };
        }
        match (&error, &self.process) {
            (AtDescription { .. } | Memory(_) | Stop(_), Some(process)) if self.target_is_gone() => {
                StopError::Gone { pid: process.pid() }.into()
            }
            _ => error,
        }
    }

    /// What was not found in a process that is being started may be there in a moment.
    pub(super) fn or_starting(&self, error: SessionError) -> SessionError {
        match &self.process {
            Some(process)
                if matches!(error, SessionError::AtDescription { .. })
                    && !process.is_child()
                    && !nanoprobe_text::modules::is_whole(self.modules.list()) =>
            {
                SessionError::Starting {
                    pid: process.pid(),
                    error: Some(Box::new(error)),
                }
            }
            _ => error,
        }
    }

    /// Maps what is ours; the thread that did so, or all of a program that is being started, still stands. Where another
    /// tracer is about to do the same, or has just gone, this is begun again.
    fn enter(&mut self, process: &Process, clock: &Clock, pauses: &mut Pauses) -> Result<Stopped, SessionError> {
        let deadline = Instant::now() + PATIENCE_WITH_TRACERS;
        let seen = match self.starting.is_some() {
            true => None,
            false => Some(look_at_threads(process, pauses)?),
        };
        loop {
            let parameters = self.parameters(process, seen)?;
            let attachment = Attachment::prepare(process.clone(), &process.map()?, self.layout.clone(), parameters)?;
            self.attachment = Some(attachment);
            let starting = self.starting.take();
            let is_running = starting.is_none();
            let stopped = match starting {
                Some(stopped) => Ok(stopped),
                None => process.stop_one(),
            };
            let entered = stopped.map_err(SessionError::from).and_then(|mut stopped| {
                let attachment = self.attachment_mut()?;
                attachment.map(&mut stopped, clock)?;
                attachment.check_alone()?;
                Ok(stopped)
            });
            let error = match entered {
                Ok(stopped) => return Ok(stopped),
                Err(error) => error,
            };
            // The first error is the one that counts.
            let _ = self.detach();
            if !is_running || !error.is_another_tracers() || Instant::now() > deadline {
                return Err(error);
            }
            // Its lock goes with it: what could not be taken back is a dead tracer's from here on.
            self.attachment = None;
            give_way(process, deadline)?;
        }
    }

    fn attach(&mut self, mut stopped: Stopped, mut pauses: Pauses) -> Result<Begun, SessionError> {
        let started = stopped.is_whole_process();
        // A command that is let go finds a tracer that lives, however long its probes took.
        let _pulse = self.pulse();
        // Before a program's first instruction its resolvers would choose by features that nobody has looked up yet.
        if !started {
            self.resolve_ifuncs(&mut stopped, 0)?;
        }
        // A running target goes on while its probes are matched and planned.
        let stopped = if started {
            Some(stopped)
        } else {
            release_one(stopped, &mut pauses);
            None
        };
        self.initialise_dynamic()?;
        if self.loaded {
            self.match_choices()?;
            self.check_matches()?;
        }
        self.fire_all(|place| *place == Place::Begin, [0; 10])?;
        self.start_timers();
        let mut hooks = self.hooks();
        self.hooked = !hooks.is_empty();
        let first = if self.listing { self.enablings.list().len() } else { 0 };
        if stopped.is_none() && self.takes_returns() {
            pauses.add(&self.prepare_returns(std::mem::take(&mut hooks))?);
        }
        let armed = self.place(first, 0, &hooks, stopped)?;
        pauses.add(&armed.pauses);
        self.look_for_sandbox()?;
        match self.serve_returns() {
            Err(SessionError::Memory(_) | SessionError::Stop(_) | SessionError::Remote(_)) if self.target_is_gone() => {
            }
            other => other?,
        }
        self.attachment_mut()?.complete()?;
        Ok(Begun {
            pauses,
            patches: armed.patches,
            took: Duration::ZERO,
        })
    }

    /// Plans, writes and arms the enablings from index `first` on; publishes unwinding tables of modules from `module` on.
    pub(super) fn place(
        &mut self,
        first: usize,
        module: usize,
        hooks: &[Hook],
        stopped: Option<Stopped>,
    ) -> Result<Armed, SessionError> {
        let knows_all = stopped.is_some() && self.is_static() && self.takes_returns();
        let unwinders = if knows_all {
            self.missing_return_hooks()
        } else {
            Vec::new()
        };
        let hooked: Vec<u64> = unwinders
            .iter()
            .filter_map(|hook| Some(self.address_of(hook)?.0))
            .collect();
        let hooks: Vec<Hook> = hooks.iter().chain(&unwinders).copied().collect();
        let attachment = self.attachment.as_ref().ok_or(SessionError::NotAttached)?;
        let mut placement = self.planned(attachment, first, &hooks)?;
        if interrupt::requested() {
            return Ok(Armed::default());
        }
        let has_shims = !placement.changes.patches.is_empty() || attachment.shimmed.is_some();
        if has_shims {
            let first = attachment.shimmed.unwrap_or(0);
            let modules = self.modules.list().iter().enumerate().skip(first);
            let modules = modules
                .filter(|(index, _)| self.modules.is_loaded(*index))
                .map(|(_, module)| module);
            let code = attachment.addresses.code.0;
            let agent = |function: AgentFunction| TargetAddress(code + u64::from(function.offset()));
            shims::add(&mut placement, modules, agent, interrupt::requested);
        }
        if interrupt::requested() {
            return Ok(Armed::default());
        }
        let placement = self.commit(placement)?;
        let attachment = self.attachment.as_mut().ok_or(SessionError::NotAttached)?;
        if has_shims {
            attachment.shimmed = Some(self.modules.list().len());
        }
        let process = attachment.process.clone();
        let mut pauses = Pauses::default();
        let takes_returns = placement.patches.iter().any(|patch| patch.takes_return) && !attachment.returns.mapped;
        let map = |attachment: &mut Attachment, stopped: &mut Stopped| {
            attachment.map_regions(stopped, &placement.regions)?;
            if takes_returns {
                attachment.map_returns(stopped)
            } else {
                Ok(())
            }
        };
        let stopped = match stopped {
            Some(mut stopped) => {
                map(attachment, &mut stopped)?;
                let sites = || placement.patches.iter().flat_map(|patch| &patch.sites);
                if takes_returns && knows_all && hooked.iter().all(|hook| sites().any(|site| site.0 == *hook)) {
                    // No linker can bring more, so the program's first calls are seen, too.
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
        // A command's first handlers may come with a library, long after the parameters were made.
        let needs = self.enablings.needs();
        let parameters = &mut attachment.parameters;
        let walks_anew = needs.walks_stacks && !parameters.walks_stacks;
        parameters.walks_stacks |= needs.walks_stacks;
        parameters.reads_memory |= needs.reads_memory;
        if attachment.parameters.walks_stacks {
            let first = if walks_anew { 0 } else { module };
            unwinding::publish(attachment, &self.modules, first)?;
        }
        if attachment.parameters.reads_memory {
            self.ranges.publish(attachment)?;
        }
        self.publish_errno()?;
        if interrupt::requested() {
            return Ok(Armed::default());
        }
        // While a program that is being started still stands: it is let go by `arm`, may look at its semaphores with its
        // first instructions, and may have ended before anything more is done here.
        self.raise_semaphores(first)?;
        let attachment = self.attachment.as_mut().ok_or(SessionError::NotAttached)?;
        attachment.write(&placement.patches)?;
        let mut armed = attachment.arm(stopped, placement)?;
        armed.pauses.add(&pauses);
        self.refused.append(&mut armed.refused);
        Ok(armed)
    }

    /// Where the enablings from index `first` on would be placed, and the hooks. Changes nothing.
    pub(super) fn planned(
        &self,
        attachment: &Attachment,
        first: usize,
        hooks: &[Hook],
    ) -> Result<Placement, SessionError> {
        let force = self.forced_tactic()?;
        let refusal = self.return_refusal();
        let shadow_stack = self.has_shadow_stack();
        let returns = self.return_policy(attachment, refusal.as_ref());
        let code = attachment.addresses.code.0;
        let agent = move |function: AgentFunction| code + u64::from(function.offset());
        let runtime = attachment.runtime();
        let planner = Planner {
            modules: self.modules.list(),
            probes: &self.probes,
            enablings: &self.enablings,
            statics: &self.statics,
            choices: &self.choices,
            runtime,
            room: Room {
                near: attachment.near.clone(),
                code: attachment.code.draft(),
                growth: attachment.growth.draft(),
                handlers: self.handlers.clone(),
                fired: Fired::new(),
            },
            is_cancelled: interrupt::requested,
            agent: &agent,
            force,
            strsize: self.limits.string_limit(),
            returns,
            shadow_stack,
            small_stacks: small_stacks(self.modules.list(), attachment.parameters.small_stacks),
            placed: &self.placed,
            patches: &attachment.patches,
            retired: &attachment.retired,
            neighbours: Neighbours::default(),
            explanations_left: EXPLANATIONS_MAX,
        };
        Ok(planner.place(first, hooks))
    }

    /// From now on a placement holds: the one call that applies what was planned.
    fn commit(&mut self, placement: Placement) -> Result<Changes, SessionError> {
        let attachment = self.attachment.as_mut().ok_or(SessionError::NotAttached)?;
        Ok(placement.commit(Holder {
            near: &mut attachment.near,
            code: &mut attachment.code,
            growth: &mut attachment.growth,
            handlers: &mut self.handlers,
            fired: &mut self.placed,
        }))
    }
}

/// All threads stand for as long as it takes to look at their thread pointers. Go's new threads share their creator's for a
/// moment, so a shared one is looked at again.
fn look_at_threads(process: &Process, pauses: &mut Pauses) -> Result<Seen, SessionError> {
    const LOOKS: u32 = 5;
    let mut look = 0;
    loop {
        let stopped = process.stop()?;
        let seen = Seen::of(&stopped);
        release_one(stopped, pauses);
        let seen = seen?;
        look += 1;
        if !seen.shared || look == LOOKS {
            return Ok(seen);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Lets the one thread go that stood.
pub(super) fn release_one(stopped: Stopped, pauses: &mut Pauses) {
    let tid = stopped.best_thread().unwrap_or(0);
    pauses.add_single(tid, stopped.release());
}

/// Waits until another tracer, which was as quick as we, has gone; not as long as it waits for us.
fn give_way(process: &Process, deadline: Instant) -> Result<(), SessionError> {
    loop {
        let unlike_the_other = u64::from(std::process::id()).wrapping_mul(7) % 32;
        std::thread::sleep(Duration::from_millis(1 + 2 * unlike_the_other));
        match clean_up(process) {
            Err(SessionError::TracerLives { .. } | SessionError::Stop(StopError::Refused { .. }))
                if Instant::now() < deadline => {}
            other => return other,
        }
    }
}
