//! Expressions: the value of each node, in the order in which D evaluates them.

use cranelift_codegen::ir::{InstBuilder, Value};
use nanoprobe_lang::program::{BinaryOperator, Expression, ExpressionKind, Type, UnaryOperator};

use super::Emitter;
use super::arithmetic::integer_type;
use super::null::may_be_null;
use crate::AgentFunction;
use crate::error::Error;
use crate::facts::{is_comparison, literal};

impl Emitter<'_, '_> {
    /// The value of an expression, normalised to its type.
    pub(super) fn value(&mut self, expression: &Expression) -> Result<Value, Error> {
        let value_type = &expression.value_type;
        match &expression.kind {
            // The string NULL.
            ExpressionKind::Integer(_) if *value_type == Type::String => Ok(self.null()),
            ExpressionKind::Integer(value) => Ok(self.constant(*value)),
            ExpressionKind::String(text) => Ok(self.string_constant(text)),
            ExpressionKind::Builtin(builtin) => {
                let value = self.builtin(*builtin)?;
                Ok(if *value_type == Type::String {
                    value
                } else {
                    self.normalise(value, integer_type(value_type))
                })
            }
            ExpressionKind::Register(index) => self.register(index),
            ExpressionKind::Variable(place) => {
                let slot = self.slot(place, expression.span)?;
                self.read(&slot)
            }
            ExpressionKind::Unary { operator, operand } => self.unary(*operator, operand, value_type),
            ExpressionKind::Binary { operator, left, right } if is_comparison(*operator) => {
                self.compare_value(*operator, left, right)
            }
            ExpressionKind::Binary { operator, left, right } => self.binary(*operator, left, right, value_type),
            ExpressionKind::Logical { .. } => self.logical(expression),
            ExpressionKind::Conditional {
                condition,
                then,
                otherwise,
            } => self.conditional(condition, then, otherwise),
            ExpressionKind::Cast(operand) | ExpressionKind::Narrow(operand) => self.cast(operand, expression),
            ExpressionKind::Assign { place, value } => self.assign(place, value, expression.span),
            ExpressionKind::AssignOperator { place, operator, value } => {
                self.assign_operator(place, *operator, value, expression.span)
            }
            ExpressionKind::Increment { place, delta, post } => self.increment(place, *delta, *post, expression.span),
            ExpressionKind::Comma { first, second } => {
                self.value(first)?;
                self.value(second)
            }
            ExpressionKind::Call { function, arguments } => self.function_call(*function, arguments, expression),
            ExpressionKind::Load(address) => {
                let address = self.value(address)?;
                let loaded = integer_type(value_type);
                let bytes = self.constant(i64::from(loaded.bytes));
                let value = self.call_fallible(AgentFunction::Load, &[address, bytes]);
                Ok(self.normalise(value, loaded))
            }
        }
    }

    fn unary(&mut self, operator: UnaryOperator, operand: &Expression, result: &Type) -> Result<Value, Error> {
        if operator == UnaryOperator::Not {
            return self.not(operand);
        }
        let value = self.value(operand)?;
        let value = match operator {
            UnaryOperator::Negate => self.builder.ins().ineg(value),
            _ => self.builder.ins().bnot(value),
        };
        Ok(self.normalise(value, integer_type(result)))
    }

    fn binary(
        &mut self,
        operator: BinaryOperator,
        left: &Expression,
        right: &Expression,
        result: &Type,
    ) -> Result<Value, Error> {
        let (left_value, right_value) = (self.value(left)?, self.value(right)?);
        let operands = integer_type(&left.value_type);
        Ok(self.arithmetic(
            operator,
            left_value,
            right_value,
            operands,
            integer_type(result),
            literal(right),
        ))
    }

    fn cast(&mut self, operand: &Expression, expression: &Expression) -> Result<Value, Error> {
        let value = self.value(operand)?;
        match (&operand.value_type, &expression.value_type) {
            (Type::String, Type::String) => Ok(value),
            (Type::Void, _) => Err(Error::Malformed {
                what: "a cast of nothing",
                span: expression.span,
            }),
            // The bytes are already in our memory. A string must end in a NUL, so they are copied.
            (Type::Bytes { size: Some(size) }, Type::String) => {
                let limit = self.constant(i64::from(*size).saturating_add(1).min(i64::from(self.string_limit())));
                Ok(self.call_fallible(AgentFunction::CopyInString, &[value, limit]))
            }
            (_, Type::String) => {
                let strsize = self.constant(0);
                Ok(self.call_fallible(AgentFunction::CopyInString, &[value, strsize]))
            }
            (Type::String, Type::Integer(to)) if may_be_null(operand) => {
                let address = self.zero_if_null(value);
                Ok(self.normalise(address, *to))
            }
            (_, Type::Integer(to)) => Ok(self.normalise(value, *to)),
            // The value is an address. Bytes may also become a pointer to their content.
            (
                _,
                Type::Pointer(_)
                | Type::Bytes { .. }
                | Type::Void
                | Type::Structure(_)
                | Type::Array { .. }
                | Type::Foreign(_),
            ) => Ok(value),
        }
    }
}
