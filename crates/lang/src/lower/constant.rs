//! Constant expressions. As in DTrace they are folded where they are built, so `10 * 10` can be a parameter.

use crate::program::{BinaryOperator, Expression, ExpressionKind, IntegerType, LogicalOperator, Type};
use crate::source::Span;
use crate::types;

/// An integer constant; the value is normalised to its type.
pub(crate) fn integer(value: i64, of: IntegerType, span: Span) -> Expression {
    let value = types::normalise(value, of);
    Expression {
        kind: ExpressionKind::Integer(value),
        value_type: Type::Integer(of),
        span,
    }
}

/// `int` 0 or 1.
pub(crate) fn truth(value: bool, span: Span) -> Expression {
    integer(i64::from(value), INT, span)
}

pub(crate) const CHARACTER: IntegerType = IntegerType { bytes: 1, signed: true };
pub(crate) const INT: IntegerType = IntegerType { bytes: 4, signed: true };
pub(crate) const LONG: IntegerType = IntegerType { bytes: 8, signed: true };
pub(crate) const UNSIGNED_LONG: IntegerType = IntegerType {
    bytes: 8,
    signed: false,
};

/// The first of C's types from `int` on that can hold a value.
pub(crate) fn narrowest(value: i128) -> IntegerType {
    let unsigned = |bytes| IntegerType { bytes, signed: false };
    if i32::try_from(value).is_ok() {
        INT
    } else if u32::try_from(value).is_ok() {
        unsigned(4)
    } else if i64::try_from(value).is_ok() {
        LONG
    } else {
        unsigned(8)
    }
}

/// The value of an integer constant.
pub(crate) fn value(of: &Expression) -> Option<i64> {
    match (&of.kind, &of.value_type) {
        (ExpressionKind::Integer(value), Type::Integer(_)) => Some(*value),
        _ => None,
    }
}

/// The value of an integer constant as a mathematical integer: unsigned types have no negative values.
pub(crate) fn wide_value(of: &Expression) -> Option<i128> {
    match &of.value_type {
        Type::Integer(IntegerType { signed: false, .. }) => value(of).map(|value| i128::from(value as u64)),
        _ => value(of).map(i128::from),
    }
}

/// The result of an operator on two constants; `None`: division by zero. It is computed in 64 bits, and each operand
/// is extended by its own type, whatever the common type is (as in dt_node_op2). `to` is that common type (for shifts
/// the type of `left`), and decides the sign.
pub(crate) fn binary(
    operator: BinaryOperator,
    left: i64,
    right: i64,
    to: IntegerType,
    span: Span,
) -> Option<Expression> {
    use BinaryOperator as B;
    let signed = to.signed;
    let (unsigned_left, unsigned_right) = (left as u64, right as u64);
    let count = (right as u32) & 63;
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
        B::Equal => return Some(truth(order.is_eq(), span)),
        B::NotEqual => return Some(truth(order.is_ne(), span)),
        B::Less => return Some(truth(order.is_lt(), span)),
        B::LessOrEqual => return Some(truth(order.is_le(), span)),
        B::Greater => return Some(truth(order.is_gt(), span)),
        B::GreaterOrEqual => return Some(truth(order.is_ge(), span)),
    };
    Some(folded(value, to, span))
}

/// The type of a constant that was computed in 64 bits: the type that C gives it, or, if the value
/// does not fit, the 64-bit type of the same sign. So `1 << 40` has its full value and is not 0.
pub(crate) fn folded(value: i64, to: IntegerType, span: Span) -> Expression {
    let of = if types::normalise(value, to) == value {
        to
    } else {
        IntegerType { bytes: 8, ..to }
    };
    integer(value, of, span)
}

/// The value of `left operator right`.
pub(crate) fn logical(operator: LogicalOperator, left: i64, right: i64) -> bool {
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

    /// The constant and its type.
    fn folds(operator: BinaryOperator, left: i64, right: i64, to: IntegerType) -> Option<(i64, IntegerType)> {
        let folded = binary(operator, left, right, to, Span::default())?;
        match (folded.kind, folded.value_type) {
            (ExpressionKind::Integer(value), Type::Integer(of)) => Some((value, of)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn signs_decide_division_order_and_shifts() {
        assert_eq!(folds(B::Divide, -7, 2, LONG), Some((-3, LONG)));
        assert_eq!(folds(B::Remainder, -7, 2, LONG), Some((-1, LONG)));
        assert_eq!(folds(B::Divide, -1, 2, UNSIGNED_LONG), Some((i64::MAX, UNSIGNED_LONG)));
        assert_eq!(folds(B::Less, -1, 1, LONG), Some((1, INT)));
        assert_eq!(folds(B::Less, -1, 1, UNSIGNED_LONG), Some((0, INT)));
        assert_eq!(folds(B::ShiftRight, -8, 1, LONG), Some((-4, LONG)));
        assert_eq!(
            folds(B::ShiftRight, 0xffff_fff8, 1, UNSIGNED),
            Some((0x7fff_fffc, UNSIGNED))
        );
    }

    #[test]
    fn the_corners_of_division() {
        assert_eq!(folds(B::Divide, 1, 0, LONG), None);
        assert_eq!(folds(B::Divide, i64::MIN, -1, LONG), Some((i64::MIN, LONG)));
        assert_eq!(folds(B::Remainder, i64::MIN, -1, LONG), Some((0, LONG)));
    }

    #[test]
    fn shift_counts_wrap_at_64() {
        assert_eq!(folds(B::ShiftLeft, 1, 65, LONG), Some((2, LONG)));
        assert_eq!(folds(B::ShiftLeft, 1, 65, INT), Some((2, INT)));
    }

    #[test]
    fn what_does_not_fit_its_type_gets_64_bits() {
        assert_eq!(folds(B::ShiftLeft, 1, 30, INT), Some((1 << 30, INT)));
        assert_eq!(folds(B::ShiftLeft, 1, 31, INT), Some((1 << 31, LONG)));
        assert_eq!(folds(B::ShiftLeft, 1, 63, INT), Some((i64::MIN, LONG)));
        assert_eq!(
            folds(B::Multiply, 1_000_000, 1_000_000, INT),
            Some((1_000_000_000_000, LONG))
        );
        assert_eq!(folds(B::Add, 0xffff_ffff, 1, UNSIGNED), Some((1 << 32, UNSIGNED_LONG)));
        assert_eq!(folds(B::Subtract, 1, 2, UNSIGNED), Some((-1, UNSIGNED_LONG)));
        assert_eq!(folds(B::Add, -1, 1, UNSIGNED), Some((0, UNSIGNED)));
    }
}
