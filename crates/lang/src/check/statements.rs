//! Clauses and statements.

use super::names::Callable;
use super::{Checked, Checker, aggregations};
use crate::diagnostic::Diagnostic;
use crate::lower::{convert, memory};
use crate::program::{Clause, ProbeDescription, Statement};
use crate::source::Span;
use crate::syntax::{self, Node, NodeKind};
use crate::types;

impl Checker {
    /// A library's clause is never enabled, but its errors are reported, as in DTrace. Names that depend
    /// on the traced program are not checked.
    pub(super) fn clause_of_library(&mut self, clause: &syntax::Clause) {
        let (clauses, diagnostics) = (self.program.clauses.len(), self.diagnostics.len());
        self.clause(clause);
        self.program.clauses.truncate(clauses);
        let found = self.diagnostics.split_off(diagnostics);
        let is_certain =
            |found: &Diagnostic| !matches!(found.tag, "D_ARGS_IDX" | "D_ARGS_MULTI" | "D_ARGS_NONE" | "D_ARGS_TYPE");
        self.diagnostics.extend(found.into_iter().filter(is_certain));
    }

    pub(super) fn clause(&mut self, clause: &syntax::Clause) {
        for probe in &clause.probes {
            let result = check_probe(probe);
            self.note(result);
        }
        self.clause_at_hand.in_tracer = clause.probes.iter().all(fires_in_tracer);
        self.clause_at_hand.probes.clone_from(&clause.probes);
        self.clause_at_hand.derived.clone_from(&clause.derived);
        self.clause_at_hand.arguments = None;
        if clause
            .body
            .iter()
            .any(|statement| matches!(statement, syntax::Statement::If { .. }))
        {
            self.clause_with_conditions(clause);
            return;
        }
        let mut resolved = Clause {
            probes: clause.probes.clone(),
            predicate: None,
            statements: Vec::new(),
            span: clause.span,
            derived: clause.derived.as_ref().map(|derived| derived.probe.clone()),
        };
        // Variables that the statements assign are known to the predicate (`/i < 10/ { i++; }`), so the
        // statements are checked first. If they then lack a variable, they are checked again after the
        // predicate, which may make it (`/i++ < 10/ { trace(i); }`). DTrace does the same.
        let before = self.diagnostics.len();
        let mut statements = self.statements(&clause.body);
        let mut errors = self.diagnostics.split_off(before);
        if let Some(predicate) = &clause.predicate {
            match self.predicate(predicate) {
                Ok(predicate) => resolved.predicate = Some(predicate),
                Err(diagnostic) => self.diagnostics.push(diagnostic),
            }
            if errors
                .iter()
                .any(|error| matches!(error.tag, "D_IDENT_UNDEF" | "D_VAR_UNDEF"))
            {
                let first = self.diagnostics.len();
                statements = self.statements(&clause.body);
                errors = self.diagnostics.split_off(first);
            }
        }
        self.diagnostics.append(&mut errors);
        resolved.statements = statements;
        self.program.clauses.push(resolved);
    }

    /// The statements without errors. The errors of the others are reported.
    fn statements(&mut self, body: &[syntax::Statement]) -> Vec<Statement> {
        let mut statements = Vec::with_capacity(body.len());
        for statement in body {
            if let syntax::Statement::Expression(node) = statement {
                match self.statement(node) {
                    Ok(statement) => statements.push(statement),
                    Err(diagnostic) => self.diagnostics.push(diagnostic),
                }
            }
        }
        statements
    }

    pub(super) fn predicate(&mut self, node: &Node) -> Checked<crate::program::Expression> {
        let predicate = self.predicate_value(node);
        let predicate = match predicate {
            // A void predicate is refused below for its type, which replaces the error set aside.
            Ok(value) if value.value_type != crate::program::Type::Void => self.settled(Ok(value))?,
            other => {
                self.clause_at_hand.without_value = None;
                other?
            }
        };
        if types::is_scalar(&predicate.value_type) {
            return Ok(convert::uncut(predicate));
        }
        Err(Diagnostic::new(
            "D_PRED_SCALAR",
            node.span,
            format!(
                "predicate result must be of scalar type, found \"{}\"",
                types::name(&predicate.value_type)
            ),
        ))
    }

    fn predicate_value(&mut self, node: &Node) -> Checked<crate::program::Expression> {
        let found = self.placed_operand(node)?;
        // The address of an array is never zero, so it is no condition.
        if matches!(found.value_type, crate::program::Type::Array { .. }) {
            return Ok(found);
        }
        memory::readable(memory::decayed(found))
    }

    /// A statement other than `if`.
    pub(super) fn statement(&mut self, node: &Node) -> Checked<Statement> {
        let statement = self.unsettled_statement(node);
        self.settled(statement)
    }

    fn unsettled_statement(&mut self, node: &Node) -> Checked<Statement> {
        let node = self.chosen(node)?;
        match &node.kind {
            NodeKind::Assign {
                operator: None,
                left,
                right,
            } => {
                if let Some((name, name_span, keys)) = aggregations::target(left)? {
                    return self.aggregate(name, name_span, keys, right, node.span);
                }
            }
            NodeKind::Call { function, arguments } => {
                let (name, callable) = self.callee(function)?;
                if callable == Callable::Action {
                    return self.action(name, arguments, node.span);
                }
            }
            _ => {
                if let Some((name, _, keys)) = aggregations::target(node)? {
                    if keys.is_empty() && !self.scope.aggregations.contains_key(name) {
                        return Err(self.unknown_aggregation(name, node.span));
                    }
                    return Err(Diagnostic::new(
                        "D_AGG_NULL",
                        node.span,
                        format!("expression has null effect: {name}"),
                    )
                    .with_help(format!("{name} = count();, or printa({name});")));
                }
            }
        }
        Ok(Statement::Expression(convert::uncut(self.bytes(node)?)))
    }
}

/// Whether a description can only match probes of the tracer itself: BEGIN, END,
/// ERROR, tick-..., profile-..., those of sched.
fn fires_in_tracer(probe: &ProbeDescription) -> bool {
    let name = probe.name.as_str();
    match probe.provider.as_str() {
        "dtrace" | "profile" | "sched" => true,
        "" if probe.module.is_empty() && probe.function.is_empty() => {
            matches!(name, "BEGIN" | "END" | "ERROR") || name.starts_with("tick-") || name.starts_with("profile-")
        }
        _ => false,
    }
}

/// Names with blanks, or with a `:` too many, were refused earlier. A description may be empty.
fn check_probe(probe: &ProbeDescription) -> Checked<()> {
    let fields = [&probe.provider, &probe.module, &probe.function, &probe.name];
    if fields.iter().all(|field| field.is_empty()) {
        return Err(empty(probe.span));
    }
    Ok(())
}

fn empty(span: Span) -> Diagnostic {
    Diagnostic::new(
        "D_PDESC_INVAL",
        span,
        "the probe description is empty: it would match every probe",
    )
    .with_help("provider:module:function:name")
}
