//! System calls as probes: the provider `syscall`.
//!
//! ```text
//!    syscall : vmlinux : NAME : entry, return     a probe of each number, which fires at no place of its own
//!    each `syscall` of a module                   its number is known only when it is executed
//!        -> table of the clause: number -> enabling                              (agent/calls.c)
//! ```
//!
//! A clause has one more enabling for each module and for entries and returns: that of all instructions `syscall`
//! there ([`crate::probes::Place::CallSites`]).

use std::borrow::Cow;
use std::collections::HashMap;

use nanoprobe_arena::layout::CALL_NUMBERS;
use nanoprobe_patch::{CallInstruction, SystemCall};
use nanoprobe_symbols::Module;
use syscalls::x86_64::Sysno;

/// The provider's name.
pub const PROVIDER: &str = "syscall";
/// The module of its probes, as in DTrace on Linux.
pub const MODULE: &str = "vmlinux";
/// rt_sigreturn, exit.
const SIGRETURN: u32 = 15;
const EXIT: u32 = 60;

/// Whether before a system call or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// Before the call.
    Entry,
    /// After the call.
    Return,
}

impl End {
    /// The name of probes there.
    pub fn name(self) -> &'static str {
        match self {
            End::Entry => "entry",
            End::Return => "return",
        }
    }
}

/// The name of a call; `sys_335` for a number that is not assigned. All numbers from [`CALL_NUMBERS`] on are
/// `unknown`.
pub fn name_of(number: u32) -> Cow<'static, str> {
    match Sysno::new(number as usize) {
        _ if number >= CALL_NUMBERS => Cow::Borrowed("unknown"),
        Some(known) => Cow::Borrowed(known.name()),
        None => Cow::Owned(format!("sys_{number}")),
    }
}

/// The names of all calls that have one.
pub fn names() -> impl Iterator<Item = &'static str> {
    (0..CALL_NUMBERS).filter_map(|number| Sysno::new(number as usize).map(|known| known.name()))
}

/// A `syscall` of a module.
#[derive(Clone, Debug)]
pub struct CallSite {
    /// The instruction, and where probes fire.
    pub call: SystemCall,
    /// Why nothing fires there.
    pub refusal: Option<&'static str>,
}

/// The system calls of modules.
#[derive(Default)]
pub struct Calls {
    modules: HashMap<usize, Vec<CallSite>>,
}

impl Calls {
    /// Finds the system calls of a module. Yields whether it has any.
    pub fn read(&mut self, index: usize, module: &Module) -> bool {
        let find = || {
            nanoprobe_text::calls::find(module)
                .into_iter()
                .map(|call| site(module, call))
        };
        !self.modules.entry(index).or_insert_with(|| find().collect()).is_empty()
    }

    /// The system calls of a module that was read.
    pub fn of(&self, module: usize) -> &[CallSite] {
        self.modules.get(&module).map_or(&[], Vec::as_slice)
    }
}

fn site(module: &Module, call: SystemCall) -> CallSite {
    let at = module.bias().to_image(call.syscall);
    let refusal = match call.number {
        _ if call.instruction == CallInstruction::Interrupt => Some("`int 0x80` is a call of 32-bit programs"),
        _ if call.instruction == CallInstruction::Sysenter => Some("`sysenter` is a call of 32-bit programs"),
        _ if call.before.is_none() => Some("the thread has unmapped its own stack"),
        // Go's threads end after others may have taken their stacks.
        Some(EXIT) if module.linkage().go => Some("the thread has given its stack up"),
        // Unwinders recognise a signal's frame by the bytes of this code, unless tables describe it.
        Some(SIGRETURN) if module.described_at(at).is_none() => Some("unwinders know this code by its bytes"),
        _ => None,
    };
    CallSite { call, refusal }
}
