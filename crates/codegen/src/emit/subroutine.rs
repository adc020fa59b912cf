//! Calls of subroutines. Most subroutines are one call of the agent with the same arguments.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use nanoprobe_arena::layout::ANCESTORS;
use nanoprobe_lang::program::{Expression, ExpressionKind, Function, IntegerType, Place, Type};

use super::Emitter;
use super::null::yields_null;
use crate::AgentFunction;
use crate::contract::context;
use crate::error::Error;

impl Emitter<'_, '_> {
    /// The value of a call; for a subroutine without a result, any value.
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
                Function::UserFrame => self.user_frame(value),
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
            Function::FileSystem => {
                let mounts = &self.source.arena.constants.mounts;
                values.push(self.string_constant(mounts.as_bytes()));
            }
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
                // The argument is the variable itself, not its value.
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

    /// Whether a number is that of the process or of one of its ancestors. Known are the ancestors at the beginning of
    /// the session, and for a followed child the followed processes from which it descends.
    fn is_progeny_of(&mut self, pid: Value) -> Value {
        let mut found = self.constant(0);
        for ancestor in &self.source.arena.constants.ancestors {
            let same = self.builder.ins().icmp_imm_s(IntCC::Equal, pid, i64::from(*ancestor));
            let same = self.builder.ins().uextend(types::I64, same);
            found = self.builder.ins().bor(found, same);
        }
        if !self.source.program.follows {
            return found;
        }
        let ancestors = self.context_load(context::ANCESTORS);
        for index in 0..ANCESTORS {
            let ancestor = self.load_u32(ancestors, (index * size_of::<u32>()) as i32);
            // The numbers of missing ancestors are 0.
            let is_there = self.builder.ins().icmp_imm_s(IntCC::NotEqual, ancestor, 0);
            let same = self.builder.ins().icmp(IntCC::Equal, pid, ancestor);
            let same = self.builder.ins().band(is_there, same);
            let same = self.builder.ins().uextend(types::I64, same);
            found = self.builder.ins().bor(found, same);
        }
        found
    }

    /// The bytes of a number in reverse order.
    fn swapped(&mut self, function: Function, value: Value) -> Value {
        let bits = match function {
            Function::Swap16 => 16,
            Function::Swap32 => 32,
            _ => 64,
        };
        let swapped = self.builder.ins().bswap(value);
        // After the swap the value is in the high bytes.
        let swapped = self.builder.ins().ushr_imm_u(swapped, 64 - bits);
        let bytes = (bits / 8) as u8;
        self.normalise(swapped, IntegerType { bytes, signed: false })
    }

    /// Appends a NUL to copied bytes and reserves its byte of scratch memory. The size of the bytes is not
    /// part of their type, so `stringof()` finds their end by the NUL. (Scratch memory has 8 more bytes.)
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

    /// The most bytes of a string, with its NUL.
    pub(super) fn string_limit(&self) -> u32 {
        self.source.limits.string_limit()
    }
}

/// `<sys/socket.h>`
const AF_INET6: i64 = 10;

/// The agent's function that carries a subroutine out. `None`: generated code carries it out.
fn agent_function(function: Function) -> Option<AgentFunction> {
    Some(match function {
        Function::Swap16 | Function::Swap32 | Function::Swap64 | Function::ProgenyOf | Function::UserFrame => {
            return None;
        }
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
        Function::FileSystem => AgentFunction::FileSystem,
        Function::FileStatus => AgentFunction::FileStatus,
        Function::VectorBytes => AgentFunction::VectorBytes,
        Function::Socket => AgentFunction::Socket,
        Function::SocketAddress => AgentFunction::SocketAddress,
        Function::MessageBytes => AgentFunction::MessageBytes,
        Function::SignalFrame => AgentFunction::SignalFrame,
        Function::Speculation => AgentFunction::Speculation,
        Function::CopyOut => AgentFunction::CopyOut,
        Function::CopyOutString => AgentFunction::CopyOutString,
    })
}
