//! Assignments to bit-fields: the unit that holds the field is read, changed and written back.
//!
//! ```text
//! p->field = value      extract(unit = value << shift & ones | unit & ~ones)       ones: the field's bits
//! p->field += value     the same with extract(unit) + value
//! p->field++            likewise; the old value is the new one less 1, cut to the field's bits
//! ```
//!
//! The unit is named twice. Where the way to it has effects, it is kept in a variable of the clause's:
//!
//! ```text
//! p++->field = value    this->v = value, this->w = (address) p++, and then as above, of this->w
//! ```

use super::{Resolve, Resolver};
use crate::diagnostic::Diagnostic;
use crate::lower::memory::extract;
use crate::lower::sequence::{assigned_to, behind, reading};
use crate::lower::{arithmetic, constant, convert};
use crate::program::{BinaryOperator, Bits, Expression, ExpressionKind, IntegerType, Place, Type};
use crate::source::Span;
use crate::types;

/// A bit-field that can be assigned.
pub(super) struct BitField {
    /// Where its unit lies.
    unit: Place,
    /// The value of the unit.
    value: Expression,
    unit_type: IntegerType,
    bits: Bits,
    /// What computes the way to the unit, where that is kept.
    way: Option<Expression>,
}

impl BitField {
    /// The value it has.
    pub(super) fn read(&self, span: Span) -> Expression {
        extract(self.value.clone(), self.bits, span)
    }
}

impl Resolver {
    /// The field in the unit that `part` reads.
    pub(super) fn bit_field(&mut self, part: Expression, bits: Bits, span: Span) -> Resolve<BitField> {
        let Expression { kind, value_type, .. } = part;
        let Type::Integer(unit_type) = value_type else {
            return Err(Diagnostic::new("D_OP_LVAL", span, "this cannot be assigned"));
        };
        let mut way = None;
        let (unit, kind) = match kind {
            ExpressionKind::Load(address) => {
                let address = self.kept_value(convert::to_address(*address), &mut way);
                let unit = Place::Memory {
                    address: Box::new(address.clone()),
                    value_type: value_type.clone(),
                };
                (unit, ExpressionKind::Load(Box::new(address)))
            }
            ExpressionKind::Variable(place) => {
                let unit = self.with_kept_effects(&place, &mut way);
                (unit.clone(), ExpressionKind::Variable(unit))
            }
            _ => return Err(Diagnostic::new("D_OP_LVAL", span, "this cannot be assigned")),
        };
        Ok(BitField {
            unit,
            value: Expression { kind, value_type, span },
            unit_type,
            bits,
            way,
        })
    }

    /// `field = value`; yields what the field then holds. As everywhere, the right side first.
    pub(super) fn assign_bits(&mut self, mut field: BitField, value: Expression, span: Span) -> Resolve<Expression> {
        let way = field.way.take();
        let Some(way) = way else {
            return self.store_bits(field, value, "=", span);
        };
        let value_type = value.value_type.clone();
        let kept = self.unnamed_for("%value", &value_type, span);
        let first = assigned_to(kept.clone(), value, span);
        let stored = self.store_bits(field, reading(kept, value_type, span), "=", span)?;
        Ok(behind(Some(behind(Some(first), way, span)), stored, span))
    }

    /// `field mark value`, where `value` may be computed from what the field had.
    pub(super) fn store_bits(
        &mut self,
        mut field: BitField,
        value: Expression,
        mark: &str,
        span: Span,
    ) -> Resolve<Expression> {
        if !matches!(value.value_type, Type::Integer(_)) {
            let (to, from) = (
                types::name(&Type::Integer(field.unit_type)),
                types::name(&value.value_type),
            );
            return Err(arithmetic::incompatible(&to, mark, &from, span));
        }
        let way = field.way.take();
        let number = |value: u64| constant::integer(value as i64, constant::UNSIGNED_LONG, span);
        let ones = u64::MAX >> (64 - field.bits.width.clamp(1, 64));
        let shifted = binary(
            BinaryOperator::ShiftLeft,
            binary(
                BinaryOperator::And,
                convert::to_address(convert::uncut(value)),
                number(ones),
            ),
            constant::integer(i64::from(field.bits.shift), constant::LONG, span),
        );
        let others = binary(
            BinaryOperator::And,
            convert::to_address(field.value),
            number(!(ones << field.bits.shift)),
        );
        // The value first: it may assign other fields of the same unit.
        let unit_type = Type::Integer(field.unit_type);
        let whole = convert::cast(binary(BinaryOperator::Or, shifted, others), unit_type);
        let assigned = extract(assigned_to(field.unit.clone(), whole, span), field.bits, span);
        let assigned = self.put_back(assigned, &field.unit, span);
        Ok(match way {
            None => assigned,
            Some(way) => behind(Some(way), assigned, span),
        })
    }

    /// `++` and `--`.
    pub(super) fn increment_bits(
        &mut self,
        field: BitField,
        delta: i64,
        post: bool,
        span: Span,
    ) -> Resolve<Expression> {
        let (bits, unit_type) = (field.bits, field.unit_type);
        let wide = IntegerType { bytes: 8, ..unit_type };
        let step = |value: Expression, delta: i64| Expression {
            value_type: Type::Integer(wide),
            ..binary(
                BinaryOperator::Add,
                convert::to_integer(convert::uncut(value), wide),
                constant::integer(delta, wide, span),
            )
        };
        let value = step(field.read(span), delta);
        let new = self.store_bits(field, value, "++", span)?;
        if !post {
            return Ok(new);
        }
        let low = Bits {
            shift: 0,
            width: bits.width,
        };
        Ok(convert::narrow(extract(step(new, -delta), low, span), unit_type))
    }
}

/// An operation on 64 bits without a sign.
fn binary(operator: BinaryOperator, left: Expression, right: Expression) -> Expression {
    let span = left.span;
    Expression {
        kind: ExpressionKind::Binary {
            operator,
            left: Box::new(left),
            right: Box::new(right),
        },
        value_type: Type::U64,
        span,
    }
}
