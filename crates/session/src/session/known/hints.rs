//! Hints for descriptions that match nothing.

use std::collections::BTreeSet;

use nanoprobe_lang::glob;
use nanoprobe_lang::options::Demangle;
use nanoprobe_lang::program::ProbeDescription;
use nanoprobe_lang::spelling;
use nanoprobe_symbols::{Function, Module, ModuleKind};
use nanoprobe_target::Process;

use super::{Known, derived};
use crate::acquire::Role;
use crate::calls::{self, End};
use crate::error::SessionError;
use crate::interrupt;
use crate::probes::{
    DescriptionError, Later, Line, describe, hint_for_elsewhere, hint_for_fields, is_target_provider, matching_name,
    means_calls, means_switches,
};
use crate::statics::{names_provider, provider_of};

/// A module whose functions have lost their names.
pub struct Stripped {
    /// Its file's name.
    pub module: String,
    /// How many functions have a name.
    pub named: usize,
    /// How many are named by the address where they begin.
    pub unnamed: usize,
    /// The name of one such function.
    pub example: Option<String>,
}

/// The hint for a description of system calls.
fn call_hint(description: &ProbeDescription) -> String {
    let ProbeDescription {
        module, function, name, ..
    } = description;
    if !module.is_empty() && !glob::matches(module, calls::MODULE) {
        return format!(
            " (the module of system calls is {}, and need not be named)",
            calls::MODULE
        );
    }
    let is_name = |end: &End| name.is_empty() || glob::matches(name, end.name());
    if ![End::Entry, End::Return].iter().any(is_name) {
        return " (the names of their probes are entry and return)".to_owned();
    }
    let wanted = glob::literal(function).unwrap_or_default();
    match spelling::nearest(&wanted, calls::names()) {
        Some(meant) => format!(" (did you mean {meant}?)"),
        None => " (no system call has such a name; nanoprobe -l -n syscall:::entry lists them)".to_owned(),
    }
}

/// One of the functions of a module that no symbol names.
fn unnamed_of(module: &Module) -> Option<&Function> {
    module.functions().iter().find(|function| !function.is_named)
}

impl Known {
    /// The descriptions that match nothing, with their clauses and their numbers in the clauses.
    fn without_match(&self) -> impl Iterator<Item = (usize, usize, &ProbeDescription)> {
        let clauses = self.compiled.program.clauses.iter().enumerate();
        let all = clauses.flat_map(|(clause, found)| {
            let descriptions = derived::written(found).iter().enumerate();
            descriptions.map(move |(number, description)| (clause, number, description))
        });
        let pid = self.process.as_ref().map(Process::pid);
        all.filter(move |(clause, number, description)| {
            self.is_without_match(*clause, *number) && !self.compiled.is_for_another(description, pid)
        })
    }

    /// Modules with probes whose functions have lost their names.
    pub fn stripped(&self) -> Vec<Stripped> {
        let with_probes: BTreeSet<&str> = self.probes.iter().map(|probe| &*probe.module).collect();
        let modules = self.modules.list().iter();
        let stripped = modules.filter(|module| {
            module.kind() == ModuleKind::Executable && !module.has_full_symbols() && with_probes.contains(module.name())
        });
        let of = |module: &Module| {
            let named = module.functions().iter().filter(|function| function.is_named).count();
            Stripped {
                module: module.name().to_owned(),
                named,
                unnamed: module.functions().len() - named,
                example: unnamed_of(module).map(|function| function.name.to_string()),
            }
        };
        stripped.map(of).collect()
    }

    /// The descriptions that match nothing, in the order of the text.
    pub fn unmatched(&self) -> Vec<String> {
        let mut places = BTreeSet::new();
        let all = self.without_match();
        all.filter(|(.., description)| places.insert(description.span))
            .map(|(.., description)| describe(description))
            .collect()
    }

    pub(in crate::session) fn check_matches(&self) -> Result<(), SessionError> {
        let tracing = &self.compiled.options.tracing;
        // Another program may have the probe that this program lacks.
        if self.role != Role::First || tracing.follow.programs() && tracing.follow_is_given {
            return Ok(());
        }
        let checked = self.check_some_match(&|_, _| true);
        match tracing.follow.programs() {
            // The command was not named for its programs. So a name that it lacks is rather a mistake.
            true => checked.map_err(SessionError::unless_later),
            false => checked,
        }
    }

    /// Whether no probe of this process matches a description, given by its clause and its number there. Descriptions
    /// of other processes match none.
    pub fn is_without_match(&self, clause: usize, number: usize) -> bool {
        let count = self.matches.counts.get(&(clause, number)).copied().unwrap_or(0);
        let found = self.program().clauses.get(clause);
        let description = found.and_then(|clause| Some((clause, derived::written(clause).get(number)?)));
        if description.is_none_or(|(clause, written)| self.derived_matches(clause, written) > 0) {
            return false;
        }
        let is_it = |(of, which, _): &(usize, usize, Later)| (*of, *which) == (clause, number);
        count == 0 && !self.matches.later.iter().any(is_it)
    }

    /// Refuses the first description without a match here among those that `is_meant` accepts.
    ///
    /// # Errors
    /// The name that was probably meant.
    pub fn check_some_match(&self, is_meant: &dyn Fn(usize, usize) -> bool) -> Result<(), SessionError> {
        if self.compiled.options.tracing.allow_unmatched || interrupt::requested() {
            return Ok(());
        }
        let mut without = self.without_match();
        if let Some((clause, number, description)) = without.find(|(clause, number, _)| is_meant(*clause, *number)) {
            let error = match self.matches.name_errors.get(&(clause, number)) {
                Some(error) => error.clone().into(),
                None => self.no_match(description),
            };
            return Err(self.or_ended(error.at(description)));
        }
        Ok(())
    }

    /// Refuses a program that would trace system calls of no process.
    pub(in crate::session) fn check_without_process(&self) -> Result<(), SessionError> {
        let mut descriptions = self.compiled.program.clauses.iter().filter_map(|clause| {
            let is_literal = |description: &&ProbeDescription| glob::is_literal(&description.provider);
            let mut calls = clause.probes.iter().filter(is_literal);
            let found = calls.find(|description| means_calls(description) || means_switches(description))?;
            Some(clause.derived.as_ref().map_or(found, |derived| &derived.written))
        });
        match descriptions.next() {
            Some(description) => {
                let error = DescriptionError::Provider {
                    description: describe(description),
                    provider: description.provider.clone(),
                    remedy: "name the process by -p, or start it by -c",
                };
                Err(SessionError::from(error).at(description))
            }
            None => Ok(()),
        }
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
                hint: self
                    .misspelt(description)
                    .or_else(|| self.stripped_hint(description))
                    .unwrap_or_default(),
            };
        }
        SessionError::NoMatch {
            description: describe(description),
            hint: self.hint(description),
        }
    }

    /// The hint for a provider of static probes that is named without the process's number.
    fn static_hint(&self, description: &ProbeDescription) -> Option<String> {
        let pid = self.process.as_ref()?.pid();
        let mut providers = self.statics.providers().into_iter();
        let provider = providers.find(|provider| *provider == description.provider)?;
        let full = provider_of(provider, pid);
        Some(format!(
            " (the static probes of this process are {full}'s: write {provider}$target)"
        ))
    }

    pub(in crate::session) fn hint(&self, description: &ProbeDescription) -> String {
        let names = |name: &String| glob::matches(&description.module, name);
        if let Some(hint) = self.static_hint(description) {
            return hint;
        }
        if means_calls(description) && glob::is_literal(&description.provider) {
            return call_hint(description);
        }
        if let Some(names) = nanoprobe_lang::derived::names_of(&description.provider) {
            if description.name == "exec-success" {
                return " (it fires in the programs that the process executes: write -x follow=exec)".to_owned();
            }
            return format!(" (the names of its probes are {})", names.join(", "));
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
        if let Some(hint) = self.misspelt(description).or_else(|| self.stripped_hint(description)) {
            return hint;
        }
        let module = &description.module;
        format!(
            " (no function there has such a name; nanoprobe -l -n 'pid$target:{module}::entry' lists those that there are)"
        )
    }

    /// The function that a misspelt name was probably meant for.
    fn misspelt(&self, description: &ProbeDescription) -> Option<String> {
        let wanted = glob::literal(&description.function)?;
        let modules = self.modules.list().iter().filter(|module| {
            let names = module.names();
            description.module.is_empty() || names.iter().any(|name| glob::matches(&description.module, name))
        });
        let functions = modules.flat_map(Module::functions).filter(|function| function.is_named);
        let functions = functions.flat_map(Function::names);
        let meant = spelling::nearest(&wanted, functions)?;
        Some(format!(" (did you mean {meant}?)"))
    }

    /// The hint for a function of a module whose functions have lost their names.
    fn stripped_hint(&self, description: &ProbeDescription) -> Option<String> {
        let is_named = |module: &&Module| {
            module
                .names()
                .iter()
                .any(|name| glob::matches(&description.module, name))
        };
        let mut named = self.modules.list().iter().filter(is_named);
        let module = named.find(|module| module.kind() != ModuleKind::Vdso && !module.has_full_symbols())?;
        let by_address = match unnamed_of(module) {
            Some(function) => format!(
                "a function by where it begins, pid$target:{}:{}:entry",
                description.module, function.name
            ),
            None => format!(
                "an instruction by its address, pid$target:{}:-:401f2c",
                description.module
            ),
        };
        Some(format!(
            " ({} is stripped: only what it exports has a name; install its debug file, or name {by_address})",
            module.name()
        ))
    }

    /// The hint for a provider other than `pid` that has no probe in this process.
    fn provider_hint(&self, description: &ProbeDescription) -> String {
        let ProbeDescription {
            provider,
            module,
            function,
            name,
            ..
        } = description;
        let bare = matches!(provider.as_str(), "" | "dtrace") && module.is_empty() && function.is_empty();
        if let Some(meant) = spelling::nearest(name, ["BEGIN", "END", "ERROR"]).filter(|_| bare) {
            return format!(" (did you mean {meant}?)");
        }
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
