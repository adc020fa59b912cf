//! D programs to machine code: one handler per clause, compiled by Cranelift, placed as bytes.
//!
//! # Theory of operation
//!
//! A handler runs in the target, in the thread that hit the probe. A detour calls it:
//!
//! ```text
//!    r15                      the thread's struct np_context (Cranelift's pinned register)
//!    rdi rsi rdx rcx r8 r9    as at the site: at an entry, the function's first six arguments
//!    everything else          the target's values, which the handler must preserve
//! ```
//!
//! Its calling convention is Cranelift's `preserve_all`. The handler saves every register before it
//! changes it, so a handler that changes two registers costs two pushes. The detour saves the flags,
//! because it knows whether they are live. Only integer instructions are generated, and SIMD registers
//! are never touched (I2); the tests check this by disassembly. The agent's functions follow the same
//! convention. They return nothing, and leave their result in `context->result`.
//!
//! A clause is compiled once into one function, however many sites it is enabled at. Differences between
//! sites are read through `context->enabling`, and differences between threads through `context`:
//!
//! ```text
//!    exit() before?                     if an earlier clause at the probe has an exit(): if it ran, return
//!    predicate                          false: return
//!    tid check                          if self-> or tid is used: the context may now serve another thread
//!    np_reserve(epid, bytes)            when the clause records; no room: return (the agent has counted the drop)
//!    statement 1 ... n                  record fields are written in place
//!    np_commit, then np_exit            when the clause records; when it has an exit()
//!    return
//!
//!    fault (cold):                      np_error(context, number of the action), return
//! ```
//!
//! A fault (bad address, division by zero, ...) in any statement ends the clause. Then a reserved record
//! is not committed, and an error record takes its place. The cost of a clause is bounded (I10). Loops
//! run only over constant sizes. Expressions nest at most [`MAX_EXPRESSION_DEPTH`] deep. A handler that
//! needs a stack frame of more than [`MAX_STACK_BYTES`] is refused.
//!
//! If the key of an aggregation is the same at every hit of one enabling (`@ = count()`,
//! `@[probefunc] = sum(arg0)`), no hashing is needed. Then its value words are *static slots* of the
//! enabling in each context ([`static_slots`]), updated inline. A clause that does nothing but count
//! needs no handler at all ([`inline_counts`]).
#![forbid(unsafe_code)]

mod check;
mod compiler;
mod contract;
mod emit;
mod error;
mod facts;
mod handler;
mod operand;
mod scan;
mod slots;

pub use compiler::Compiler;
pub use contract::THREAD_LOCAL_VARIABLE;
pub use error::Error;
pub use handler::{Handler, Relocation, RelocationTarget};
pub use nanoprobe_agent::Function as AgentFunction;
pub use operand::{Argument, Location, Operand, RSP, Register, StaticArguments};
pub use slots::{
    KeyNames, ProbeNames, StaticSlots, inline_counts, is_key_of_process, static_key, static_names, static_slots,
    value_words,
};

/// How deep expressions may nest. Deeper ones are refused with [`Error::TooDeep`].
pub const MAX_EXPRESSION_DEPTH: usize = 256;

/// The largest stack frame of a handler in bytes, with its return address. A clause that needs more is
/// refused with [`Error::TooMuchStack`]. The agent's functions need at most as much again (`agent/agent.h`).
pub const MAX_STACK_BYTES: u32 = 1024;

/// The kind of probe for which a handler is compiled. It decides the meaning of `arg0` to `arg9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeKind {
    /// A function's first instruction: `arg0`-`arg5` are the integer arguments from registers. `arg6`-`arg9`
    /// are those on the stack, after the return address.
    Entry,
    /// An exit of a function: `arg0` is the offset of the instruction in the function. `arg1` is the value
    /// returned (rax), `arg2` its second half (rdx); the others are 0.
    Return,
    /// Any other instruction: as [`ProbeKind::Entry`], with the present values of the registers.
    Offset,
    /// A static probe: `arg0` to `arg9` are at the places that the probe's note names; arguments that the note lacks
    /// are 0. The number is an index into [`ArenaLayout::static_arguments`].
    Static(u32),
    /// An instruction, usually the first, of a Go function that takes its arguments in registers:
    /// `arg0`-`arg8` are rax, rbx, rcx, rdi, rsi, r8 to r11, `arg9` is the first word on the stack.
    Go,
    /// An exit of a function of the kind [`ProbeKind::Go`]: `arg0` as for [`ProbeKind::Return`]. `arg1`-`arg9` are its
    /// results, in the same registers.
    GoReturn,
    /// An instruction of Go's assembly: `arg0`-`arg9` are the words on the stack after the return address.
    GoStack,
    /// An exit of a Go function that takes its arguments on the stack: its results lie on the stack after its
    /// arguments, whose number is not known.
    GoStackReturn,
    /// Before a system call: `arg0`-`arg5` are its arguments. The fourth one, which the program has in r10, is in
    /// rcx.
    CallEntry,
    /// After a system call: `arg0` and `arg1` are its result, -1 if it has failed; `errno` is its error, else 0.
    CallReturn,
    /// A Go function for which the way of passing arguments is not known.
    GoUnknown,
}

impl ProbeKind {
    /// Whether the seventh argument and those after it are on the stack.
    fn has_arguments_on_stack(self) -> bool {
        !matches!(self, ProbeKind::Return | ProbeKind::CallEntry | ProbeKind::CallReturn)
    }

    /// Whether the arguments are operands: those of a note, or Go's.
    fn has_operands(self) -> bool {
        !matches!(
            self,
            ProbeKind::Entry | ProbeKind::Return | ProbeKind::Offset | ProbeKind::CallEntry | ProbeKind::CallReturn
        )
    }
}

/// Values that never change during a session. Handlers contain them as constants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionConstants {
    /// `pid` and `$target`.
    pub pid: u32,
    /// `ppid`.
    pub ppid: u32,
    /// `progenyof()`: the process and its ancestors.
    pub ancestors: Vec<u32>,
    /// `fds[].fi_fs` and `fi_mount`: a line for each mounted file system, `number major:minor name folder`.
    pub mounts: String,
    /// `uid`: the real user id.
    pub uid: u32,
    /// `gid`: the real group id.
    pub gid: u32,
    /// `curpsinfo->pr_euid`.
    pub effective_uid: u32,
    /// `curpsinfo->pr_egid`.
    pub effective_gid: u32,
    /// `curpsinfo->pr_pgid`.
    pub process_group: u32,
    /// `curpsinfo->pr_sid`.
    pub process_session: u32,
    /// `execname`.
    pub execname: String,
    /// `curpsinfo->pr_psargs`.
    pub arguments: String,
    /// Where the kernel has put the program's arguments and environment.
    pub start: ProgramStart,
}

/// Where the kernel has put the arguments and the environment of a program, in the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramStart {
    /// `curpsinfo->pr_argc`: the number of arguments.
    pub argument_count: i32,
    /// `curpsinfo->pr_argv`: the address of the pointers to the arguments.
    pub arguments: u64,
    /// `curpsinfo->pr_envp`: the address of the pointers to the environment.
    pub environment: u64,
}

/// Where a session keeps the data that handlers use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArenaLayout {
    /// Offset of the global variables from the arena's start, to which `context->control` points.
    pub globals_offset: u32,
    /// The values that are known when the clause is compiled.
    pub constants: SessionConstants,
    /// The places of the arguments of static probes, for [`ProbeKind::Static`].
    pub static_arguments: Vec<StaticArguments>,
}

impl ArenaLayout {
    /// The place of argument number `index`, for kinds of probes whose arguments are operands. `None`: the probe has
    /// fewer arguments, or the kind has no operands.
    ///
    /// # Errors
    ///
    /// [`Error::StaticArgument`] for an argument that cannot be read.
    fn static_argument(&self, kind: ProbeKind, index: u8) -> Result<Option<Operand>, Error> {
        let ProbeKind::Static(number) = kind else {
            return operand::go_argument(kind, index);
        };
        let arguments = self.static_arguments.get(number as usize);
        match arguments.and_then(|arguments| arguments.list.get(usize::from(index))) {
            None => Ok(None),
            Some(Ok(operand)) => Ok(Some(*operand)),
            Some(Err(reason)) => Err(Error::StaticArgument {
                index,
                reason: reason.clone(),
            }),
        }
    }
}
