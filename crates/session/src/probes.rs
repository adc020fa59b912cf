//! Probes: what a description matches, given the modules that the target has mapped. Pure.
//!
//! A probe is `provider:module:function:name` with an id of its own. Those of `dtrace` (BEGIN, END, ERROR), of
//! `profile` and of `sched` fire in the tracer; the probes of `pidNNN`, static probes ([`crate::statics`]) and system
//! calls ([`crate::calls`]) fire at instructions of the target. Probes are made as descriptions match them and keep
//! their ids; a library that is loaded later only adds to the list.
//!
//! There may be a million of them: every instruction of a large library. So a probe shares its strings with its
//! neighbours, and the name of an offset is made when it is needed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use nanoprobe_lang::options::{Demangle, Interval};
use nanoprobe_symbols::ImageAddress;

use crate::calls::End;

mod calls;
mod derived;
mod description;
mod matching;
#[cfg(test)]
mod tests;
mod tracer;

pub use calls::{means_calls, means_handlers};
pub use description::{
    DescriptionError, Line, answers_to, describe, hint_for_elsewhere, hint_for_fields, is_target_provider,
    matching_name, means_inlined, named_process,
};
pub(crate) use matching::may_match;
pub use matching::{Candidate, Later, Matched};
pub use tracer::means_switches;

/// Index into [`ProbeList::probes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeIndex(pub usize);

/// One probe.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The number in the column ID of the output; from 1.
    pub id: u32,
    /// `pid1234`, `dtrace`, `profile`.
    pub provider: Arc<str>,
    /// The module's file name, empty for the tracer's probes.
    pub module: Arc<str>,
    /// The name by which the description matched the function; `-` for a probe on an address.
    pub function: Arc<str>,
    /// Where the probe fires.
    pub place: Place,
    /// Whether the probe is shown in lists. A derived probe is shown once, wherever it fires.
    pub is_listed: bool,
    /// `BEGIN`, `tick-1s`, or the name of a static probe; empty for the target's other probes, whose names are made
    /// from their places.
    own_name: Arc<str>,
}

impl Probe {
    /// `entry`, `return`, an offset or an address in hexadecimal, `BEGIN`, `tick-1s`.
    pub fn name(&self) -> Cow<'_, str> {
        if !self.own_name.is_empty() {
            return Cow::Borrowed(&self.own_name);
        }
        match self.place {
            Place::Function { spot, .. } => match spot {
                Spot::Entry => Cow::Borrowed("entry"),
                Spot::Exits => Cow::Borrowed("return"),
                Spot::Offset(offset) => Cow::Owned(format!("{offset:x}")),
            },
            Place::Address { address, .. } => Cow::Owned(format!("{:x}", address.0)),
            _ => Cow::Borrowed(&self.own_name),
        }
    }
}

/// Where a probe fires.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// When tracing begins.
    Begin,
    /// When tracing ends.
    End,
    /// Fires when a clause has failed.
    Error,
    /// At intervals of time.
    Interval(Interval),
    /// When a thread of the target leaves its processor, or comes back.
    Switch(SwitchKind),
    /// In the target.
    Function {
        /// Index of the module in the order of loading.
        module: usize,
        /// Index of the function in the module.
        function: usize,
        /// Which instructions of the function.
        spot: Spot,
    },
    /// In the target, at the sites of a static probe, of a line or of the inlined copies of a function.
    Static {
        /// Index of the module in the order of loading.
        module: usize,
        /// The probe's number in [`crate::statics::Statics`].
        number: usize,
    },
    /// In the target, at every system call with this number.
    Call {
        /// The number; [`nanoprobe_arena::layout::CALL_NUMBERS`] stands for all larger numbers, too. The two after it
        /// are no calls: what a call has made begins.
        number: u32,
        /// Before or after the call.
        end: End,
    },
    /// In the target, at every `syscall` of a module, whatever its number is. No description matches this probe: it
    /// stands for the `Call`s that a clause is enabled at.
    CallSites {
        /// Index of the module in the order of loading.
        module: usize,
        /// Before or after the calls.
        end: End,
    },
    /// In the target, where its signal handlers begin. Stands for the `Address` of each handler, as long as none is
    /// known.
    Handlers,
    /// In the target, at an instruction that a description names by its address.
    Address {
        /// Index of the module in the order of loading.
        module: usize,
        /// The instruction.
        address: ImageAddress,
    },
}

/// A probe of the provider `sched`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwitchKind {
    /// `on-cpu`
    OnCpu,
    /// `off-cpu`, for whichever reason.
    OffCpu,
    /// `sleep`: the thread waits for something.
    Sleep,
    /// `preempt`: the thread could have run on.
    Preempt,
    /// `wakeup`: a thread of the target is woken. Fires in the waker.
    Wakeup,
    /// `proc:::signal-discard`: a signal for a thread of the target is discarded. Fires in the sender.
    Discard,
}

/// Which instructions of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spot {
    /// The first instruction.
    Entry,
    /// Every exit.
    Exits,
    /// The instruction at this many bytes from the entry, modulo 2^64.
    Offset(u64),
}

/// The names that the probes of one function have in common.
#[derive(Clone, Debug)]
struct Labels {
    provider: Arc<str>,
    module: Arc<str>,
    function: Arc<str>,
}

/// All probes that were matched so far.
pub struct ProbeList {
    probes: Vec<Probe>,
    targets: HashMap<Place, ProbeIndex>,
    others: HashMap<String, ProbeIndex>,
    derived: derived::DerivedProbes,
    next_id: u32,
    demangle: Demangle,
}

/// The first id that a probe of the target can have: 1, 2, 3 are BEGIN, END and ERROR.
const FIRST_FREE_ID: u32 = 4;

impl ProbeList {
    /// An empty list. `demangle` says how the names of functions are shown.
    pub fn new(demangle: Demangle) -> ProbeList {
        ProbeList {
            probes: Vec::new(),
            targets: HashMap::new(),
            others: HashMap::new(),
            derived: derived::DerivedProbes::default(),
            next_id: FIRST_FREE_ID,
            demangle,
        }
    }

    /// The probe at an index that this list has returned.
    pub fn get(&self, index: ProbeIndex) -> Option<&Probe> {
        self.probes.get(index.0)
    }

    /// All probes of the list.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Probe> {
        self.probes.iter()
    }

    /// Gives the spare room of the list back: as far as is known, no further probes are wanted.
    pub fn shrink_to_fit(&mut self) {
        self.probes.shrink_to_fit();
    }

    fn add_target(&mut self, labels: &Labels, place: Place) -> ProbeIndex {
        self.add_named(labels, place, Arc::default())
    }

    fn add_named(&mut self, labels: &Labels, place: Place, own_name: Arc<str>) -> ProbeIndex {
        if let Some(index) = self.add_derived(labels, &place) {
            return index;
        }
        if let Some(index) = self.targets.get(&place) {
            return *index;
        }
        let probe = Probe {
            is_listed: true,
            id: self.take_id(),
            provider: labels.provider.clone(),
            module: labels.module.clone(),
            function: labels.function.clone(),
            place: place.clone(),
            own_name,
        };
        let index = self.push(probe);
        self.targets.insert(place, index);
        index
    }

    fn add_other(&mut self, provider: &str, name: &str, id: Option<u32>, place: Place) -> ProbeIndex {
        if let Some(index) = self.others.get(name) {
            return *index;
        }
        let probe = Probe {
            id: id.unwrap_or_else(|| self.take_id()),
            provider: provider.into(),
            module: Arc::default(),
            function: Arc::default(),
            place,
            is_listed: true,
            own_name: name.into(),
        };
        let index = self.push(probe);
        self.others.insert(name.to_owned(), index);
        index
    }

    fn push(&mut self, probe: Probe) -> ProbeIndex {
        self.probes.push(probe);
        ProbeIndex(self.probes.len() - 1)
    }

    fn take_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = id.saturating_add(1);
        id
    }
}

impl std::fmt::Display for Probe {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{}:{}:{}:{}",
            self.provider,
            self.module,
            self.function,
            self.name()
        )
    }
}
