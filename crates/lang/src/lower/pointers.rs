//! Operators on pointers: `*p`, `p + i`, `p - q`.

use super::arithmetic::{arithmetic, incompatible, operation, symbol};
use super::memory::at_address;
use super::{Lowered, characters, constant, convert};
use crate::diagnostic::Diagnostic;
use crate::program::{BinaryOperator, Expression, Type};
use crate::source::Span;
use crate::types;

/// `*pointer`.
pub(crate) fn dereference(pointer: Expression, span: Span) -> Lowered<Expression> {
    let to = match &pointer.value_type {
        // The text at that address.
        Type::Pointer(Some(to)) if **to == Type::String => return Ok(convert::to_string(pointer)),
        Type::Pointer(Some(to)) => to.as_ref().clone(),
        Type::String => return Ok(characters::first_character(pointer, span)),
        Type::Pointer(None) | Type::Bytes { .. } => {
            return Err(
                Diagnostic::new("D_DEREF_VOID", span, "cannot dereference pointer to void")
                    .with_help("cast it to what it points to: *(int *)pointer"),
            );
        }
        other => {
            return Err(Diagnostic::new(
                "D_DEREF_NONPTR",
                span,
                format!("cannot dereference non-pointer type \"{}\"", types::name(other)),
            )
            .with_help("cast it first: *(int *)arg0"));
        }
    };
    match to {
        Type::Integer(_) | Type::Pointer(_) => Ok(convert::load(pointer, &to, span)),
        Type::Structure(_) | Type::Array { .. } | Type::Foreign(_) => {
            at_address(convert::to_address(pointer), &to, span)
        }
        other => Err(Diagnostic::new(
            "D_DEREF_VOID",
            span,
            format!("cannot dereference pointer to {}", types::name(&other)),
        )),
    }
}

/// `pointer + integer`, `integer + pointer`, `pointer - integer`, `pointer - pointer`.
pub(crate) fn pointer_arithmetic(
    operator: BinaryOperator,
    left: Expression,
    right: Expression,
    span: Span,
) -> Lowered<Expression> {
    let wrong = incompatible(
        &types::name(&left.value_type),
        symbol(operator),
        &types::name(&right.value_type),
        span,
    );
    let subtract = operator == BinaryOperator::Subtract;
    match (left.value_type.clone(), right.value_type.clone()) {
        (Type::Pointer(Some(to)), Type::Integer(_)) => {
            let offset = scaled(right, Some(&to), span)?;
            let sum = operation(operator, convert::to_address(left), offset, Type::U64, span);
            Ok(convert::cast(sum, Type::Pointer(Some(to))))
        }
        (Type::Integer(_), Type::Pointer(Some(to))) if !subtract => {
            let offset = scaled(left, Some(&to), span)?;
            let sum = operation(operator, convert::to_address(right), offset, Type::U64, span);
            Ok(convert::cast(sum, Type::Pointer(Some(to))))
        }
        (Type::Pointer(Some(a)), Type::Pointer(Some(b))) if subtract && a == b => {
            let Some(size) = types::step_of(&a).filter(|size| *size > 0) else {
                return Err(wrong);
            };
            let (left, right) = (convert::to_address(left), convert::to_address(right));
            let difference = operation(operator, left, right, Type::U64, span);
            let difference = convert::to_integer(difference, constant::LONG);
            if size == 1 {
                return Ok(difference);
            }
            let size = constant::integer(size as i64, constant::LONG, span);
            Ok(operation(BinaryOperator::Divide, difference, size, Type::I64, span))
        }
        (Type::String, Type::Integer(_)) if !subtract => Ok(characters::from(left, right, span)),
        (Type::Integer(_), Type::String) if !subtract => Ok(characters::from(right, left, span)),
        (Type::Pointer(None), Type::Integer(_)) | (Type::Integer(_), Type::Pointer(None)) => {
            Err(wrong.with_help("cast the pointer to what it points to, or to uintptr_t"))
        }
        _ => Err(wrong),
    }
}

/// An index times the size of the pointer's target, in 64 bits.
pub(crate) fn scaled(index: Expression, pointee: Option<&Type>, span: Span) -> Lowered<Expression> {
    let Some(size) = pointee.and_then(types::step_of) else {
        return Err(Diagnostic::new(
            "D_OP_VFPTR",
            span,
            "a pointer to something of unknown size cannot be moved",
        )
        .with_help("cast the pointer to what it points to, or to uintptr_t"));
    };
    let index = convert::operand(index, false);
    if size == 1 {
        return Ok(index);
    }
    let size = constant::integer(size as i64, constant::UNSIGNED_LONG, span);
    arithmetic(BinaryOperator::Multiply, index, size, span)
}
