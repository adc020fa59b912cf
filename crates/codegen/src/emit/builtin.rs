//! The variables that the tracer provides.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable};
use nanoprobe_lang::program::{Builtin, USER_FRAMES_MAX};

use super::Emitter;
use crate::contract::{context, enabling, frame, record};
use crate::error::Error;
use crate::{AgentFunction, ProbeKind};

/// The largest error number that a system call yields.
const ERRNO_MAX: i64 = 4095;

/// The number of built-in variables that are read at most once in a clause (see [`Cached`]).
pub(super) const CACHED_COUNT: usize = 7;

/// A built-in variable that is expensive, and has one value throughout a clause (in DTrace, `timestamp`
/// does not advance within a clause). It is read where it is first used.
#[derive(Clone, Copy)]
pub(super) struct Cached {
    /// Holds the value; 0: not read yet.
    variable: Variable,
    state: CacheState,
}

/// Whether the variable was read already, as far as this is known at the place for which code is emitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CacheState {
    Unread,
    Read,
    /// The variable was read on some of the paths to this place: a test at run time decides.
    Maybe,
}

/// The states of all cached variables at one place in the code.
pub(super) type CacheStates = [CacheState; CACHED_COUNT];

impl Cached {
    pub(super) fn new(builder: &mut FunctionBuilder<'_>) -> Cached {
        let variable = builder.declare_var(types::I64);
        let unread = builder.ins().iconst(types::I64, 0);
        builder.def_var(variable, unread);
        Cached {
            variable,
            state: CacheState::Unread,
        }
    }
}

impl Emitter<'_, '_> {
    pub(super) fn builtin(&mut self, builtin: Builtin) -> Result<Value, Error> {
        let constants = &self.source.arena.constants;
        Ok(match builtin {
            Builtin::Argument(index) => self.argument(index)?,
            Builtin::Pid if self.source.program.follows => self.load_u32(self.context, context::PID),
            Builtin::Ppid if self.source.program.follows => self.load_u32(self.context, context::PARENT),
            Builtin::Pid | Builtin::TargetPid => self.constant(i64::from(constants.pid)),
            Builtin::Ppid => self.constant(i64::from(constants.ppid)),
            Builtin::Uid => self.constant(i64::from(constants.uid)),
            Builtin::Gid => self.constant(i64::from(constants.gid)),
            Builtin::EffectiveUid => self.constant(i64::from(constants.effective_uid)),
            Builtin::EffectiveGid => self.constant(i64::from(constants.effective_gid)),
            // A thread that executes a clause does not sleep.
            Builtin::SystemCall => self.constant(-1),
            // Clauses of `sched` run in the tracer.
            Builtin::Other(part) if part.is_text() => self.string_constant(b""),
            Builtin::Other(_) => self.constant(0),
            Builtin::ProcessGroup => self.constant(i64::from(constants.process_group)),
            Builtin::ProcessSession => self.constant(i64::from(constants.process_session)),
            Builtin::StartArgumentCount => self.constant(i64::from(constants.start.argument_count)),
            Builtin::StartArguments => self.constant(constants.start.arguments as i64),
            Builtin::StartEnvironment => self.constant(constants.start.environment as i64),
            Builtin::ExecName => self.string_constant(constants.execname.as_bytes()),
            Builtin::ProcessArguments => self.string_constant(constants.arguments.as_bytes()),
            Builtin::Tid => self.load_u32(self.context, context::TID),
            Builtin::Cpu => self.call_for_result(AgentFunction::Cpu, &[]),
            Builtin::ProbeProvider => self.enabling_load(enabling::PROVIDER),
            Builtin::ProbeModule => self.enabling_load(enabling::MODULE),
            Builtin::ProbeFunction => self.enabling_load(enabling::FUNCTION),
            Builtin::ProbeName => self.enabling_load(enabling::NAME),
            Builtin::Timestamp => self.read_clock_once(0, AgentFunction::Timestamp),
            Builtin::VirtualTimestamp => self.read_once(1, |emitter| {
                emitter.call_for_result(AgentFunction::VirtualTimestamp, &[])
            }),
            Builtin::WallTimestamp => self.read_clock_once(2, AgentFunction::WallTimestamp),
            Builtin::UserCaller => self.read_once(3, |emitter| emitter.call_for_result(AgentFunction::UserCaller, &[])),
            Builtin::UserStackDepth => self.user_stack_depth(),
            // A stack is recorded as a field of its own, and is no value.
            Builtin::Stack(_) => self.constant(0),
            Builtin::Goroutine => self.goroutine(4, false),
            Builtin::Errno if self.source.kind == ProbeKind::CallReturn => self.call_error(),
            Builtin::Errno => self.call_for_result(AgentFunction::Errno, &[]),
            Builtin::EnabledProbeId => self.epid(),
            Builtin::ProbeId => {
                let address = self.context_load(context::ENABLING);
                self.load_u32(address, enabling::PROBE_ID)
            }
        })
    }

    /// The number under which `self->` variables are kept: the goroutine's number, or a number that stands for the
    /// thread.
    pub(super) fn task(&mut self) -> Value {
        self.goroutine(5, true)
    }

    fn goroutine(&mut self, index: usize, task: bool) -> Value {
        let Some(known) = self.source.program.goroutines else {
            return self.constant(0);
        };
        let offsets = u64::from(known.m) | u64::from(known.current) << 16 | u64::from(known.number) << 32;
        self.read_once(index, |emitter| {
            let arguments = [known.slot, offsets as i64, i64::from(task)].map(|value| emitter.constant(value));
            emitter.call_for_result(AgentFunction::Goroutine, &arguments)
        })
    }

    /// `uframe(number)`: the stack is walked once in a clause, into scratch memory that was zeros.
    pub(super) fn user_frame(&mut self, number: Value) -> Value {
        let most = i64::from(USER_FRAMES_MAX);
        let walked = self.read_once(6, |emitter| {
            let frames = emitter.constant(most);
            let bytes = emitter.constant(8 * (1 + most));
            let destination = emitter.call_fallible(AgentFunction::Allocate, &[bytes]);
            emitter.call(AgentFunction::UserStack, &[destination, frames]);
            destination
        });
        let exists = self.builder.ins().icmp_imm_s(IntCC::UnsignedLessThan, number, most);
        let zero = self.constant(0);
        let index = self.builder.ins().select(exists, number, zero);
        let offset = self.builder.ins().ishl_imm_u(index, 3);
        let address = self.builder.ins().iadd(walked, offset);
        let frame = self.load(address, 8);
        self.builder.ins().select(exists, frame, zero)
    }

    /// Walks the stack into scratch memory. As in a record, a count precedes the frames.
    fn user_stack_depth(&mut self) -> Value {
        let most = i64::from(self.source.limits.maxframes);
        let frames = self.constant(most);
        let bytes = self.constant(8 * (1 + most));
        let destination = self.call_fallible(AgentFunction::Allocate, &[bytes]);
        self.call(AgentFunction::UserStack, &[destination, frames]);
        self.load(destination, 0)
    }

    pub(super) fn epid(&mut self) -> Value {
        let address = self.context_load(context::ENABLING);
        self.load_u32(address, enabling::EPID)
    }

    /// The address of a string in the handler's constants.
    pub(super) fn string_constant(&mut self, text: &[u8]) -> Value {
        let symbol = self.symbols.string(&mut self.builder, text);
        self.builder.ins().symbol_value(types::I64, symbol)
    }

    fn enabling_load(&mut self, offset: i32) -> Value {
        let address = self.context_load(context::ENABLING);
        self.load(address, offset)
    }

    fn argument(&mut self, index: u8) -> Result<Value, Error> {
        let [_, _, rdx, ..] = self.parameters;
        Ok(match (self.source.kind, index) {
            (ProbeKind::Return | ProbeKind::GoReturn | ProbeKind::GoStackReturn, 0) => {
                self.enabling_load(enabling::OFFSET)
            }
            (ProbeKind::Return, 1) => {
                let address = self.context_load(context::FRAME);
                self.load(address, frame::RAX)
            }
            (ProbeKind::Return, 2) => rdx,
            (ProbeKind::CallReturn, 0 | 1) => self.call_result(),
            (ProbeKind::CallEntry, 6..) | (ProbeKind::Return | ProbeKind::CallReturn, _) => self.constant(0),
            (kind, _) if kind.has_operands() => self.static_argument(index)?,
            (_, _) => match self.parameters.get(usize::from(index)) {
                Some(value) => *value,
                // The return address is at rsp, and the seventh argument is after it.
                None => {
                    let stack = self.context_load(context::TARGET_RSP);
                    let address = self.address_plus(stack, 8 * (u32::from(index) - 5));
                    let bytes = self.constant(8);
                    self.call_fallible(AgentFunction::Load, &[address, bytes])
                }
            },
        })
    }

    /// The kernel's result in rax, and whether it is an error: a negative error number, down to -4095.
    fn kernels_result(&mut self) -> (Value, Value) {
        let address = self.context_load(context::FRAME);
        let rax = self.load(address, frame::RAX);
        let limit = self.constant(-(ERRNO_MAX + 1));
        let failed = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, rax, limit);
        (rax, failed)
    }

    /// The result of a system call, as its C function returns it.
    fn call_result(&mut self) -> Value {
        let (rax, failed) = self.kernels_result();
        let error = self.constant(-1);
        self.builder.ins().select(failed, error, rax)
    }

    /// The error number of a system call; 0: it has succeeded.
    fn call_error(&mut self) -> Value {
        let (rax, failed) = self.kernels_result();
        let error = self.builder.ins().ineg(rax);
        let none = self.constant(0);
        self.builder.ins().select(failed, error, none)
    }

    /// Reading the time stamp counter is most of the cost of a timestamp. If a record is reserved, the value
    /// in its header is used, so that both say the same time.
    fn read_clock_once(&mut self, index: usize, function: AgentFunction) -> Value {
        self.read_once(index, |emitter| {
            let tsc = match emitter.record {
                Some(address) => emitter.load(address, record::TSC),
                None => emitter.constant(0),
            };
            emitter.call_for_result(function, &[tsc])
        })
    }

    fn read_once(&mut self, index: usize, read: impl Fn(&mut Self) -> Value) -> Value {
        let Some(&Cached { variable, state }) = self.cached.get(index) else {
            return read(self);
        };
        match state {
            CacheState::Read => {}
            CacheState::Unread => {
                let value = read(self);
                self.builder.def_var(variable, value);
            }
            CacheState::Maybe => {
                let unread = self.builder.create_block();
                let on = self.builder.create_block();
                let known = self.builder.use_var(variable);
                self.branch(known, on, unread);
                self.enter(unread);
                let value = read(self);
                self.builder.def_var(variable, value);
                self.jump(on);
                self.enter(on);
            }
        }
        if let Some(cached) = self.cached.get_mut(index) {
            cached.state = CacheState::Read;
        }
        self.builder.use_var(variable)
    }

    /// The states at this place, to be passed to [`Emitter::join`] when a conditional path meets the present path
    /// again.
    pub(super) fn cache_states(&self) -> CacheStates {
        self.cached.map(|cached| cached.state)
    }

    /// Restores the states at the start of a branch.
    pub(super) fn restore_cache_states(&mut self, states: CacheStates) {
        for (cached, state) in self.cached.iter_mut().zip(states) {
            cached.state = state;
        }
    }

    /// Joins two paths. `other` has the states at the end of one path; the current states are those at the end of the
    /// other.
    pub(super) fn join(&mut self, other: CacheStates) {
        for (cached, other) in self.cached.iter_mut().zip(other) {
            if cached.state != other {
                cached.state = CacheState::Maybe;
            }
        }
    }
}
