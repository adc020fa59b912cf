//! Operators on pointers: `*p`, `&p[i]`, `p + i`, `p - q`.

use super::operators::{arithmetic, incompatible, operation, symbol};
use super::{Resolve, Resolver, characters, constant, convert};
use crate::diagnostic::Diagnostic;
use crate::program::{BinaryOperator, Expression, ExpressionKind, Place, Type};
use crate::source::Span;
use crate::syntax::{Node, NodeKind};
use crate::types;

impl Resolver {
    /// `*pointer`.
    pub(super) fn dereference(&mut self, pointer: Expression, span: Span) -> Resolve<Expression> {
        let to = match &pointer.value_type {
            // The text that is there.
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
                super::foreign::at_address(convert::to_address(pointer), &to, span)
            }
            other => Err(Diagnostic::new(
                "D_DEREF_VOID",
                span,
                format!("cannot dereference pointer to {}", types::name(&other)),
            )),
        }
    }

    /// `&a[n]` of an array of n elements: where it ends, as in C. There is nothing to be read.
    fn behind_the_last(&mut self, element: &Node, span: Span) -> Resolve<Option<Expression>> {
        let NodeKind::Index { base, indices } = &element.kind else {
            return Ok(None);
        };
        let [index] = indices.as_slice() else {
            return Ok(None);
        };
        let (array, index) = (self.operand(base)?, self.expression(index)?);
        let Type::Array { count, .. } = array.value_type else {
            return Ok(None);
        };
        let is_spread = matches!(&array.kind, ExpressionKind::Variable(place) if self.spread_type(place).is_some());
        if is_spread || constant::wide_value(&index) != Some(i128::from(count)) {
            return Ok(None);
        }
        let first = self.expression(base)?;
        pointer_arithmetic(BinaryOperator::Add, first, index, span).map(Some)
    }

    /// `&*pointer`, `&pointer[index]`, and of D's own arrays and structures elements and members: nothing else in D has an address.
    pub(super) fn address_of(&mut self, operand: &Node, span: Span) -> Resolve<Expression> {
        if super::aggregations::named(operand).is_some() {
            return Err(Diagnostic::new(
                "D_ADDROF_VAR",
                span,
                "cannot take address of dynamic variable",
            ));
        }
        if let NodeKind::Member { base, name, arrow } = &operand.kind
            && self.member_in_unit(base, name, *arrow, span)?.1.is_some()
        {
            let message = format!("cannot take address of a bit-field: {name}");
            return Err(Diagnostic::new("D_ADDROF_BITFIELD", span, message));
        }
        if let NodeKind::Identifier(name) = &operand.kind
            && name.contains('`')
            && let Some(address) = self.address_of_symbol(name, span)
        {
            return Ok(address);
        }
        let is_part = matches!(operand.kind, NodeKind::Index { .. } | NodeKind::Member { .. });
        let operand = match self.operand(operand) {
            Err(error) if error.tag == "D_ARR_BOUNDS" => return self.behind_the_last(operand, span)?.ok_or(error),
            operand => operand?,
        };
        let to = operand.value_type.clone();
        if matches!(&operand.kind, ExpressionKind::Variable(place) if self.is_in_union_copy(place)) {
            let message = "cannot take address of dynamic variable";
            return Err(Diagnostic::new("D_ADDROF_VAR", span, message));
        }
        if is_part && matches!(operand.kind, ExpressionKind::Variable(Place::Field { .. })) {
            let address = super::memory::address_of(operand);
            return Ok(convert::cast(address, Type::Pointer(Some(Box::new(to)))));
        }
        if matches!(operand.kind, ExpressionKind::Builtin(_)) && super::memory::is_aggregate(&to) {
            let message = "this lies in registers: it has no address";
            return Err(Diagnostic::new("D_ADDROF_VAR", span, message));
        }
        if super::memory::is_aggregate(&to) && matches!(operand.kind, ExpressionKind::Load(_)) {
            let address = super::memory::address_of(operand);
            return Ok(convert::cast(address, Type::Pointer(Some(Box::new(to)))));
        }
        let inner = match convert::uncut(operand).kind {
            // A pointer is loaded as a number, then made a pointer.
            ExpressionKind::Cast(inner) if matches!(inner.kind, ExpressionKind::Load(_)) => inner.kind,
            kind => kind,
        };
        match inner {
            ExpressionKind::Load(address) => Ok(Expression {
                span,
                ..convert::cast(*address, Type::Pointer(Some(Box::new(to))))
            }),
            ExpressionKind::Variable(_) | ExpressionKind::Builtin(_) => Err(Diagnostic::new(
                "D_ADDROF_VAR",
                span,
                "cannot take address of dynamic variable",
            )),
            _ => Err(Diagnostic::new(
                "D_ADDROF_LVAL",
                span,
                "unacceptable operand for unary & operator",
            )),
        }
    }
}

/// `pointer + integer`, `integer + pointer`, `pointer - integer`, `pointer - pointer`.
pub(super) fn pointer_arithmetic(
    operator: BinaryOperator,
    left: Expression,
    right: Expression,
    span: Span,
) -> Resolve<Expression> {
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

/// An index times the size of what the pointer points to, in 64 bits.
pub(super) fn scaled(index: Expression, pointee: Option<&Type>, span: Span) -> Resolve<Expression> {
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
