//! System calls as probes: the provider `syscall`.
//!
//! ```text
//!    syscall : vmlinux : NAME : entry, return     a probe of each number, which fires at no place of its own
//!    each `syscall` of a module                   its number is known only when it is executed
//!        -> table of the clause: number -> enabling                              (agent/calls.c)
//!    each `int 0x80`                              its numbers are those of 32-bit programs
//!        -> another table of the clause, in which each has the row of the call that has its name
//! ```
//!
//! A clause has one more enabling for each module and for entries and returns: that of all instructions `syscall`
//! there ([`crate::probes::Place::CallSites`]).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use nanoprobe_arena::layout::{CALL_NUMBERS, CALL_ROWS};
use nanoprobe_patch::{CallInstruction, SystemCall};
use nanoprobe_symbols::Module;
use syscalls::{x86, x86_64::Sysno};

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

/// For each number of 32-bit programs the call of the same name; [`CALL_NUMBERS`] (`unknown`) if there is none.
static OF_32_BITS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let of = |number: u32| {
        let name = x86::Sysno::new(number as usize)?.name();
        Some(name.parse::<Sysno>().ok()?.id() as u32)
    };
    (0..CALL_NUMBERS)
        .map(|number| of(number).unwrap_or(CALL_NUMBERS))
        .collect()
});

/// The number, as 64-bit programs have it, of the call that an instruction makes by a number of its own.
fn number_by(instruction: CallInstruction, number: u32) -> u32 {
    match instruction {
        CallInstruction::Syscall => number,
        _ => OF_32_BITS.get(number as usize).copied().unwrap_or(CALL_NUMBERS),
    }
}

/// The rows that a call has in the tables of an instruction. The last two rows are no numbers.
pub fn rows_of(number: u32, instruction: CallInstruction) -> Vec<usize> {
    if instruction == CallInstruction::Syscall || number > CALL_NUMBERS {
        return vec![number as usize];
    }
    let rows = 0..CALL_ROWS.min(CALL_NUMBERS + 1);
    rows.filter(|row| number_by(instruction, *row) == number)
        .map(|row| row as usize)
        .collect()
}

/// The names of all calls that have one.
pub fn names() -> impl Iterator<Item = &'static str> {
    (0..CALL_NUMBERS).filter_map(|number| Sysno::new(number as usize).map(|known| known.name()))
}

/// A `syscall` of a module.
#[derive(Clone, Debug)]
pub struct CallSite {
    /// The instruction, and where probes fire. Its number is that of 64-bit programs, whichever instruction it is.
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

fn site(module: &Module, mut call: SystemCall) -> CallSite {
    let at = module.bias().to_image(call.syscall);
    call.number = call.number.map(|number| number_by(call.instruction, number));
    let refusal = match call.number {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_32_bit_programs_is_the_call_of_its_name() {
        let by_interrupt = |number| number_by(CallInstruction::Interrupt, number);
        assert_eq!(
            [20, 64, 4, 173].map(by_interrupt),
            [39, 110, 1, 15],
            "getpid, getppid, write, rt_sigreturn"
        );
        // waitpid, socketcall, stat64, numbers without a name and beyond all.
        assert_eq!(
            [7, 102, 195, 17, 390, 512, u32::MAX].map(by_interrupt),
            [CALL_NUMBERS; 7]
        );
        assert_eq!(rows_of(39, CallInstruction::Interrupt), [20]);
        assert_eq!(rows_of(39, CallInstruction::Syscall), [39]);
        let unknown = rows_of(CALL_NUMBERS, CallInstruction::Interrupt);
        assert!([7, 102, 512].iter().all(|row| unknown.contains(row)) && !unknown.contains(&20));
        for instruction in [CallInstruction::Interrupt, CallInstruction::Syscall] {
            assert_eq!(rows_of(CALL_ROWS - 1, instruction), [CALL_ROWS as usize - 1]);
        }
        // Each row belongs to one call.
        let all = (0..CALL_ROWS).flat_map(|number| rows_of(number, CallInstruction::Interrupt));
        let mut all: Vec<usize> = all.collect();
        all.sort_unstable();
        assert_eq!(all, (0..CALL_ROWS as usize).collect::<Vec<_>>());
    }
}
