//! The derived probes of a program: which of them a clause belongs to, and which were found.

use std::collections::{HashMap, HashSet};

use nanoprobe_lang::Span;
use nanoprobe_lang::program::{Clause, DerivedProbe, ProbeDescription};
use nanoprobe_target::Process;

use super::Known;
use super::matching::mean_this_process;
use crate::probes::ProbeIndex;

/// The ids of the derived probes that were found, by the places of a clause and of a description of it in the text.
pub(super) type Found = HashMap<(Span, Span), HashSet<u32>>;

/// The descriptions of a clause as the text has them.
pub(super) fn written(clause: &Clause) -> &[ProbeDescription] {
    match &clause.derived {
        Some(derived) if derived.is_hidden => &[],
        Some(derived) => std::slice::from_ref(&derived.written),
        None => &clause.probes,
    }
}

impl Known {
    /// The derived probe that a clause belongs to, in this process.
    pub(super) fn derived(&self, clause: usize) -> Option<DerivedProbe> {
        let found = self.program().clauses.get(clause);
        let mut derived = found.and_then(|clause| clause.derived.clone())?;
        if let (Some(root), Some(process)) = (self.root(), &self.process) {
            mean_this_process(&mut derived.provider, root, Process::pid(process));
        }
        Some(derived)
    }

    /// Remembers which derived probe a clause has found.
    pub(super) fn count_derived(&mut self, clause: usize, found: &[ProbeIndex]) {
        let clauses = &self.compiled.program.clauses;
        let Some(clause) = clauses.get(clause) else { return };
        if let Some(derived) = clause.derived.as_ref().filter(|derived| !derived.is_hidden) {
            let ids = found.iter().filter_map(|index| Some(self.probes.get(*index)?.id));
            let known = self.matches.derived.entry((clause.span, derived.written.span));
            known.or_default().extend(ids);
        }
    }

    /// How many probes a description of a clause has found as derived probes.
    pub(super) fn derived_matches(&self, clause: &Clause, description: &ProbeDescription) -> usize {
        let known = self.matches.derived.get(&(clause.span, description.span));
        known.map_or(0, HashSet::len)
    }

    /// How many derived probes the descriptions of one source matched.
    pub(super) fn all_derived_matches(&self, source: u32) -> usize {
        let all = self.matches.derived.iter();
        all.filter(|((clause, _), _)| clause.source == source)
            .map(|(_, ids)| ids.len())
            .sum()
    }
}
