//! Operators without effects: which operands they accept, and their results.

use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::arithmetic::{operand_type, unary};
use crate::lower::{coerce, constant, convert, pointers};
use crate::program::{Expression, ExpressionKind, IntegerType, LogicalOperator, Type, UnaryOperator};
use crate::source::Span;
use crate::syntax::{Node, PrefixOperator};
use crate::types;

impl Checker {
    pub(super) fn unary(&mut self, operator: PrefixOperator, operand: &Node, span: Span) -> Checked<Expression> {
        if operator == PrefixOperator::AddressOf {
            return self.address_of(operand, span);
        }
        let operand = self.expression(operand)?;
        if operator == PrefixOperator::Dereference {
            return pointers::dereference(operand, span);
        }
        if operator == PrefixOperator::Not {
            if !types::is_scalar(&operand.value_type) {
                return Err(operand_type("D_OP_SCALAR", "!", "scalar", &operand.value_type, span));
            }
            return Ok(match constant::value(&operand) {
                Some(value) => constant::truth(value == 0, span),
                None => Expression {
                    span,
                    ..unary(UnaryOperator::Not, convert::uncut(operand), Type::I32)
                },
            });
        }
        let (tag, mark, kind) = match operator {
            PrefixOperator::Complement => ("D_OP_INT", "~", "integral"),
            PrefixOperator::Plus => ("D_OP_ARITH", "+", "arithmetic"),
            _ => ("D_OP_ARITH", "-", "arithmetic"),
        };
        let Type::Integer(integer) = operand.value_type else {
            return Err(operand_type(tag, mark, kind, &operand.value_type, span));
        };
        let on_bits = |operator, operand| {
            let operand = convert::operand(operand, integer.signed);
            let to = operand.value_type.clone();
            convert::narrow(unary(operator, operand, to), integer)
        };
        let result = match (operator, constant::value(&operand)) {
            (PrefixOperator::Plus, _) => convert::to_integer(operand, integer),
            (PrefixOperator::Complement, Some(value)) => constant::folded(!value, integer, span),
            (_, Some(value)) => constant::folded(value.wrapping_neg(), integer, span),
            (PrefixOperator::Complement, None) => on_bits(UnaryOperator::Complement, operand),
            (_, None) => on_bits(UnaryOperator::Negate, operand),
        };
        Ok(Expression { span, ..result })
    }

    pub(super) fn logical(
        &mut self,
        operator: LogicalOperator,
        left: &Node,
        right: &Node,
        span: Span,
    ) -> Checked<Expression> {
        let mark = match operator {
            LogicalOperator::And => "&&",
            LogicalOperator::Or => "||",
            LogicalOperator::Xor => "^^",
        };
        let (left, right) = (self.expression(left)?, self.expression(right)?);
        for operand in [&left, &right] {
            if !types::is_scalar(&operand.value_type) {
                return Err(operand_type(
                    "D_OP_SCALAR",
                    mark,
                    "scalar",
                    &operand.value_type,
                    operand.span,
                ));
            }
        }
        if let (Some(a), Some(b)) = (constant::value(&left), constant::value(&right)) {
            return Ok(constant::truth(constant::logical(operator, a, b), span));
        }
        let kind = ExpressionKind::Logical {
            operator,
            left: Box::new(convert::uncut(left)),
            right: Box::new(convert::uncut(right)),
        };
        Ok(Expression {
            kind,
            value_type: Type::I32,
            span,
        })
    }

    pub(super) fn conditional(
        &mut self,
        condition: &Node,
        then: &Node,
        otherwise: &Node,
        span: Span,
    ) -> Checked<Expression> {
        let condition = self.expression(condition)?;
        if !types::is_scalar(&condition.value_type) {
            return Err(operand_type(
                "D_OP_SCALAR",
                "?:",
                "scalar",
                &condition.value_type,
                condition.span,
            ));
        }
        let mut action = None;
        for node in [then, otherwise] {
            if let Some((name, arguments)) = super::actions::action_call(node) {
                // The operand's own errors are reported first.
                self.action(name, arguments, node.span)?;
                action = action.or(Some(node.span));
            }
        }
        if let Some(span) = action {
            let message = "operator ?: operands cannot be actions";
            return Err(Diagnostic::new("D_OP_ACT", span, message).with_help("use if and else"));
        }
        let (then, otherwise) = (self.expression(then)?, self.expression(otherwise)?);
        let (then, otherwise, common) = alike(then, otherwise, span)?;
        let narrow = |chosen: Expression| match common {
            Some(to) if constant::value(&chosen).is_some() => convert::to_integer(chosen, to),
            Some(to) => convert::narrow(chosen, to),
            None => chosen,
        };
        if let Some(value) = constant::value(&condition) {
            let chosen = narrow(if value != 0 { then } else { otherwise });
            return Ok(Expression { span, ..chosen });
        }
        let value_type = then.value_type.clone();
        let kind = ExpressionKind::Conditional {
            condition: Box::new(convert::uncut(condition)),
            then: Box::new(then),
            otherwise: Box::new(otherwise),
        };
        Ok(narrow(Expression { kind, value_type, span }))
    }
}

/// The operands of `?:` with the same type. For integers also their common type, to which the result is cut.
fn alike(
    then: Expression,
    otherwise: Expression,
    span: Span,
) -> Checked<(Expression, Expression, Option<IntegerType>)> {
    let incompatible = Diagnostic::new(
        "D_OP_INCOMPAT",
        span,
        format!(
            "operator ?: operands must have compatible types: \"{}\" and \"{}\"",
            types::name(&then.value_type),
            types::name(&otherwise.value_type)
        ),
    );
    let mut common = None;
    let (then, otherwise) = match (&then.value_type, &otherwise.value_type) {
        (Type::Void, _) | (_, Type::Void) => return Err(incompatible),
        (Type::Integer(a), Type::Integer(b)) => {
            let to = types::common(*a, *b);
            common = Some(to);
            (
                convert::operand(then, to.signed),
                convert::operand(otherwise, to.signed),
            )
        }
        (a, b) if a == b && !matches!(a, Type::Bytes { .. }) => (then, otherwise),
        (Type::String, _) => (then, coerce::assign(otherwise, &Type::String).ok_or(incompatible)?),
        (_, Type::String) => (coerce::assign(then, &Type::String).ok_or(incompatible)?, otherwise),
        (Type::Integer(_), to @ Type::Pointer(_)) => {
            (coerce::assign(then, &to.clone()).ok_or(incompatible)?, otherwise)
        }
        (to @ Type::Pointer(_), Type::Integer(_)) => {
            let to = to.clone();
            (then, coerce::assign(otherwise, &to).ok_or(incompatible)?)
        }
        (Type::Pointer(_) | Type::Bytes { .. }, Type::Pointer(_) | Type::Bytes { .. }) => {
            // As in DTrace, a pointer to void takes the type of the other operand.
            let to = match (&then.value_type, &otherwise.value_type) {
                (known @ Type::Pointer(Some(_)), Type::Pointer(None) | Type::Bytes { .. })
                | (Type::Pointer(None) | Type::Bytes { .. }, known @ Type::Pointer(Some(_))) => known.clone(),
                _ => Type::Pointer(None),
            };
            (convert::cast(then, to.clone()), convert::cast(otherwise, to))
        }
        _ => return Err(incompatible),
    };
    Ok((then, otherwise, common))
}
