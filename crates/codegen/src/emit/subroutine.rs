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
    /// The value of a call; of one without a result any.
    pub(super) fn function_call(
        &mut self,
        function: Function,
        arguments: &[Expression],
        expression: &Expression,
    ) -> Result<Value, Error> {
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
        let (zero, one) = (self.constant(0), self.constant(1));
        let callee = match function {
            Function::CopyIn => {
                let copy = self.call_fallible(AgentFunction::CopyIn, &values);
                if let (Type::Bytes { size: None }, Some(bytes)) = (&expression.value_type, values.get(1)) {
                    self.terminate(copy, *bytes);
                }
                return Ok(copy);
            }
            Function::CopyInString => {
                values.resize(2, zero);
                AgentFunction::CopyInString
            }
            Function::StringLength => return Ok(self.call_for_result(AgentFunction::StringLength, &values)),
            Function::Allocate => AgentFunction::Allocate,
            Function::CopyInTo => AgentFunction::CopyInTo,
            Function::StringJoin => AgentFunction::StringJoin,
            Function::StringCharacter => {
                values.push(zero);
                AgentFunction::StringCharacter
            }
            Function::StringLastCharacter => {
                values.push(one);
                AgentFunction::StringCharacter
            }
            Function::StringSearch => AgentFunction::StringSearch,
            Function::StringToken => AgentFunction::StringToken,
            Function::Substring => AgentFunction::Substring,
            Function::Index => AgentFunction::Index,
            Function::LastIndex => AgentFunction::LastIndex,
            Function::UpperCase => {
                values.push(one);
                AgentFunction::StringCase
            }
            Function::LowerCase => {
                values.push(zero);
                AgentFunction::StringCase
            }
            Function::BaseName => AgentFunction::BaseName,
            Function::DirectoryName => AgentFunction::DirectoryName,
            Function::CleanPath => AgentFunction::CleanPath,
            Function::NumberToString => AgentFunction::NumberToString,
            Function::StringToNumber => AgentFunction::StringToNumber,
            Function::AddressToString => {
                values.push(zero);
                AgentFunction::AddressToString
            }
            Function::LinkToString => AgentFunction::LinkToString,
            Function::AddressToString6 => {
                let family = self.constant(AF_INET6);
                values.insert(0, family);
                values.push(one);
                AgentFunction::AddressToString
            }
            Function::Swap16 | Function::Swap32 | Function::Swap64 => {
                let value = values.first().copied().unwrap_or(zero);
                return Ok(self.swapped(function, value));
            }
            Function::Random => AgentFunction::Random,
            Function::Json => AgentFunction::Json,
            Function::ProgenyOf => {
                let pid = values.first().copied().unwrap_or(zero);
                return Ok(self.is_progeny_of(pid));
            }
            Function::Path => AgentFunction::Path,
            Function::ThreadName => AgentFunction::ThreadName,
            Function::Speculation => return Ok(self.call_for_result(AgentFunction::Speculation, &values)),
            Function::CopyOut => AgentFunction::CopyOut,
            Function::CopyOutString => AgentFunction::CopyOutString,
        };
        let result = self.call_fallible(callee, &values);
        Ok(if yields_null(function) {
            self.or_null(result)
        } else {
            result
        })
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
