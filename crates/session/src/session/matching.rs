//! Matching the descriptions of a program, and enabling what they match.

use std::collections::BTreeSet;
use std::ops::Range;

use nanoprobe_lang::glob;
use nanoprobe_lang::options::Demangle;
use nanoprobe_lang::program::ProbeDescription;
use nanoprobe_symbols::{Function, FunctionKind, Module, ModuleKind};
use nanoprobe_target::Process;
use nanoprobe_text::code::Instructions;

use super::Session;
use crate::enable::{By, Context};
use crate::error::SessionError;
use crate::names::NameError;
use crate::placement::{Refused, RefusedBecause, extent_of_choice};
use crate::probes::{
    Candidate, Later, Line, Matched, Place, ProbeIndex, describe, hint_for_elsewhere, hint_for_fields,
    is_target_provider, matching_name,
};
use crate::progress::Work;
use crate::statics::{may_be_static, names_provider, provider_of};
use crate::{interrupt, progress, semaphores};

impl Session {
    pub(super) fn match_tracer(&mut self) -> Result<(), SessionError> {
        let provider = self.process.as_ref().map(|process| format!("pid{}", process.pid()));
        for clause in 0..self.program.clauses.len() {
            for (number, description) in self.descriptions(clause).into_iter().enumerate() {
                let found = {
                    let matched = self.probes.match_tracer(&description, provider.as_deref());
                    matched.map_err(|error| SessionError::from(error).at(&description))?
                };
                self.enable(clause, number, found)?;
            }
        }
        Ok(())
    }

    /// Matches the descriptions against the modules from index `first` on.
    pub(super) fn match_target(&mut self, first: usize) -> Result<(), SessionError> {
        let _matching = progress::doing(Work::Matching, 0);
        for clause in 0..self.program.clauses.len() {
            if interrupt::requested() {
                return Ok(());
            }
            for (number, mut description) in self.descriptions(clause).into_iter().enumerate() {
                if !is_target_provider(&description) {
                    self.match_static(clause, number, &description, first)?;
                    let pid = self.process.as_ref().map(Process::pid);
                    match pid.filter(|pid| means_functions_too(&description.provider, *pid)) {
                        Some(pid) => description.provider = format!("pid{pid}"),
                        None => continue,
                    }
                }
                if let Some(line) = Line::of(&description) {
                    self.match_line(clause, number, &description, &line, first)?;
                    continue;
                }
                let modules = self.modules.list();
                let candidates = modules
                    .iter()
                    .enumerate()
                    .skip(first)
                    .map(|(index, module)| Candidate { index, module });
                let matched = self.probes.match_target(&description, candidates);
                let later = matched.later.iter().map(|later| (clause, number, later.clone()));
                self.later.extend(later);
                self.take_matched(clause, number, matched)?;
                self.match_inlined(clause, number, &description, first)?;
            }
        }
        Ok(())
    }

    /// Matches a description against the static probes of the modules from index `first` on.
    fn match_static(
        &mut self,
        clause: usize,
        number: usize,
        description: &ProbeDescription,
        first: usize,
    ) -> Result<(), SessionError> {
        let Some(pid) = self
            .process
            .as_ref()
            .map(Process::pid)
            .filter(|_| may_be_static(description))
        else {
            return Ok(());
        };
        self.statics.read(self.modules.list());
        self.take_static_arguments();
        let modules = self.modules.list();
        let found = self
            .probes
            .match_static(description, &self.statics, modules, first, pid);
        self.enable(clause, number, found)
    }

    /// Tells the program of the static probes of the enablings from index `first` on that somebody looks at them.
    pub(super) fn raise_semaphores(&self, first: usize) -> Result<(), SessionError> {
        let mut wanted = BTreeSet::new();
        for enabling in self.enablings.list().iter().skip(first) {
            let Some(Place::Static { module, number }) = self.probes.get(enabling.probe).map(|probe| &probe.place)
            else {
                continue;
            };
            let (Some(module), Some(known)) = (self.modules.list().get(*module), self.statics.get(*number)) else {
                continue;
            };
            let bias = module.bias();
            let sites = known.sites.iter();
            wanted.extend(sites.filter_map(|site| {
                Some(semaphores::Wanted {
                    address: bias.to_target(site.semaphore?),
                    site: bias.to_target(site.address),
                })
            }));
        }
        let wanted: Vec<_> = wanted.into_iter().collect();
        let attachment = self.attachment.as_ref().ok_or(SessionError::NotAttached)?;
        semaphores::raise(attachment, &wanted)
    }

    /// Matches the instructions of IFUNCs, whose choices are known now as far as they ever will be.
    pub(super) fn match_choices(&mut self) -> Result<(), SessionError> {
        for (clause, number, later) in std::mem::take(&mut self.later) {
            let Some((module, extent)) = self.chosen(&later) else {
                self.refused.push(Refused {
                    site: None,
                    function: later.to_string(),
                    reason: RefusedBecause::Unresolved,
                });
                continue;
            };
            let module = self.modules.list().get(module);
            let code = module.map(|module| Instructions::of(module, &extent));
            let matched = self.probes.match_later(&later, &code.unwrap_or_default());
            self.take_matched(clause, number, matched)?;
        }
        Ok(())
    }

    /// Where the code lies that an IFUNC chose.
    fn chosen(&self, later: &Later) -> Option<(usize, Range<u64>)> {
        let modules = self.modules.list();
        let home = modules.get(later.module)?;
        let FunctionKind::Ifunc { resolver } = home.functions().get(later.function)?.kind else {
            return None;
        };
        let choice = self.choices.get(&home.bias().to_target(resolver))?;
        extent_of_choice(modules, *choice)
    }

    fn take_matched(&mut self, clause: usize, number: usize, matched: Matched) -> Result<(), SessionError> {
        if let Some((function, reason)) = matched.error
            && let Some(description) = self.descriptions(clause).get_mut(number)
        {
            description.function = function.to_string();
            let description = describe(description);
            let error = NameError { description, reason };
            self.name_errors.entry((clause, number)).or_insert(error);
        }
        self.enable(clause, number, matched.found)
    }

    pub(super) fn enable(&mut self, clause: usize, number: usize, found: Vec<ProbeIndex>) -> Result<(), SessionError> {
        *self.matched.entry((clause, number)).or_default() += found.len();
        let clauses = &self.program.clauses;
        let description = clauses.get(clause).and_then(|found| found.probes.get(number));
        let wanted = description.map_or("", |description| description.function.as_str());
        let before = clauses.get(clause).and_then(|found| found.probes.get(..number));
        let stands_before = description.is_some_and(|description| {
            let parts = |of: &ProbeDescription| [&of.provider, &of.module, &of.function, &of.name].map(String::clone);
            let mut before = before.unwrap_or_default().iter();
            before.any(|other| parts(other) == parts(description))
        });
        for index in found {
            if interrupt::requested() {
                break;
            }
            let Some(probe) = self.probes.get(index) else { continue };
            let is_named = wanted.is_empty() || glob::matches(wanted, &probe.function);
            let by = match stands_before {
                _ if is_named => By::Name(number),
                true => By::AnotherNameAgain(number),
                false => By::AnotherName,
            };
            let context = Context {
                program: &self.program,
                storage: &self.storage,
                limits: self.limits,
                arena: &self.codegen,
                statics: &self.statics,
                modules: self.modules.list(),
            };
            self.enablings.enable((clause, by), index, probe, &context)?;
            progress::done(1);
        }
        Ok(())
    }

    pub(super) fn descriptions(&self, clause: usize) -> Vec<ProbeDescription> {
        self.program
            .clauses
            .get(clause)
            .map(|clause| clause.probes.clone())
            .unwrap_or_default()
    }

    /// The descriptions that match nothing, with their clauses and their numbers in these.
    fn without_match(&self) -> impl Iterator<Item = (usize, usize, &ProbeDescription)> {
        let clauses = self.program.clauses.iter().enumerate();
        let all = clauses.flat_map(|(clause, found)| {
            let descriptions = found.probes.iter().enumerate();
            descriptions.map(move |(number, description)| (clause, number, description))
        });
        all.filter(|(clause, number, _)| {
            let is_it = |(of, which, _): &(usize, usize, Later)| (*of, *which) == (*clause, *number);
            let count = self.matched.get(&(*clause, *number)).copied().unwrap_or(0);
            count == 0 && !self.later.iter().any(is_it)
        })
    }

    /// The descriptions that match nothing, in the order of the text.
    pub fn unmatched(&self) -> Vec<String> {
        self.without_match()
            .map(|(.., description)| describe(description))
            .collect()
    }

    pub(super) fn check_matches(&self) -> Result<(), SessionError> {
        if self.allow_unmatched || interrupt::requested() {
            return Ok(());
        }
        if let Some((clause, number, description)) = self.without_match().next() {
            let error = match self.name_errors.get(&(clause, number)) {
                Some(error) => error.clone().into(),
                None => self.no_match(description),
            };
            return Err(self.or_ended(error.at(description)));
        }
        Ok(())
    }

    /// Why a description matches nothing.
    fn no_match(&self, description: &ProbeDescription) -> SessionError {
        let ProbeDescription { module, function, .. } = description;
        let literal = |field: &str| !field.is_empty() && glob::is_literal(field);
        let is_function = literal(function) && function != crate::names::NO_FUNCTION && Line::of(description).is_none();
        let has_module = |wanted: &str| {
            let modules = self.modules.list().iter();
            modules.flat_map(Module::names).any(|name| glob::matches(wanted, &name))
        };
        if is_target_provider(description) && literal(module) && is_function && has_module(module) {
            return SessionError::NoFunction {
                description: describe(description),
                module: module.clone(),
                function: function.clone(),
                hint: self.stripped_hint(description).unwrap_or_default(),
            };
        }
        SessionError::NoMatch {
            description: describe(description),
            hint: self.hint(description),
        }
    }

    /// For who has named a provider of static probes without the process's number.
    fn static_hint(&self, description: &ProbeDescription) -> Option<String> {
        let pid = self.process.as_ref()?.pid();
        let mut providers = self.statics.providers().into_iter();
        let provider = providers.find(|provider| *provider == description.provider)?;
        let full = provider_of(provider, pid);
        Some(format!(
            " (the static probes of this process are {full}'s: write {provider}$target)"
        ))
    }

    pub(super) fn hint(&self, description: &ProbeDescription) -> String {
        let names = |name: &String| glob::matches(&description.module, name);
        if let Some(hint) = self.static_hint(description) {
            return hint;
        }
        if let Some(hint) = hint_for_elsewhere(description) {
            return hint.to_owned();
        }
        if !is_target_provider(description) {
            return self.provider_hint(description);
        }
        let modules = self.modules.list();
        let meant = |module: &&Module| description.module.is_empty() || module.names().iter().any(names);
        let mut meant = modules.iter().filter(meant).peekable();
        if meant.peek().is_none() {
            let list: Vec<&str> = modules.iter().map(Module::name).collect();
            return format!(" (there is no such module; there are: {})", list.join(" "));
        }
        let answers = |function: &Function| matching_name(function, &description.function, Demangle::Auto).is_some();
        if description.function.is_empty() {
            return self.stripped_hint(description).unwrap_or_default();
        }
        if meant.any(|module| module.functions().iter().any(answers)) {
            return String::new();
        }
        if let Some(hint) = self.stripped_hint(description) {
            return hint;
        }
        let module = &description.module;
        format!(
            " (no function there has such a name; nanoprobe -l -n 'pid$target:{module}::entry' lists those that there are)"
        )
    }

    /// For who names a function of a module whose functions have lost their names.
    fn stripped_hint(&self, description: &ProbeDescription) -> Option<String> {
        let is_named = |module: &&Module| {
            module
                .names()
                .iter()
                .any(|name| glob::matches(&description.module, name))
        };
        let mut named = self.modules.list().iter().filter(is_named);
        let module = named.find(|module| module.kind() != ModuleKind::Vdso && !module.has_full_symbols())?;
        Some(format!(
            " ({} is stripped: only what it exports has a name; install its debug file, or name an instruction by its address, \
             pid$target:{}:-:401f2c)",
            module.name(),
            description.module
        ))
    }

    /// For who names another provider than `pid`, none of whose probes is in this process.
    fn provider_hint(&self, description: &ProbeDescription) -> String {
        if let Some(hint) = hint_for_fields(description) {
            return hint.to_owned();
        }
        let pattern = &description.provider;
        let Some(pid) = self.process.as_ref().map(Process::pid) else {
            return match pattern.as_str() {
                "" | "dtrace" | "profile" => String::new(),
                _ => " (no process is given whose probes these may be: -p PID or -c COMMAND)".to_owned(),
            };
        };
        let providers = self.statics.providers();
        if providers.iter().any(|provider| names_provider(pattern, provider, pid)) {
            return format!(" (nanoprobe -l -P '{pattern}' -p PID lists the probes of this provider)");
        }
        let list: Vec<&str> = providers.into_iter().collect();
        match list.is_empty() {
            true => " (no file of this process has static probes: they are built in with sys/sdt.h; functions are \
                     pid$target:module:function:entry)"
                .to_owned(),
            false => format!(" (the static probes of this process are those of: {})", list.join(" ")),
        }
    }
}

/// Whether a glob for providers means the functions of a process, too. As in DTrace it must end with the process's number:
/// `p*d1234`, but not `*`.
fn means_functions_too(provider: &str, pid: i32) -> bool {
    let names_a_process = provider.ends_with(|last: char| last.is_ascii_digit());
    names_a_process && glob::matches(provider, &format!("pid{pid}"))
}
