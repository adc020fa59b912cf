//! Variables that no declaration names hold 64 bits, whatever type their first assignment gives them.
//!
//! `start = 0;` makes `start` an `int`. Scripts then assign `timestamp` to it, and subtract. In illumos, FreeBSD and
//! macOS a store into a variable casts nothing, and the type only says how a value is recorded. In DTrace for Linux, as
//! in C, the value is cut. Here it is cut where the text declares the variable, and so asks for that width.

use super::convert;
use crate::program::{Expression, IntegerType, Type};

/// The type in which a variable is held whose first assignment gives it another: of 64 bits, with the same sign.
pub(crate) fn held(named: &Type) -> Option<(Type, IntegerType)> {
    match named {
        Type::Integer(of) if of.bytes < 8 => Some((Type::Integer(IntegerType { bytes: 8, ..*of }), *of)),
        _ => None,
    }
}

/// A value that is held in 64 bits, with the type that the text knows; operators take all of it.
pub(super) fn as_type(value: Expression, named: Option<IntegerType>) -> Expression {
    match named {
        Some(named) => convert::narrow(value, named),
        None => value,
    }
}
