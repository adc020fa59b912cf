//! D programs to machine code: one handler per clause, compiled by Cranelift, placed as bytes.
//!
//! # Theory of operation
//!
//! A handler runs in the target, in the thread that hit the probe, called by a detour:
//!
//! ```text
//!    r15                      the thread's struct np_context (Cranelift's pinned register)
//!    rdi rsi rdx rcx r8 r9    as they are at the site, that is: the probed function's first six arguments
//!    everything else          the target's, and to be left alone
//! ```
//!
//! Its calling convention is Cranelift's `preserve_all`: every register that the handler changes it saves first, so a
//! handler that changes two registers costs two pushes. The flags are the detour's business (it knows whether they are
//! live). Only integer instructions are generated: SIMD registers are never touched (I2), which the tests check by
//! disassembly. The agent's functions follow the same convention; they return nothing, and leave their result in
//! `context->result`.
//!
//! A clause becomes one function, once, however many sites it is enabled at. What differs between sites is read through
//! `context->enabling`; what differs between threads through `context`:
//!
//! ```text
//!    exit() before?                     when an earlier clause at the probe has an exit(): it ends the firing, return
//!    predicate                          false: return
//!    tid check                          when self-> or tid is used: the thread behind a context may have changed
//!    np_reserve(epid, bytes)            when the clause records; no room: return (the agent has counted the drop)
//!    statement 1 ... n                  record fields are written in place
//!    np_commit, then np_exit            when the clause records; when it has an exit()
//!    return
//!
//!    fault (cold):                      np_error(context, number of the action), return
//! ```
//!
//! A fault (bad address, division by zero, ...) in any statement ends the clause: a reserved record is not committed,
//! an error record takes its place. What a clause costs in the worst case is bounded (I10): there are no loops but over
//! constant sizes, expressions nest at most [`MAX_EXPRESSION_DEPTH`] deep, and a handler's stack frame is at most
//! [`MAX_STACK_BYTES`], else it is refused.
//!
//! An aggregation whose key is the same at every hit of one enabling (`@ = count()`, `@[probefunc] = sum(arg0)`) needs
//! no hashing: its value words are *static slots* of the enabling in each context ([`static_slots`]), updated inline.
//! A clause that does nothing but count needs not even a handler ([`inline_counts`]).
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
    KeyNames, ProbeNames, StaticSlots, inline_counts, static_key, static_names, static_slots, value_words,
};

/// How deep expressions may nest; deeper ones are refused with [`Error::TooDeep`].
pub const MAX_EXPRESSION_DEPTH: usize = 256;

/// The largest stack frame of a handler in bytes, its return address included; a clause that needs more is refused with
/// [`Error::TooMuchStack`]. The agent's functions need at most as much again (`agent/agent.h`).
pub const MAX_STACK_BYTES: u32 = 1024;

/// What kind of probe a handler is for: it decides what `arg0` to `arg9` mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeKind {
    /// A function's first instruction: `arg0`-`arg5` are the integer arguments from registers, `arg6`-`arg9` those on
    /// the stack, above the return address.
    Entry,
    /// A way out of a function: `arg0` is the offset of the instruction in the function, `arg1` the value returned
    /// (rax), `arg2` its second half (rdx); the others are 0.
    Return,
    /// Any other instruction: as [`ProbeKind::Entry`], whatever the registers hold there.
    Offset,
    /// A static probe: `arg0` to `arg9` are where its note says, and those that it does not have are 0. The number is
    /// an index into [`ArenaLayout::static_arguments`].
    Static(u32),
    /// An instruction of a function of Go's that takes registers, its first as a rule: `arg0`-`arg8` are rax, rbx, rcx,
    /// rdi, rsi, r8 to r11, `arg9` is the first word on the stack.
    Go,
    /// A way out of such a function: `arg0` as for [`ProbeKind::Return`], `arg1`-`arg9` are its results, in the same
    /// registers.
    GoReturn,
    /// An instruction of assembly of Go's: `arg0`-`arg9` are the words on the stack, above the return address.
    GoStack,
    /// A way out of such: its results lie on the stack after its arguments, and the number of these is not known.
    GoStackReturn,
    /// A function of Go's, and how it takes its arguments is not known.
    GoUnknown,
}

impl ProbeKind {
    /// Whether its arguments are operands: those of a note, or Go's.
    fn has_operands(self) -> bool {
        !matches!(self, ProbeKind::Entry | ProbeKind::Return | ProbeKind::Offset)
    }
}

/// What stays the same for a session's whole life, so that handlers carry it as constants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionConstants {
    /// `pid` and `$target`.
    pub pid: u32,
    /// `ppid`.
    pub ppid: u32,
    /// `progenyof()`: the process and its ancestors.
    pub ancestors: Vec<u32>,
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
    /// What the program was started with.
    pub start: ProgramStart,
}

/// Where the kernel has put what a program is started with: in the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramStart {
    /// `curpsinfo->pr_argc`: the number of its arguments.
    pub argument_count: i32,
    /// `curpsinfo->pr_argv`: the address of the pointers to them.
    pub arguments: u64,
    /// `curpsinfo->pr_envp`: the address of the pointers to its environment.
    pub environment: u64,
}

/// Where a session keeps what handlers use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArenaLayout {
    /// Offset of the global variables' storage from the arena's start (which is what `context->control` points at).
    pub globals_offset: u32,
    /// Values known when the clause is compiled.
    pub constants: SessionConstants,
    /// Where the arguments of static probes are, for [`ProbeKind::Static`].
    pub static_arguments: Vec<StaticArguments>,
}

impl ArenaLayout {
    /// Argument number `index`, where the kind of probe by itself says where it is. `None` when the probe has fewer,
    /// and at any other probe.
    ///
    /// # Errors
    ///
    /// [`Error::StaticArgument`] for one that cannot be read.
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
