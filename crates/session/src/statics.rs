//! Static probes (`sys/sdt.h`) of the target's modules: their names, their sites and their semaphores.
//!
//! ```text
//!    provider1234 : module : function : name        what a description matches
//!                              |
//!          one probe, several sites: the notes of the same name in the same function (inlined, unrolled, written twice)
//!                              |
//!          each site has its own operands, for which a clause's handler is compiled (sites that agree share it)
//! ```
//!
//! The provider ends with the process's number, as in DTrace. A name is shown as DTrace shows it, with `-` for `__`
//! (`query-start`), and matched by either spelling. Manual: "Statically Defined Tracing for User Applications".

mod arguments;
mod operand;

pub use arguments::{arguments_at, has_provider};

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use nanoprobe_codegen::{ProbeKind, StaticArguments};
use nanoprobe_lang::glob;
use nanoprobe_lang::options::Demangle;
use nanoprobe_lang::program::ProbeDescription;
use nanoprobe_symbols::{ImageAddress, Module};

use crate::names::NO_FUNCTION;
use crate::probes::answers_to;

/// How many symbols in the operands of one module are looked up; further ones are not found.
const SYMBOLS_MAX: usize = 10_000;

/// All static probes, by number.
#[derive(Default)]
pub struct Statics {
    probes: Vec<StaticProbe>,
    numbers: HashMap<Key, usize>,
    arguments: Vec<StaticArguments>,
    kinds: HashMap<StaticArguments, u32>,
    /// How many modules have been read.
    modules: usize,
}

/// Module, provider, function, and the note's name: notes with the same key are one probe. The provider is empty
/// for probes from debug information.
type Key = (usize, Arc<str>, Arc<str>, Arc<str>);

/// One static probe, or a probe like one: several sites, each with its own operands.
#[derive(Clone, Debug)]
pub struct StaticProbe {
    /// Index of the module in the order of loading.
    pub module: usize,
    /// The provider as the note has it, without the process's number.
    pub provider: Arc<str>,
    /// The function that it lies in; `-` where none is known.
    pub function: Arc<str>,
    /// The name as it is shown.
    pub name: Arc<str>,
    /// The name as the note has it.
    spelled: Arc<str>,
    /// The places at which the probe fires.
    pub sites: Vec<StaticSite>,
    /// A note describes it. Otherwise it comes from debug information, for a line or a function's inlined copies.
    is_noted: bool,
}

/// One place at which a static probe fires.
#[derive(Clone, Copy, Debug)]
pub struct StaticSite {
    /// The instruction.
    pub address: ImageAddress,
    /// How a clause's handler finds the arguments.
    pub kind: ProbeKind,
    /// The program checks whether this word is not 0 before it comes here.
    pub semaphore: Option<ImageAddress>,
}

impl Statics {
    /// Reads the notes of modules that it has not seen yet.
    pub fn read(&mut self, modules: &[Module]) {
        for (index, module) in modules.iter().enumerate().skip(self.modules) {
            self.read_module(index, module);
        }
        self.modules = self.modules.max(modules.len());
    }

    /// The probe of a number.
    pub fn get(&self, number: usize) -> Option<&StaticProbe> {
        self.probes.get(number)
    }

    /// The arguments that handlers are compiled for: [`ProbeKind::Static`] is an index into it.
    pub fn arguments(&self) -> &[StaticArguments] {
        &self.arguments
    }

    /// The probes in modules from index `first` on that a description means, in the process of this number.
    pub fn matching<'a>(
        &'a self,
        description: &'a ProbeDescription,
        modules: &'a [Module],
        first: usize,
        pid: i32,
    ) -> impl Iterator<Item = (usize, &'a StaticProbe)> {
        let answers = |pattern: &str, text: &str| pattern.is_empty() || glob::matches(pattern, text);
        let mut last = None;
        self.probes.iter().enumerate().filter(move |(_, probe)| {
            let names = |module: usize| {
                let known = modules.get(module);
                description.module.is_empty()
                    || known
                        .is_some_and(|module| module.module_matches(|name| glob::matches(&description.module, name)))
            };
            probe.is_noted
                && probe.module >= first
                && (description.provider.is_empty() || names_provider(&description.provider, &probe.provider, pid))
                && answers_to(&probe.function, &description.function, Demangle::Auto).is_some()
                && (answers(&description.name, &probe.name) || answers(&description.name, &probe.spelled))
                && match last {
                    Some((module, matched)) if module == probe.module => matched,
                    _ => {
                        let matched = names(probe.module);
                        last = Some((probe.module, matched));
                        matched
                    }
                }
        })
    }

    /// The names of all providers, without the process's number.
    pub fn providers(&self) -> BTreeSet<&str> {
        let noted = self.probes.iter().filter(|probe| probe.is_noted);
        noted.map(|probe| &*probe.provider).collect()
    }

    fn read_module(&mut self, index: usize, module: &Module) {
        let notes = module.static_probes();
        let wanted = RefCell::new(BTreeSet::new());
        for note in &notes {
            operand::parse(&note.arguments, &|symbol| {
                let mut wanted = wanted.borrow_mut();
                if wanted.len() < SYMBOLS_MAX {
                    wanted.insert(symbol.to_owned());
                }
                Vec::new()
            });
        }
        let wanted = wanted.into_inner();
        let known = if wanted.is_empty() {
            HashMap::new()
        } else {
            module.addresses_of(&wanted)
        };
        let find = |symbol: &str| -> Vec<u64> {
            let found = known.get(symbol).into_iter().flatten();
            found.map(|address| module.bias().to_target(*address).0).collect()
        };
        for note in notes {
            let function: Arc<str> = match module.resolve(note.address) {
                Some((name, _)) => name.into(),
                None => NO_FUNCTION.into(),
            };
            let kind = self.kind(operand::parse(&note.arguments, &find));
            let provider: Arc<str> = note.provider.as_str().into();
            let spelled: Arc<str> = note.name.as_str().into();
            let key = (index, provider.clone(), function.clone(), spelled.clone());
            let number = *self.numbers.entry(key).or_insert_with(|| {
                self.probes.push(StaticProbe {
                    module: index,
                    provider,
                    function,
                    name: note.name.replace("__", "-").into(),
                    spelled,
                    sites: Vec::new(),
                    is_noted: true,
                });
                self.probes.len() - 1
            });
            let site = StaticSite {
                address: note.address,
                kind,
                semaphore: note.semaphore,
            };
            // An instruction fires once, also where its note is repeated.
            if let Some(probe) = self.probes.get_mut(number)
                && probe.sites.iter().all(|known| known.address != site.address)
            {
                probe.sites.push(site);
            }
        }
    }

    /// Adds a probe from debug information: its module, the name that is shown, and its sites with their arguments. An
    /// argument list of `None` means that the site has the same arguments as any instruction. Yields the probe's
    /// number, which is the old one for a known probe.
    pub fn add(
        &mut self,
        module: usize,
        function: &str,
        name: &str,
        sites: impl IntoIterator<Item = (ImageAddress, Option<StaticArguments>)>,
    ) -> usize {
        let (function, name): (Arc<str>, Arc<str>) = (function.into(), name.into());
        let key = (module, Arc::default(), function.clone(), name.clone());
        if let Some(known) = self.numbers.get(&key) {
            return *known;
        }
        let mut known: Vec<StaticSite> = Vec::new();
        let mut seen = HashSet::new();
        for (address, arguments) in sites {
            if seen.insert(address) {
                known.push(StaticSite {
                    address,
                    kind: arguments.map_or(ProbeKind::Offset, |arguments| self.kind(arguments)),
                    semaphore: None,
                });
            }
        }
        let number = self.probes.len();
        self.numbers.insert(key, number);
        self.probes.push(StaticProbe {
            module,
            provider: Arc::default(),
            function,
            name: name.clone(),
            spelled: name,
            sites: known,
            is_noted: false,
        });
        number
    }

    fn kind(&mut self, arguments: StaticArguments) -> ProbeKind {
        let next = u32::try_from(self.arguments.len()).unwrap_or(u32::MAX);
        let number = *self.kinds.entry(arguments).or_insert_with_key(|arguments| {
            self.arguments.push(arguments.clone());
            next
        });
        ProbeKind::Static(number)
    }
}

/// The provider as descriptions name it.
pub fn provider_of(provider: &str, pid: i32) -> String {
    format!("{provider}{pid}")
}

/// Whether a description's provider is this provider of the process. The description may spell it as in the source, or
/// as DTrace does, with `-` for `__`.
pub fn names_provider(pattern: &str, provider: &str, pid: i32) -> bool {
    let matches = |provider: &str| glob::matches(pattern, &provider_of(provider, pid));
    matches(provider) || (provider.contains("__") && matches(&provider.replace("__", "-")))
}

/// Whether a description may mean static probes at all.
pub fn may_be_static(description: &ProbeDescription) -> bool {
    let bare = description.module.is_empty() && description.function.is_empty();
    let is_interval = description.name.starts_with("tick-") || description.name.starts_with("profile-");
    let is_tracers = ["BEGIN", "END", "ERROR"].contains(&description.name.as_str()) || is_interval;
    let is_others = match description.provider.as_str() {
        "dtrace" | "profile" => true,
        "" => bare && is_tracers,
        _ => crate::probes::is_target_provider(description),
    };
    !is_others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_answers_to_both_spellings() {
        for pattern in ["my__own12", "my-own12", "my-*", "*own12"] {
            assert!(names_provider(pattern, "my__own", 12), "{pattern}");
        }
        for pattern in ["my-own1", "my_own12", "my--own12"] {
            assert!(!names_provider(pattern, "my__own", 12), "{pattern}");
        }
        assert!(!names_provider("my-own12", "my_own", 12));
    }
}
