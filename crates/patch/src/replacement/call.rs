//! The system calls of a function, and the places at which probes before and after each call fire.
//!
//! ```text
//!   mov eax, 1        before: behind this instruction
//!   syscall           stays where it is
//!   cmp rax, -4096    after: in front of this instruction
//! ```
//!
//! So a thread that sleeps in a call sleeps in the program's own text. Unwinders, signal handlers that look at the
//! instruction pointer, and seccomp filters that look at it, find the same address as without probes. The jumps have
//! more room, too: a `syscall` has two bytes. There are two exceptions: a branch leads to the `syscall` itself, or the
//! instruction before it may not be displaced. Then the `syscall` is displaced, and the probes before the call fire
//! directly before it.

use super::number::{SYSCALL, known_way, number};
use crate::function::Kind;
use crate::{FireCondition, FunctionMap, TargetAddress};

/// The numbers of the calls that do not just return.
struct Numbers {
    /// fork, clone, clone3.
    begin: [u32; 3],
    /// rt_sigreturn, and sigreturn.
    sigreturn: [u32; 2],
    munmap: u32,
    exit: u32,
}

const NUMBERS: Numbers = Numbers {
    begin: [57, 56, 435],
    sigreturn: [15, 15],
    munmap: 11,
    exit: 60,
};
/// Of 32-bit programs.
const NUMBERS_OF_32_BITS: Numbers = Numbers {
    begin: [2, 120, 435],
    sigreturn: [173, 119],
    munmap: 91,
    exit: 1,
};
/// How many instructions before an `exit` are searched for a `munmap` of the thread's own stack.
const UNMAP_DISTANCE: usize = 6;

/// An instruction that enters the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallInstruction {
    /// `syscall`
    Syscall,
    /// `int 0x80`: a call of the 32-bit interface, which has other numbers, and its arguments in other registers.
    Interrupt,
    /// `sysenter`, of the 32-bit interface, too.
    Sysenter,
}

impl CallInstruction {
    /// All of them.
    pub const ALL: [CallInstruction; 3] = [
        CallInstruction::Syscall,
        CallInstruction::Interrupt,
        CallInstruction::Sysenter,
    ];

    fn numbers(self) -> &'static Numbers {
        match self {
            CallInstruction::Syscall => &NUMBERS,
            CallInstruction::Interrupt | CallInstruction::Sysenter => &NUMBERS_OF_32_BITS,
        }
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; 2] {
        match self {
            CallInstruction::Syscall => SYSCALL,
            CallInstruction::Interrupt => [0xcd, 0x80],
            CallInstruction::Sysenter => [0x0f, 0x34],
        }
    }
}

/// One system call, and the places at which probes before and after it fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// The instruction.
    pub syscall: TargetAddress,
    /// Which instruction it is. Nothing fires at a `sysenter`.
    pub instruction: CallInstruction,
    /// The number, if the code loads a constant: one of the instruction's own numbers.
    pub number: Option<u32>,
    /// Where and when the probes before the call fire. `None`: there may be no stack.
    pub before: Option<(TargetAddress, FireCondition)>,
    /// The instruction before which the probes after the call fire. `None`: the call does not return, or there may be
    /// no stack.
    pub after: Option<TargetAddress>,
    /// Whether what the call makes begins at `after`, a process or a thread: the code shows fork, clone or clone3, and
    /// no branch leads to `after`.
    pub begins: bool,
}

impl SystemCall {
    /// The system calls of a function.
    pub fn find(map: &FunctionMap) -> Vec<SystemCall> {
        let code = map.code();
        let mut calls: Vec<SystemCall> = Vec::new();
        let mut last = None;
        for (index, instruction) in code.iter().enumerate() {
            let bytes = map.bytes_of(*instruction);
            let mut kinds = CallInstruction::ALL.into_iter();
            let Some(kind) = kinds.find(|kind| bytes == kind.bytes() && !instruction.padding) else {
                continue;
            };
            if kind == CallInstruction::Sysenter {
                calls.push(SystemCall {
                    syscall: map.address(instruction.offset),
                    instruction: kind,
                    number: None,
                    before: None,
                    after: None,
                    begins: false,
                });
                continue;
            }
            let mut call = SystemCall::at(map, index, kind);
            // A thread that unmaps its own stack ends at once (musl's __unmapself).
            let unmaps = |call: &SystemCall| call.number == Some(call.instruction.numbers().munmap);
            let is_near = last.is_some_and(|last| index - last <= UNMAP_DISTANCE);
            if let Some(unmap) = calls.last_mut().filter(|unmap| is_near && unmaps(unmap))
                && call.number == Some(kind.numbers().exit)
            {
                call.before = None;
                unmap.after = None;
            }
            last = Some(index);
            calls.push(call);
        }
        calls
    }

    fn at(map: &FunctionMap, index: usize, instruction: CallInstruction) -> SystemCall {
        let code = map.code();
        let numbers = instruction.numbers();
        let address = |index: usize| code.get(index).map(|instruction| map.address(instruction.offset));
        let syscall = address(index).unwrap_or_default();
        let end = code.get(index).map(|call| call.end());
        let way = known_way(map, index).unwrap_or_default();
        let number = number(way.iter().map(|instruction| map.bytes_of(*instruction)));
        let before = index.checked_sub(1).and_then(|before| code.get(before));
        let behind = before.filter(|before| {
            let is_straight = matches!(before.kind, Kind::Plain | Kind::Nop) && !before.padding;
            is_straight && map.address(before.end()) == syscall && !map.is_branch_target(syscall)
        });
        let before = match behind {
            Some(before) => (map.address(before.offset), FireCondition::Behind),
            None => (syscall, FireCondition::Always),
        };
        let after = code.get(index + 1).filter(|after| Some(after.offset) == end);
        let after = after.filter(|after| !after.padding && after.offset < map.code_size());
        let returns = !number.is_some_and(|number| number == numbers.exit || numbers.sigreturn.contains(&number));
        let after = after.filter(|_| returns).map(|after| map.address(after.offset));
        let begins = number.is_some_and(|number| numbers.begin.contains(&number))
            && after.is_some_and(|after| !map.is_branch_target(after));
        SystemCall {
            syscall,
            instruction,
            number,
            before: Some(before),
            after,
            begins,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodeView, FunctionExtent, analyze};

    const START: u64 = 0x10_0000;

    /// The offsets of a `syscall`, of the place before it at which probes fire, and of the place after it.
    type Offsets = (u64, Option<(u64, FireCondition)>, Option<u64>);

    fn calls(bytes: &[u8]) -> Vec<Offsets> {
        let start = TargetAddress(START);
        let map = analyze(
            &CodeView { start, bytes },
            &FunctionExtent {
                start,
                size: bytes.len() as u64,
                fragments: Vec::new(),
            },
        );
        let offset = |address: TargetAddress| address.0 - START;
        let found = SystemCall::find(&map).into_iter();
        found
            .map(|call| {
                let before = call.before.map(|(address, condition)| (offset(address), condition));
                (offset(call.syscall), before, call.after.map(offset))
            })
            .collect()
    }

    #[test]
    fn the_instructions_around_a_call_are_patched() {
        use FireCondition::{Always, Behind};
        // mov eax, 1; syscall; cmp rax, -4096; ret
        let usual = [0xb8, 1, 0, 0, 0, 0x0f, 5, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0xc3];
        assert_eq!(calls(&usual), [(5, Some((0, Behind)), Some(7))]);
        // syscall; ret: nothing is in front of it.
        assert_eq!(calls(&[0x0f, 5, 0xc3]), [(0, Some((0, Always)), Some(2))]);
        // mov eax, 1; L: syscall; cmp eax, -11; je L; ret
        let again = [0xb8, 1, 0, 0, 0, 0x0f, 5, 0x83, 0xf8, 0xf5, 0x74, 0xf9, 0xc3];
        assert_eq!(calls(&again), [(5, Some((5, Always)), Some(7))]);
        // A branch leads around the instruction in front of it: test edi, edi; je L; mov eax, 1; L: syscall; ret
        let around = [0x85, 0xff, 0x74, 5, 0xb8, 1, 0, 0, 0, 0x0f, 5, 0xc3];
        assert_eq!(calls(&around), [(9, Some((9, Always)), Some(11))]);
        // syscall; syscall; ret
        let two = [0x0f, 5, 0x0f, 5, 0xc3];
        assert_eq!(
            calls(&two),
            [(0, Some((0, Always)), Some(2)), (2, Some((2, Always)), Some(4))]
        );
    }

    #[test]
    fn what_a_call_makes_begins_after_it() {
        let begins = |bytes: &[u8]| {
            let start = TargetAddress(START);
            let extent = FunctionExtent {
                start,
                size: bytes.len() as u64,
                fragments: Vec::new(),
            };
            SystemCall::find(&analyze(&CodeView { start, bytes }, &extent))[0].begins
        };
        // mov eax, NUMBER; syscall; test eax, eax; ret
        let of = |number: u16| {
            let [low, high] = number.to_le_bytes();
            begins(&[0xb8, low, high, 0, 0, 0x0f, 5, 0x85, 0xc0, 0xc3])
        };
        assert!([56, 57, 435].into_iter().all(of), "clone, fork, clone3");
        assert!(!of(58) && !of(39), "vfork, getpid");
        // The same with test edi, edi; je L in front, where L is after the call.
        assert!(!begins(&[
            0x85, 0xff, 0x74, 7, 0xb8, 56, 0, 0, 0, 0x0f, 5, 0x85, 0xc0, 0xc3
        ]));
    }

    #[test]
    fn a_call_that_does_not_return_has_nothing_after_it() {
        // mov edi, 0; mov eax, 60; syscall; hlt
        let exit = [0xbf, 0, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 5, 0xf4];
        assert_eq!(calls(&exit), [(10, Some((5, FireCondition::Behind)), None)]);
        // mov rax, 15; syscall; nop
        let sigreturn = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 5, 0x90];
        assert_eq!(calls(&sigreturn), [(7, Some((0, FireCondition::Behind)), None)]);
    }

    #[test]
    fn calls_of_32_bit_programs_have_their_own_numbers() {
        use FireCondition::{Always, Behind};
        // mov eax, NUMBER; int 0x80; ret
        let of = |number: u8| calls(&[0xb8, number, 0, 0, 0, 0xcd, 0x80, 0xc3]);
        assert_eq!(of(20), [(5, Some((0, Behind)), Some(7))], "getpid");
        assert_eq!(of(60), [(5, Some((0, Behind)), Some(7))], "umask, and not exit");
        for ends in [1, 119, 173] {
            assert_eq!(
                of(ends),
                [(5, Some((0, Behind)), None)],
                "exit, sigreturn, rt_sigreturn"
            );
        }
        // int 0x80; sysenter; syscall; ret
        assert_eq!(
            calls(&[0xcd, 0x80, 0x0f, 0x34, 0x0f, 5, 0xc3]),
            [
                (0, Some((0, Always)), Some(2)),
                (2, None, None),
                (4, Some((4, Always)), Some(6))
            ]
        );
    }

    #[test]
    fn a_thread_without_a_stack_is_left_alone() {
        // As in musl: mov eax, 11; syscall; xor edi, edi; mov eax, 60; syscall
        let unmaps = [0xb8, 11, 0, 0, 0, 0x0f, 5, 0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 5, 0xf4];
        assert_eq!(
            calls(&unmaps),
            [(5, Some((0, FireCondition::Behind)), None), (14, None, None)]
        );
    }
}
