//! The emitter: walks a clause and builds Cranelift's intermediate form.
//!
//! Values at run time:
//!
//! - An integer or an address is an `i64`, normalised to its type (sign- or zero-extended from its width).
//! - A string is the address of a NUL-terminated buffer that the agent may read freely: a constant, a
//!   variable, scratch memory, a name of the enabling. The address is never 0; `null` describes NULL.
//! - Bytes (`copyin`) are their address in scratch memory, or in the variable that holds them.
//!
//! Every path that can fail branches to one cold block, with the number of the statement as its parameter.

mod aggregate;
mod arithmetic;
mod builtin;
mod clause;
mod condition;
mod expression;
mod null;
mod operand;
mod place;
mod record;
mod register;
mod subroutine;
mod symbols;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlagsData, Type, Value, types};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::FunctionBuilder;
use nanoprobe_lang::layout::{Limits, Storage};
use nanoprobe_lang::program::{Clause, Program};

use crate::contract::{REGISTER_PARAMETERS, context};
use crate::error::Error;
use crate::scan::Needs;
use crate::{AgentFunction, ArenaLayout, ProbeKind, StaticSlots};
use builtin::Cached;
pub(crate) use symbols::Symbols;

/// The clause that is compiled, and the probe and session for which it is compiled.
pub(crate) struct Source<'a> {
    pub program: &'a Program,
    pub clause: &'a Clause,
    pub kind: ProbeKind,
    pub storage: &'a Storage,
    pub limits: Limits,
    pub arena: &'a ArenaLayout,
    pub slots: StaticSlots,
    pub needs: Needs,
    /// Whether an earlier clause at the same probe may have run `exit()`.
    pub follows_exit: bool,
}

/// Emits the whole function. Yields the symbols that it refers to.
pub(crate) fn emit(
    builder: FunctionBuilder<'_>,
    source: &Source<'_>,
    config: TargetFrontendConfig,
) -> Result<Symbols, Error> {
    let mut emitter = Emitter::new(builder, source);
    emitter.clause()?;
    emitter.builder.seal_all_blocks();
    emitter.builder.finalize(config);
    Ok(emitter.symbols)
}

struct Emitter<'a, 'b> {
    builder: FunctionBuilder<'b>,
    source: &'a Source<'a>,
    symbols: Symbols,
    /// Address of the thread's struct np_context.
    context: Value,
    parameters: [Value; REGISTER_PARAMETERS],
    /// The block that reports a fault. Its parameter is the number of the statement.
    fault_block: Block,
    /// The block that ends the handler.
    return_block: Block,
    /// The number of the statement being emitted, from 1; 0: the predicate.
    action: u32,
    cached: [Cached; builtin::CACHED_COUNT],
    /// Address of the record's header, once it is reserved.
    record: Option<Value>,
}

impl<'a, 'b> Emitter<'a, 'b> {
    fn new(mut builder: FunctionBuilder<'b>, source: &'a Source<'a>) -> Emitter<'a, 'b> {
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        let mut parameters = [Value::from_u32(0); REGISTER_PARAMETERS];
        for (parameter, value) in parameters.iter_mut().zip(builder.block_params(entry)) {
            *parameter = *value;
        }
        let context = builder.ins().get_pinned_reg(types::I64);
        let fault_block = builder.create_block();
        builder.append_block_param(fault_block, types::I64);
        builder.set_cold_block(fault_block);
        let return_block = builder.create_block();
        let cached = std::array::from_fn(|_| Cached::new(&mut builder));
        Emitter {
            builder,
            source,
            symbols: Symbols::default(),
            context,
            parameters,
            fault_block,
            return_block,
            action: 0,
            cached,
            record: None,
        }
    }

    // ---- basic operations ----

    fn constant(&mut self, value: i64) -> Value {
        self.builder.ins().iconst(types::I64, value)
    }

    fn address_plus(&mut self, address: Value, offset: u32) -> Value {
        if offset == 0 {
            address
        } else {
            self.builder.ins().iadd_imm_s(address, i64::from(offset))
        }
    }

    /// Loads a whole register from our memory.
    fn load(&mut self, address: Value, offset: i32) -> Value {
        self.load_type(types::I64, address, offset)
    }

    fn load_type(&mut self, value_type: Type, address: Value, offset: i32) -> Value {
        self.builder.ins().load(value_type, memory(), address, offset)
    }

    /// Loads four bytes, zero-extended.
    fn load_u32(&mut self, address: Value, offset: i32) -> Value {
        let value = self.load_type(types::I32, address, offset);
        self.builder.ins().uextend(types::I64, value)
    }

    fn store(&mut self, value: Value, address: Value, offset: i32) {
        self.builder.ins().store(memory(), value, address, offset);
    }

    fn context_load(&mut self, offset: i32) -> Value {
        self.load(self.context, offset)
    }

    fn context_store(&mut self, value: Value, offset: i32) {
        self.store(value, self.context, offset);
    }

    /// Continues in a new block. The current block must have been ended.
    fn enter(&mut self, block: Block) {
        self.builder.switch_to_block(block);
    }

    fn jump(&mut self, block: Block) {
        self.builder.ins().jump(block, &[]);
    }

    fn branch(&mut self, condition: Value, then: Block, otherwise: Block) {
        self.builder.ins().brif(condition, then, &[], otherwise, &[]);
    }

    // ---- the agent ----

    /// Calls a function of the agent. The context precedes the arguments.
    fn call(&mut self, function: AgentFunction, arguments: &[Value]) {
        let callee = self.symbols.function(&mut self.builder, function, arguments.len() + 1);
        let mut all = vec![self.context];
        all.extend_from_slice(arguments);
        self.builder.ins().call(callee, &all);
    }

    /// Calls a function that cannot fail, and yields its result.
    fn call_for_result(&mut self, function: AgentFunction, arguments: &[Value]) -> Value {
        self.call(function, arguments);
        self.context_load(context::RESULT)
    }

    /// Calls a function that may fail, and yields its result.
    fn call_fallible(&mut self, function: AgentFunction, arguments: &[Value]) -> Value {
        self.call(function, arguments);
        self.check_fault();
        self.context_load(context::RESULT)
    }

    // ---- faults ----

    /// Branches to the fault block if a function of the agent has failed.
    fn check_fault(&mut self) {
        let fault = self.context_load(context::FAULT);
        self.leave_if(fault);
    }

    /// If the condition holds, stores a fault and branches to the fault block.
    fn fault_if(&mut self, condition: Value, fault: i64) {
        let failed = self.builder.create_block();
        self.builder.set_cold_block(failed);
        let on = self.builder.create_block();
        self.branch(condition, failed, on);
        self.enter(failed);
        self.raise(fault);
        self.enter(on);
    }

    /// Stores a fault and jumps to the fault block. This ends the current block.
    fn raise(&mut self, fault: i64) {
        let no_address = self.constant(0);
        self.raise_at(fault, no_address);
    }

    /// Raises a fault as [`Emitter::raise`] does, with the faulting address.
    fn raise_at(&mut self, fault: i64, address: Value) {
        let fault = self.constant(fault);
        self.context_store(fault, context::FAULT);
        self.context_store(address, context::FAULT_ADDRESS);
        let action = self.constant(i64::from(self.action));
        self.builder.ins().jump(self.fault_block, &[action.into()]);
    }

    fn leave_if(&mut self, condition: Value) {
        let on = self.builder.create_block();
        let action = self.constant(i64::from(self.action));
        self.builder
            .ins()
            .brif(condition, self.fault_block, &[action.into()], on, &[]);
        self.enter(on);
    }

    fn is_zero(&mut self, value: Value) -> Value {
        self.builder.ins().icmp_imm_s(IntCC::Equal, value, 0)
    }
}

/// Flags of our own memory, which is always mapped. Alignment does not matter on this machine.
fn memory() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}
