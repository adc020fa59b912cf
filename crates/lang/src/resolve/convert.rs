//! Conversions: implicit ones made explicit, casts checked.

use super::{Resolve, characters, constant};
use crate::diagnostic::Diagnostic;
use crate::program::{Expression, ExpressionKind, Function, IntegerType, Type};
use crate::source::Span;
use crate::types;

/// The value of an operation before it is cut to its C type; any other value as it is.
pub(super) fn uncut(expression: Expression) -> Expression {
    match expression.kind {
        ExpressionKind::Narrow(inner) => *inner,
        kind => Expression { kind, ..expression },
    }
}

/// An integer as an operand: 64 bits, extended by its own type, with the sign of the operation.
pub(super) fn operand(expression: Expression, signed: bool) -> Expression {
    to_integer(uncut(expression), IntegerType { bytes: 8, signed })
}

/// What an operation on 64 bits yields, as a value of its C type.
pub(super) fn narrow(expression: Expression, to: IntegerType) -> Expression {
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

/// An integer converted to an integer type; constants are folded. What is unsigned and becomes wider is not cut, as in
/// DTrace (`dt_cg_typecast`).
pub(super) fn to_integer(expression: Expression, to: IntegerType) -> Expression {
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

/// An integer as what receives it without a cast: what has room for 64 bits gets all that the operation yields, as in DTrace,
/// which casts nothing there.
pub(super) fn received(expression: Expression, to: IntegerType) -> Expression {
    let all = to.bytes == 8;
    to_integer(if all { uncut(expression) } else { expression }, to)
}

/// A cast without a check. Casts from one 64-bit type to another change no bits: of several in a row the last is kept.
pub(super) fn cast(expression: Expression, to: Type) -> Expression {
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
pub(super) fn to_address(expression: Expression) -> Expression {
    match expression.value_type {
        Type::Integer(_) => to_integer(expression, constant::UNSIGNED_LONG),
        _ => cast(expression, Type::U64),
    }
}

/// Converts what is assigned or passed to the type of what receives it; `None`: the types are not compatible.
///
/// Integers of all widths are; strings and `char *`, either way; pointers to the same, or to or from `void *`; the constant
/// 0 and any pointer or string.
pub(super) fn assign(expression: Expression, to: &Type) -> Option<Expression> {
    if expression.value_type == *to {
        return Some(expression);
    }
    match (&expression.value_type, to) {
        (Type::Integer(_), Type::Integer(integer)) => Some(received(expression, *integer)),
        (_, Type::String) if is_null(&expression) => Some(null_string(expression.span)),
        (from, Type::String) if types::is_character_pointer(from) => Some(cast(expression, Type::String)),
        // Where the string is copied to, in scratch memory, which goes when the clause ends.
        (Type::String, to) if types::is_character_pointer(to) => {
            Some(cast(characters::address(characters::copied(expression)), to.clone()))
        }
        (Type::Pointer(None) | Type::Bytes { .. }, Type::Pointer(_)) | (Type::Pointer(_), Type::Pointer(None)) => {
            Some(cast(expression, to.clone()))
        }
        (Type::Integer(_), Type::Pointer(_)) if constant::value(&expression) == Some(0) => Some(cast(
            constant::integer(0, constant::UNSIGNED_LONG, expression.span),
            to.clone(),
        )),
        _ => None,
    }
}

/// Whether an expression is a null pointer constant, as C has it: 0, or a cast of 0 to a pointer, such as NULL.
pub(super) fn is_null(expression: &Expression) -> bool {
    match &expression.kind {
        ExpressionKind::Cast(inner) if matches!(expression.value_type, Type::Pointer(_)) => is_null(inner),
        _ => constant::value(expression) == Some(0),
    }
}

/// What 0 and NULL are where a string is wanted.
pub(super) fn null_string(span: Span) -> Expression {
    Expression {
        kind: ExpressionKind::Integer(0),
        value_type: Type::String,
        span,
    }
}

/// `(to)expression`.
pub(super) fn explicit(expression: Expression, to: &Type, span: Span) -> Resolve<Expression> {
    let from = &expression.value_type;
    let mut result = match (from, to) {
        (_, Type::Void) => Expression {
            kind: ExpressionKind::Cast(Box::new(expression)),
            value_type: Type::Void,
            span,
        },
        (Type::Integer(_), Type::Integer(integer)) => to_integer(expression, *integer),
        (Type::Integer(_), Type::Pointer(_)) => cast(to_address(expression), to.clone()),
        (Type::Pointer(_) | Type::Bytes { .. }, Type::Integer(integer)) => to_integer(to_address(expression), *integer),
        (Type::Pointer(_) | Type::Bytes { .. }, Type::Pointer(_)) => cast(expression, to.clone()),
        (Type::String, Type::String) => expression,
        (_, Type::String) if is_null(&expression) => null_string(span),
        (Type::Integer(_) | Type::Pointer(_) | Type::Bytes { .. }, Type::String) => to_string(expression),
        _ => {
            return Err(Diagnostic::new(
                "D_CAST_INVAL",
                span,
                format!(
                    "invalid cast expression: \"{}\" to \"{}\"",
                    types::name(from),
                    types::name(to)
                ),
            ));
        }
    };
    result.span = span;
    Ok(result)
}

/// `stringof(expression)`, of a type that has one.
pub(super) fn to_string(expression: Expression) -> Expression {
    match expression.value_type {
        // The bytes of a constant are not an address: an integer is one when it is as wide as one.
        Type::Integer(_) => cast(to_address(expression), Type::String),
        _ => cast(expression, Type::String),
    }
}

/// Reads an integer or pointer at an address. `*(int *)copyin(a, 4)` reads at `a` itself: the copy is not made.
pub(super) fn load(address: Expression, of: &Type, span: Span) -> Expression {
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

/// The lowest bytes of a word as a value of an integer's, pointer's or enumeration's type.
pub(super) fn of_word(word: Expression, of: &Type, span: Span) -> Resolve<Expression> {
    let value = match of {
        Type::Integer(integer) => to_integer(word, *integer),
        Type::Pointer(_) => cast(to_address(word), of.clone()),
        Type::Foreign(foreign) if foreign.integer().is_some() => {
            let integer = foreign.integer().unwrap_or(constant::LONG);
            super::foreign::of_enumeration(to_integer(word, integer), foreign)
        }
        _ => {
            let message = format!("a value of type {} cannot be read", types::name(of));
            return Err(Diagnostic::new("D_ARGS_TYPE", span, message));
        }
    };
    Ok(Expression { span, ..value })
}

/// The address that was copied from, when `address` is that of a copy of constant size that holds the whole value.
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
