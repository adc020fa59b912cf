//! Members of structures that lie in registers.

use super::{Lowered, coerce, constant, convert};
use crate::diagnostic::Diagnostic;
use crate::program::{BinaryOperator, Builtin, Expression, ExpressionKind, IntegerType, Type, size_of};
use crate::source::Span;
use crate::types;

/// A member of a structure that lies in registers; `first` is the word at which the structure begins.
pub(crate) fn in_words(first: u8, offset: u64, of: &Type, span: Span) -> Lowered<Expression> {
    let word = u8::try_from(offset / 8).ok().and_then(|skip| first.checked_add(skip));
    let shift = 8 * (offset % 8);
    let bytes = size_of(of).unwrap_or(u64::MAX);
    let (Some(word), true) = (word, offset % 8 + bytes <= 8 || offset.is_multiple_of(8)) else {
        return Err(Diagnostic::new(
            "D_ARGS_TYPE",
            span,
            "a part of a structure in registers that has no word of its own",
        ));
    };
    let value = Expression {
        kind: ExpressionKind::Builtin(Builtin::Argument(word)),
        value_type: Type::I64,
        span,
    };
    if types::is_aggregate(of) {
        if shift != 0 {
            let message = "a structure within a structure in registers: name its member";
            return Err(Diagnostic::new("D_ARGS_TYPE", span, message));
        }
        return Ok(Expression {
            value_type: of.clone(),
            ..value
        });
    }
    let shifted = match shift {
        0 => value,
        shift => Expression {
            kind: ExpressionKind::Binary {
                operator: BinaryOperator::ShiftRight,
                left: Box::new(convert::to_integer(
                    value,
                    IntegerType {
                        bytes: 8,
                        signed: false,
                    },
                )),
                right: Box::new(constant::integer(shift as i64, constant::LONG, span)),
            },
            value_type: Type::U64,
            span,
        },
    };
    coerce::of_word(shifted, of, span)
}
