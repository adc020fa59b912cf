//! A session that has not begun: a process was acquired, its modules are read, the probes are matched, the clauses are
//! machine code. Nothing is written into a running process yet.

use std::rc::Rc;
use std::time::Instant;

use nanoprobe_lang::program::Side;
use nanoprobe_symbols::Linking;
use nanoprobe_target::{Pauses, check_kernel_stacks};

use super::attached::Attached;
use super::compiled::Compiled;
use super::known::Known;
use super::output::Begun;
use super::presence::Placed;
use super::presence::entering::enter;
use super::presence::placing::plan;
use super::timers::Timers;
use super::tracing::{Arena, Tracing};
use crate::acquire::{Acquired, Role, Starting, check_acquired, open_named};
use crate::clock::{self, Clock};
use crate::error::SessionError;
use crate::placement::Changes;
use crate::{interrupt, progress, spare};

/// See the module's description.
pub struct Prepared {
    /// Dropped first, so that a command is killed before it may run.
    known: Known,
    /// A command that was started stays stopped until its probes are in place.
    starting: Starting,
    warnings: Vec<String>,
    clock_start: clock::Reading,
}

/// The program and all the libraries that it starts with are mapped, so that their probes can be listed. A command
/// that was started for this never runs on, and ends with this value.
pub struct Listed(Stage);

enum Stage {
    Before(Box<Prepared>),
    Since(Box<Attached>),
}

impl Prepared {
    /// Looks at the target, matches, and makes the clauses' machine code. The program was compiled for the acquired
    /// process.
    ///
    /// # Errors
    /// [`SessionError`]; a running target was not touched, a command that was started is ended.
    pub fn new(compiled: Rc<Compiled>, acquired: Acquired) -> Result<Prepared, SessionError> {
        let clock_start = clock::start();
        let role = acquired.role;
        let (mut process, starting) = acquired.into_parts();
        let seccomp = compiled.options.tracing.seccomp;
        match &process {
            Some(process) if !starting.is_some() => check_acquired(process, seccomp)?,
            Some(_) => {}
            None if role == Role::Leader => {}
            None => process = open_named(&compiled.program, seccomp)?,
        }
        let mut prepared = Prepared {
            known: Known::new(compiled, process, role)?,
            starting,
            warnings: Vec::new(),
            clock_start,
        };
        prepared.known.executed = prepared.starting.is_some() && prepared.known.is_member();
        // A provider that does not exist will not appear later while a process is being started.
        prepared.known.match_tracer()?;
        let command = prepared.known.command().map(|command| command.pid());
        let looked = interrupt::harmless(command, || prepared.look_at_target());
        let known = &prepared.known;
        looked.map_err(|error| known.or_starting(known.or_ended(error)))?;
        let known = &mut prepared.known;
        known.probes.shrink_to_fit();
        known.enablings.shrink_to_fit();
        spare::give_back(known.probes.iter().len());
        Ok(prepared)
    }

    /// Reads what can be probed.
    fn look_at_target(&mut self) -> Result<(), SessionError> {
        let _reading = progress::doing(progress::Work::Reading, 0);
        let known = &mut self.known;
        if known.role == Role::Leader {
            known.loaded = true;
            return Ok(());
        }
        self.warnings = known.update_modules()?.warnings;
        known.match_target(0)?;
        if interrupt::requested() {
            return Err(SessionError::Interrupted);
        }
        // A dynamic program that has just been started has no libraries yet.
        let dynamic = known
            .executable()
            .is_some_and(|module| module.linkage().linking == Linking::Dynamic);
        known.loaded = !(self.starting.is_some() && dynamic);
        if known.loaded { known.check_matches() } else { Ok(()) }
    }

    /// The tracer's knowledge of the process.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Attaches, fires BEGIN, and places the probes.
    ///
    /// # Errors
    /// [`SessionError`]; all changes of the target by then are taken back.
    pub fn begin(self) -> Result<(Attached, Begun), SessionError> {
        self.begin_for(false, None)
    }

    /// As [`Prepared::begin`], for one process of a set, or a program that was executed. Its variables begin with the
    /// values that BEGIN has left in the leader's, or in the first program's.
    ///
    /// # Errors
    /// As [`Prepared::begin`].
    pub fn begin_after(self, leader: &Attached) -> Result<(Attached, Begun), SessionError> {
        self.begin_for(false, Some(leader.tracing()))
    }

    /// Lets a command that was started run until its libraries are mapped,
    /// so that their probes can be listed, and then stops it (SIGSTOP).
    ///
    /// # Errors
    /// As [`Prepared::begin`].
    pub fn load(self) -> Result<Listed, SessionError> {
        if self.known.loaded {
            return Ok(Listed(Stage::Before(Box::new(self))));
        }
        let (mut attached, _) = self.begin_for(true, None)?;
        while !attached.known().loaded && !attached.is_finished() {
            if interrupt::requested() {
                return Err(SessionError::Interrupted);
            }
            attached.step()?;
        }
        // The command will be listed, not run.
        if let Some(command) = attached.known().command() {
            command.suspend();
        }
        Ok(Listed(Stage::Since(Box::new(attached))))
    }

    fn begin_for(self, listing: bool, leader: Option<&Tracing>) -> Result<(Attached, Begun), SessionError> {
        let start = Instant::now();
        let clock = Clock::since(self.clock_start);
        let Prepared {
            known,
            mut starting,
            warnings,
            ..
        } = self;
        // Before anything is placed.
        let mut clauses = known.program().clauses.iter();
        if !listing && clauses.any(|clause| clause.shows_stack(Side::Kernel)) {
            check_kernel_stacks()?;
        }
        let Some(process) = known.process.clone() else {
            if known.role == Role::First {
                known.check_without_process()?;
            }
            let attached = Attached::without_process(known, warnings)?;
            let begun = Begun {
                took: start.elapsed(),
                ..Begun::default()
            };
            return Ok((attached, begun));
        };
        let mut pauses = Pauses::default();
        let entered = enter(&known, &process, &mut starting, &clock, listing, &mut pauses);
        let (mut presence, stopped) = entered.map_err(|error| known.or_ended(error))?;
        let arena = match Arena::of(&presence.attachment) {
            Ok(arena) => arena,
            Err(error) => return Err(presence.not_begun(&known, error)),
        };
        let mut tracing = Tracing::new(known, arena, warnings);
        let mut timers = Timers::default();
        let attached = tracing
            .initialise_variables(leader)
            .and_then(|()| presence.attach(&mut tracing, &mut timers, stopped, pauses));
        match attached {
            Ok(mut begun) => {
                begun.took = start.elapsed();
                Ok((Attached::to(tracing, presence, timers), begun))
            }
            Err(error) => Err(presence.not_begun(&tracing.known, error)),
        }
    }
}

impl Listed {
    /// The tracer's knowledge of the process.
    pub fn known(&self) -> &Known {
        match &self.0 {
            Stage::Before(prepared) => &prepared.known,
            Stage::Since(attached) => attached.known(),
        }
    }

    /// How the probes would be placed, for `-l -v`. Nothing is written into the target; IFUNCs stay unresolved.
    ///
    /// # Errors
    /// There is no target, or no room in its address space.
    pub fn plan(&self) -> Result<Changes, SessionError> {
        match &self.0 {
            Stage::Before(prepared) => plan(&prepared.known, &Placed::default()),
            Stage::Since(attached) => attached.plan(),
        }
    }
}
