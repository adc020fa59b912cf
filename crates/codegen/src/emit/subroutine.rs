//! Calls of subroutines: most are one call of the agent with the same arguments.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use nanoprobe_lang::program::{Expression, ExpressionKind, Function, IntegerType, Place, Type};

use super::Emitter;
use super::null::yields_null;
use crate::AgentFunction;
use crate::contract::context;
use crate::error::Error;

impl Emitter<'_, '_> {
    /// The value of a call; any value, where the subroutine has no result.
    pub(super) fn function_call(
        &mut self,
        function: Function,
        arguments: &[Expression],
        expression: &Expression,
    ) -> Result<Value, Error> {
        let mut values = self.call_arguments(function, arguments)?;
        let (zero, one) = (self.constant(0), self.constant(1));
        let Some(callee) = agent_function(function) else {
            let value = values.first().copied().unwrap_or(zero);
            return Ok(match function {
                Function::ProgenyOf => self.is_progeny_of(value),
                _ => self.swapped(function, value),
            });
        };
        match function {
            Function::CopyIn => {
                let copy = self.call_fallible(callee, &values);
                if let (Type::Bytes { size: None }, Some(bytes)) = (&expression.value_type, values.get(1)) {
                    self.terminate(copy, *bytes);
                }
                return Ok(copy);
            }
            Function::StringLength | Function::Speculation => return Ok(self.call_for_result(callee, &values)),
            Function::CopyInString => values.resize(2, zero),
            Function::StringCharacter | Function::LowerCase | Function::AddressToString => values.push(zero),
            Function::StringLastCharacter | Function::UpperCase => values.push(one),
            Function::AddressToString6 => {
                let family = self.constant(AF_INET6);
                values.insert(0, family);
                values.push(one);
            }
            _ => {}
        }
        let result = self.call_fallible(callee, &values);
        Ok(if yields_null(function) {
            self.or_null(result)
        } else {
            result
        })
    }

    fn call_arguments(&mut self, function: Function, arguments: &[Expression]) -> Result<Vec<Value>, Error> {
        let mut values = Vec::with_capacity(arguments.len() + 1);
        for (index, argument) in arguments.iter().enumerate() {
            values.push(match &argument.kind {
                // The variable itself, whatever it holds.
                ExpressionKind::Variable(Place::Scalar { scope, variable })
                    if (function, index) == (Function::StringToken, 0) =>
                {
                    self.variable_address(*scope, *variable, argument.span)?
                }
                _ => self.present(argument)?,
            });
        }
        Ok(values)
    }

    /// Whether a number is that of the process or of one of its ancestors, as they were when the session began.
    fn is_progeny_of(&mut self, pid: Value) -> Value {
        let mut found = self.constant(0);
        for ancestor in &self.source.arena.constants.ancestors {
            let same = self.builder.ins().icmp_imm_s(IntCC::Equal, pid, i64::from(*ancestor));
            let same = self.builder.ins().uextend(types::I64, same);
            found = self.builder.ins().bor(found, same);
        }
        found
    }

    /// The bytes of a number in the other order.
    fn swapped(&mut self, function: Function, value: Value) -> Value {
        let bits = match function {
            Function::Swap16 => 16,
            Function::Swap32 => 32,
            _ => 64,
        };
        let swapped = self.builder.ins().bswap(value);
        // The low bytes are the high ones now.
        let swapped = self.builder.ins().ushr_imm_u(swapped, 64 - bits);
        let bytes = (bits / 8) as u8;
        self.normalise(swapped, IntegerType { bytes, signed: false })
    }

    /// Puts a NUL after bytes just copied in, and takes its place in scratch memory: their size is not part of their
    /// type, so `stringof()` of them must find their end by itself. (There are 8 bytes after scratch memory.)
    fn terminate(&mut self, copy: Value, bytes: Value) {
        let end = self.builder.ins().iadd(copy, bytes);
        let nul = self.builder.ins().iconst(types::I8, 0);
        self.store(nul, end, 0);
        let start = self.context_load(context::SCRATCH);
        let used = self.builder.ins().isub(end, start);
        let used = self.builder.ins().iadd_imm_s(used, 8);
        let used = self.builder.ins().band_imm_s(used, -8);
        self.context_store(used, context::SCRATCH_USED);
    }

    /// Bytes that a string may have, with its NUL.
    pub(super) fn string_limit(&self) -> u32 {
        self.source.limits.string_limit()
    }
}

/// `<sys/socket.h>`
const AF_INET6: i64 = 10;

/// The agent's function that carries a subroutine out. `None`: generated code does so by itself.
fn agent_function(function: Function) -> Option<AgentFunction> {
    Some(match function {
        Function::Swap16 | Function::Swap32 | Function::Swap64 | Function::ProgenyOf => return None,
        Function::CopyIn => AgentFunction::CopyIn,
        Function::CopyInString => AgentFunction::CopyInString,
        Function::StringLength => AgentFunction::StringLength,
        Function::Allocate => AgentFunction::Allocate,
        Function::CopyInTo => AgentFunction::CopyInTo,
        Function::StringJoin => AgentFunction::StringJoin,
        Function::StringCharacter | Function::StringLastCharacter => AgentFunction::StringCharacter,
        Function::StringSearch => AgentFunction::StringSearch,
        Function::StringToken => AgentFunction::StringToken,
        Function::Substring => AgentFunction::Substring,
        Function::Index => AgentFunction::Index,
        Function::LastIndex => AgentFunction::LastIndex,
        Function::UpperCase | Function::LowerCase => AgentFunction::StringCase,
        Function::BaseName => AgentFunction::BaseName,
        Function::DirectoryName => AgentFunction::DirectoryName,
        Function::CleanPath => AgentFunction::CleanPath,
        Function::NumberToString => AgentFunction::NumberToString,
        Function::StringToNumber => AgentFunction::StringToNumber,
        Function::AddressToString | Function::AddressToString6 => AgentFunction::AddressToString,
        Function::LinkToString => AgentFunction::LinkToString,
        Function::Random => AgentFunction::Random,
        Function::Json => AgentFunction::Json,
        Function::Path => AgentFunction::Path,
        Function::ThreadName => AgentFunction::ThreadName,
        Function::Speculation => AgentFunction::Speculation,
        Function::CopyOut => AgentFunction::CopyOut,
        Function::CopyOutString => AgentFunction::CopyOutString,
    })
}
