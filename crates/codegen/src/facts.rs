//! Facts about an expression that follow from its text alone. The checks and the emitter use them.

use nanoprobe_lang::interpret::normalise;
use nanoprobe_lang::program::{BinaryOperator, Expression, ExpressionKind, Type};

/// The value of a literal, whether it is converted or not.
pub(crate) fn literal(expression: &Expression) -> Option<i64> {
    match (&expression.kind, &expression.value_type) {
        (ExpressionKind::Integer(value), _) => Some(*value),
        (ExpressionKind::Cast(operand), Type::Integer(to)) => literal(operand).map(|value| normalise(value, *to)),
        _ => None,
    }
}

/// Whether an operator compares.
pub(crate) fn is_comparison(operator: BinaryOperator) -> bool {
    matches!(
        operator,
        BinaryOperator::Equal
            | BinaryOperator::NotEqual
            | BinaryOperator::Less
            | BinaryOperator::LessOrEqual
            | BinaryOperator::Greater
            | BinaryOperator::GreaterOrEqual
    )
}
