//! Actions with effects: on the process, the output or the options.

use super::subroutines::{check_count, incompatible_argument};
use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::{coerce, constant};
use crate::program::{Program, RecordKind, Statement, Type};
use crate::source::Span;
use crate::syntax::Node;

impl Checker {
    pub(super) fn effect(&mut self, name: &str, arguments: &[Node], span: Span) -> Checked<RecordKind> {
        match name {
            "system" => {
                let (format, arguments) = self.formatted("system", arguments, span)?;
                Ok(RecordKind::System { format, arguments })
            }
            "freopen" => {
                let (format, values) = self.formatted("freopen", arguments, span)?;
                if format.text == "." {
                    // DTrace itself uses "." for the empty name.
                    let message = "freopen( ) argument #1 cannot be \".\"";
                    return Err(Diagnostic::new("D_FREOPEN_INVALID", span, message)
                        .with_help("\"\" restores the original output"));
                }
                let arguments = values;
                Ok(RecordKind::Reopen { format, arguments })
            }
            "raise" => {
                check_count(name, arguments, 1..=1, span)?;
                let signal = self.integer_argument(name, arguments, 0, constant::INT, span)?;
                Ok(RecordKind::Raise(signal))
            }
            "setopt" => {
                check_count(name, arguments, 1..=2, span)?;
                let mut strings = Vec::with_capacity(2);
                for (index, node) in arguments.iter().enumerate() {
                    let value = self.expression(node)?;
                    let found = value.value_type.clone();
                    let string = coerce::assign(value, &Type::String)
                        .ok_or_else(|| incompatible_argument(name, index, "string", &found, node.span))?;
                    strings.push(string);
                }
                Ok(RecordKind::SetOption(strings))
            }
            _ => {
                check_count(name, arguments, 0..=0, span)?;
                Ok(if name == "stop" {
                    RecordKind::Stop
                } else {
                    RecordKind::TruncateOutput
                })
            }
        }
    }
}

/// The first part of a program that needs the option `destructive`: its name and its place.
#[must_use]
pub fn destructive(program: &Program) -> Option<(&'static str, Span)> {
    let mut statements = program.clauses.iter().flat_map(|clause| &clause.statements);
    statements.find_map(|statement| match statement {
        Statement::Record(action) => action.kind.destructive().map(|name| (name, action.span)),
        Statement::Expression(expression) => expression.destructive(),
        Statement::Aggregate { .. } => None,
    })
}

/// The error of a program that needs the option `destructive` but does not set it.
#[must_use]
pub fn not_permitted(name: &str, span: Span) -> Diagnostic {
    Diagnostic::new(
        "N_DESTRUCTIVE",
        span,
        format!("Destructive actions not allowed: {name}( )"),
    )
    .with_help("-w permits them, and so does `#pragma D option destructive`")
}
