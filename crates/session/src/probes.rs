//! Probes: what a description matches, given the modules that the target has mapped. Pure.
//!
//! A probe is `provider:module:function:name` with an id of its own. Those of the provider `dtrace` (BEGIN, END, ERROR)
//! and `profile` fire in the tracer; those of `pidNNN` at instructions of the target, and so do its static probes
//! ([`crate::statics`]). Probes are made as descriptions
//! match them and keep their ids; a library that is loaded later only adds to the list.
//!
//! There may be a million of them: every instruction of a large library. So a probe shares its strings with its
//! neighbours, and the name of an offset is made when somebody asks for it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use nanoprobe_lang::glob;
use nanoprobe_lang::options::{Interval, parse_interval};
use nanoprobe_lang::program::ProbeDescription;
use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::{Function, FunctionKind, ImageAddress, Module, ModuleKind};

use crate::code::{Instructions, extent_around, extent_of};
use crate::names::{NO_FUNCTION, Name, Reason};
use crate::statics::{Statics, provider_of};

/// Index into [`ProbeList::probes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeIndex(pub usize);

/// One probe.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What the user sees in the column ID; from 1.
    pub id: u32,
    /// `pid1234`, `dtrace`, `profile`.
    pub provider: Arc<str>,
    /// The module's file name, empty for the tracer's probes.
    pub module: Arc<str>,
    /// The name by which the description matched the function; `-` for a probe on an address.
    pub function: Arc<str>,
    /// Where it fires.
    pub place: Place,
    /// `BEGIN`, `tick-1s`, a static probe's; empty for the others of the target, whose place says it.
    own_name: Arc<str>,
}

impl Probe {
    /// `entry`, `return`, an offset or an address in hexadecimal, `BEGIN`, `tick-1s`.
    pub fn name(&self) -> Cow<'_, str> {
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
    /// When it ends.
    End,
    /// When a clause failed.
    Error,
    /// At intervals.
    Interval(Interval),
    /// In the target.
    Function {
        /// Index of the module in the order of loading.
        module: usize,
        /// Index of the function in the module.
        function: usize,
        /// Which of its instructions.
        spot: Spot,
    },
    /// In the target, where its source put a probe.
    Static {
        /// Index of the module in the order of loading.
        module: usize,
        /// Its number in [`crate::statics::Statics`].
        number: usize,
    },
    /// In the target, at an instruction that was named by its address.
    Address {
        /// Index of the module in the order of loading.
        module: usize,
        /// The instruction.
        address: ImageAddress,
    },
}

/// Which instructions of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spot {
    /// The first.
    Entry,
    /// Every way out.
    Exits,
    /// The one at this many bytes from the entry, modulo 2^64.
    Offset(u64),
}

/// A module to match against.
pub struct Candidate<'a> {
    /// Its index in the order of loading.
    pub index: usize,
    /// The module.
    pub module: &'a Module,
}

/// A description that cannot be right, whatever the target is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// Another process than the target, or no target at all.
    #[error("{description}: the provider {provider} is not there: {remedy}")]
    Provider {
        /// As written.
        description: String,
        /// The provider.
        provider: String,
        /// What to do.
        remedy: &'static str,
    },
    /// `profile` and `tick` want an interval.
    #[error("{description}: not an interval of at least 200 us: write tick-100ms, profile-97, tick-5s, ...")]
    Interval {
        /// As written.
        description: String,
    },
}

/// What a description matches in some modules.
#[derive(Debug, Default)]
pub struct Matched {
    /// Probes.
    pub found: Vec<ProbeIndex>,
    /// Functions whose code is not known before the target has chosen it.
    pub later: Vec<Later>,
    /// The first function that is meant, but has no such probe, and why. It counts when nothing at all is matched.
    pub error: Option<(Arc<str>, Reason)>,
}

/// An IFUNC of which instructions are to be probed.
#[derive(Clone, Debug)]
pub struct Later {
    /// Index of its module.
    pub module: usize,
    /// Index of the function.
    pub function: usize,
    /// What its probes have in common.
    labels: Labels,
    /// Which instructions.
    name: Name,
}

/// What the probes of a function have in common.
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
    next_id: u32,
}

/// The first id that a probe of the target can have: 1, 2, 3 are BEGIN, END and ERROR.
const FIRST_FREE_ID: u32 = 4;

impl ProbeList {
    /// An empty list.
    pub fn new() -> ProbeList {
        ProbeList {
            probes: Vec::new(),
            targets: HashMap::new(),
            others: HashMap::new(),
            next_id: FIRST_FREE_ID,
        }
    }

    /// The probe at an index that this list gave.
    pub fn get(&self, index: ProbeIndex) -> Option<&Probe> {
        self.probes.get(index.0)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Probe> {
        self.probes.iter()
    }

    /// Finds what a description matches among the tracer's own probes.
    ///
    /// # Errors
    /// A provider that is not there, an interval that is none.
    pub fn match_tracer(
        &mut self,
        description: &ProbeDescription,
        target_provider: Option<&str>,
    ) -> Result<Vec<ProbeIndex>, DescriptionError> {
        let text = describe(description);
        if is_target_provider(description) {
            if target_provider == Some(description.provider.as_str()) {
                return Ok(Vec::new());
            }
            let remedy = match target_provider {
                Some(_) => "one session traces one process, the one that $target names",
                None => "name the process by -p, or start it by -c",
            };
            return Err(DescriptionError::Provider {
                description: text,
                provider: description.provider.clone(),
                remedy,
            });
        }
        let mut found = Vec::new();
        let bare = description.module.is_empty() && description.function.is_empty();
        for (id, name, place) in [
            (1, "BEGIN", Place::Begin),
            (2, "END", Place::End),
            (3, "ERROR", Place::Error),
        ] {
            if bare && glob::matches(&description.provider, "dtrace") && glob::matches(&description.name, name) {
                found.push(self.add_other("dtrace", name, Some(id), place));
            }
        }
        let is_interval = description.name.starts_with("tick-") || description.name.starts_with("profile-");
        if bare && is_interval && glob::matches(&description.provider, "profile") {
            let interval = parse_interval(&description.name).ok_or(DescriptionError::Interval { description: text })?;
            found.push(self.add_other("profile", &description.name, None, Place::Interval(interval)));
        }
        Ok(found)
    }

    /// Finds what a description of the target's provider matches in some modules.
    pub fn match_target<'a>(
        &mut self,
        description: &ProbeDescription,
        modules: impl Iterator<Item = Candidate<'a>>,
    ) -> Matched {
        let mut matched = Matched::default();
        let name = Name::parse(&description.name);
        let provider: Arc<str> = description.provider.as_str().into();
        for candidate in modules {
            let answers = |name: &String| glob::matches(&description.module, name);
            if !description.module.is_empty() && !candidate.module.names().iter().any(answers) {
                continue;
            }
            let mut labels = Labels {
                provider: provider.clone(),
                module: candidate.module.name().into(),
                function: NO_FUNCTION.into(),
            };
            if description.function == NO_FUNCTION {
                self.match_address(description, &name, &candidate, &labels, &mut matched);
                continue;
            }
            for (function, symbol) in candidate.module.functions().iter().enumerate() {
                let Some(function_name) = matching_name(symbol, &description.function) else {
                    continue;
                };
                labels.function = (&*function_name).into();
                self.match_function(&name, &candidate, function, &labels, &mut matched);
            }
        }
        matched
    }

    /// The probes on a function whose name matches.
    fn match_function(
        &mut self,
        name: &Name,
        candidate: &Candidate<'_>,
        function: usize,
        labels: &Labels,
        matched: &mut Matched,
    ) {
        let mut add = |spot| {
            let module = candidate.index;
            let place = Place::Function { module, function, spot };
            matched.found.push(self.add_target(labels, place));
        };
        match name {
            Name::Entry => return add(Spot::Entry),
            Name::Return => return add(Spot::Exits),
            Name::Invalid => {
                matched.refuse(labels, Reason::Invalid);
                return;
            }
            Name::Glob(pattern) => {
                for (word, spot) in [("entry", Spot::Entry), ("return", Spot::Exits)] {
                    if glob::matches(pattern, word) {
                        add(spot);
                    }
                }
            }
            Name::Offset(_) => {}
        }
        let is_choice = candidate
            .module
            .functions()
            .get(function)
            .is_some_and(|function| function.kind != FunctionKind::Code);
        if is_choice {
            matched.later.push(Later {
                module: candidate.index,
                function,
                labels: labels.clone(),
                name: name.clone(),
            });
            return;
        }
        let extent = extent_of(candidate.module, function).unwrap_or_default();
        let code = Instructions::of(candidate.module, &extent);
        self.match_offsets(name, (candidate.index, function), labels, &code, matched);
    }

    /// The probes on instructions of an IFUNC, whose code is known now.
    pub fn match_later(&mut self, later: &Later, code: &Instructions) -> Matched {
        let mut matched = Matched::default();
        self.match_offsets(
            &later.name,
            (later.module, later.function),
            &later.labels,
            code,
            &mut matched,
        );
        matched
    }

    fn match_offsets(
        &mut self,
        name: &Name,
        (module, function): (usize, usize),
        labels: &Labels,
        code: &Instructions,
        matched: &mut Matched,
    ) {
        let mut add = |offset| {
            let spot = Spot::Offset(offset);
            let place = Place::Function { module, function, spot };
            matched.found.push(self.add_target(labels, place));
        };
        match name {
            Name::Offset(offset) => match code.check(*offset) {
                Ok(()) => add(*offset),
                Err(reason) => {
                    matched.refuse(labels, Reason::Offset(reason));
                }
            },
            Name::Glob(pattern) => {
                let every = pattern.is_empty() || pattern == "*";
                let offsets = code
                    .offsets()
                    .filter(|offset| every || glob::matches(pattern, &format!("{offset:x}")));
                offsets.for_each(add);
            }
            Name::Entry | Name::Return | Name::Invalid => {}
        }
    }

    /// The probe on an address, see [`crate::names`].
    fn match_address(
        &mut self,
        description: &ProbeDescription,
        name: &Name,
        candidate: &Candidate<'_>,
        labels: &Labels,
        matched: &mut Matched,
    ) {
        let Name::Offset(number) = *name else {
            matched.refuse(labels, Reason::NoAddress);
            return;
        };
        let module = candidate.module;
        let named = glob::is_literal(&description.module) || module.kind() == ModuleKind::Executable;
        let holds = |address: &ImageAddress| module.image_range().contains(*address);
        let in_image = Some(ImageAddress(number)).filter(|address| named && holds(address));
        let in_process = || Some(module.bias().to_image(TargetAddress(number))).filter(holds);
        let Some(address) = in_image.or_else(in_process) else {
            if glob::is_literal(&description.module) {
                matched.refuse(labels, Reason::NoFunction);
            }
            return;
        };
        let checked = match extent_around(module, address) {
            None => Err(Reason::NoFunction),
            Some((extent, _)) => {
                let start = module.bias().to_image(TargetAddress(extent.start)).0;
                Instructions::of(module, &extent)
                    .check(address.0.wrapping_sub(start))
                    .map_err(|reason| Reason::Address(start, reason))
            }
        };
        match checked {
            Ok(()) => {
                let module = candidate.index;
                matched
                    .found
                    .push(self.add_target(labels, Place::Address { module, address }));
            }
            Err(reason) => {
                matched.refuse(labels, reason);
            }
        }
    }

    /// Finds the static probes of the target that a description matches, in modules from index `first` on.
    pub fn match_static(
        &mut self,
        description: &ProbeDescription,
        statics: &Statics,
        modules: &[Module],
        first: usize,
        pid: i32,
    ) -> Vec<ProbeIndex> {
        let mut found = Vec::new();
        for (number, known) in statics.matching(description, modules, first, pid) {
            let Some(module) = modules.get(known.module) else {
                continue;
            };
            let labels = Labels {
                provider: provider_of(&known.provider, pid).into(),
                module: module.name().into(),
                function: known.function.clone(),
            };
            let place = Place::Static {
                module: known.module,
                number,
            };
            found.push(self.add_named(&labels, place, known.name.clone()));
        }
        found
    }

    fn add_target(&mut self, labels: &Labels, place: Place) -> ProbeIndex {
        self.add_named(labels, place, Arc::default())
    }

    fn add_named(&mut self, labels: &Labels, place: Place, own_name: Arc<str>) -> ProbeIndex {
        if let Some(index) = self.targets.get(&place) {
            return *index;
        }
        let probe = Probe {
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

impl Default for ProbeList {
    fn default() -> ProbeList {
        ProbeList::new()
    }
}

impl Matched {
    fn refuse(&mut self, labels: &Labels, reason: Reason) {
        self.error.get_or_insert_with(|| (labels.function.clone(), reason));
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

impl std::fmt::Display for Later {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}`{}", self.labels.module, self.labels.function)
    }
}

/// The description as it was written.
pub fn describe(description: &ProbeDescription) -> String {
    let ProbeDescription {
        provider,
        module,
        function,
        name,
        ..
    } = description;
    if provider.is_empty() && module.is_empty() && function.is_empty() {
        return name.clone();
    }
    format!("{provider}:{module}:{function}:{name}")
}

/// Whether a description means a process's functions: `pid` and a number.
pub fn is_target_provider(description: &ProbeDescription) -> bool {
    description
        .provider
        .strip_prefix("pid")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The process that a program's descriptions name, when they name one: `pid1234:::entry` without `-p`, or a static probe's
/// `python1234:::line`.
pub fn named_process<'a>(descriptions: impl Iterator<Item = &'a ProbeDescription> + Clone) -> Option<i32> {
    let mut named = descriptions.clone();
    let by_pid = named.find_map(|description| description.provider.strip_prefix("pid")?.parse().ok());
    by_pid.or_else(|| {
        let mut named = descriptions.filter(|description| glob::is_literal(&description.provider));
        named.find_map(|description| {
            let name = description
                .provider
                .trim_end_matches(|last: char| last.is_ascii_digit());
            let number = description.provider.get(name.len()..)?;
            number.parse().ok().filter(|_| !name.is_empty())
        })
    })
}

/// The name by which a function answers to a pattern.
///
/// A name of C++ or Rust that does not match as the linker has it may match as the source has it: `ns::area`, or
/// `ns::area(int)` with its parameters. A description cannot spell `::`; `ns*area` means it.
pub fn matching_name<'a>(function: &'a Function, pattern: &str) -> Option<Cow<'a, str>> {
    let plain = function
        .names()
        .find(|name| pattern.is_empty() || glob::matches(pattern, name));
    if let Some(name) = plain {
        return Some(Cow::Borrowed(name));
    }
    let demangled = function.names().find_map(nanoprobe_symbols::demangle)?;
    let mut forms = [demangled.short, demangled.full].into_iter();
    let found = forms.find(|name| glob::matches(pattern, name))?;
    Some(Cow::Owned(found.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::NoInstruction;

    fn description(text: &str) -> ProbeDescription {
        let mut fields: Vec<String> = text.split(':').map(str::to_owned).collect();
        while fields.len() < 4 {
            fields.insert(0, String::new());
        }
        let mut fields = fields.into_iter();
        let mut next = || fields.next().unwrap_or_default();
        ProbeDescription {
            provider: next(),
            module: next(),
            function: next(),
            name: next(),
            span: nanoprobe_lang::Span::default(),
        }
    }

    #[test]
    fn the_tracer_s_probes_have_fixed_ids() {
        let mut list = ProbeList::new();
        for (text, id) in [("END", 2), ("BEGIN", 1), ("dtrace:::ERROR", 3)] {
            let found = list.match_tracer(&description(text), None).unwrap();
            let ids: Vec<u32> = found
                .iter()
                .filter_map(|index| list.get(*index))
                .map(|probe| probe.id)
                .collect();
            assert_eq!(ids, [id], "{text}");
        }
        let tick = list.match_tracer(&description("profile:::tick-100ms"), None).unwrap();
        assert_eq!(list.get(tick[0]).unwrap().id, 4);
        assert_eq!(list.match_tracer(&description("tick-100ms"), None).unwrap(), tick);
    }

    #[test]
    fn a_provider_of_another_process_is_refused() {
        let mut list = ProbeList::new();
        assert!(
            list.match_tracer(&description("pid7:a:b:entry"), Some("pid7"))
                .unwrap()
                .is_empty()
        );
        assert!(list.match_tracer(&description("pid8:a:b:entry"), Some("pid7")).is_err());
        assert!(list.match_tracer(&description("pid8:a:b:entry"), None).is_err());
        assert!(list.match_tracer(&description("tick-0"), None).is_err());
    }

    /// The probes that a name gives on a function whose instructions are at 0, 1 and 1a.
    fn named(list: &mut ProbeList, name: &str) -> (Vec<String>, Option<Reason>) {
        let labels = Labels {
            provider: "pid7".into(),
            module: "a.out".into(),
            function: "func".into(),
        };
        let later = Later {
            module: 0,
            function: 3,
            labels,
            name: Name::parse(name),
        };
        let matched = list.match_later(&later, &Instructions::made(0x1000, 0x1e, &[0, 1, 0x1a]));
        let shown = matched.found.iter().filter_map(|index| list.get(*index));
        (
            shown.map(Probe::to_string).collect(),
            matched.error.map(|(_, reason)| reason),
        )
    }

    #[test]
    fn offsets_are_probes_of_their_own_and_the_same_when_named_twice() {
        let mut list = ProbeList::new();
        assert_eq!(named(&mut list, "1a").0, ["pid7:a.out:func:1a"]);
        assert_eq!(named(&mut list, "1*").0, ["pid7:a.out:func:1", "pid7:a.out:func:1a"]);
        assert_eq!(named(&mut list, "").0.len(), 3);
        let ids: Vec<u32> = list.iter().map(|probe| probe.id).collect();
        assert_eq!(ids, [4, 5, 6]);
    }

    #[test]
    fn an_offset_that_is_no_instruction_s_is_an_error_with_the_nearest() {
        let (found, error) = named(&mut ProbeList::new(), "0x1B");
        assert!(found.is_empty());
        let inside = NoInstruction::Inside {
            before: Some(0x1a),
            after: None,
        };
        assert_eq!(error, Some(Reason::Offset(inside)));
        let outside = NoInstruction::Outside { bytes: 0x1e };
        assert_eq!(named(&mut ProbeList::new(), "1e").1, Some(Reason::Offset(outside)));
    }
}
