//! Places to which a value can be assigned, and the assignments.

use super::arithmetic::incompatible;
use super::bit_fields::BitField;
use super::sequence::{after, assigned_to, reading};
use super::variables::{Home, Purpose, Variables};
use super::{Lowered, characters, coerce, constant, convert, memory};
use crate::diagnostic::Diagnostic;
use crate::program::{BinaryOperator, Bits, Expression, ExpressionKind, Function, Place, Type};
use crate::source::Span;
use crate::types;

/// A place that can be assigned, through a pointer or within a variable.
pub(crate) enum Assignable {
    Place(Place, Type),
    Bits(Box<BitField>),
    /// A string at this address.
    Text(Expression),
}

impl Variables {
    /// The place that an operand names, or the bit-field in it. Whether memory may be written is known
    /// only at run time. `None`: the operand is a value without a place.
    pub(crate) fn assignable(
        &mut self,
        found: Expression,
        bits: Option<Bits>,
        span: Span,
    ) -> Lowered<Option<Assignable>> {
        let found = memory::decayed(found);
        if let Some(bits) = bits {
            return Ok(Some(Assignable::Bits(Box::new(self.bit_field(found, bits, span)?))));
        }
        let value_type = found.value_type.clone();
        if value_type == Type::String
            && let ExpressionKind::Cast(pointer) = &found.kind
            && matches!(pointer.value_type, Type::Pointer(_))
        {
            return Ok(Some(Assignable::Text(convert::to_address((**pointer).clone()))));
        }
        let loaded = match found.kind {
            // A pointer is loaded as a number and then cast to a pointer; the place is under that cast.
            ExpressionKind::Cast(inner) if matches!(inner.kind, ExpressionKind::Load(_)) => inner.kind,
            kind => kind,
        };
        let place = match loaded {
            ExpressionKind::Load(address) if !self.is_of_copy(&address) && types::is_scalar(&value_type) => {
                match own(&address) {
                    // `*(array + 1)` is `array[1]`.
                    Some(((scope, variable), offset)) => Place::Field {
                        scope,
                        variable,
                        offset: Box::new(offset),
                        value_type: value_type.clone(),
                    },
                    None => Place::Memory {
                        address: Box::new(convert::to_address(*address)),
                        value_type: value_type.clone(),
                    },
                }
            }
            ExpressionKind::Variable(place @ Place::Field { .. }) if types::is_scalar(&value_type) => place,
            // A part of a structure that is stored member by member.
            ExpressionKind::Variable(place @ (Place::Element { .. } | Place::Scalar { .. }))
                if types::is_scalar(&value_type) || value_type == Type::String =>
            {
                place
            }
            _ => return Ok(None),
        };
        Ok(Some(Assignable::Place(place, value_type)))
    }

    /// `part = value`, where `part` is an operand or a bit-field in it.
    pub(crate) fn assign_part(
        &mut self,
        (part, bits): (Expression, Option<Bits>),
        value: Expression,
        span: Span,
    ) -> Lowered<Expression> {
        let message = "operator = requires modifiable lvalue as an operand";
        match self.assignable(part, bits, span)? {
            Some(Assignable::Place(place, to)) => self.assign_place(place, to, value, span),
            Some(Assignable::Bits(field)) => self.assign_bits(*field, value, span),
            Some(Assignable::Text(address)) => self.assign_text(address, value, span),
            None => Err(Diagnostic::new("D_OP_LVAL", span, message)),
        }
    }

    /// `place = value`, where the place is of the type `to`.
    pub(crate) fn assign_place(
        &mut self,
        place: Place,
        to: Type,
        value: Expression,
        span: Span,
    ) -> Lowered<Expression> {
        let from = types::name(&value.value_type);
        let Some(value) = coerce::assign(value, &to) else {
            let to = self.named_type(&place).map_or(to, Type::Integer);
            return Err(incompatible(&types::name(&to), "=", &from, span));
        };
        let assigned = Expression {
            value_type: to,
            ..assigned_to(place.clone(), value, span)
        };
        let assigned = self.as_named(assigned, &place);
        Ok(self.put_back(assigned, &place, span))
    }

    /// `*pointer = value` of strings: into scratch memory, with the NUL.
    pub(crate) fn assign_text(&mut self, address: Expression, value: Expression, span: Span) -> Lowered<Expression> {
        let from = types::name(&value.value_type);
        let value = coerce::assign(value, &Type::String).ok_or_else(|| incompatible("string", "=", &from, span))?;
        let place = self.shared(Purpose::Text, Type::String);
        let of = |kind, value_type| Expression { kind, value_type, span };
        let text = reading(place.clone(), Type::String, span);
        let length = ExpressionKind::Call {
            function: Function::StringLength,
            arguments: vec![text.clone()],
        };
        let bytes = ExpressionKind::Binary {
            operator: BinaryOperator::Add,
            left: Box::new(of(length, Type::U64)),
            right: Box::new(constant::integer(1, constant::UNSIGNED_LONG, span)),
        };
        let copy = ExpressionKind::Call {
            function: Function::CopyInTo,
            arguments: vec![characters::address(text.clone()), of(bytes, Type::U64), address],
        };
        let copied = after(Some(of(copy, Type::Void)), text, span);
        let keep = Expression {
            value_type: Type::String,
            ..assigned_to(place, value, span)
        };
        Ok(after(Some(keep), copied, span))
    }
}

/// If an address lies in a variable of D: the variable, and the offset in it.
fn own(address: &Expression) -> Option<(Home, Expression)> {
    match &address.kind {
        ExpressionKind::Cast(inner) => match (&inner.kind, &inner.value_type) {
            (ExpressionKind::Variable(Place::Scalar { scope, variable }), Type::Bytes { .. }) => {
                let start = constant::integer(0, constant::UNSIGNED_LONG, address.span);
                Some(((*scope, *variable), start))
            }
            _ => own(inner),
        },
        ExpressionKind::Binary {
            operator: BinaryOperator::Add,
            left,
            right,
        } => {
            let (home, offset) = own(left)?;
            let right = convert::to_address((**right).clone());
            Some((home, memory::add(offset, right, address.span)))
        }
        _ => None,
    }
}
