//! Structures and arrays, represented by their place: in the target's memory, in registers, or in a variable.
//!
//! A structure or an array is not a value. While an expression is checked, it is represented by the
//! place where it lies:
//!
//! ```text
//! *p, p->m, p[i]     ExpressionKind::Load(address), of the structure's or array's type
//! x, x.m, x[i]       ExpressionKind::Variable(Place::Field), likewise
//! ```

use super::enumerations::of_enumeration;
use super::refusals::{complete, refuse_whole, too_many_bytes, unsupported};
use super::registers::in_words;
use super::sequence::after;
use super::{Lowered, constant, convert};
use crate::diagnostic::Diagnostic;
use crate::program::{
    BinaryOperator, Bits, Builtin, Expression, ExpressionKind, Foreign, ForeignKind, Function, IntegerType, Place,
    Scope, Type, VariableId, size_of,
};
use crate::source::Span;
use crate::types;

/// An array as the address of its first element; anything else unchanged.
pub(crate) fn decayed(found: Expression) -> Expression {
    match &found.value_type {
        Type::Array { of, .. } => {
            let to = Type::Pointer(Some(of.clone()));
            convert::cast(address_of(found), to)
        }
        Type::Foreign(foreign) => match foreign.integer() {
            Some(integer) => Expression {
                value_type: Type::Integer(integer),
                ..found
            },
            None => found,
        },
        _ => found,
    }
}

/// Refuses an operand that has no single place: a structure in registers, or one stored member by member.
pub(crate) fn placed(found: Expression) -> Lowered<Expression> {
    if matches!(found.kind, ExpressionKind::Builtin(_)) && types::is_aggregate(&found.value_type) {
        let message = format!(
            "this {} lies in registers: name its members",
            types::name(&found.value_type)
        );
        return Err(Diagnostic::new("D_ARGS_TYPE", found.span, message));
    }
    refuse_whole(&found)?;
    Ok(found)
}

/// Refuses operands that are not values: floating point, and types known only by their size.
pub(crate) fn readable(found: Expression) -> Lowered<Expression> {
    match &found.value_type {
        Type::Foreign(_) => Err(unsupported(
            "N_FLOAT",
            &format!("computing with a {}", types::name(&found.value_type)),
            found.span,
        )
        .with_help("print() shows it")),
        _ => Ok(found),
    }
}

/// A float or double in memory, as the integer of its bits, which `%f` and the like print.
pub(crate) fn floating_bits(found: &Expression) -> Option<(Expression, Foreign)> {
    let Type::Foreign(of) = &found.value_type else {
        return None;
    };
    let value_type = match of.kind() {
        ForeignKind::Floating(4) => Type::U32,
        ForeignKind::Floating(8) => Type::U64,
        _ => return None,
    };
    let kind = match &found.kind {
        ExpressionKind::Load(address) => ExpressionKind::Load(address.clone()),
        ExpressionKind::Variable(Place::Field {
            scope,
            variable,
            offset,
            ..
        }) => ExpressionKind::Variable(Place::Field {
            scope: *scope,
            variable: *variable,
            offset: offset.clone(),
            value_type: value_type.clone(),
        }),
        _ => return None,
    };
    let span = found.span;
    Some((Expression { kind, value_type, span }, of.clone()))
}

/// A place in the target's memory.
pub(crate) fn in_memory(address: Expression, of: Type, span: Span) -> Expression {
    Expression {
        kind: ExpressionKind::Load(Box::new(address)),
        value_type: of,
        span,
    }
}

/// The most bytes of a variable that is a structure or an array. Each thread, or each firing, has its own copy.
const MAXIMUM_VARIABLE_BYTES: u64 = 64 << 10;

/// The program form of a variable that holds a structure or an array: bytes. `None` for other types.
pub(crate) fn bytes_for(of: &Type, span: Span) -> Lowered<Option<Type>> {
    if !matches!(of, Type::Structure(_) | Type::Array { .. }) {
        return Ok(None);
    }
    complete(of, "a variable", span)?;
    match size_of(of).and_then(|size| u32::try_from(size).ok()) {
        Some(size) if u64::from(size) <= MAXIMUM_VARIABLE_BYTES => Ok(Some(Type::Bytes { size: Some(size) })),
        _ => Err(too_many_bytes("the variable", span)),
    }
}

/// The structure or array that a variable of bytes holds.
pub(crate) fn start_of((scope, variable): (Scope, VariableId), of: Type, span: Span) -> Expression {
    let place = Place::Field {
        scope,
        variable,
        offset: Box::new(constant::integer(0, constant::UNSIGNED_LONG, span)),
        value_type: of.clone(),
    };
    Expression {
        kind: ExpressionKind::Variable(place),
        value_type: of,
        span,
    }
}

/// The value `offset` bytes after the start of a structure or array.
pub(crate) fn part(whole: Expression, offset: Expression, of: &Type, span: Span) -> Lowered<Expression> {
    match whole.kind {
        ExpressionKind::Load(address) => {
            let address = add(convert::to_address(*address), offset, span);
            Ok(if types::is_aggregate(of) {
                in_memory(address, of.clone(), span)
            } else {
                at_address(address, of, span)?
            })
        }
        ExpressionKind::Builtin(Builtin::Argument(first)) => match constant::value(&offset) {
            Some(offset) => in_words(first, offset as u64, of, span),
            None => Err(Diagnostic::new(
                "D_ARR_BADREF",
                span,
                "an array in registers can only have constant indices",
            )),
        },
        ExpressionKind::Variable(Place::Field {
            scope,
            variable,
            offset: before,
            ..
        }) => {
            let offset = Box::new(add(*before, offset, span));
            let place = Place::Field {
                scope,
                variable,
                offset,
                value_type: held(of),
            };
            Ok(Expression {
                kind: ExpressionKind::Variable(place),
                value_type: of.clone(),
                span,
            })
        }
        _ => Err(Diagnostic::new(
            "D_OP_LVAL",
            span,
            "this operand has no members that can be named",
        )),
    }
}

/// The type of the values that a variable of D holds.
pub(crate) fn held(of: &Type) -> Type {
    match of {
        Type::Foreign(foreign) => foreign.integer().map_or_else(|| of.clone(), Type::Integer),
        _ => of.clone(),
    }
}

/// The sum of an address or offset and an offset, all `uint64_t`.
pub(crate) fn add(left: Expression, right: Expression, span: Span) -> Expression {
    match (constant::value(&left), constant::value(&right)) {
        (_, Some(0)) => left,
        (Some(0), _) => right,
        (Some(left), Some(right)) => constant::integer(left.wrapping_add(right), constant::UNSIGNED_LONG, span),
        _ => Expression {
            kind: ExpressionKind::Binary {
                operator: BinaryOperator::Add,
                left: Box::new(left),
                right: Box::new(right),
            },
            value_type: Type::U64,
            span,
        },
    }
}

/// The address of a structure or array, as an `uint64_t`. A variable's own memory has an address, too.
pub(crate) fn address_of(whole: Expression) -> Expression {
    let span = whole.span;
    match whole.kind {
        ExpressionKind::Load(address) => convert::to_address(*address),
        ExpressionKind::Variable(Place::Field {
            scope,
            variable,
            offset,
            ..
        }) => {
            let start = Expression {
                kind: ExpressionKind::Variable(Place::Scalar { scope, variable }),
                value_type: Type::Bytes { size: None },
                span,
            };
            add(convert::cast(start, Type::U64), *offset, span)
        }
        // An expression that makes a copy, followed by the copy.
        ExpressionKind::Comma { first, second } if types::is_aggregate(&second.value_type) => {
            after(Some(*first), address_of(*second), span)
        }
        kind => convert::cast(Expression { kind, ..whole }, Type::U64),
    }
}

/// A structure or an array as bytes; anything else unchanged.
pub(crate) fn bytes_of(whole: Expression) -> Expression {
    let span = whole.span;
    let size = match &whole.value_type {
        Type::Foreign(foreign) if foreign.integer().is_some() => return decayed(whole),
        of if types::is_aggregate(of) => size_of(of).and_then(|size| u32::try_from(size).ok()),
        _ => return whole,
    };
    let (Some(size), value_type) = (size, Type::Bytes { size }) else {
        return whole;
    };
    if let ExpressionKind::Variable(Place::Field {
        scope,
        variable,
        offset,
        ..
    }) = &whole.kind
        && constant::value(offset) == Some(0)
    {
        let place = Place::Scalar {
            scope: *scope,
            variable: *variable,
        };
        return Expression {
            kind: ExpressionKind::Variable(place),
            value_type,
            span,
        };
    }
    let size = constant::integer(i64::from(size), constant::UNSIGNED_LONG, span);
    Expression {
        kind: ExpressionKind::Call {
            function: Function::CopyIn,
            arguments: vec![address_of(whole), size],
        },
        value_type,
        span,
    }
}

/// The value of a bit-field in its unit. The field is shifted up until its highest bit is the highest
/// of the register, and down again.
pub(crate) fn extract(unit: Expression, bits: Bits, span: Span) -> Expression {
    let Type::Integer(of) = unit.value_type else {
        return unit;
    };
    let wide = IntegerType { bytes: 8, ..of };
    let shift = |operator, value: Expression, count: u32| Expression {
        kind: ExpressionKind::Binary {
            operator,
            left: Box::new(value),
            right: Box::new(constant::integer(i64::from(count), constant::LONG, span)),
        },
        value_type: Type::Integer(wide),
        span,
    };
    let value = convert::to_integer(unit, wide);
    let value = shift(BinaryOperator::ShiftLeft, value, 64 - bits.width - bits.shift);
    convert::narrow(shift(BinaryOperator::ShiftRight, value, 64 - bits.width), of)
}

/// The value at an address of the target, if D can express it.
pub(crate) fn at_address(address: Expression, of: &Type, span: Span) -> Lowered<Expression> {
    match of {
        // A string member of a structure: the text at that address.
        Type::String => Ok(Expression {
            span,
            ..convert::to_string(convert::cast(address, Type::Pointer(None)))
        }),
        Type::Void | Type::Bytes { .. } => Err(Diagnostic::new(
            "D_DEREF_VOID",
            span,
            format!("a value of type {} cannot be read", types::name(of)),
        )),
        _ if types::is_aggregate(of) => Ok(in_memory(address, of.clone(), span)),
        Type::Foreign(foreign) => match foreign.integer() {
            Some(integer) => Ok(of_enumeration(
                convert::load(address, &Type::Integer(integer), span),
                foreign,
            )),
            None => Ok(in_memory(address, of.clone(), span)),
        },
        _ => Ok(convert::load(address, of, span)),
    }
}
