//! Matching the descriptions of a program, and enabling their matches.

use std::collections::BTreeSet;
use std::ops::Range;
use std::thread::Builder;

use nanoprobe_lang::glob;
use nanoprobe_lang::program::ProbeDescription;
use nanoprobe_patch::Replacement;
use nanoprobe_symbols::{FunctionKind, Module};
use nanoprobe_target::Process;
use nanoprobe_text::code::Instructions;
use nanoprobe_text::read_functions;

use super::Known;
use crate::acquire::Role;
use crate::calls::End;
use crate::enable::{By, Context};
use crate::error::SessionError;
use crate::names::NameError;
use crate::placement::{Refused, RefusedBecause, extent_of_choice};
use crate::probes::{
    Candidate, Later, Line, Matched, Place, ProbeIndex, ProbeList, describe, is_target_provider, may_match,
    means_calls, means_handlers,
};
use crate::progress::Work;
use crate::semaphores::Wanted;
use crate::statics::may_be_static;
use crate::{interrupt, progress, shims};

impl Known {
    pub(in crate::session) fn match_tracer(&mut self) -> Result<(), SessionError> {
        let provider = self.process.as_ref().map(|process| format!("pid{}", process.pid()));
        for clause in 0..self.compiled.program.clauses.len() {
            let derived = self.derived(clause);
            for (number, description) in self.own_descriptions(clause) {
                let found = {
                    let matching = |probes: &mut ProbeList| probes.match_tracer(&description, provider.as_deref());
                    let matched = self.probes.matching_for(derived.as_ref(), matching);
                    matched.map_err(|error| SessionError::from(error).at(&description))?
                };
                self.enable(clause, number, found)?;
            }
        }
        Ok(())
    }

    /// Matches the descriptions against the modules from index `first` on.
    pub(in crate::session) fn match_target(&mut self, first: usize) -> Result<(), SessionError> {
        let _matching = progress::doing(Work::Matching, 0);
        self.read_functions(first);
        for clause in 0..self.compiled.program.clauses.len() {
            if interrupt::requested() {
                return Ok(());
            }
            for (number, mut description) in self.own_descriptions(clause) {
                let derived = self.derived(clause);
                if !is_target_provider(&description) {
                    if derived.is_none() {
                        self.match_static(clause, number, &description, first)?;
                    }
                    self.match_calls(clause, number, &description, first)?;
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
                let matching = |probes: &mut ProbeList| probes.match_target(&description, candidates);
                let matched = self.probes.matching_for(derived.as_ref(), matching);
                let later = matched.later.iter().map(|later| (clause, number, later.clone()));
                self.matches.later.extend(later);
                self.take_matched(clause, number, matched)?;
                if derived.is_none() {
                    self.match_inlined(clause, number, &description, first)?;
                }
            }
        }
        Ok(())
    }

    /// Reads the functions of the modules from index `first` on in which descriptions look for functions. Meanwhile
    /// another thread finds where shims belong in the modules from there on, since any probe needs them.
    fn read_functions(&mut self, first: usize) {
        let clauses = 0..self.compiled.program.clauses.len();
        let descriptions: Vec<ProbeDescription> = clauses
            .flat_map(|clause| self.own_descriptions(clause))
            .map(|(_, description)| description)
            .filter(|description| is_target_provider(description) && Line::of(description).is_none())
            .collect();
        let is_asked = |module: &&Module| descriptions.iter().any(|description| may_match(description, module));
        let modules = self.modules.list().iter().skip(first);
        let asked: Vec<&Module> = modules.filter(is_asked).collect();
        if asked.is_empty() {
            return;
        }
        let (indexes, others): (Vec<usize>, Vec<&Module>) =
            self.loaded_modules().filter(|(index, _)| *index >= first).unzip();
        // What another process of the run has asked is known. Then a thread would take longer to begin than its work.
        if asked.iter().all(|module| module.has_found_functions()) {
            return;
        }
        let also = self.also_shims();
        let found = std::thread::scope(|scope| {
            let find = || shims::find_all(&others, also, interrupt::requested);
            let thread = Builder::new().spawn_scoped(scope, find);
            read_functions(&asked);
            thread.ok().and_then(|thread| thread.join().ok())
        });
        self.shims.extend(indexes.into_iter().zip(found.unwrap_or_default()));
    }

    /// Where shims belong in the modules with these indexes. Places that were found while functions were read are
    /// handed over.
    pub(in crate::session) fn take_shims(&mut self, indexes: &[usize]) -> Vec<Vec<Replacement>> {
        let also = self.also_shims();
        let mut known = std::mem::take(&mut self.shims);
        let mut found = |index: &usize| {
            let module = self.modules.list().get(*index);
            let find = || module.map_or_else(Vec::new, |module| shims::find(module, also));
            known.remove(index).unwrap_or_else(find)
        };
        indexes.iter().map(&mut found).collect()
    }

    fn also_shims(&self) -> shims::Also {
        let tracing = &self.compiled.options.tracing;
        shims::Also {
            executes: tracing.follow.programs(),
            protects: tracing.made_calls,
        }
    }

    /// A clause's descriptions, with their numbers, except those of other processes that the program traces.
    pub(super) fn own_descriptions(&self, clause: usize) -> Vec<(usize, ProbeDescription)> {
        if matches!(self.role, Role::Member { is_bare: true, .. }) {
            return Vec::new();
        }
        let mut descriptions: Vec<_> = self.descriptions(clause).into_iter().enumerate().collect();
        let pid = self.process.as_ref().map(Process::pid);
        descriptions.retain(|(_, description)| !self.compiled.is_for_another(description, pid));
        descriptions
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

    /// Matches a description against the system calls, and enables them in the modules from index `first` on.
    fn match_calls(
        &mut self,
        clause: usize,
        number: usize,
        description: &ProbeDescription,
        first: usize,
    ) -> Result<(), SessionError> {
        if !means_calls(description) {
            return Ok(());
        }
        let derived = self.derived(clause);
        if means_handlers(derived.as_ref(), description) {
            return self.match_handlers(clause, number, derived.as_ref());
        }
        if derived
            .as_ref()
            .is_some_and(|derived| derived.only_executed && !self.executed)
        {
            return Ok(());
        }
        let matching = |probes: &mut ProbeList| probes.match_calls(description);
        let found = self.probes.matching_for(derived.as_ref(), matching);
        let place = |index: &ProbeIndex| self.probes.get(*index).map(|probe| probe.place.clone());
        let ends = found.iter().filter_map(|index| match place(index)? {
            Place::Call { end, .. } => Some(end),
            _ => None,
        });
        let ends: BTreeSet<End> = ends.collect();
        let is_new = self
            .matches
            .counts
            .get(&(clause, number))
            .is_none_or(|count| *count == 0);
        let group = self.call_group(clause, number, &found);
        if is_new {
            self.enable_as(clause, (number, group), found)?;
        }
        for (index, module) in self.modules.list().iter().enumerate().skip(first) {
            if ends.is_empty() || interrupt::requested() || !self.calls.read(index, module) {
                continue;
            }
            for end in &ends {
                let sites = self.probes.call_sites(index, module, *end);
                self.enablings.enable_call_sites(clause, group, sites);
            }
        }
        Ok(())
    }

    /// The description of the clause under which the system calls of a description are enabled: the first one that
    /// means none of them. So a clause of a hundred calls has one table, and fires once at each instruction. Where two
    /// descriptions mean the same call, it fires twice there.
    fn call_group(&mut self, clause: usize, number: usize, found: &[ProbeIndex]) -> usize {
        if let Some(known) = self.matches.call_groups.get(&(clause, number)) {
            return *known;
        }
        let groups = &self.matches.call_groups;
        let is_group = |group: &usize| groups.get(&(clause, *group)) == Some(group);
        let means_none = |group: &usize| !found.iter().any(|index| self.enablings.has(clause, *group, *index));
        let group = (0..number).filter(is_group).find(means_none).unwrap_or(number);
        self.matches.call_groups.insert((clause, number), group);
        group
    }

    /// The semaphores of the static probes of the enablings from index `first` on.
    pub(in crate::session) fn semaphores(&self, first: usize) -> Vec<Wanted> {
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
                Some(Wanted {
                    address: bias.to_target(site.semaphore?),
                    site: bias.to_target(site.address),
                })
            }));
        }
        wanted.into_iter().collect()
    }

    /// Matches the instructions of IFUNCs, after all resolvers that can be asked have chosen.
    pub(in crate::session) fn match_choices(&mut self) -> Result<(), SessionError> {
        for (clause, number, later) in std::mem::take(&mut self.matches.later) {
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
            self.matches.name_errors.entry((clause, number)).or_insert(error);
        }
        self.enable(clause, number, matched.found)
    }

    pub(in crate::session) fn enable(
        &mut self,
        clause: usize,
        number: usize,
        found: Vec<ProbeIndex>,
    ) -> Result<(), SessionError> {
        self.enable_as(clause, (number, number), found)
    }

    /// As `enable`, for the description `number`, as if these were matches of the description `group`.
    fn enable_as(
        &mut self,
        clause: usize,
        (number, group): (usize, usize),
        found: Vec<ProbeIndex>,
    ) -> Result<(), SessionError> {
        *self.matches.counts.entry((clause, number)).or_default() += found.len();
        self.count_derived(clause, &found);
        let clauses = &self.compiled.program.clauses;
        let is_derived = clauses.get(clause).is_some_and(|found| found.derived.is_some());
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
            let is_named = is_derived || wanted.is_empty() || glob::matches(wanted, &probe.function);
            let by = match stands_before {
                _ if is_named => By::Name(group),
                true => By::AnotherNameAgain(group),
                false => By::AnotherName,
            };
            let context = Context {
                program: &self.compiled.program,
                storage: &self.compiled.storage,
                limits: self.compiled.limits,
                arena: &self.codegen,
                statics: &self.statics,
                modules: self.modules.list(),
            };
            self.enablings.enable((clause, by), index, probe, &context)?;
            progress::done(1);
        }
        Ok(())
    }

    pub(in crate::session) fn descriptions(&self, clause: usize) -> Vec<ProbeDescription> {
        let found = self.program().clauses.get(clause);
        let mut descriptions = found.map(|clause| clause.probes.clone()).unwrap_or_default();
        if let (Some(root), Some(process)) = (self.root(), &self.process) {
            for description in &mut descriptions {
                mean_this_process(&mut description.provider, root, process.pid());
            }
        }
        descriptions
    }
}

/// `pid$target` is any process of the run: the number of the first one becomes that of this process.
pub(super) fn mean_this_process(provider: &mut String, root: i32, pid: i32) {
    let name = provider.strip_suffix(&root.to_string());
    if let Some(name) = name.filter(|name| !name.ends_with(|last: char| last.is_ascii_digit())) {
        *provider = format!("{name}{pid}");
    }
}

/// Whether a glob for providers means the functions of a process, too. As
/// in DTrace it must end with the process's number: `p*d1234`, but not `*`.
fn means_functions_too(provider: &str, pid: i32) -> bool {
    let names_a_process = provider.ends_with(|last: char| last.is_ascii_digit());
    names_a_process && glob::matches(provider, &format!("pid{pid}"))
}
