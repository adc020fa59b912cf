//! Integer arithmetic, as `lang::program` defines it: wrapping, in 64 bits, normalised to the result's type.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use nanoprobe_lang::program::{BinaryOperator, IntegerType, Type};

use super::Emitter;
use crate::contract::fault;

const ADDRESS: IntegerType = IntegerType {
    bytes: 8,
    signed: false,
};

/// The integer type of a value at run time; for all types but integers, that of an address.
pub(super) fn integer_type(value_type: &Type) -> IntegerType {
    match value_type {
        Type::Integer(integer) => *integer,
        _ => ADDRESS,
    }
}

/// The condition code of a comparison; that of equality for any other operator.
pub(super) fn comparison(operator: BinaryOperator, signed: bool) -> IntCC {
    let condition = match operator {
        BinaryOperator::NotEqual => IntCC::NotEqual,
        BinaryOperator::Less => IntCC::SignedLessThan,
        BinaryOperator::LessOrEqual => IntCC::SignedLessThanOrEqual,
        BinaryOperator::Greater => IntCC::SignedGreaterThan,
        BinaryOperator::GreaterOrEqual => IntCC::SignedGreaterThanOrEqual,
        _ => IntCC::Equal,
    };
    if signed { condition } else { condition.unsigned() }
}

impl Emitter<'_, '_> {
    /// Truncates to the type's width and extends by its sign.
    pub(super) fn normalise(&mut self, value: Value, to: IntegerType) -> Value {
        let narrow = match to.bytes {
            1 => types::I8,
            2 => types::I16,
            4 => types::I32,
            _ => return value,
        };
        let reduced = self.builder.ins().ireduce(narrow, value);
        if to.signed {
            self.builder.ins().sextend(types::I64, reduced)
        } else {
            self.builder.ins().uextend(types::I64, reduced)
        }
    }

    /// `left operator right` for all operators but comparisons. Both operands are of type `operands`; in a
    /// shift the right one may have any type. `divisor` is the right operand's value, if it is a literal.
    pub(super) fn arithmetic(
        &mut self,
        operator: BinaryOperator,
        left: Value,
        right: Value,
        operands: IntegerType,
        result: IntegerType,
        divisor: Option<i64>,
    ) -> Value {
        let value = match operator {
            BinaryOperator::Add => self.builder.ins().iadd(left, right),
            BinaryOperator::Subtract => self.builder.ins().isub(left, right),
            BinaryOperator::Multiply => self.builder.ins().imul(left, right),
            BinaryOperator::Divide | BinaryOperator::Remainder => {
                self.divide(operator == BinaryOperator::Remainder, left, right, operands, divisor)
            }
            BinaryOperator::And => self.builder.ins().band(left, right),
            BinaryOperator::Or => self.builder.ins().bor(left, right),
            BinaryOperator::Xor => self.builder.ins().bxor(left, right),
            BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight => {
                // The processor's 64-bit shifts use only six bits of the count.
                let count = if operands.bytes == 8 {
                    right
                } else {
                    self.builder.ins().band_imm_u(right, 31)
                };
                match (operator, operands.signed) {
                    (BinaryOperator::ShiftLeft, _) => self.builder.ins().ishl(left, count),
                    (_, true) => self.builder.ins().sshr(left, count),
                    (_, false) => self.builder.ins().ushr(left, count),
                }
            }
            BinaryOperator::Equal
            | BinaryOperator::NotEqual
            | BinaryOperator::Less
            | BinaryOperator::LessOrEqual
            | BinaryOperator::Greater
            | BinaryOperator::GreaterOrEqual => {
                let byte = self
                    .builder
                    .ins()
                    .icmp(comparison(operator, operands.signed), left, right);
                self.builder.ins().uextend(types::I64, byte)
            }
        };
        self.normalise(value, result)
    }

    /// Division without the processor's traps. Division by zero is a fault of the clause; MIN / -1 wraps to MIN.
    fn divide(
        &mut self,
        remainder: bool,
        left: Value,
        right: Value,
        operands: IntegerType,
        divisor: Option<i64>,
    ) -> Value {
        if divisor.is_none_or(|divisor| divisor == 0) {
            let zero = self.is_zero(right);
            self.fault_if(zero, fault::DIVIDE);
        }
        match (operands.signed, remainder) {
            (false, false) => self.builder.ins().udiv(left, right),
            (false, true) => self.builder.ins().urem(left, right),
            // Cranelift defines MIN % -1 as 0.
            (true, true) => self.builder.ins().srem(left, right),
            (true, false) => {
                // Narrower operands cannot overflow in 64 bits.
                if operands.bytes < 8 || divisor.is_some_and(|divisor| divisor != 0 && divisor != -1) {
                    return self.builder.ins().sdiv(left, right);
                }
                // Here a branch that is never taken is better than a conditional move: the quotient need not wait for
                // the check.
                let (negate, divide, end) = (
                    self.builder.create_block(),
                    self.builder.create_block(),
                    self.builder.create_block(),
                );
                self.builder.set_cold_block(negate);
                let result = self.builder.append_block_param(end, types::I64);
                let minus_one = self.builder.ins().icmp_imm_s(IntCC::Equal, right, -1);
                self.branch(minus_one, negate, divide);
                self.enter(negate);
                let negated = self.builder.ins().ineg(left);
                self.builder.ins().jump(end, &[negated.into()]);
                self.enter(divide);
                let quotient = self.builder.ins().sdiv(left, right);
                self.builder.ins().jump(end, &[quotient.into()]);
                self.enter(end);
                result
            }
        }
    }
}
