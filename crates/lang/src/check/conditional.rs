//! `if` and `else`, split into clauses.
//!
//! A record has a fixed layout, so no action in it can be conditional. As in illumos' DTrace, a
//! clause with `if` therefore becomes several clauses on the same probes. Clause-local variables
//! hold the conditions, because they live as long as one firing of the probe:
//!
//! ```text
//! probe /p/ { a; if (c) { b } else { d } e }
//!
//! probe              { this->%error = 1; this->%condition_0 = p != 0; this->%error = 0 }
//! probe /!this->%error && this->%condition_0/
//!                    { this->%error = 1; a; this->%condition_1 = c != 0; this->%error = 0 }
//! probe /!this->%error && this->%condition_0 && this->%condition_1/     { this->%error = 1; b; this->%error = 0 }
//! probe /!this->%error && this->%condition_0 && !this->%condition_1/    { this->%error = 1; d; this->%error = 0 }
//! probe /!this->%error && this->%condition_0/                           { this->%error = 1; e; this->%error = 0 }
//! ```
//!
//! A fault ends only the clause in which it occurs. `%error` then stays 1, so the remaining statements are skipped,
//! as they would be in one clause. These variables are temporaries: no text can name them.

use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::sequence::{assigned_to, reading};
use crate::lower::variables::Purpose;
use crate::lower::{arithmetic, constant, operators};
use crate::program::{
    BinaryOperator, Clause, Expression, ExpressionKind, LogicalOperator, Place, Statement, Type, UnaryOperator,
};
use crate::source::Span;
use crate::syntax::{self, Node};
use crate::types;

/// The most conditions in one clause: each one is a variable and up to three clauses.
const MAXIMUM_CONDITIONS: usize = 100;

/// A condition under which some of the statements are executed.
#[derive(Clone)]
struct Guard {
    condition: Place,
    /// Whether the condition must hold (be non-zero); otherwise it must be zero.
    holds: bool,
}

/// The clause that is being split.
struct Parts<'c> {
    clause: &'c syntax::Clause,
    error: Place,
    conditions: usize,
}

impl Checker {
    pub(super) fn clause_with_conditions(&mut self, clause: &syntax::Clause) {
        let error = self.hidden(Purpose::Error);
        let mut parts = Parts {
            clause,
            error,
            conditions: 0,
        };
        let mut guards = Vec::new();
        // The first part has no guard: it must always run, to set %error for this firing.
        let mut statements = Vec::new();
        if let Some(predicate) = &clause.predicate {
            match self
                .predicate(predicate)
                .and_then(|value| self.condition(&mut parts, value))
            {
                Ok((statement, condition)) => {
                    statements.push(statement);
                    guards.push(Guard { condition, holds: true });
                }
                Err(diagnostic) => self.diagnostics.push(diagnostic),
            }
            self.part(&parts, None, std::mem::take(&mut statements));
            self.block(&mut parts, &guards, &clause.body, false);
        } else {
            self.block(&mut parts, &guards, &clause.body, true);
        }
    }

    /// Splits the statements of a block. `first`: no part of the clause exists yet.
    fn block(&mut self, parts: &mut Parts<'_>, guards: &[Guard], body: &[syntax::Statement], mut first: bool) {
        let mut statements = Vec::new();
        for statement in body {
            match statement {
                syntax::Statement::Expression(node) => match self.statement(node) {
                    Ok(statement) => statements.push(statement),
                    Err(diagnostic) => self.diagnostics.push(diagnostic),
                },
                syntax::Statement::If {
                    condition,
                    then,
                    otherwise,
                } => {
                    let resolved = self
                        .if_condition(condition)
                        .and_then(|value| self.condition(parts, value));
                    let kept = match resolved {
                        Ok((statement, condition)) => {
                            statements.push(statement);
                            condition
                        }
                        Err(diagnostic) => {
                            self.diagnostics.push(diagnostic);
                            parts.error.clone()
                        }
                    };
                    self.part(parts, (!first).then_some(guards), std::mem::take(&mut statements));
                    first = false;
                    for (branch, holds) in [(then, true), (otherwise, false)] {
                        let mut inner = guards.to_vec();
                        inner.push(Guard {
                            condition: kept.clone(),
                            holds,
                        });
                        self.block(parts, &inner, branch, false);
                    }
                }
            }
        }
        if !statements.is_empty() {
            self.part(parts, (!first).then_some(guards), statements);
        }
    }

    /// Appends one of the clauses. `guards` is `None` for the first one.
    fn part(&mut self, parts: &Parts<'_>, guards: Option<&[Guard]>, mut statements: Vec<Statement>) {
        let span = parts.clause.span;
        statements.insert(0, set(&parts.error, constant::truth(true, span)));
        statements.push(set(&parts.error, constant::truth(false, span)));
        let predicate = guards.map(|guards| {
            guards.iter().fold(not(read(&parts.error, span)), |left, guard| {
                let value = read(&guard.condition, span);
                let right = if guard.holds { value } else { not(value) };
                let kind = ExpressionKind::Logical {
                    operator: LogicalOperator::And,
                    left: Box::new(left),
                    right: Box::new(right),
                };
                Expression {
                    kind,
                    value_type: Type::I32,
                    span,
                }
            })
        });
        self.program.clauses.push(Clause {
            probes: parts.clause.probes.clone(),
            predicate,
            statements,
            span,
            derived: parts.clause.derived.as_ref().map(|derived| derived.probe.clone()),
        });
    }

    fn if_condition(&mut self, node: &Node) -> Checked<Expression> {
        let value = self.expression(node)?;
        if types::is_scalar(&value.value_type) {
            return self.settled(Ok(value));
        }
        self.clause_at_hand.without_value = None;
        Err(Diagnostic::new(
            "D_OP_SCALAR",
            node.span,
            format!(
                "the condition of if must be of scalar type, found \"{}\"",
                types::name(&value.value_type)
            ),
        ))
    }

    /// Stores a condition in a temporary: `this->%condition_N = value != 0`.
    fn condition(&mut self, parts: &mut Parts<'_>, value: Expression) -> Checked<(Statement, Place)> {
        let span = value.span;
        if parts.conditions >= MAXIMUM_CONDITIONS {
            let message = format!("more than {MAXIMUM_CONDITIONS} conditions in one clause");
            return Err(Diagnostic::new("N_NESTING", span, message).with_help("divide it into several clauses"));
        }
        let condition = self.hidden(Purpose::Condition(parts.conditions));
        parts.conditions += 1;
        let truth = if is_truth(&value) {
            value
        } else {
            let zero = constant::integer(0, constant::INT, span);
            operators::binary(BinaryOperator::NotEqual, value, zero, span)?
        };
        Ok((set(&condition, truth), condition))
    }

    /// A variable that all clauses share: each clause writes it before it reads it.
    fn hidden(&mut self, purpose: Purpose) -> Place {
        self.variables.shared(purpose, Type::I32)
    }
}

/// Whether a value is always 0 or 1.
fn is_truth(value: &Expression) -> bool {
    match &value.kind {
        ExpressionKind::Logical { .. }
        | ExpressionKind::Unary {
            operator: UnaryOperator::Not,
            ..
        } => true,
        ExpressionKind::Binary { operator, .. } => arithmetic::is_comparison(*operator),
        _ => false,
    }
}

fn read(place: &Place, span: Span) -> Expression {
    reading(place.clone(), Type::I32, span)
}

fn set(place: &Place, value: Expression) -> Statement {
    let span = value.span;
    Statement::Expression(Expression {
        value_type: Type::I32,
        ..assigned_to(place.clone(), value, span)
    })
}

fn not(operand: Expression) -> Expression {
    arithmetic::unary(UnaryOperator::Not, operand, Type::I32)
}
