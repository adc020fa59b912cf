//! Conversions of a value to the type of the variable or parameter that receives it, and casts.
//! Both check C's rules.

use super::convert::{cast, is_null, null_string, received, to_address, to_integer, to_string};
use super::enumerations::of_enumeration;
use super::{Lowered, characters, constant};
use crate::diagnostic::Diagnostic;
use crate::program::{Expression, ExpressionKind, Type};
use crate::source::Span;
use crate::types;

/// Converts a value that is assigned or passed to the type of its receiver; `None`: the types
/// are not compatible.
///
/// These are compatible: integers of all widths; strings and `char *`, either way; pointers to the
/// same type, or to or from `void *`; the constant 0 and any pointer or string.
pub(crate) fn assign(expression: Expression, to: &Type) -> Option<Expression> {
    if expression.value_type == *to {
        return Some(expression);
    }
    match (&expression.value_type, to) {
        (Type::Integer(_), Type::Integer(integer)) => Some(received(expression, *integer)),
        (_, Type::String) if is_null(&expression) => Some(null_string(expression.span)),
        (from, Type::String) if types::is_character_pointer(from) => Some(cast(expression, Type::String)),
        // The copy of the string in scratch memory, which is freed when the clause ends.
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

/// `(to)expression`.
pub(crate) fn explicit(expression: Expression, to: &Type, span: Span) -> Lowered<Expression> {
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

/// The lowest bytes of a word, as a value of an integer, pointer or enumeration type.
pub(crate) fn of_word(word: Expression, of: &Type, span: Span) -> Lowered<Expression> {
    let value = match of {
        Type::Integer(integer) => to_integer(word, *integer),
        Type::Pointer(_) => cast(to_address(word), of.clone()),
        Type::Foreign(foreign) if foreign.integer().is_some() => {
            let integer = foreign.integer().unwrap_or(constant::LONG);
            of_enumeration(to_integer(word, integer), foreign)
        }
        _ => {
            let message = format!("a value of type {} cannot be read", types::name(of));
            return Err(Diagnostic::new("D_ARGS_TYPE", span, message));
        }
    };
    Ok(Expression { span, ..value })
}
