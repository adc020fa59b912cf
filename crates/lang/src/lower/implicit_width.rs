//! Variables without a declaration hold 64 bits, whatever the type of their first assignment.
//!
//! `start = 0;` makes `start` an `int`. Scripts then assign `timestamp` to it, and subtract. In
//! illumos, FreeBSD and macOS a store into a variable casts nothing, and the type only decides how a
//! value is recorded. In DTrace for Linux, as in C, the value is cut. Here the value is cut only if
//! the text declares the variable, because a declaration asks for that width.

use super::convert;
use crate::program::{Expression, IntegerType, Type};

/// The 64-bit type with the same sign that holds a variable, if its first assignment has a narrower
/// type. Also that narrower type.
pub(crate) fn held(named: &Type) -> Option<(Type, IntegerType)> {
    match named {
        Type::Integer(of) if of.bytes < 8 => Some((Type::Integer(IntegerType { bytes: 8, ..*of }), *of)),
        _ => None,
    }
}

/// A value that is held in 64 bits, with the type that the text sees. Operators take all 64 bits.
pub(super) fn as_type(value: Expression, named: Option<IntegerType>) -> Expression {
    match named {
        Some(named) => convert::narrow(value, named),
        None => value,
    }
}
