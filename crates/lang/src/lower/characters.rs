//! Strings indexed like arrays of characters, as in DTrace: `s[i]`, `*s`, `s + i`.
//!
//! A string is a value here, not memory. So these expressions are parts of it, as `substr( )` gives
//! them, and nothing after its end can be read:
//!
//! ```text
//! s + i       substr(s, i)                      a string; "" after the end
//! s[i], *s    the byte at substr(s, i, 1)       a char; 0 after the end
//! ```

use super::{constant, convert};
use crate::interpret::text;
use crate::program::{Expression, ExpressionKind, Function, Type};
use crate::source::Span;

/// `*string`.
pub(crate) fn first_character(string: Expression, span: Span) -> Expression {
    character_at(string, constant::integer(0, constant::LONG, span), span)
}

/// `string + index`.
pub(crate) fn from(string: Expression, index: Expression, span: Span) -> Expression {
    let all = constant::integer(text::ALL, constant::LONG, span);
    part(string, index, all, span)
}

/// The address of a string's bytes, valid for the clause.
pub(crate) fn address(string: Expression) -> Expression {
    convert::cast(string, Type::U64)
}

/// A copy of the whole string in scratch memory.
pub(crate) fn copied(string: Expression) -> Expression {
    let span = string.span;
    let all = constant::integer(text::ALL, constant::LONG, span);
    part(string, constant::integer(0, constant::LONG, span), all, span)
}

pub(crate) fn character_at(string: Expression, index: Expression, span: Span) -> Expression {
    let one = constant::integer(1, constant::LONG, span);
    let found = address(part(string, index, one, span));
    Expression {
        kind: ExpressionKind::Load(Box::new(found)),
        value_type: Type::Integer(constant::CHARACTER),
        span,
    }
}

fn part(string: Expression, index: Expression, count: Expression, span: Span) -> Expression {
    // The index is cut to an int, like the index of substr( ).
    let index = convert::to_integer(convert::to_integer(index, constant::INT), constant::LONG);
    Expression {
        kind: ExpressionKind::Call {
            function: Function::Substring,
            arguments: vec![string, index, count],
        },
        value_type: Type::String,
        span,
    }
}
