//! Operators on values: the operands that they take, and their results.

use super::{Lowered, coerce, constant, convert};
use crate::diagnostic::Diagnostic;
use crate::program::{BinaryOperator, Expression, ExpressionKind, Type, UnaryOperator};
use crate::source::Span;
use crate::types;

/// An operator before an operand of the right type; its span includes the operand.
pub(crate) fn unary(operator: UnaryOperator, operand: Expression, value_type: Type) -> Expression {
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

pub(crate) fn operation(
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
pub(crate) fn arithmetic(
    operator: BinaryOperator,
    left: Expression,
    right: Expression,
    span: Span,
) -> Lowered<Expression> {
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
pub(crate) fn comparison(
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
        (Type::String, _) => (left, coerce::assign(right, &Type::String).ok_or(wrong)?),
        (_, Type::String) => (coerce::assign(left, &Type::String).ok_or(wrong)?, right),
        (Type::Pointer(_), Type::Pointer(_) | Type::Integer(_)) | (Type::Integer(_), Type::Pointer(_)) => {
            (convert::to_address(left), convert::to_address(right))
        }
        _ => return Err(wrong),
    };
    Ok(operation(operator, left, right, Type::I32, span))
}

/// Whether the result of an operator is always 0 or 1.
pub(crate) fn is_comparison(operator: BinaryOperator) -> bool {
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

pub(crate) fn operand_type(tag: &'static str, mark: &str, kind: &str, found: &Type, span: Span) -> Diagnostic {
    Diagnostic::new(
        tag,
        span,
        format!(
            "operator {mark} requires an operand of {kind} type, found \"{}\"",
            types::name(found)
        ),
    )
}

pub(crate) fn incompatible(left: &str, mark: &str, right: &str, span: Span) -> Diagnostic {
    Diagnostic::new(
        "D_OP_INCOMPAT",
        span,
        format!("operands have incompatible types: \"{left}\" {mark} \"{right}\""),
    )
}
