//! Operators with two operands: of integers, of strings, of pointers.

use super::{Lowered, arithmetic, pointers};
use crate::program::{BinaryOperator, Expression, Type};
use crate::source::Span;

/// `left operator right`.
pub(crate) fn binary(operator: BinaryOperator, left: Expression, right: Expression, span: Span) -> Lowered<Expression> {
    use BinaryOperator as B;
    match operator {
        _ if arithmetic::is_comparison(operator) => arithmetic::comparison(operator, left, right, span),
        B::Add | B::Subtract if !both_integers(&left, &right) => {
            pointers::pointer_arithmetic(operator, left, right, span)
        }
        _ => arithmetic::arithmetic(operator, left, right, span),
    }
}

fn both_integers(left: &Expression, right: &Expression) -> bool {
    matches!(
        (&left.value_type, &right.value_type),
        (Type::Integer(_), Type::Integer(_))
    )
}
