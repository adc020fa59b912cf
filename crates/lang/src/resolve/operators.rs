//! Operators without effects: what operands they take, what they yield.

use super::{Resolve, Resolver, constant, convert};
use crate::diagnostic::Diagnostic;
use crate::program::{BinaryOperator, Expression, ExpressionKind, LogicalOperator, Type, UnaryOperator};
use crate::source::Span;
use crate::syntax::{Node, PrefixOperator};
use crate::types;

impl Resolver {
    pub(super) fn unary(&mut self, operator: PrefixOperator, operand: &Node, span: Span) -> Resolve<Expression> {
        if operator == PrefixOperator::AddressOf {
            return self.address_of(operand, span);
        }
        let operand = self.expression(operand)?;
        if operator == PrefixOperator::Dereference {
            return self.dereference(operand, span);
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

    pub(super) fn binary(
        &mut self,
        operator: BinaryOperator,
        left: Expression,
        right: Expression,
        span: Span,
    ) -> Resolve<Expression> {
        use BinaryOperator as B;
        match operator {
            _ if is_comparison(operator) => comparison(operator, left, right, span),
            B::Add | B::Subtract if !both_integers(&left, &right) => {
                super::pointers::pointer_arithmetic(operator, left, right, span)
            }
            _ => arithmetic(operator, left, right, span),
        }
    }

    pub(super) fn logical(
        &mut self,
        operator: LogicalOperator,
        left: &Node,
        right: &Node,
        span: Span,
    ) -> Resolve<Expression> {
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
    ) -> Resolve<Expression> {
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
                // Its own mistakes are told first.
                self.action(name, arguments, node.span)?;
                action = action.or(Some(node.span));
            }
        }
        if let Some(span) = action {
            let message = "operator ?: operands cannot be actions";
            return Err(Diagnostic::new("D_OP_ACT", span, message).with_help("use if and else"));
        }
        let (then, otherwise) = (self.expression(then)?, self.expression(otherwise)?);
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
            (Type::String, _) => (then, convert::assign(otherwise, &Type::String).ok_or(incompatible)?),
            (_, Type::String) => (convert::assign(then, &Type::String).ok_or(incompatible)?, otherwise),
            (Type::Integer(_), to @ Type::Pointer(_)) => {
                (convert::assign(then, &to.clone()).ok_or(incompatible)?, otherwise)
            }
            (to @ Type::Pointer(_), Type::Integer(_)) => {
                let to = to.clone();
                (then, convert::assign(otherwise, &to).ok_or(incompatible)?)
            }
            (Type::Pointer(_) | Type::Bytes { .. }, Type::Pointer(_) | Type::Bytes { .. }) => {
                // As in DTrace it points to what one of them does, where the other points to nothing in particular.
                let to = match (&then.value_type, &otherwise.value_type) {
                    (known @ Type::Pointer(Some(_)), Type::Pointer(None) | Type::Bytes { .. })
                    | (Type::Pointer(None) | Type::Bytes { .. }, known @ Type::Pointer(Some(_))) => known.clone(),
                    _ => Type::Pointer(None),
                };
                (convert::cast(then, to.clone()), convert::cast(otherwise, to))
            }
            _ => return Err(incompatible),
        };
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

/// An operator in front of an operand of the right type; it spans the operand.
pub(super) fn unary(operator: UnaryOperator, operand: Expression, value_type: Type) -> Expression {
    let span = operand.span;
    Expression {
        kind: ExpressionKind::Unary {
            operator,
            operand: Box::new(operand),
        },
        value_type,
        span,
    }
}

fn both_integers(left: &Expression, right: &Expression) -> bool {
    matches!(
        (&left.value_type, &right.value_type),
        (Type::Integer(_), Type::Integer(_))
    )
}

pub(super) fn operation(
    operator: BinaryOperator,
    left: Expression,
    right: Expression,
    to: Type,
    span: Span,
) -> Expression {
    let kind = ExpressionKind::Binary {
        operator,
        left: Box::new(left),
        right: Box::new(right),
    };
    Expression {
        kind,
        value_type: to,
        span,
    }
}

/// Operators on integers.
pub(super) fn arithmetic(
    operator: BinaryOperator,
    left: Expression,
    right: Expression,
    span: Span,
) -> Resolve<Expression> {
    use BinaryOperator as B;
    let (Type::Integer(left_type), Type::Integer(right_type)) = (&left.value_type, &right.value_type) else {
        let (tag, kind) = match operator {
            B::Multiply | B::Divide => ("D_OP_ARITH", "arithmetic"),
            B::Add | B::Subtract => {
                return Err(incompatible(
                    &types::name(&left.value_type),
                    symbol(operator),
                    &types::name(&right.value_type),
                    span,
                ));
            }
            _ => ("D_OP_INT", "integral"),
        };
        let wrong = if matches!(left.value_type, Type::Integer(_)) {
            &right
        } else {
            &left
        };
        return Err(operand_type(tag, symbol(operator), kind, &wrong.value_type, wrong.span));
    };
    let shift = matches!(operator, B::ShiftLeft | B::ShiftRight);
    let to = if shift {
        *left_type
    } else {
        types::common(*left_type, *right_type)
    };
    let divides = matches!(operator, B::Divide | B::Remainder);
    if divides && constant::value(&right) == Some(0) {
        return Err(Diagnostic::new(
            "D_DIV_ZERO",
            span,
            "expression contains division by zero",
        ));
    }
    if let (Some(a), Some(b)) = (constant::value(&left), constant::value(&right))
        && let Some(folded) = constant::binary(operator, a, b, to, span)
    {
        return Ok(folded);
    }
    let right_signed = if shift { right_type.signed } else { to.signed };
    let (left, right) = (convert::operand(left, to.signed), convert::operand(right, right_signed));
    let result = left.value_type.clone();
    Ok(convert::narrow(operation(operator, left, right, result, span), to))
}

/// `==` and the like: integers, strings, or addresses.
fn comparison(operator: BinaryOperator, left: Expression, right: Expression, span: Span) -> Resolve<Expression> {
    let wrong = incompatible(
        &types::name(&left.value_type),
        symbol(operator),
        &types::name(&right.value_type),
        span,
    );
    let (left, right) = match (&left.value_type, &right.value_type) {
        (Type::Integer(a), Type::Integer(b)) => {
            let to = types::compared(*a, *b);
            if let (Some(a), Some(b)) = (constant::value(&left), constant::value(&right))
                && let Some(folded) = constant::binary(operator, a, b, to, span)
            {
                return Ok(folded);
            }
            (convert::operand(left, to.signed), convert::operand(right, to.signed))
        }
        (Type::String, _) => (left, convert::assign(right, &Type::String).ok_or(wrong)?),
        (_, Type::String) => (convert::assign(left, &Type::String).ok_or(wrong)?, right),
        (Type::Pointer(_), Type::Pointer(_) | Type::Integer(_)) | (Type::Integer(_), Type::Pointer(_)) => {
            (convert::to_address(left), convert::to_address(right))
        }
        _ => return Err(wrong),
    };
    Ok(operation(operator, left, right, Type::I32, span))
}

/// Whether an operator yields 0 or 1.
pub(super) fn is_comparison(operator: BinaryOperator) -> bool {
    use BinaryOperator as B;
    matches!(
        operator,
        B::Equal | B::NotEqual | B::Less | B::LessOrEqual | B::Greater | B::GreaterOrEqual
    )
}

/// An operator as written.
pub(crate) fn symbol(operator: BinaryOperator) -> &'static str {
    use BinaryOperator as B;
    match operator {
        B::Add => "+",
        B::Subtract => "-",
        B::Multiply => "*",
        B::Divide => "/",
        B::Remainder => "%",
        B::And => "&",
        B::Or => "|",
        B::Xor => "^",
        B::ShiftLeft => "<<",
        B::ShiftRight => ">>",
        B::Equal => "==",
        B::NotEqual => "!=",
        B::Less => "<",
        B::LessOrEqual => "<=",
        B::Greater => ">",
        B::GreaterOrEqual => ">=",
    }
}

pub(super) fn operand_type(tag: &'static str, mark: &str, kind: &str, found: &Type, span: Span) -> Diagnostic {
    Diagnostic::new(
        tag,
        span,
        format!(
            "operator {mark} requires an operand of {kind} type, found \"{}\"",
            types::name(found)
        ),
    )
}

pub(super) fn incompatible(left: &str, mark: &str, right: &str, span: Span) -> Diagnostic {
    Diagnostic::new(
        "D_OP_INCOMPAT",
        span,
        format!("operands have incompatible types: \"{left}\" {mark} \"{right}\""),
    )
}
