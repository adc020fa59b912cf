//! The string NULL: the value of a string that was never assigned, and of `strchr( )` and the like when
//! nothing is found.
//!
//! In registers it is the address of one particular empty string in the handler's constants. So code
//! that does not check for NULL reads the empty string, as comparisons do. In a variable a word after
//! the text marks it ([`Limits::string_mark`]). An element that is NULL is absent from its array. To the
//! agent NULL is 0.
//!
//! [`Limits::string_mark`]: nanoprobe_lang::layout::Limits::string_mark

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use nanoprobe_lang::program::{Expression, ExpressionKind, Function, Scope, Type};

use super::Emitter;
use crate::contract::fault;
use crate::error::Error;

impl Emitter<'_, '_> {
    /// The address that stands for NULL.
    pub(super) fn null(&mut self) -> Value {
        let symbol = self.symbols.null(&mut self.builder);
        self.builder.ins().symbol_value(types::I64, symbol)
    }

    /// A string from the agent, which may be 0.
    pub(super) fn or_null(&mut self, string: Value) -> Value {
        let null = self.null();
        self.builder.ins().select(string, string, null)
    }

    /// The value of an expression that is recorded, part of a key, or passed to a subroutine. In these uses
    /// NULL is a bad address.
    pub(super) fn present(&mut self, expression: &Expression) -> Result<Value, Error> {
        let value = self.value(expression)?;
        if may_be_null(expression) {
            let is_null = self.is_null(value);
            self.fault_if(is_null, fault::BAD_ADDRESS);
        }
        Ok(value)
    }

    /// The value of a string variable.
    pub(super) fn read_string(&mut self, address: Value, scope: Scope) -> Value {
        let mark = self.load(address, self.source.limits.string_mark() as i32);
        let null = self.null();
        match scope {
            Scope::ThreadLocal => self.builder.ins().select(mark, address, null),
            Scope::Global | Scope::ClauseLocal => self.builder.ins().select(mark, null, address),
        }
    }

    /// Marks a string variable that gets this value as NULL or not NULL.
    pub(super) fn mark_string(&mut self, address: Value, scope: Scope, value: Value) {
        let null = self.null();
        let differs = match scope {
            Scope::ThreadLocal => IntCC::NotEqual,
            Scope::Global | Scope::ClauseLocal => IntCC::Equal,
        };
        let mark = self.builder.ins().icmp(differs, value, null);
        let mark = self.builder.ins().uextend(types::I64, mark);
        self.store(mark, address, self.source.limits.string_mark() as i32);
    }

    /// A string that may be NULL, as the agent expects it, and as an address: NULL becomes 0.
    pub(super) fn zero_if_null(&mut self, value: Value) -> Value {
        let is_null = self.is_null(value);
        let zero = self.constant(0);
        self.builder.ins().select(is_null, zero, value)
    }

    fn is_null(&mut self, value: Value) -> Value {
        let null = self.null();
        self.builder.ins().icmp(IntCC::Equal, value, null)
    }
}

/// Whether an expression is a string that may be NULL.
pub(super) fn may_be_null(expression: &Expression) -> bool {
    if expression.value_type != Type::String {
        return false;
    }
    match &expression.kind {
        ExpressionKind::Integer(_) | ExpressionKind::Variable(_) => true,
        ExpressionKind::Assign { value: inner, .. }
        | ExpressionKind::Comma { second: inner, .. }
        | ExpressionKind::Cast(inner)
        | ExpressionKind::Narrow(inner) => may_be_null(inner),
        ExpressionKind::Conditional { then, otherwise, .. } => may_be_null(then) || may_be_null(otherwise),
        ExpressionKind::Call { function, .. } => yields_null(*function),
        _ => false,
    }
}

/// Whether a subroutine searches, and yields NULL if nothing is found.
pub(super) fn yields_null(function: Function) -> bool {
    matches!(
        function,
        Function::StringCharacter
            | Function::StringLastCharacter
            | Function::StringSearch
            | Function::StringToken
            | Function::Json
    )
}
