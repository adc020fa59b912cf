//! One tracing session, from the program to the restored target.
//!
//! ```text
//!   open     the target is looked at (or started, and stands before its first instruction); probes are matched,
//!            clauses compiled. A running target is not touched.
//!   begin    attach, BEGIN, patches. From here on probes fire.
//!   step     repeatedly: events out, timers, new libraries
//!   end      patches out, last events, END
//! ```

mod attaching;
mod errno;
mod events;
mod exiting;
mod libraries;
mod matching;
mod naming;
mod reading;
mod returns;
mod running;
mod sandbox;
mod sequences;
mod sites;
mod sources;
mod timer;
mod timers;
mod unseen;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use nanoprobe_arena::DynamicVariables;
use nanoprobe_arena::layout::UnwindRow;
use nanoprobe_codegen::SessionConstants;
use nanoprobe_export::Speculations;
use nanoprobe_lang::Program;
use nanoprobe_lang::interpret::ClauseFault;
use nanoprobe_lang::layout::{Limits, RecordLayout, Storage, record_layout};
use nanoprobe_lang::options::Options;
use nanoprobe_patch::Tactic;
use nanoprobe_symbols::Linking;
use nanoprobe_target::{Exit, Pauses, Process};
use nanoprobe_text::Patch;
use nanoprobe_text::modules::Modules;

use self::timer::Timer;
use crate::acquire::{Acquired, Starting, check_acquired, open_named};
use crate::arena_memory::ArenaMemory;
use crate::arming::Armed;
use crate::attachment::Attachment;
use crate::clock::{self, Clock};
use crate::consume::Consumer;
use crate::enable::{Enabling, Enablings};
use crate::error::SessionError;
use crate::layout::ArenaLayout;
use crate::names::NameError;
use crate::perf_map::PerfMap;
use crate::placement::{Changes, Choices, Fired, Handlers, Refused};
use crate::probes::{Later, Probe, ProbeList};
use crate::statics::Statics;
use crate::world::TracerState;
use crate::{identity, interrupt};

/// Something for the user.
#[derive(Clone, Debug)]
pub enum Output {
    /// A clause fired and recorded.
    Record {
        /// The enabling.
        epid: u32,
        /// The CPU.
        cpu: u32,
        /// The thread.
        thread: u32,
        /// The record with its header.
        bytes: Vec<u8>,
    },
    /// A clause failed.
    Fault {
        /// The enabling.
        epid: u32,
        /// What, and in which action.
        fault: ClauseFault,
    },
    /// A library came, and probes were placed in it.
    Library {
        /// How many sites.
        sites: usize,
        /// How long the target's threads stood still.
        pauses: Pauses,
    },
    /// What could not be placed, or read.
    Warning(String),
    /// The target ended.
    Exited(Exit),
}

/// How attaching went.
#[derive(Clone, Debug, Default)]
pub struct Begun {
    /// From the first look at the target's threads to its last release.
    pub took: Duration,
    /// How long threads stood still.
    pub pauses: Pauses,
    /// Patched places.
    pub patches: usize,
}

/// See the module's description.
pub struct Session {
    program: Program,
    /// With the policy `fill`: a record has found no room.
    filled: bool,
    options: Options,
    limits: Limits,
    storage: Storage,
    layout: ArenaLayout,
    codegen: nanoprobe_codegen::ArenaLayout,
    layouts: Vec<RecordLayout>,
    probes: ProbeList,
    statics: Statics,
    enablings: Enablings,
    handlers: Handlers,
    /// How many probes each description (clause, number) matched.
    matched: HashMap<(usize, usize), usize>,
    /// What was wrong with the names of descriptions in some function; it counts where nothing is matched at all.
    name_errors: HashMap<(usize, usize), NameError>,
    /// Descriptions of instructions in IFUNCs whose choice is not known yet.
    later: Vec<(usize, usize, Later)>,
    modules: Modules,
    perf_map: RefCell<PerfMap>,
    choices: Choices,
    placed: Fired,
    clock_start: clock::Reading,
    clock: Option<Clock>,
    process: Option<Process>,
    /// A command that was started stands still until probes are in place.
    starting: Starting,
    attachment: Option<Attachment>,
    private: Option<ArenaMemory>,
    consumer: Consumer,
    aggregations: crate::aggregations::Aggregations,
    tracer: TracerState,
    speculations: Speculations<Output>,
    timers: Vec<Timer>,
    /// The process executes another program by now than the one which was instrumented, and is sampled.
    executed_another: bool,
    code_looked_for: Instant,
    /// How to walk through each module's frames, for samples.
    rows: HashMap<usize, Vec<UnwindRow>>,
    outputs: VecDeque<Output>,
    refused: Vec<Refused>,
    exit_status: Option<i32>,
    /// A clause of the tracer's has said so.
    handlers_stopped: Option<exiting::HandlersStopped>,
    exited: Option<Exit>,
    hooked: bool,
    loaded: bool,
    /// Only looked at: nothing but the linker's hook is placed, no clause fires.
    listing: bool,
    allow_unmatched: bool,
    ranges: crate::ranges::Publisher,
    next_status: Instant,
    /// Where unwinders, and the linker, are hooked.
    return_hooks: HashSet<u64>,
    warned_of_returns: bool,
    abandoned_calls: u64,
    lost_samples: u64,
    missed_ticks: u64,
    /// After the end: how many more rounds of records are taken at most.
    rounds_left: Option<u64>,
    /// Where errno is was found out, or that nobody knows.
    errno_known: bool,
}

/// How long a step waits at most.
const STEP: Duration = Duration::from_millis(2);
/// For how long attaching gives way to other tracers that come or go.
const PATIENCE_WITH_TRACERS: Duration = Duration::from_secs(2);
/// How often the map of readable memory is refreshed.
const STATUS_PERIOD: Duration = Duration::from_millis(500);

impl Session {
    /// Looks at the target, matches, and makes the clauses' machine code. `program` was compiled for what was acquired.
    ///
    /// # Errors
    /// [`SessionError`]; a running target was not touched, a command that was started is ended.
    pub fn open(program: Program, options: Options, acquired: Acquired) -> Result<Session, SessionError> {
        let clock_start = clock::read();
        let limits = options.limits();
        let (mut process, starting) = acquired.into_parts();
        match &process {
            Some(process) if !starting.is_some() => check_acquired(process)?,
            Some(_) => {}
            None => process = open_named(&program)?,
        }
        let storage = Storage::new(&program, limits);
        let layout = ArenaLayout::new(&program, &storage, &options)?;
        let constants = process.as_ref().map_or_else(SessionConstants::default, |process| {
            let pid = process.pid() as u32;
            let ids = identity::ids_of(pid);
            SessionConstants {
                pid,
                ppid: ids.parent,
                ancestors: identity::ancestors_of(pid),
                uid: ids.user[0],
                gid: ids.group[0],
                effective_uid: ids.user[1],
                effective_gid: ids.group[1],
                process_group: ids.process_group,
                process_session: ids.process_session,
                execname: process.facts().name.clone(),
                arguments: identity::arguments_of(pid),
                start: identity::start_of(pid),
            }
        });
        let perf_map = process.as_ref().map_or_else(PerfMap::default, |process| {
            let facts = process.facts();
            PerfMap::of(process.pid(), facts.inner_pid, facts.uid, !facts.in_other_pid_namespace)
        });
        let globals_offset = u32::try_from(layout.globals_offset).unwrap_or(u32::MAX);
        let clauses = program.clauses.iter();
        let layouts = clauses.map(|clause| record_layout(clause, limits)).collect();
        let allow_unmatched = options.allow_unmatched;
        let slot_bytes = layout.context.slots_bytes;
        let tracer = TracerState::on(options.processor);
        let speculations = Speculations::new(options.speculation_bytes);
        let mut session = Session {
            codegen: nanoprobe_codegen::ArenaLayout {
                globals_offset,
                constants,
                static_arguments: Vec::new(),
            },
            program,
            filled: false,
            probes: ProbeList::new(options.demangle),
            options,
            limits,
            storage,
            layout,
            layouts,
            statics: Statics::default(),
            enablings: Enablings::new(slot_bytes)?,
            handlers: HashMap::new(),
            matched: HashMap::new(),
            name_errors: HashMap::new(),
            later: Vec::new(),
            modules: Modules::default(),
            perf_map: RefCell::new(perf_map),
            choices: Choices::new(),
            placed: Fired::new(),
            clock_start,
            clock: None,
            process,
            starting,
            attachment: None,
            private: None,
            consumer: Consumer::default(),
            aggregations: Default::default(),
            tracer,
            speculations,
            timers: Vec::new(),
            executed_another: false,
            code_looked_for: Instant::now(),
            rows: HashMap::new(),
            outputs: VecDeque::new(),
            refused: Vec::new(),
            exit_status: None,
            handlers_stopped: None,
            exited: None,
            hooked: false,
            loaded: false,
            listing: false,
            allow_unmatched,
            ranges: crate::ranges::Publisher::default(),
            next_status: Instant::now(),
            return_hooks: HashSet::new(),
            warned_of_returns: false,
            abandoned_calls: 0,
            lost_samples: 0,
            missed_ticks: 0,
            rounds_left: None,
            errno_known: false,
        };
        let command = session
            .process
            .as_ref()
            .filter(|process| process.is_child())
            .map(Process::pid);
        let looked = interrupt::harmless(command, || session.look_at_target());
        looked.map_err(|error| session.or_starting(session.or_ended(error)))?;
        Ok(session)
    }

    /// What is there to be probed.
    fn look_at_target(&mut self) -> Result<(), SessionError> {
        let _reading = crate::progress::doing(crate::progress::Work::Reading, 0);
        self.match_tracer()?;
        self.update_modules()?;
        self.match_target(0)?;
        if interrupt::requested() {
            return Err(SessionError::Interrupted);
        }
        // A dynamic program that has just been started has no libraries yet.
        let dynamic = self
            .executable()
            .is_some_and(|module| module.linkage().linking == Linking::Dynamic);
        self.loaded = !(self.starting.is_some() && dynamic);
        if self.loaded { self.check_matches() } else { Ok(()) }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The process, when there is one.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// The probe and the clause of an enabling, with the layout of its records.
    pub fn enabling(&self, epid: u32) -> Option<(&Probe, &Enabling, &RecordLayout)> {
        let enabling = self.enablings.get(epid)?;
        Some((
            self.probes.get(enabling.probe)?,
            enabling,
            self.layouts.get(enabling.clause)?,
        ))
    }

    /// All probes that were matched, in the order of their ids.
    pub fn probes(&self) -> impl Iterator<Item = &Probe> {
        self.probes.iter()
    }

    /// How many probes the descriptions of a source matched. A clause that its `if`s divided counts once: its parts
    /// share the span of what was written.
    pub fn matches(&self, source: u32) -> usize {
        let mut written = HashMap::new();
        for ((clause, number), count) in &self.matched {
            if let Some(found) = self
                .program
                .clauses
                .get(*clause)
                .filter(|found| found.span.source == source)
            {
                written.insert((found.span, number), *count);
            }
        }
        written.values().sum()
    }

    /// Whether all of the program that is there from the start is mapped: false between the start of a command and the
    /// moment its libraries are there.
    pub fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// What was patched, and how.
    pub fn patches(&self) -> &[Patch] {
        self.attachment.as_ref().map_or(&[], |attachment| &attachment.patches)
    }

    /// What could not be placed.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// The status of an `exit()` that was run, when one was.
    pub fn exit_status(&self) -> Option<i32> {
        self.exit_status
    }

    /// How the target ended, when it has.
    pub fn exited(&self) -> Option<Exit> {
        self.exited
    }

    /// Takes patches out of the text (`armed` is false) or puts them back, while the session goes on: those that fire at any
    /// of these sites (see [`Session::patches`]). Neither their counts nor their detours are lost, and the program is not
    /// stopped. The result says how many patches changed.
    ///
    /// # Errors
    /// As [`Session::begin`].
    pub fn set_armed(&mut self, armed: bool, selected: &mut dyn FnMut(&Patch) -> bool) -> Result<Armed, SessionError> {
        self.attachment_mut()?.set_armed(armed, selected)
    }

    /// How the probes would be placed, for `-l -v`. Nothing of the target is touched; IFUNCs stay unresolved.
    ///
    /// # Errors
    /// There is no target, or no room in its address space.
    pub fn plan(&self) -> Result<Changes, SessionError> {
        let process = self.process.clone().ok_or(SessionError::NotAttached)?;
        let parameters = self.parameters(&process, None)?;
        let attachment = Attachment::prepare(process.clone(), &process.map()?, self.layout.clone(), parameters)?;
        Ok(self.planned(&attachment, 0, &[])?.changes)
    }

    /// Lets a command that was started run until its libraries are mapped, so that their probes can be listed, and then
    /// stops it (SIGSTOP). [`Session::abandon`] ends it.
    ///
    /// # Errors
    /// As [`Session::begin`].
    pub fn load(&mut self) -> Result<(), SessionError> {
        if self.loaded {
            return Ok(());
        }
        self.listing = true;
        self.begin()?;
        while !self.loaded && !self.is_finished() {
            if interrupt::requested() {
                return Err(SessionError::Interrupted);
            }
            self.step()?;
        }
        // It is to be listed, not to be run.
        if let Some(process) = self.process.as_ref().filter(|process| process.is_child()) {
            process.suspend();
        }
        Ok(())
    }

    fn initialise_dynamic(&self) -> Result<(), SessionError> {
        if self.layout.dynamic_bytes > 0 {
            let memory = self.memory().ok_or(SessionError::NotAttached)?;
            DynamicVariables::new(self.layout.dynamic_offset, self.layout.dynamic_bytes).initialise(memory)?;
        }
        Ok(())
    }

    fn attachment_mut(&mut self) -> Result<&mut Attachment, SessionError> {
        self.attachment.as_mut().ok_or(SessionError::NotAttached)
    }

    fn forced_tactic(&self) -> Result<Option<Tactic>, SessionError> {
        self.options
            .tactic
            .as_deref()
            .map(str::parse)
            .transpose()
            .map_err(SessionError::Option)
    }
}
