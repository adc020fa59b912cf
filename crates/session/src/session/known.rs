//! The tracer's knowledge of one process that a program traces: its modules, the probes that match there, their
//! enablings, the names of its addresses. Nothing here writes into the process.

mod demands;
mod derived;
mod handlers;
mod hints;

pub use hints::Stripped;
mod matching;
mod naming;
mod sources;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;

use nanoprobe_codegen::SessionConstants;
use nanoprobe_lang::Program;
use nanoprobe_lang::layout::RecordLayout;
use nanoprobe_lang::program::{Clause, Function};
use nanoprobe_patch::Replacement;
use nanoprobe_symbols::{Module, ModuleKind};
use nanoprobe_target::{Process, StopError};
use nanoprobe_text::modules::Modules;

use super::compiled::Compiled;
use crate::acquire::Role;
use crate::calls::Calls;
use crate::enable::{Enabling, Enablings};
use crate::error::SessionError;
use crate::foreign::Foreign;
use crate::identity;
use crate::interpreted::Interpreted;
use crate::made_code::MadeCode;
use crate::mounts;
use crate::names::NameError;
use crate::perf_map::PerfMap;
use crate::placement::{Choices, Refused};
use crate::probes::{Later, Place, Probe, ProbeIndex, ProbeList};
use crate::statics::Statics;
pub(super) use demands::Resolver;
use naming::Overloads;

/// See the module's description.
pub struct Known {
    pub(super) compiled: Rc<Compiled>,
    pub(super) process: Option<Process>,
    pub(super) role: Role,
    /// Whether the process executes a program that a traced process has executed.
    pub(super) executed: bool,
    pub(super) modules: Modules,
    /// Where shims belong in modules, each by its index, from the time they are found until they are placed.
    shims: BTreeMap<usize, Vec<Replacement>>,
    /// The program and all the libraries that it starts with are mapped. False from the start of a command until
    /// its libraries are loaded.
    pub(super) loaded: bool,
    pub(super) perf_map: RefCell<PerfMap>,
    pub(super) interpreted: RefCell<Interpreted>,
    pub(super) made_code: RefCell<MadeCode>,
    /// The names of code in processes that have no session.
    pub(super) foreign: Rc<RefCell<Foreign>>,
    pub(super) choices: Choices,
    pub(super) probes: ProbeList,
    pub(super) overloads: RefCell<Overloads>,
    pub(super) statics: Statics,
    pub(super) calls: Calls,
    pub(super) enablings: Enablings,
    /// The process's own numbers and names, which clauses read.
    pub(super) codegen: nanoprobe_codegen::ArenaLayout,
    pub(super) matches: Matches,
    pub(super) refused: Vec<Refused>,
}

/// The matches of a program's descriptions, each by its clause and its number in the clause.
#[derive(Default)]
pub(super) struct Matches {
    /// How many probes each description matched.
    counts: HashMap<(usize, usize), usize>,
    derived: derived::Found,
    /// For each clause and description of system calls, the description under which they are enabled.
    call_groups: HashMap<(usize, usize), usize>,
    /// Errors in the names of descriptions, each for some function. An error counts only if its description matches
    /// nothing at all.
    name_errors: HashMap<(usize, usize), NameError>,
    /// Probes on instructions of IFUNCs whose choice is not known yet.
    pub(super) later: Vec<(usize, usize, Later)>,
    handlers: handlers::SignalHandlers,
}

/// The changes in the list of modules.
pub(super) struct ModuleChanges {
    /// The index of the first new module.
    pub(super) first_new: usize,
    /// The ranges of modules that are gone.
    pub(super) gone: Vec<Range<u64>>,
    /// Files that cannot be read.
    pub(super) warnings: Vec<String>,
}

/// Whether a clause calls this function.
fn asks(compiled: &Compiled, function: Function) -> bool {
    let mut clauses = compiled.program.clauses.iter();
    clauses.any(|clause: &Clause| clause.calls(function))
}

/// What the process is, as far as the program asks for it.
fn constants_of(compiled: &Compiled, process: &Process) -> SessionConstants {
    let pid = process.pid() as u32;
    let mounts = match asks(compiled, Function::FileSystem) {
        true => mounts::of_process(pid),
        false => String::new(),
    };
    // A file of /proc for each of them.
    let ancestors = match asks(compiled, Function::ProgenyOf) {
        true => identity::ancestors_of(pid),
        false => Vec::new(),
    };
    SessionConstants {
        mounts,
        ancestors,
        ..identity::constants_of(pid, process.facts().name.clone())
    }
}

impl Known {
    /// A process of which nothing is read or matched yet.
    pub(super) fn new(compiled: Rc<Compiled>, process: Option<Process>, role: Role) -> Result<Known, SessionError> {
        let globals_offset = u32::try_from(compiled.layout.globals_offset).unwrap_or(u32::MAX);
        let perf_map = process.as_ref().map_or_else(PerfMap::default, |process| {
            let facts = process.facts();
            PerfMap::of(process.pid(), facts.inner_pid, facts.uid, !facts.in_other_pid_namespace)
        });
        Ok(Known {
            codegen: nanoprobe_codegen::ArenaLayout {
                globals_offset,
                constants: process
                    .as_ref()
                    .map_or_else(SessionConstants::default, |process| constants_of(&compiled, process)),
                static_arguments: Vec::new(),
            },
            process,
            role,
            executed: false,
            modules: Modules::kept_by(compiled.files.clone()),
            shims: BTreeMap::new(),
            loaded: false,
            perf_map: RefCell::new(perf_map),
            interpreted: RefCell::default(),
            made_code: RefCell::default(),
            foreign: Rc::default(),
            choices: Choices::new(),
            probes: ProbeList::new(compiled.options.printing.demangle),
            overloads: RefCell::default(),
            statics: Statics::default(),
            calls: Calls::default(),
            enablings: Enablings::new(compiled.layout.context.slots_bytes)?,
            matches: Matches::default(),
            refused: Vec::new(),
            compiled,
        })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.compiled.program
    }

    /// The program with its options.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// The process, when there is one.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Whether another session of the run fires BEGIN, END and ticks.
    pub fn is_member(&self) -> bool {
        self.root().is_some()
    }

    /// Of a member: the process for which the program was compiled.
    pub fn root(&self) -> Option<i32> {
        self.role.root()
    }

    /// The probe and the clause of an enabling, with the layout of its records.
    pub fn enabling(&self, epid: u32) -> Option<(&Probe, &Enabling, &RecordLayout)> {
        let enabling = self.enablings.get(epid)?;
        Some((
            self.probes.get(enabling.probe)?,
            enabling,
            self.compiled.records.get(enabling.clause)?,
        ))
    }

    /// The probe of each enabling, and the clause that it runs there: all enablings, in order.
    pub fn enablings(&self) -> impl Iterator<Item = &Enabling> {
        self.enablings.list().iter()
    }

    /// A probe by its index.
    pub fn probe(&self, index: ProbeIndex) -> Option<&Probe> {
        self.probes.get(index)
    }

    /// All probes that were matched, in the order of their ids.
    pub fn probes(&self) -> impl Iterator<Item = &Probe> {
        let listed = |probe: &&Probe| probe.is_listed && !matches!(probe.place, Place::CallSites { .. });
        self.probes.iter().filter(listed)
    }

    /// How many probes the descriptions of one source matched. A clause that was divided by its `if`s counts once:
    /// its parts share one span of the text.
    pub fn matches(&self, source: u32) -> usize {
        let mut written = HashMap::new();
        let clauses = &self.program().clauses;
        for ((clause, number), count) in &self.matches.counts {
            let counts = |found: &&Clause| found.span.source == source && found.derived.is_none();
            if let Some(found) = clauses.get(*clause).filter(counts) {
                written.insert((found.span, number), *count);
            }
        }
        written.values().sum::<usize>() + self.all_derived_matches(source)
    }

    /// Whether the program and all the libraries that it starts with are mapped. False from the start of a command
    /// until its libraries are loaded.
    pub fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// Whether the program that a running process executes, and the libraries that it starts with, are mapped.
    pub fn is_whole(&self) -> bool {
        nanoprobe_text::modules::is_whole(self.modules.list())
    }

    /// The probes that could not be placed.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    pub(super) fn executable(&self) -> Option<&Module> {
        let mut modules = self.modules.list().iter();
        modules.find(|module| module.kind() == ModuleKind::Executable)
    }

    /// The modules that are mapped now, with their indices.
    pub(super) fn loaded_modules(&self) -> impl Iterator<Item = (usize, &Module)> {
        let modules = self.modules.list().iter().enumerate();
        modules.filter(|(index, _)| self.modules.is_loaded(*index))
    }

    /// Reads which modules have come, and which are gone.
    pub(super) fn update_modules(&mut self) -> Result<ModuleChanges, SessionError> {
        let Some(process) = self.process.clone() else {
            return Ok(ModuleChanges {
                first_new: 0,
                gone: Vec::new(),
                warnings: Vec::new(),
            });
        };
        let map = process.map()?;
        let executable = process.facts().executable.clone();
        let thread = process.living_thread();
        let changes = self.modules.update(thread, &map, process.memory(), &executable);
        let gone = changes.gone.into_iter();
        Ok(ModuleChanges {
            first_new: changes.first_new,
            gone: gone.filter_map(|index| self.modules.range(index)).collect(),
            warnings: changes.unreadable,
        })
    }

    /// Looks at the program that the process executes now, and at its libraries. The earlier knowledge was about the
    /// old program.
    pub(super) fn update_after_exec(&mut self) {
        let pid = self.process.as_ref().map(Process::pid);
        let Some(Ok(process)) = pid.map(Process::open) else {
            return;
        };
        let Ok(map) = process.map() else { return };
        let constants = &mut self.codegen.constants;
        constants.execname.clone_from(&process.facts().name);
        constants.arguments = identity::arguments_of(process.pid() as u32);
        let (thread, executable) = (process.living_thread(), process.facts().executable.clone());
        let _ = self.modules.update(thread, &map, process.memory(), &executable);
    }

    pub(super) fn has_executed(&self) -> bool {
        self.process.as_ref().is_some_and(Process::has_executed)
    }

    pub(super) fn target_is_gone(&self) -> bool {
        self.process.as_ref().is_none_or(|process| process.map().is_err())
    }

    /// The command that was started for the session.
    pub(super) fn command(&self) -> Option<&Process> {
        self.process.as_ref().filter(|process| process.is_child())
    }

    /// Replaces the error where the process has ended meanwhile, since then every access fails for that reason.
    /// Does the same where the process has executed another program, since the error may concern the old one only.
    pub(super) fn or_ended(&self, error: SessionError) -> SessionError {
        use SessionError::{AtDescription, Interrupted, Memory, Stop};
        if let Interrupted = error {
            return error;
        }
        if let (Stop(StopError::Gone { .. }), Some(process)) = (&error, &self.process) {
            process.wait_for_its_fate();
        }
        if let Some(process) = &self.process
            && !process.is_child()
            && process.has_executed()
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

    /// Marks the error as one that may go away, where the process is just being started.
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
}

/// Kills the command. The kernel gives its number to no other process before the command is waited for, so no other
/// process is killed.
impl Drop for Known {
    fn drop(&mut self) {
        if let Some(command) = self.command() {
            command.kill();
        }
    }
}
