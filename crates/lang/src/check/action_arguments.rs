//! Arguments of actions: numbers of a certain type, aggregations.

use super::subroutines::{check_count, incompatible_argument};
use super::{Checked, Checker, aggregations};
use crate::diagnostic::Diagnostic;
use crate::lower::{constant, convert};
use crate::program::{AggregationId, Expression, Type};
use crate::source::Span;
use crate::syntax::{Node, NodeKind};
use crate::types;

impl Checker {
    pub(super) fn integer_argument(
        &mut self,
        name: &str,
        arguments: &[Node],
        index: usize,
        to: crate::program::IntegerType,
        span: Span,
    ) -> Checked<Expression> {
        let Some(node) = arguments.get(index) else {
            return Err(super::subroutines::count_mismatch(name, arguments.len(), "more", span));
        };
        let value = self.expression(node)?;
        match value.value_type {
            Type::Integer(_) => Ok(convert::to_integer(value, to)),
            ref other => Err(incompatible_argument(
                name,
                index,
                types::integer_name(to),
                other,
                node.span,
            )),
        }
    }

    /// The second argument of `trunc` and `normalize`, as 64 bits.
    pub(super) fn scalar_argument(
        &mut self,
        name: &str,
        tag: &'static str,
        arguments: &[Node],
        span: Span,
    ) -> Checked<Expression> {
        let Some(node) = arguments.get(1) else {
            return Err(super::subroutines::count_mismatch(name, arguments.len(), "2", span));
        };
        let value = self.expression(node)?;
        if !types::is_scalar(&value.value_type) {
            return Err(Diagnostic::new(
                tag,
                node.span,
                format!("{name}( ) argument #2 must be of scalar type"),
            ));
        }
        if name == "normalize" && constant::value(&value) == Some(0) {
            return Err(Diagnostic::new("D_DIV_ZERO", node.span, "normalize( ) by zero"));
        }
        Ok(match value.value_type {
            Type::Integer(_) => convert::to_integer(value, constant::LONG),
            _ => convert::cast(value, Type::I64),
        })
    }

    /// The first argument of `clear`, `trunc` and the like.
    pub(super) fn aggregation_argument(
        &mut self,
        name: &str,
        arguments: &[Node],
        expected: std::ops::RangeInclusive<usize>,
        span: Span,
    ) -> Checked<AggregationId> {
        if let Err(diagnostic) = check_count(name, arguments, expected, span) {
            return Err(Diagnostic {
                tag: tags(name)[0],
                ..diagnostic
            });
        }
        match arguments.first() {
            Some(node) => self.aggregation(name, node, 0),
            None => Err(super::subroutines::count_mismatch(name, 0, "1", span)),
        }
    }

    /// An argument that is a whole aggregation, without keys.
    pub(super) fn aggregation(&mut self, name: &str, node: &Node, index: usize) -> Checked<AggregationId> {
        let [_, wrong] = tags(name);
        let NodeKind::Aggregation(text) = &node.kind else {
            let found = if aggregations::named(node).is_some() {
                "an element of one".to_owned()
            } else {
                types::name(&self.expression(node)?.value_type)
            };
            return Err(Diagnostic::new(
                wrong,
                node.span,
                format!(
                    "{name}( ) argument #{} is incompatible with prototype: expected aggregation, found {found}",
                    index + 1
                ),
            ));
        };
        match self.scope.aggregations.get(text) {
            Some(known) => Ok(known.id),
            None => Err(self.unknown_aggregation(text, node.span)),
        }
    }
}

/// The tags of an action on aggregations: for a wrong number of arguments, and for a wrong kind of
/// argument.
fn tags(name: &str) -> [&'static str; 2] {
    match name {
        "printa" => ["D_PRINTA_PROTO", "D_PRINTA_AGGARG"],
        "clear" => ["D_CLEAR_PROTO", "D_CLEAR_AGGARG"],
        "trunc" => ["D_TRUNC_PROTO", "D_TRUNC_AGGARG"],
        _ => ["D_NORMALIZE_PROTO", "D_NORMALIZE_AGGARG"],
    }
}
