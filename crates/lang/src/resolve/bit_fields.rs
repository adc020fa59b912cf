//! Assignments to bit-fields: the unit that holds the field is read, changed and written back.
//!
//! ```text
//! p->field = value      extract(unit = value << shift & ones | unit & ~ones)       ones: the field's bits
//! p->field += value     the same with extract(unit) + value
//! p->field++            likewise; the old value is the new one less 1, cut to the field's bits
//! ```
//!
//! The unit's address is computed twice, so it may have no effects.

use super::memory::extract;
use super::{Resolve, constant, convert};
use crate::diagnostic::Diagnostic;
use crate::program::{
    BinaryOperator, Bits, Expression, ExpressionKind, Function, IntegerType, Place, Type, UnaryOperator,
};
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
}

impl BitField {
    /// The field in the unit that `part` reads.
    pub(super) fn new(part: Expression, bits: Bits, span: Span) -> Resolve<BitField> {
        let Type::Integer(unit_type) = part.value_type else {
            return Err(Diagnostic::new("D_OP_LVAL", span, "this cannot be assigned"));
        };
        let unit = match &part.kind {
            ExpressionKind::Load(address) if !has_effects(address) => Place::Memory {
                address: Box::new(convert::to_address((**address).clone())),
                value_type: part.value_type.clone(),
            },
            ExpressionKind::Variable(Place::Field { offset, .. }) if has_effects(offset) => {
                return Err(twice(span));
            }
            ExpressionKind::Variable(place @ Place::Field { .. }) => place.clone(),
            // A structure that is held member by member.
            ExpressionKind::Variable(place @ (Place::Element { .. } | Place::Scalar { .. }))
                if !place.operands().iter().any(has_effects) =>
            {
                place.clone()
            }
            _ => return Err(twice(span)),
        };
        Ok(BitField {
            unit,
            value: part,
            unit_type,
            bits,
        })
    }

    /// The value it has.
    pub(super) fn read(&self, span: Span) -> Expression {
        extract(self.value.clone(), self.bits, span)
    }

    /// `field = value`; yields what the field then holds.
    pub(super) fn store(self, value: Expression, mark: &str, span: Span) -> Resolve<Expression> {
        if !matches!(value.value_type, Type::Integer(_)) {
            let (to, from) = (
                types::name(&Type::Integer(self.unit_type)),
                types::name(&value.value_type),
            );
            return Err(super::operators::incompatible(&to, mark, &from, span));
        }
        let number = |value: u64| constant::integer(value as i64, constant::UNSIGNED_LONG, span);
        let ones = u64::MAX >> (64 - self.bits.width.clamp(1, 64));
        let field = binary(
            BinaryOperator::And,
            convert::to_address(convert::uncut(value)),
            number(ones),
        );
        let field = binary(
            BinaryOperator::ShiftLeft,
            field,
            constant::integer(i64::from(self.bits.shift), constant::LONG, span),
        );
        let others = binary(
            BinaryOperator::And,
            convert::to_address(self.value),
            number(!(ones << self.bits.shift)),
        );
        // The value first: it may assign other fields of the same unit.
        let whole = convert::cast(binary(BinaryOperator::Or, field, others), Type::Integer(self.unit_type));
        let assigned = Expression {
            kind: ExpressionKind::Assign {
                place: self.unit,
                value: Box::new(whole),
            },
            value_type: Type::Integer(self.unit_type),
            span,
        };
        Ok(extract(assigned, self.bits, span))
    }

    /// `++` and `--`.
    pub(super) fn increment(self, delta: i64, post: bool, span: Span) -> Resolve<Expression> {
        let (bits, unit_type) = (self.bits, self.unit_type);
        let wide = IntegerType { bytes: 8, ..unit_type };
        let step = |value: Expression, delta: i64| Expression {
            value_type: Type::Integer(wide),
            ..binary(
                BinaryOperator::Add,
                convert::to_integer(convert::uncut(value), wide),
                constant::integer(delta, wide, span),
            )
        };
        let value = step(self.read(span), delta);
        let new = self.store(value, "++", span)?;
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

fn twice(span: Span) -> Diagnostic {
    super::expressions::unsupported(
        "N_STRUCT",
        "an assignment to a bit-field by way of an expression with effects",
        span,
    )
    .with_help("assign the pointer to a variable first")
}

/// Whether computing an expression changes anything, or yields something else the second time.
pub(super) fn has_effects(of: &Expression) -> bool {
    match &of.kind {
        ExpressionKind::Integer(_) | ExpressionKind::String(_) | ExpressionKind::Builtin(_) => false,
        ExpressionKind::Assign { .. } | ExpressionKind::AssignOperator { .. } | ExpressionKind::Increment { .. } => {
            true
        }
        ExpressionKind::Register(inner)
        | ExpressionKind::Cast(inner)
        | ExpressionKind::Narrow(inner)
        | ExpressionKind::Load(inner) => has_effects(inner),
        ExpressionKind::Unary { operator, operand } => match operator {
            UnaryOperator::Negate | UnaryOperator::Complement | UnaryOperator::Not => has_effects(operand),
        },
        ExpressionKind::Binary { left, right, .. } | ExpressionKind::Logical { left, right, .. } => {
            has_effects(left) || has_effects(right)
        }
        ExpressionKind::Conditional {
            condition,
            then,
            otherwise,
        } => has_effects(condition) || has_effects(then) || has_effects(otherwise),
        ExpressionKind::Comma { first, second } => has_effects(first) || has_effects(second),
        ExpressionKind::Call { function, arguments } => {
            matches!(
                function,
                Function::Random | Function::StringToken | Function::Allocate | Function::CopyInTo | Function::CopyIn
            ) || arguments.iter().any(has_effects)
        }
        ExpressionKind::Variable(place) => match place {
            Place::Scalar { .. } => false,
            Place::Element { keys, .. } => keys.iter().any(has_effects),
            Place::Field { offset, .. } => has_effects(offset),
            Place::Memory { address, .. } => has_effects(address),
        },
    }
}
