//! One expression after another, and assignments made of such sequences.

use crate::program::{Expression, ExpressionKind, Place, Type};
use crate::source::Span;

/// `last` after `others`. The value of the sequence is that of `last`.
pub(crate) fn after(others: Option<Expression>, last: Expression, span: Span) -> Expression {
    match others {
        None => last,
        Some(others) => Expression {
            value_type: last.value_type.clone(),
            kind: ExpressionKind::Comma {
                first: Box::new(others),
                second: Box::new(last),
            },
            span,
        },
    }
}

/// The value of a place.
pub(crate) fn reading(place: Place, value_type: Type, span: Span) -> Expression {
    let kind = ExpressionKind::Variable(place);
    Expression { kind, value_type, span }
}

/// `place = value`, of the value's type.
pub(crate) fn assigned_to(place: Place, value: Expression, span: Span) -> Expression {
    let value_type = value.value_type.clone();
    let value = Box::new(value);
    let kind = ExpressionKind::Assign { place, value };
    Expression { kind, value_type, span }
}
