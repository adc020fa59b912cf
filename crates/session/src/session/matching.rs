//! Matching the descriptions of a program, and enabling what they match.

use super::*;

impl Session {
    pub(super) fn match_tracer(&mut self) -> Result<(), SessionError> {
        let provider = self.process.as_ref().map(|process| format!("pid{}", process.pid()));
        for clause in 0..self.program.clauses.len() {
            for (number, description) in self.descriptions(clause).into_iter().enumerate() {
                let found = self.probes.match_tracer(&description, provider.as_deref())?;
                self.enable(clause, number, found)?;
            }
        }
        Ok(())
    }

    /// Matches the descriptions against the modules from index `first` on.
    pub(super) fn match_target(&mut self, first: usize) -> Result<(), SessionError> {
        for clause in 0..self.program.clauses.len() {
            for (number, description) in self.descriptions(clause).into_iter().enumerate() {
                if !is_target_provider(&description) {
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
            }
        }
        Ok(())
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
        for index in found {
            let Some(probe) = self.probes.get(index) else { continue };
            let context = Context {
                program: &self.program,
                storage: &self.storage,
                limits: self.limits,
                arena: &self.codegen,
            };
            self.enablings.enable(clause, index, probe, &context)?;
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

    pub(super) fn check_matches(&self) -> Result<(), SessionError> {
        if self.allow_unmatched {
            return Ok(());
        }
        for (clause, found) in self.program.clauses.iter().enumerate() {
            for (number, description) in found.probes.iter().enumerate() {
                let is_later = |(of, which, _): &(usize, usize, Later)| (*of, *which) == (clause, number);
                if self.matched.get(&(clause, number)).copied().unwrap_or(0) == 0 && !self.later.iter().any(is_later) {
                    if let Some(error) = self.name_errors.get(&(clause, number)) {
                        return Err(error.clone().into());
                    }
                    return Err(SessionError::NoMatch {
                        description: describe(description),
                        hint: self.hint(description),
                    });
                }
            }
        }
        Ok(())
    }

    pub(super) fn hint(&self, description: &ProbeDescription) -> String {
        let names = |name: &String| nanoprobe_lang::glob::matches(&description.module, name);
        let modules = self.modules.list();
        let known = description.module.is_empty() || modules.iter().any(|module| module.names().iter().any(names));
        if !is_target_provider(description) || known {
            return String::new();
        }
        let list: Vec<&str> = modules.iter().map(Module::name).collect();
        format!(" (there is no such module; there are: {})", list.join(" "))
    }
}
