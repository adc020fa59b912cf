//! Assignments to bit-fields: the unit that holds the field is read, changed and written back.
//!
//! ```text
//! p->field = value      extract(unit = value << shift & ones | unit & ~ones)       ones: the field's bits
//! p->field += value     the same with extract(unit) + value
//! p->field++            as above; the old value is the new one less 1, cut to the field's bits
//! ```
//!
//! The unit occurs twice. If the path to it has effects, a variable of the clause keeps its address:
//!
//! ```text
//! p++->field = value    this->v = value, this->w = (address) p++, and then as above, of this->w
//! ```

use super::arithmetic::incompatible;
use super::memory::extract;
use super::sequence::{after, assigned_to};
use super::temporaries::Keep;
use super::variables::Variables;
use super::{Lowered, constant, convert};
use crate::diagnostic::Diagnostic;
use crate::program::{BinaryOperator, Bits, Expression, ExpressionKind, IntegerType, Place, Type};
use crate::source::Span;
use crate::types;

/// A bit-field that can be assigned.
pub(crate) struct BitField {
    /// Where its unit lies.
    unit: Place,
    /// The value of the unit.
    value: Expression,
    unit_type: IntegerType,
    bits: Bits,
    /// Computes the path to the unit into a variable, if a variable keeps the path.
    way: Option<Expression>,
}

impl BitField {
    /// The value of the field.
    pub(crate) fn read(&self, span: Span) -> Expression {
        extract(self.value.clone(), self.bits, span)
    }
}

impl Variables {
    /// The field in the unit that `part` reads.
    pub(crate) fn bit_field(&mut self, part: Expression, bits: Bits, span: Span) -> Lowered<BitField> {
        let Expression { kind, value_type, .. } = part;
        let Type::Integer(unit_type) = value_type else {
            return Err(Diagnostic::new("D_OP_LVAL", span, "this operand cannot be assigned"));
        };
        let mut way = None;
        let (unit, kind) = match kind {
            ExpressionKind::Load(address) => {
                let address = self.kept_if_effects(convert::to_address(*address), &mut way);
                let unit = Place::Memory {
                    address: Box::new(address.clone()),
                    value_type: value_type.clone(),
                };
                (unit, ExpressionKind::Load(Box::new(address)))
            }
            ExpressionKind::Variable(place) => {
                let unit = self.repeatable_place(&place, Keep::Effects, &mut way);
                (unit.clone(), ExpressionKind::Variable(unit))
            }
            _ => return Err(Diagnostic::new("D_OP_LVAL", span, "this operand cannot be assigned")),
        };
        Ok(BitField {
            unit,
            value: Expression { kind, value_type, span },
            unit_type,
            bits,
            way,
        })
    }

    /// `field = value`; yields the value that the field then holds. As in every assignment, the right side comes first.
    pub(crate) fn assign_bits(&mut self, mut field: BitField, value: Expression, span: Span) -> Lowered<Expression> {
        let way = field.way.take();
        let Some(way) = way else {
            return self.store_bits(field, value, "=", span);
        };
        let mut before = None;
        let value = self.kept(value, &mut before);
        let before = after(before, way, span);
        Ok(after(Some(before), self.store_bits(field, value, "=", span)?, span))
    }

    /// `field mark value`, where `value` may be computed from the field's old value.
    pub(crate) fn store_bits(
        &mut self,
        mut field: BitField,
        value: Expression,
        mark: &str,
        span: Span,
    ) -> Lowered<Expression> {
        if !matches!(value.value_type, Type::Integer(_)) {
            let (to, from) = (
                types::name(&Type::Integer(field.unit_type)),
                types::name(&value.value_type),
            );
            return Err(incompatible(&to, mark, &from, span));
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
        // The value comes first: it may assign other fields of the same unit.
        let unit_type = Type::Integer(field.unit_type);
        let whole = convert::cast(binary(BinaryOperator::Or, shifted, others), unit_type);
        let assigned = extract(assigned_to(field.unit.clone(), whole, span), field.bits, span);
        let assigned = self.put_back(assigned, &field.unit, span);
        Ok(match way {
            None => assigned,
            Some(way) => after(Some(way), assigned, span),
        })
    }

    /// `++` and `--`.
    pub(crate) fn increment_bits(
        &mut self,
        field: BitField,
        delta: i64,
        post: bool,
        span: Span,
    ) -> Lowered<Expression> {
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

/// An unsigned operation on 64 bits.
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
