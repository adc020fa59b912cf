//! Operands without a value where a value is required: actions, aggregating functions, aggregations.
//!
//! In DTrace these are ordinary expressions whose type is `void`, or which have no type ("dynamic"). So the position
//! of such an operand decides the error: as a key `D_KEY_TYPE`, as an argument `D_PROTO_ARG`, in a predicate
//! `D_PRED_SCALAR`. Here a call of an action therefore becomes an expression of the type `void`, and its own error is
//! set aside. That error is reported only if the rest of the statement has no other error.

use super::names::{self, Callable};
use super::{Checked, Checker, aggregations};
use crate::diagnostic::Diagnostic;
use crate::lower::constant;
use crate::program::{Expression, Scope, Type};
use crate::source::Span;
use crate::syntax::{Node, NodeKind};

impl Checker {
    /// If an error was set aside for an operand without a value, it replaces the result, unless the result is an
    /// error.
    pub(super) fn settled<T>(&mut self, result: Checked<T>) -> Checked<T> {
        let kept = self.clause_at_hand.without_value.take();
        let value = result?;
        kept.map_or(Ok(value), Err)
    }

    /// `x = exit(0)`: a call of an action as a value.
    pub(super) fn action_call(&mut self, name: &str, span: Span) -> Expression {
        let message = format!("{name}( ) may not be called from a D expression: it is a statement");
        self.nothing(Diagnostic::new("D_CG_EXPR", span, message))
    }

    /// `count();`: a call of an aggregating function that is not assigned to an aggregation.
    pub(super) fn aggregating_call(&mut self, name: &str, span: Span) -> Expression {
        let message = format!("aggregating function {name}( ) may not be called from a D expression");
        self.nothing(Diagnostic::new("D_CG_EXPR", span, message).with_help(format!("@ = {name}(...);")))
    }

    /// `x = @a`.
    pub(super) fn aggregation_as_value(&mut self, name: &str, span: Span) -> Checked<Expression> {
        if !self.scope.aggregations.contains_key(name) {
            return Err(self.unknown_aggregation(name, span));
        }
        let message = format!("the aggregation {name} cannot be used as a value");
        let help = "only printa, clear, trunc, normalize and denormalize take aggregations";
        Ok(self.nothing(Diagnostic::new("D_OP_DYN", span, message).with_help(help)))
    }

    /// The error of an aggregation that is used before its first assignment. DTrace calls it an unknown name.
    pub(super) fn unknown_aggregation(&self, name: &str, span: Span) -> Diagnostic {
        let diagnostic = Diagnostic::new(
            "D_IDENT_UNDEF",
            span,
            format!("failed to resolve {name}: Unknown variable name"),
        );
        match self.later.first(name) {
            Some(later) => diagnostic
                .with_related(later, "it is assigned here, later in the text")
                .with_help("put the clause that assigns it first"),
            None => diagnostic,
        }
    }

    /// Whether a node has no type: an aggregation, an element of one, the call of an aggregating
    /// function, or one of DTrace's structures as a whole.
    pub(super) fn is_dynamic(&self, node: &Node) -> bool {
        if aggregations::named(node).is_some() {
            return true;
        }
        match &node.kind {
            NodeKind::Call { function, .. } => {
                matches!(&function.kind, NodeKind::Identifier(name) if names::callable(name) == Some(Callable::Aggregating))
            }
            NodeKind::Identifier(name) => {
                matches!(name.as_str(), "curpsinfo" | "curlwpsinfo" | "curcpu")
                    && self.variables.known(Scope::Global, name).is_none()
            }
            _ => false,
        }
    }

    /// An expression of the type void. Of several errors that are set aside, the first is reported.
    fn nothing(&mut self, refusal: Diagnostic) -> Expression {
        let span = refusal.span;
        self.clause_at_hand.without_value.get_or_insert(refusal);
        Expression {
            value_type: Type::Void,
            ..constant::integer(0, constant::INT, span)
        }
    }
}
