//! Operators without effects: what operands they take, what they yield.

use super::{Resolve, Resolver, characters, constant, convert};
use crate::diagnostic::Diagnostic;
use crate::program::{BinaryOperator, Expression, ExpressionKind, LogicalOperator, Place, Type, UnaryOperator};
use crate::source::Span;
use crate::syntax::{Node, NodeKind, PrefixOperator};
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
        let integer = types::promote(integer);
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

    /// `&*pointer`, `&pointer[index]`, and of D's own arrays and structures elements and members: nothing else in D has an address.
    fn address_of(&mut self, operand: &Node, span: Span) -> Resolve<Expression> {
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
        let is_part = matches!(operand.kind, NodeKind::Index { .. } | NodeKind::Member { .. });
        let operand = self.operand(operand)?;
        let to = operand.value_type.clone();
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
        let inner = match operand.kind {
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
            B::Add | B::Subtract if !both_integers(&left, &right) => pointer_arithmetic(operator, left, right, span),
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
                let to = Type::Pointer(None);
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

fn operation(operator: BinaryOperator, left: Expression, right: Expression, to: Type, span: Span) -> Expression {
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
fn arithmetic(operator: BinaryOperator, left: Expression, right: Expression, span: Span) -> Resolve<Expression> {
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
        types::promote(*left_type)
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
    let right_signed = if shift {
        types::promote(*right_type).signed
    } else {
        to.signed
    };
    let (left, right) = (convert::operand(left, to.signed), convert::operand(right, right_signed));
    let result = left.value_type.clone();
    Ok(convert::narrow(operation(operator, left, right, result, span), to))
}

/// `pointer + integer`, `integer + pointer`, `pointer - integer`, `pointer - pointer`.
fn pointer_arithmetic(
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
            let to = types::common(*a, *b);
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
