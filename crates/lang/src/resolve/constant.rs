//! Constant expressions: folded where they are built, as in DTrace, so that `10 * 10` may be a parameter.

use crate::program::{BinaryOperator, Expression, ExpressionKind, IntegerType, LogicalOperator, Type};
use crate::source::Span;
use crate::types;

/// An integer constant; the value is normalised to its type.
pub(super) fn integer(value: i64, of: IntegerType, span: Span) -> Expression {
    let value = types::normalise(value, of);
    Expression {
        kind: ExpressionKind::Integer(value),
        value_type: Type::Integer(of),
        span,
    }
}

/// `int` 0 or 1.
pub(super) fn truth(value: bool, span: Span) -> Expression {
    integer(i64::from(value), INT, span)
}

pub(super) const INT: IntegerType = IntegerType { bytes: 4, signed: true };
pub(super) const LONG: IntegerType = IntegerType { bytes: 8, signed: true };
pub(super) const UNSIGNED_LONG: IntegerType = IntegerType {
    bytes: 8,
    signed: false,
};

/// The value of an integer constant.
pub(super) fn value(of: &Expression) -> Option<i64> {
    match (&of.kind, &of.value_type) {
        (ExpressionKind::Integer(value), Type::Integer(_)) => Some(*value),
        _ => None,
    }
}

/// The value of an integer constant as a mathematical integer: unsigned types have no negative values.
pub(super) fn wide_value(of: &Expression) -> Option<i128> {
    match &of.value_type {
        Type::Integer(IntegerType { signed: false, .. }) => value(of).map(|value| i128::from(value as u64)),
        _ => value(of).map(i128::from),
    }
}

/// The value of `left operator right`, both of type `operands` (for shifts the type of `left`); `None` for a division
/// by zero.
pub(super) fn binary(operator: BinaryOperator, left: i64, right: i64, operands: IntegerType) -> Option<i64> {
    use BinaryOperator as B;
    let signed = operands.signed;
    let (unsigned_left, unsigned_right) = (left as u64, right as u64);
    let count = (right as u32) & if operands.bytes == 8 { 63 } else { 31 };
    let order = if signed {
        left.cmp(&right)
    } else {
        unsigned_left.cmp(&unsigned_right)
    };
    let value = match operator {
        B::Add => left.wrapping_add(right),
        B::Subtract => left.wrapping_sub(right),
        B::Multiply => left.wrapping_mul(right),
        B::Divide | B::Remainder if right == 0 => return None,
        B::Divide if signed => left.wrapping_div(right),
        B::Divide => (unsigned_left / unsigned_right) as i64,
        B::Remainder if signed => left.wrapping_rem(right),
        B::Remainder => (unsigned_left % unsigned_right) as i64,
        B::And => left & right,
        B::Or => left | right,
        B::Xor => left ^ right,
        B::ShiftLeft => left.wrapping_shl(count),
        B::ShiftRight if signed => left.wrapping_shr(count),
        B::ShiftRight => unsigned_left.wrapping_shr(count) as i64,
        B::Equal => i64::from(order.is_eq()),
        B::NotEqual => i64::from(order.is_ne()),
        B::Less => i64::from(order.is_lt()),
        B::LessOrEqual => i64::from(order.is_le()),
        B::Greater => i64::from(order.is_gt()),
        B::GreaterOrEqual => i64::from(order.is_ge()),
    };
    Some(value)
}

/// The value of `left operator right`.
pub(super) fn logical(operator: LogicalOperator, left: i64, right: i64) -> bool {
    match operator {
        LogicalOperator::And => left != 0 && right != 0,
        LogicalOperator::Or => left != 0 || right != 0,
        LogicalOperator::Xor => (left != 0) != (right != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BinaryOperator as B;

    const UNSIGNED: IntegerType = IntegerType {
        bytes: 4,
        signed: false,
    };

    #[test]
    fn signs_decide_division_order_and_shifts() {
        assert_eq!(binary(B::Divide, -7, 2, LONG), Some(-3));
        assert_eq!(binary(B::Remainder, -7, 2, LONG), Some(-1));
        assert_eq!(binary(B::Divide, -1, 2, UNSIGNED_LONG), Some(i64::MAX));
        assert_eq!(binary(B::Less, -1, 1, LONG), Some(1));
        assert_eq!(binary(B::Less, -1, 1, UNSIGNED_LONG), Some(0));
        assert_eq!(binary(B::ShiftRight, -8, 1, LONG), Some(-4));
        assert_eq!(binary(B::ShiftRight, 0xffff_fff8, 1, UNSIGNED), Some(0x7fff_fffc));
    }

    #[test]
    fn the_corners_of_division() {
        assert_eq!(binary(B::Divide, 1, 0, LONG), None);
        assert_eq!(binary(B::Divide, i64::MIN, -1, LONG), Some(i64::MIN));
        assert_eq!(binary(B::Remainder, i64::MIN, -1, LONG), Some(0));
    }

    #[test]
    fn shift_counts_wrap_at_the_width() {
        assert_eq!(binary(B::ShiftLeft, 1, 65, LONG), Some(2));
        assert_eq!(binary(B::ShiftLeft, 1, 33, INT), Some(2));
    }
}
