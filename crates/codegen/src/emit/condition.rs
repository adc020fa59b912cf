//! Conditions: branches on truth values that are not first converted to 0 or 1.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};
use nanoprobe_lang::program::{BinaryOperator, Expression, ExpressionKind, LogicalOperator, Type, UnaryOperator};

use super::Emitter;
use super::arithmetic::{comparison, integer_type};
use crate::AgentFunction;
use crate::error::Error;
use crate::facts::is_comparison;

impl Emitter<'_, '_> {
    /// Branches on an expression's truth, short-circuiting; ends the current block.
    pub(super) fn branch_on(&mut self, expression: &Expression, then: Block, otherwise: Block) -> Result<(), Error> {
        match &expression.kind {
            ExpressionKind::Logical {
                operator: operator @ (LogicalOperator::And | LogicalOperator::Or),
                left,
                right,
            } => {
                let second = self.builder.create_block();
                match operator {
                    LogicalOperator::And => self.branch_on(left, second, otherwise)?,
                    _ => self.branch_on(left, then, second)?,
                }
                // The second operand may be skipped, and then its built-in variables are not read.
                let before = self.cache_states();
                self.enter(second);
                self.branch_on(right, then, otherwise)?;
                self.join(before);
                Ok(())
            }
            ExpressionKind::Unary {
                operator: UnaryOperator::Not,
                operand,
            } => self.branch_on(operand, otherwise, then),
            _ => {
                let truth = self.truth(expression)?;
                self.branch(truth, then, otherwise);
                Ok(())
            }
        }
    }

    /// A value that is zero if the expression is false, and not zero if it is true.
    fn truth(&mut self, expression: &Expression) -> Result<Value, Error> {
        match &expression.kind {
            ExpressionKind::Binary { operator, left, right } if is_comparison(*operator) => {
                self.compare(*operator, left, right)
            }
            _ => {
                let value = self.value(expression)?;
                Ok(self.value_truth(value, &expression.value_type))
            }
        }
    }

    /// The truth of a value: a string is true if it is not empty.
    fn value_truth(&mut self, value: Value, value_type: &Type) -> Value {
        match value_type {
            Type::String => self.load_type(types::I8, value, 0),
            _ => value,
        }
    }

    /// The result of a comparison, in one byte.
    fn compare(&mut self, operator: BinaryOperator, left: &Expression, right: &Expression) -> Result<Value, Error> {
        let left_value = self.value(left)?;
        let right_value = self.value(right)?;
        if left.value_type == Type::String {
            let order = self.call_for_result(AgentFunction::StringCompare, &[left_value, right_value]);
            return Ok(self.builder.ins().icmp_imm_s(comparison(operator, true), order, 0));
        }
        let signed = integer_type(&left.value_type).signed;
        Ok(self
            .builder
            .ins()
            .icmp(comparison(operator, signed), left_value, right_value))
    }

    /// A comparison as a value: `int` 0 or 1.
    pub(super) fn compare_value(
        &mut self,
        operator: BinaryOperator,
        left: &Expression,
        right: &Expression,
    ) -> Result<Value, Error> {
        let byte = self.compare(operator, left, right)?;
        Ok(self.builder.ins().uextend(types::I64, byte))
    }

    /// `!e`: `int` 0 or 1.
    pub(super) fn not(&mut self, operand: &Expression) -> Result<Value, Error> {
        let truth = self.truth(operand)?;
        let byte = self.builder.ins().icmp_imm_s(IntCC::Equal, truth, 0);
        Ok(self.builder.ins().uextend(types::I64, byte))
    }

    /// `&&`, `||`, `^^`: `int` 0 or 1.
    pub(super) fn logical(&mut self, expression: &Expression) -> Result<Value, Error> {
        if let ExpressionKind::Logical {
            operator: LogicalOperator::Xor,
            left,
            right,
        } = &expression.kind
        {
            let left = self.not(left)?;
            let right = self.not(right)?;
            return Ok(self.builder.ins().bxor(left, right));
        }
        let (yes, no, end) = (
            self.builder.create_block(),
            self.builder.create_block(),
            self.builder.create_block(),
        );
        let result = self.builder.append_block_param(end, types::I64);
        self.branch_on(expression, yes, no)?;
        for (block, value) in [(yes, 1), (no, 0)] {
            self.enter(block);
            let value = self.constant(value);
            self.builder.ins().jump(end, &[value.into()]);
        }
        self.enter(end);
        Ok(result)
    }

    /// `condition ? then : otherwise`.
    pub(super) fn conditional(
        &mut self,
        condition: &Expression,
        then: &Expression,
        otherwise: &Expression,
    ) -> Result<Value, Error> {
        let (yes, no, end) = (
            self.builder.create_block(),
            self.builder.create_block(),
            self.builder.create_block(),
        );
        let result = self.builder.append_block_param(end, types::I64);
        self.branch_on(condition, yes, no)?;
        let before = self.cache_states();
        self.enter(yes);
        let value = self.value(then)?;
        self.builder.ins().jump(end, &[value.into()]);
        let after_then = self.cache_states();
        self.restore_cache_states(before);
        self.enter(no);
        let value = self.value(otherwise)?;
        self.builder.ins().jump(end, &[value.into()]);
        self.join(after_then);
        self.enter(end);
        Ok(result)
    }
}
