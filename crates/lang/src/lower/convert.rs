//! Conversions that are always possible: of integers, of addresses, to strings.

use super::constant;
use crate::program::{Expression, ExpressionKind, Function, IntegerType, Type};
use crate::source::Span;
use crate::types;

/// The 64-bit result of an operation, before it is cut to its C type; any other value unchanged.
pub(crate) fn uncut(expression: Expression) -> Expression {
    match expression.kind {
        ExpressionKind::Narrow(inner) => *inner,
        kind => Expression { kind, ..expression },
    }
}

/// An integer as an operand: 64 bits, extended by its own type, with the sign of the operation.
pub(crate) fn operand(expression: Expression, signed: bool) -> Expression {
    to_integer(uncut(expression), IntegerType { bytes: 8, signed })
}

/// The result of an operation on 64 bits, as a value of its C type.
pub(crate) fn narrow(expression: Expression, to: IntegerType) -> Expression {
    let span = expression.span;
    match expression.value_type {
        Type::Integer(of) if of == to => expression,
        _ if to.bytes == 8 => cast(expression, Type::Integer(to)),
        _ => Expression {
            kind: ExpressionKind::Narrow(Box::new(expression)),
            value_type: Type::Integer(to),
            span,
        },
    }
}

/// An integer converted to an integer type; constants are folded. As in DTrace (`dt_cg_typecast`),
/// an unsigned value that becomes wider is not cut.
pub(crate) fn to_integer(expression: Expression, to: IntegerType) -> Expression {
    if expression.value_type == Type::Integer(to) {
        return expression;
    }
    let expression = match expression.value_type {
        Type::Integer(from) if !from.signed && to.bytes > from.bytes => uncut(expression),
        _ => expression,
    };
    match constant::value(&expression) {
        Some(value) => constant::integer(value, to, expression.span),
        None => cast(expression, Type::Integer(to)),
    }
}

/// An integer for a receiver, without a cast. As in DTrace, which inserts no cast here, a receiver
/// of 64 bits gets the whole result of the operation.
pub(crate) fn received(expression: Expression, to: IntegerType) -> Expression {
    let all = to.bytes == 8;
    to_integer(if all { uncut(expression) } else { expression }, to)
}

/// A cast without a check. Casts between 64-bit types change no bits, so only the last of several
/// in a row is kept.
pub(crate) fn cast(expression: Expression, to: Type) -> Expression {
    if expression.value_type == to {
        return expression;
    }
    let span = expression.span;
    if is_word(&to) && is_word(&expression.value_type) {
        match expression.kind {
            ExpressionKind::Cast(inner) if is_word(&inner.value_type) => {
                return Expression {
                    span,
                    ..cast(*inner, to)
                };
            }
            kind => {
                let inner = Expression { kind, ..expression };
                return Expression {
                    kind: ExpressionKind::Cast(Box::new(inner)),
                    value_type: to,
                    span,
                };
            }
        }
    }
    Expression {
        kind: ExpressionKind::Cast(Box::new(expression)),
        value_type: to,
        span,
    }
}

/// Integers of 64 bits and addresses.
fn is_word(of: &Type) -> bool {
    matches!(of, Type::Pointer(_) | Type::Integer(IntegerType { bytes: 8, .. }))
}

/// A pointer or integer as an unsigned number of 64 bits; an integer is extended by its own type first.
pub(crate) fn to_address(expression: Expression) -> Expression {
    match expression.value_type {
        Type::Integer(_) => to_integer(expression, constant::UNSIGNED_LONG),
        _ => cast(expression, Type::U64),
    }
}

/// Whether an expression is a null pointer constant of C: 0, or a cast of 0 to a pointer, such as NULL.
pub(crate) fn is_null(expression: &Expression) -> bool {
    match &expression.kind {
        ExpressionKind::Cast(inner) if matches!(expression.value_type, Type::Pointer(_)) => is_null(inner),
        _ => constant::value(expression) == Some(0),
    }
}

/// The value of 0 and NULL where a string is wanted.
pub(crate) fn null_string(span: Span) -> Expression {
    Expression {
        kind: ExpressionKind::Integer(0),
        value_type: Type::String,
        span,
    }
}

/// `stringof(expression)`, for a type that can be read as a string.
pub(crate) fn to_string(expression: Expression) -> Expression {
    match expression.value_type {
        // An integer counts as an address, so it is first extended to the width of an address.
        Type::Integer(_) => cast(to_address(expression), Type::String),
        _ => cast(expression, Type::String),
    }
}

/// Reads an integer or pointer at an address. `*(int *)copyin(a, 4)` reads at `a` itself: the copy is not made.
pub(crate) fn load(address: Expression, of: &Type, span: Span) -> Expression {
    let address = without_copyin(address, of);
    let read = match of {
        Type::Integer(_) => of.clone(),
        _ => Type::U64,
    };
    let loaded = Expression {
        kind: ExpressionKind::Load(Box::new(address)),
        value_type: read,
        span,
    };
    cast(loaded, of.clone())
}

/// The address of the original, if `address` is that of a `copyin` of constant size that holds the whole value.
fn without_copyin(address: Expression, of: &Type) -> Expression {
    let wanted = types::size_of(of).unwrap_or(u64::MAX);
    match address {
        Expression {
            kind: ExpressionKind::Cast(inner),
            value_type,
            span,
        } if matches!(inner.value_type, Type::Bytes { size: Some(size) } if u64::from(size) >= wanted) => {
            match *inner {
                Expression {
                    kind:
                        ExpressionKind::Call {
                            function: Function::CopyIn,
                            mut arguments,
                        },
                    ..
                } if !arguments.is_empty() => cast(arguments.swap_remove(0), value_type),
                other => Expression {
                    kind: ExpressionKind::Cast(Box::new(other)),
                    value_type,
                    span,
                },
            }
        }
        other => other,
    }
}
