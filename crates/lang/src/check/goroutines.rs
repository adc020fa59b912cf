//! `goid`, and `self->` of goroutines.
//!
//! A goroutine moves from thread to thread, so its `self->` variables are found by its number. The
//! front end looks into the traced program only when a text has `goid` or `self->` in it.

use super::stacks::is_sampled;
use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::layout::recorded_values;
use crate::options::SelfScope;
use crate::program::{
    Clause, Expression, ExpressionKind, Goroutines, KeyExpression, Place, ProbeDescription, Scope, Statement,
};
use crate::source::Span;
use crate::target::Unknown;

impl Checker {
    fn goroutines(&self, probes: &[ProbeDescription]) -> Result<Option<Goroutines>, Unknown> {
        match self.program.goroutines {
            Some(known) => Ok(Some(known)),
            None => self.target().and_then(|target| target.goroutines(probes)),
        }
    }

    /// Looks up the program's goroutines for `goid`. Refuses `goid` in a clause in which it has no meaning.
    pub(super) fn needs_goroutines(&mut self, span: Span) -> Checked<()> {
        if self.clause_at_hand.in_tracer && self.clause_at_hand.probes.iter().any(is_sampled) {
            let message = "goid: a sample does not tell which goroutine its thread executes";
            return Err(Diagnostic::new("N_GOROUTINE", span, message));
        }
        let found = self.goroutines(&self.clause_at_hand.probes);
        self.program.goroutines = found.map_err(|unknown| Diagnostic::from((unknown, span)))?;
        match self.program.goroutines {
            Some(_) => Ok(()),
            None => {
                let message = "goid: no program of Go is traced";
                let help = "name it by -p, or start it by -c; tid is the number of the thread";
                Err(Diagnostic::new("N_GOROUTINE", span, message).with_help(help))
            }
        }
    }

    /// Decides whether `self->` variables belong to goroutines or to threads, once all of the
    /// text is known.
    pub(super) fn choose_task(&mut self) {
        let first = self.variables.first_thread_local();
        let Some(span) = first.filter(|_| self.settings.self_scope == SelfScope::Task) else {
            return;
        };
        let clauses = self.program.clauses.iter();
        let probes: Vec<ProbeDescription> = clauses.flat_map(|clause| clause.probes.iter().cloned()).collect();
        const HELP: &str = "-x self=thread makes them belong to the thread";
        match self.goroutines(&probes) {
            Ok(None) => {}
            Ok(found) => {
                self.program.goroutines = found;
                self.program.self_is_task = true;
                if let Some(span) = self.program.clauses.iter().find_map(sampled_self) {
                    let message =
                        "self-> is the goroutine's, and a sample does not tell which goroutine its thread executes";
                    self.diagnostics
                        .push(Diagnostic::new("N_GOROUTINE", span, message).with_help(HELP));
                }
            }
            Err(unknown) => {
                let help = match &unknown.help {
                    Some(help) => format!("{help}; {HELP}"),
                    None => HELP.to_owned(),
                };
                let message = format!("self-> of goroutines: {}", unknown.message);
                self.diagnostics
                    .push(Diagnostic::new(unknown.tag, span, message).with_help(help));
            }
        }
    }
}

/// The place where a clause on sampled threads names a `self->` variable.
fn sampled_self(clause: &Clause) -> Option<Span> {
    if !clause.probes.iter().any(is_sampled) {
        return None;
    }
    let mut pending: Vec<&Expression> = clause.predicate.iter().collect();
    for statement in &clause.statements {
        match statement {
            Statement::Expression(expression) => pending.push(expression),
            Statement::Aggregate {
                keys, value, weight, ..
            } => {
                pending.extend(keys.iter().filter_map(|key| match key {
                    KeyExpression::Value(expression) => Some(expression),
                    KeyExpression::Stack(_) => None,
                }));
                pending.extend(value.iter().chain(weight));
            }
            Statement::Record(action) => pending.extend(recorded_values(&action.kind)),
        }
    }
    while let Some(expression) = pending.pop() {
        if let ExpressionKind::Variable(place)
        | ExpressionKind::Assign { place, .. }
        | ExpressionKind::AssignOperator { place, .. }
        | ExpressionKind::Increment { place, .. } = &expression.kind
            && let Place::Scalar { scope, .. } | Place::Element { scope, .. } | Place::Field { scope, .. } = place
            && *scope == Scope::ThreadLocal
        {
            return Some(expression.span);
        }
        pending.extend(expression.operands());
    }
    None
}
