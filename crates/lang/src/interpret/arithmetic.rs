//! Integers as [`crate::program`] defines them: 64 bits, wrapping, normalised to their type.

use std::cmp::Ordering;

use super::{Fault, FaultKind};
use crate::program::{BinaryOperator, IntegerType, Type};

const ADDRESS: IntegerType = IntegerType {
    bytes: 8,
    signed: false,
};

/// The integer type of a value; for all types but integers, that of an address.
pub(super) fn integer_type(value_type: &Type) -> IntegerType {
    match value_type {
        Type::Integer(integer) => *integer,
        _ => ADDRESS,
    }
}

/// Truncates to the type's width and extends by its sign.
pub fn normalise(value: i64, to: IntegerType) -> i64 {
    match (to.bytes, to.signed) {
        (1, true) => i64::from(value as i8),
        (1, false) => i64::from(value as u8),
        (2, true) => i64::from(value as i16),
        (2, false) => i64::from(value as u16),
        (4, true) => i64::from(value as i32),
        (4, false) => i64::from(value as u32),
        _ => value,
    }
}

/// The 64-bit type with the same sign, in which operators compute.
pub fn wide(integer: IntegerType) -> IntegerType {
    IntegerType { bytes: 8, ..integer }
}

/// Whether an operator compares.
pub(super) fn is_comparison(operator: BinaryOperator) -> bool {
    use BinaryOperator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    matches!(
        operator,
        Equal | NotEqual | Less | LessOrEqual | Greater | GreaterOrEqual
    )
}

/// Whether a comparison holds for an order; false if the operator is not a comparison.
pub(super) fn holds(operator: BinaryOperator, order: Ordering) -> bool {
    match operator {
        BinaryOperator::Equal => order.is_eq(),
        BinaryOperator::NotEqual => order.is_ne(),
        BinaryOperator::Less => order.is_lt(),
        BinaryOperator::LessOrEqual => order.is_le(),
        BinaryOperator::Greater => order.is_gt(),
        BinaryOperator::GreaterOrEqual => order.is_ge(),
        _ => false,
    }
}

/// `left operator right`, with a result of type `result`. Both operands have the type `operands`; in
/// a shift the right one may have any type.
///
/// # Errors
/// [`FaultKind::Divide`].
pub(super) fn binary(
    operator: BinaryOperator,
    left: i64,
    right: i64,
    operands: IntegerType,
    result: IntegerType,
) -> Result<i64, Fault> {
    let count = (right as u32) & if operands.bytes == 8 { 63 } else { 31 };
    let unsigned = (left as u64, right as u64);
    let zero = Fault::new(FaultKind::Divide);
    let value = match operator {
        BinaryOperator::Add => left.wrapping_add(right),
        BinaryOperator::Subtract => left.wrapping_sub(right),
        BinaryOperator::Multiply => left.wrapping_mul(right),
        BinaryOperator::Divide | BinaryOperator::Remainder if right == 0 => return Err(zero),
        BinaryOperator::Divide if operands.signed => left.wrapping_div(right),
        BinaryOperator::Divide => unsigned.0.checked_div(unsigned.1).ok_or(zero)? as i64,
        BinaryOperator::Remainder if operands.signed => left.wrapping_rem(right),
        BinaryOperator::Remainder => unsigned.0.checked_rem(unsigned.1).ok_or(zero)? as i64,
        BinaryOperator::And => left & right,
        BinaryOperator::Or => left | right,
        BinaryOperator::Xor => left ^ right,
        BinaryOperator::ShiftLeft => left.wrapping_shl(count),
        BinaryOperator::ShiftRight if operands.signed => left.wrapping_shr(count),
        BinaryOperator::ShiftRight => unsigned.0.wrapping_shr(count) as i64,
        _ => {
            let order = if operands.signed {
                left.cmp(&right)
            } else {
                unsigned.0.cmp(&unsigned.1)
            };
            i64::from(holds(operator, order))
        }
    };
    Ok(normalise(value, result))
}
