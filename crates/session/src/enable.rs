//! Enablings: a clause at a probe (DTrace's ECB), with the handler that serves it. Pure.
//!
//! ```text
//!   clause x probe  -> Enabling  epid; for each of the clause's descriptions that matches the probe
//!   clause x kind   -> Handler   machine code, shared by all enablings of that clause at probes of that kind
//!   clause x key    -> Slots     words in every context, shared by all enablings whose static keys are the same
//! ```
//!
//! A clause that only counts gets no handler: its enablings' detours increment the slots themselves. `@ = count()`
//! has one slot however many probes it counts, and `@[probefunc] = count()` has one for each function. That keeps
//! contexts small when every instruction of a library is probed. A thread runs one clause at a time, and an
//! increment is one instruction, so enablings can share slots safely.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nanoprobe_arena::layout::CONTEXT_SLOTS;
use nanoprobe_codegen::{
    AgentFunction, Compiler, Handler, KeyNames, ProbeKind, RelocationTarget, inline_counts, static_names, static_slots,
};
use nanoprobe_lang::Program;
use nanoprobe_lang::layout::{Limits, Storage};
use nanoprobe_symbols::{GoCall, Module};

use crate::calls::End;
use crate::probes::{Place, Probe, ProbeIndex, Spot};
use crate::statics::Statics;

/// Which of a clause's descriptions matches a probe. A function with several names fires once for all of them, like
/// `memalign` and `aligned_alloc` where a C library has one function for both. It fires more often only where one
/// of the names is given more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The description with this number, which matches the probe's own name.
    Name(usize),
    /// A description that matches another name of its function.
    AnotherName,
    /// As `AnotherName`, but an earlier description of the clause has matched this probe, too. The number is that of
    /// the later description.
    AnotherNameAgain(usize),
}

/// Stands for the number of [`By::AnotherName`].
const ANOTHER_NAME: usize = usize::MAX;

/// One clause at one probe.
#[derive(Clone, Debug)]
pub struct Enabling {
    /// The id in the records of this enabling; the first is 1.
    pub epid: u32,
    /// The probe.
    pub probe: ProbeIndex,
    /// Index of the clause in the program.
    pub clause: usize,
    /// The number of the description that matched; [`ANOTHER_NAME`] if it matched another of the function's names.
    pub description: usize,
    /// Bytes from a context to the enabling's static slots; 0: it has none, or it fires in the tracer.
    pub slot_base: u64,
    /// Counters to increment instead of a call: bytes from the context.
    pub counters: Option<Arc<[u32]>>,
}

/// Static slots in every context: the words that a clause's aggregations need under one set of keys.
#[derive(Clone, Debug)]
pub struct Slots {
    /// Index of the clause.
    pub clause: usize,
    /// Bytes from a context to the first of these slots.
    pub base: u64,
    /// The first enabling that uses these slots. The names of its probe make the keys.
    pub epid: u32,
    counters: Option<Arc<[u32]>>,
}

/// The names of the probe that are in the clause's keys. Probes that differ in these names have different slots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SlotsKey {
    clause: usize,
    provider: Option<Arc<str>>,
    module: Option<Arc<str>>,
    function: Option<Arc<str>>,
    probe: Option<ProbeIndex>,
}

/// Enablings and handlers of a session.
pub struct Enablings {
    list: Vec<Enabling>,
    /// The known enablings: clause, number of the description, and probe. The number is [`ANOTHER_NAME`] if the
    /// description matches another of the function's names.
    known: HashSet<(usize, usize, ProbeIndex)>,
    enabled: HashSet<(usize, ProbeIndex)>,
    handlers: HashMap<(usize, ProbeKind), Handler>,
    unreadable: HashMap<(usize, ProbeKind), String>,
    slots: Vec<Slots>,
    known_slots: HashMap<SlotsKey, usize>,
    key_names: HashMap<usize, KeyNames>,
    slots_used: u64,
    slot_bytes: u64,
    compiler: Compiler,
}

/// The work of handlers besides counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The handlers read the target's memory.
    pub reads_memory: bool,
    /// The handlers walk the target's stacks.
    pub walks_stacks: bool,
    /// The handlers read the target's errno.
    pub reads_errno: bool,
}

/// The data that compiling needs besides the clause.
pub struct Context<'a> {
    /// The program.
    pub program: &'a Program,
    /// Where the program's variables lie.
    pub storage: &'a Storage,
    /// Sizes of strings and stacks.
    pub limits: Limits,
    /// Where the arena keeps things, and the session's constants.
    pub arena: &'a nanoprobe_codegen::ArenaLayout,
    /// The static probes.
    pub statics: &'a Statics,
    /// The modules, in the order of loading.
    pub modules: &'a [Module],
}

/// A clause cannot be enabled at a probe.
#[derive(Debug, thiserror::Error)]
pub enum EnableError {
    /// The code generator refused the clause.
    #[error("clause {clause} cannot be compiled: {source}")]
    Compile {
        /// Number of the clause, from 1.
        clause: usize,
        /// Why.
        source: nanoprobe_codegen::Error,
    },
    /// Static aggregations take room in each thread's context.
    #[error("too many probes: their aggregations need more than {bytes} bytes a thread; narrow the description")]
    Slots {
        /// How many bytes there are room for.
        bytes: u64,
    },
}

impl Enablings {
    /// No enablings yet. Each context has `slot_bytes` for static slots.
    ///
    /// # Errors
    /// The code generator cannot be set up.
    pub fn new(slot_bytes: u64) -> Result<Enablings, nanoprobe_codegen::Error> {
        Ok(Enablings {
            list: Vec::new(),
            known: HashSet::new(),
            enabled: HashSet::new(),
            handlers: HashMap::new(),
            unreadable: HashMap::new(),
            slots: Vec::new(),
            known_slots: HashMap::new(),
            key_names: HashMap::new(),
            slots_used: 0,
            slot_bytes,
            compiler: Compiler::new()?,
        })
    }

    /// All enablings, by epid - 1.
    pub fn list(&self) -> &[Enabling] {
        &self.list
    }

    /// Gives the spare room of the list back: as far as is known, no further enablings are wanted.
    pub fn shrink_to_fit(&mut self) {
        self.list.shrink_to_fit();
    }

    /// The enabling of an epid.
    pub fn get(&self, epid: u32) -> Option<&Enabling> {
        self.list.get((epid as usize).checked_sub(1)?)
    }

    /// How many bytes of a context's static slots are in use.
    pub fn slots_used(&self) -> u64 {
        self.slots_used
    }

    /// The static slots in use.
    pub fn slots(&self) -> &[Slots] {
        &self.slots
    }

    /// The target's features that the handlers compiled so far need.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        for relocation in self.handlers.values().flat_map(|handler| &handler.relocations) {
            let RelocationTarget::Agent(function) = relocation.target else {
                continue;
            };
            needs.walks_stacks |= matches!(
                function,
                AgentFunction::UserStack | AgentFunction::UserCaller | AgentFunction::KeyStack
            );
            needs.reads_errno |= matches!(function, AgentFunction::Errno);
            needs.reads_memory |= matches!(
                function,
                AgentFunction::CopyIn
                    | AgentFunction::CopyInString
                    | AgentFunction::CopyInTo
                    | AgentFunction::FetchInto
                    | AgentFunction::AddressToString
                    | AgentFunction::LinkToString
                    | AgentFunction::Load
            );
        }
        needs.reads_memory |= needs.walks_stacks;
        needs
    }

    /// The handler of a clause at a probe of this kind; `None` if the clause needs none.
    pub fn handler(&self, clause: usize, kind: ProbeKind) -> Option<&Handler> {
        self.handlers.get(&(clause, kind))
    }

    /// The argument of a static probe that the clause uses and that cannot be read at sites of this kind. There the
    /// clause has no handler.
    pub fn unreadable(&self, clause: usize, kind: ProbeKind) -> Option<&str> {
        self.unreadable.get(&(clause, kind)).map(String::as_str)
    }

    /// Enables a clause at a probe for one of its descriptions. An enabling that exists stays as it is. As in
    /// DTrace a clause whose descriptions match a probe twice fires twice there.
    ///
    /// # Errors
    /// The clause cannot be compiled for this kind of probe, or there is no room for its slots.
    pub fn enable(
        &mut self,
        (clause, by): (usize, By),
        index: ProbeIndex,
        probe: &Probe,
        context: &Context<'_>,
    ) -> Result<(), EnableError> {
        let is_new = self.enabled.insert((clause, index));
        let number = match by {
            By::Name(number) | By::AnotherNameAgain(number) => number,
            By::AnotherName if is_new => ANOTHER_NAME,
            By::AnotherName => return Ok(()),
        };
        // An earlier match found the function by another of its names; its own name has no enabling yet.
        let is_known = matches!(by, By::Name(_)) && self.known.remove(&(clause, ANOTHER_NAME, index));
        if !self.known.insert((clause, number, index)) || is_known {
            return Ok(());
        }
        let mut slot_base = 0;
        let mut counters = None;
        let kinds = probe_kinds(probe, context.statics, context.modules);
        if !kinds.is_empty() {
            let slots = self.slots_of(clause, index, probe, context)?;
            if let Some(slots) = self.slots.get(slots) {
                slot_base = slots.base;
                counters = slots.counters.clone();
            }
            if counters.is_none() {
                for kind in kinds {
                    self.compile(clause, kind, context)?;
                }
            }
        }
        let epid = u32::try_from(self.list.len() + 1).unwrap_or(u32::MAX);
        self.list.push(Enabling {
            epid,
            probe: index,
            clause,
            description: number,
            slot_base,
            counters,
        });
        Ok(())
    }

    /// Whether a description of a clause has enabled it at a probe.
    pub fn has(&self, clause: usize, description: usize, probe: ProbeIndex) -> bool {
        self.known.contains(&(clause, description, probe))
    }

    /// Enables a clause, for one of its descriptions, at all system calls of a module.
    pub fn enable_call_sites(&mut self, clause: usize, description: usize, probe: ProbeIndex) {
        if !self.known.insert((clause, description, probe)) {
            return;
        }
        let epid = u32::try_from(self.list.len() + 1).unwrap_or(u32::MAX);
        self.list.push(Enabling {
            epid,
            probe,
            clause,
            description,
            slot_base: 0,
            counters: None,
        });
    }

    /// The index in `slots` of a clause's slots at a probe; makes them if there are none yet.
    fn slots_of(
        &mut self,
        clause: usize,
        index: ProbeIndex,
        probe: &Probe,
        context: &Context<'_>,
    ) -> Result<usize, EnableError> {
        let names = match self.key_names.get(&clause) {
            Some(names) => *names,
            None => *self
                .key_names
                .entry(clause)
                .or_insert(static_names(context.program, clause)),
        };
        let key = SlotsKey {
            clause,
            provider: names.provider.then(|| probe.provider.clone()),
            module: names.module.then(|| probe.module.clone()),
            function: names.function.then(|| probe.function.clone()),
            probe: names.probe.then_some(index),
        };
        if let Some(known) = self.known_slots.get(&key) {
            return Ok(*known);
        }
        let bytes = u64::from(static_slots(context.program, clause).bytes);
        if self.slots_used + bytes > self.slot_bytes {
            return Err(EnableError::Slots { bytes: self.slot_bytes });
        }
        let base = CONTEXT_SLOTS + self.slots_used;
        let counters = inline_counts(context.program, clause)
            .map(|offsets| offsets.iter().map(|offset| base as u32 + offset).collect());
        let slots = Slots {
            clause,
            base,
            epid: u32::try_from(self.list.len() + 1).unwrap_or(u32::MAX),
            counters,
        };
        self.slots_used += bytes;
        let index = self.slots.len();
        self.known_slots.insert(key, index);
        self.slots.push(slots);
        Ok(index)
    }

    fn compile(&mut self, clause: usize, kind: ProbeKind, context: &Context<'_>) -> Result<(), EnableError> {
        if self.handlers.contains_key(&(clause, kind)) {
            return Ok(());
        }
        let compiled = self.compiler.compile(
            context.program,
            clause,
            kind,
            context.storage,
            context.limits,
            context.arena,
        );
        match compiled {
            Ok(handler) => {
                self.handlers.insert((clause, kind), handler);
            }
            // At other sites the argument may be readable.
            Err(error @ nanoprobe_codegen::Error::StaticArgument { .. }) => {
                self.unreadable.insert((clause, kind), error.to_string());
            }
            Err(source) => {
                let clause = clause + 1;
                return Err(EnableError::Compile { clause, source });
            }
        }
        Ok(())
    }
}

/// The meaning of arguments at the sites of a probe. The list is empty where the probe fires in the tracer.
fn probe_kinds(probe: &Probe, statics: &Statics, modules: &[Module]) -> Vec<ProbeKind> {
    match probe.place {
        Place::Static { number, .. } => {
            let sites = statics.get(number).map_or(&[][..], |known| &known.sites);
            sites.iter().map(|site| site.kind).collect()
        }
        _ => probe_kind(probe, modules).into_iter().collect(),
    }
}

/// The meaning of arguments before or after a system call.
pub fn call_kind(end: End) -> ProbeKind {
    match end {
        End::Entry => ProbeKind::CallEntry,
        End::Return => ProbeKind::CallReturn,
    }
}

/// The meaning of arguments at a probe that is not static; `None`: the probe fires in the tracer.
pub fn probe_kind(probe: &Probe, modules: &[Module]) -> Option<ProbeKind> {
    let (module, address, kind) = match probe.place {
        Place::Function { module, function, spot } => {
            let address = modules.get(module)?.functions().get(function)?.address;
            let kind = match spot {
                Spot::Entry => ProbeKind::Entry,
                Spot::Exits => ProbeKind::Return,
                Spot::Offset(_) => ProbeKind::Offset,
            };
            (module, address, kind)
        }
        Place::Address { module, address } => (module, address, ProbeKind::Offset),
        Place::Call { end, .. } => return Some(call_kind(end)),
        Place::Handlers => return Some(ProbeKind::Offset),
        _ => return None,
    };
    let call = modules.get(module).and_then(|module| module.go_call(address));
    Some(match (call, kind) {
        (None, kind) => kind,
        (Some(GoCall::Registers), ProbeKind::Return) => ProbeKind::GoReturn,
        (Some(GoCall::Registers), _) => ProbeKind::Go,
        (Some(GoCall::Stack), ProbeKind::Return) => ProbeKind::GoStackReturn,
        (Some(GoCall::Stack), _) => ProbeKind::GoStack,
        (Some(GoCall::Unknown), _) => ProbeKind::GoUnknown,
    })
}
