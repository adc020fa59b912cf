//! The matches of a description of the target's provider in modules. Pure.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use nanoprobe_lang::glob;
use nanoprobe_lang::program::ProbeDescription;
use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::{FunctionKind, ImageAddress, Module, ModuleKind};
use nanoprobe_text::code::{Instructions, extent_around, extent_of, pauses};

use super::{Labels, Place, ProbeIndex, ProbeList, Spot, answers_to, matching_name};
use crate::interrupt;
use crate::names::{NO_FUNCTION, Name, Reason};
use crate::statics::{Statics, provider_of};

/// A module to match against.
pub struct Candidate<'a> {
    /// The module's index in the order of loading.
    pub index: usize,
    /// The module.
    pub module: &'a Module,
}

/// The matches of a description in some modules.
#[derive(Debug, Default)]
pub struct Matched {
    /// Probes.
    pub found: Vec<ProbeIndex>,
    /// Functions whose code is not known before the target has chosen it (IFUNCs).
    pub later: Vec<Later>,
    /// The first matching function that has no such probe, and the reason. This matters only if nothing is matched at
    /// all.
    pub error: Option<(Arc<str>, Reason)>,
}

/// An IFUNC of which instructions will be probed.
#[derive(Clone, Debug)]
pub struct Later {
    /// The index of the module that has the IFUNC.
    pub module: usize,
    /// Index of the function.
    pub function: usize,
    /// The names that the IFUNC's probes have in common.
    pub(super) labels: Labels,
    /// Which instructions are to be probed.
    pub(super) name: Name,
}

/// Whether a description means a module.
pub(crate) fn may_match(description: &ProbeDescription, module: &Module) -> bool {
    let answers = |name: &str| glob::matches(&description.module, name);
    description.module.is_empty() || module.module_matches(answers)
}

impl ProbeList {
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
            if !may_match(description, candidate.module) {
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
            let functions = candidate.module.functions();
            for &function in &*self.functions_of(description, candidate.module) {
                if interrupt::requested() {
                    return matched;
                }
                let Some(symbol) = functions.get(function) else {
                    continue;
                };
                let Some(function_name) = matching_name(symbol, &description.function, self.demangle) else {
                    continue;
                };
                labels.function = match function_name {
                    // The name is the module's own copy, so the probe shares it.
                    Cow::Borrowed(name) if std::ptr::eq(name, &*symbol.name) => symbol.name.clone(),
                    name => (&*name).into(),
                };
                self.match_function(&name, &candidate, function, &labels, &mut matched);
            }
        }
        matched
    }

    /// The functions of a module that a description means. A question is asked once for each file. An interrupted
    /// search finds some of them, and nothing is asked after it.
    fn functions_of(&self, description: &ProbeDescription, module: &Module) -> Arc<[usize]> {
        let pattern = &description.function;
        let find = || {
            let functions = module.functions().iter().enumerate();
            functions
                .take_while(|_| !interrupt::requested())
                .filter(|(_, function)| matching_name(function, pattern, self.demangle).is_some())
                .map(|(index, _)| index)
                .collect()
        };
        module.functions_once(format!("{:?} {pattern}", self.demangle), find)
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
            Name::Offset(_) | Name::Pauses => {}
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
        if *name == Name::Pauses {
            return self.match_pauses(candidate, function, &extent, labels, matched);
        }
        let code = Instructions::of(candidate.module, &extent);
        self.match_offsets(name, (candidate.index, function), labels, &code, matched);
    }

    /// The probes where a function spins, also in code without a name that it jumps to.
    fn match_pauses(
        &mut self,
        candidate: &Candidate<'_>,
        function: usize,
        extent: &Range<u64>,
        labels: &Labels,
        matched: &mut Matched,
    ) {
        let own = Instructions::of(candidate.module, extent);
        let found = pauses(candidate.module, extent);
        if found.is_empty() {
            matched.refuse(labels, Reason::NoPause);
        }
        for address in found {
            let module = candidate.index;
            let offset = address.wrapping_sub(extent.start);
            let place = match own.check(offset) {
                Ok(()) => Place::Function {
                    module,
                    function,
                    spot: Spot::Offset(offset),
                },
                Err(_) => Place::Address {
                    module,
                    address: candidate.module.bias().to_image(TargetAddress(address)),
                },
            };
            matched.found.push(self.add_target(labels, place));
        }
    }

    /// The probes on instructions of an IFUNC whose code is known now.
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
            Name::Pauses => matched.refuse(labels, Reason::NoPause),
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
        let is_program = module.kind() == ModuleKind::Executable;
        let unknown = if is_program {
            Reason::NoFunction
        } else {
            Reason::NoFunctionOfLibrary
        };
        let named = glob::is_literal(&description.module) || is_program;
        let holds = |address: &ImageAddress| module.image_range().contains(*address);
        let in_image = Some(ImageAddress(number)).filter(|address| named && holds(address));
        let in_process = || Some(module.bias().to_image(TargetAddress(number))).filter(holds);
        let Some(address) = in_image.or_else(in_process) else {
            if glob::is_literal(&description.module) {
                matched.refuse(labels, unknown);
            }
            return;
        };
        let checked = match extent_around(module, address) {
            None => Err(unknown),
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

    /// A probe that debug information describes, by its number in the list of sites.
    pub fn add_listed(
        &mut self,
        description: &ProbeDescription,
        module: &Module,
        index: usize,
        number: usize,
        statics: &Statics,
    ) -> Option<ProbeIndex> {
        let known = statics.get(number).filter(|known| !known.sites.is_empty())?;
        let labels = Labels {
            provider: description.provider.as_str().into(),
            module: module.name().into(),
            function: known.function.clone(),
        };
        let place = Place::Static { module: index, number };
        Some(self.add_named(&labels, place, known.name.clone()))
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
                function: answers_to(&known.function, &description.function, self.demangle)
                    .map_or_else(|| known.function.clone(), |shown| (&*shown).into()),
            };
            let place = Place::Static {
                module: known.module,
                number,
            };
            found.push(self.add_named(&labels, place, known.name.clone()));
        }
        found
    }
}

impl Matched {
    fn refuse(&mut self, labels: &Labels, reason: Reason) {
        self.error.get_or_insert_with(|| (labels.function.clone(), reason));
    }
}

impl std::fmt::Display for Later {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}`{}", self.labels.module, self.labels.function)
    }
}
