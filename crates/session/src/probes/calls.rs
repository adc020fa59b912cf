//! The matches of a description among the probes of the provider `syscall`. Pure.

use nanoprobe_arena::layout::{CALL_NUMBERS, CALL_PROCESS_BEGINS, CALL_THREAD_BEGINS};
use nanoprobe_lang::glob;
use nanoprobe_lang::program::{DerivedProbe, ProbeDescription};
use nanoprobe_symbols::{ImageAddress, Module};

use super::{Labels, Place, ProbeIndex, ProbeList};
use crate::calls::{End, MODULE, PROVIDER, name_of};

/// Where the kernel lets a new process or thread begin: the function of its probes, as in DTrace on Linux.
const BEGINNING: &str = "schedule_tail";

/// Where the kernel leads a thread to a signal handler: the function of the probes of handlers. No description of a
/// program's names it.
const HANDLING: &str = "handle_signal";
const HANDLER: &str = "signal-handle";

/// Whether a description may mean system calls.
pub fn means_calls(description: &ProbeDescription) -> bool {
    !description.provider.is_empty() && glob::matches(&description.provider, PROVIDER)
}

/// Whether a description means the places where signal handlers begin.
pub fn means_handlers(derived: Option<&DerivedProbe>, description: &ProbeDescription) -> bool {
    derived.is_some() && description.function == HANDLING && description.name == HANDLER
}

impl ProbeList {
    /// Finds the system calls that a description matches.
    pub fn match_calls(&mut self, description: &ProbeDescription) -> Vec<ProbeIndex> {
        let answers = |pattern: &str, text: &str| pattern.is_empty() || glob::matches(pattern, text);
        let mut found = Vec::new();
        if !means_calls(description) || !answers(&description.module, MODULE) {
            return found;
        }
        for number in 0..=CALL_NUMBERS {
            let name = name_of(number);
            if !answers(&description.function, &name) {
                continue;
            }
            let labels = Labels {
                provider: PROVIDER.into(),
                module: MODULE.into(),
                function: (&*name).into(),
            };
            let ends = [End::Entry, End::Return].into_iter();
            found.extend(ends.filter(|end| answers(&description.name, end.name())).map(|end| {
                let place = Place::Call { number, end };
                self.add_named(&labels, place, end.name().into())
            }));
        }
        found.extend(self.match_beginnings(description));
        found
    }

    /// The places of `proc:::start` and `proc:::lwp-start`, which no description of a program's names.
    fn match_beginnings(&mut self, description: &ProbeDescription) -> Option<ProbeIndex> {
        let is_there = self.derived.is_at_hand() && description.function == BEGINNING;
        let number = match description.name.as_str() {
            "start" if is_there => CALL_PROCESS_BEGINS,
            "lwp-start" if is_there => CALL_THREAD_BEGINS,
            _ => return None,
        };
        let labels = Labels {
            provider: PROVIDER.into(),
            module: MODULE.into(),
            function: BEGINNING.into(),
        };
        let end = End::Return;
        Some(self.add_named(&labels, Place::Call { number, end }, end.name().into()))
    }

    /// The probes where signal handlers begin: those that are known, and the one that stands for all.
    pub fn match_handlers(&mut self, known: &[(usize, ImageAddress)]) -> Vec<ProbeIndex> {
        let labels = Labels {
            provider: PROVIDER.into(),
            module: MODULE.into(),
            function: HANDLING.into(),
        };
        let known = known
            .iter()
            .map(|&(module, address)| Place::Address { module, address });
        let places = [Place::Handlers].into_iter().chain(known);
        places
            .map(|place| self.add_named(&labels, place, HANDLER.into()))
            .collect()
    }

    /// The probe of all system calls of a module.
    pub fn call_sites(&mut self, index: usize, module: &Module, end: End) -> ProbeIndex {
        let labels = Labels {
            provider: PROVIDER.into(),
            module: module.name().into(),
            function: "(system call)".into(),
        };
        let place = Place::CallSites { module: index, end };
        self.add_named(&labels, place, end.name().into())
    }
}
