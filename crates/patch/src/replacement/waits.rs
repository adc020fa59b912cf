//! System calls that wait under a signal mask of their own. A register points to the mask. Can the register be
//! changed before the call?
//!
//! ```text
//!   rt_sigsuspend                 rdi
//!   ppoll                         r10
//!   epoll_pwait, epoll_pwait2     r8
//!   pselect6, io_pgetevents       r9, of a pair of address and size
//! ```
//!
//! A system call leaves these registers as they are, and a compiler may continue to use their values. So control flow
//! is followed from the call, until on each way the register is overwritten, the function returns, or another
//! function is called. A called function may overwrite the register without reading it, except rdi, which is its
//! first argument. No known library calls a function there that reads its fifth or sixth argument and expects the
//! value that was passed to the wait.

use std::collections::HashSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess, Register};

use super::number::SYSCALL;
use crate::{FunctionMap, TargetAddress};

/// The number of each call, and the register that points to its mask.
const WAITS: [(u32, Register); 6] = [
    (130, Register::RDI),
    (270, Register::R9),
    (271, Register::R10),
    (281, Register::R8),
    (333, Register::R9),
    (441, Register::R8),
];
/// The most instructions after the call that are examined.
const BEHIND_MAX: usize = 64;

/// Whether a system call waits under a signal mask of its own.
pub fn is_wait(number: u32) -> bool {
    WAITS.iter().any(|(wait, _)| *wait == number)
}

/// Whether the register that points to the mask may be changed before the `syscall` with this index. The number of the
/// call says which register this is. If the number is not known, the registers of all such calls are checked.
pub fn can_lend(map: &FunctionMap, index: usize, number: Option<u32>) -> bool {
    let mut waits = WAITS
        .iter()
        .filter(|(wait, _)| number.is_none_or(|number| number == *wait));
    let is_one = number.is_none_or(is_wait);
    is_one && waits.all(|(_, register)| is_dead_behind(map, index, *register))
}

/// Whether no instruction after the instruction with this index reads the register's value.
fn is_dead_behind(map: &FunctionMap, index: usize, register: Register) -> bool {
    let code = map.code();
    let at = |address: u64| code.binary_search_by_key(&address, |instruction| map.address(instruction.offset).0);
    let mut factory = InstructionInfoFactory::new();
    let mut seen = HashSet::new();
    let mut waiting = vec![index + 1];
    while let Some(index) = waiting.pop() {
        if !seen.insert(index) {
            continue;
        }
        let Some(instruction) = code.get(index).filter(|_| seen.len() <= BEHIND_MAX) else {
            return false;
        };
        let TargetAddress(address) = map.address(instruction.offset);
        let bytes = map.bytes_of(*instruction);
        let decoded = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        let mut is_over = false;
        for used in factory.info(&decoded).used_registers() {
            if used.register().full_register() != register {
                continue;
            }
            match used.access() {
                OpAccess::NoMemAccess => {}
                // A write to the lower half of a register clears the upper half.
                OpAccess::Write => is_over |= used.register().size() >= 4,
                _ => return false,
            }
        }
        if is_over {
            continue;
        }
        // A branch that leaves the function counts as a call that does not return.
        let is_read_by_calls = register == Register::RDI;
        let follows = |address: u64| match at(address) {
            Ok(index) => Ok(Some(index)),
            Err(_) if is_read_by_calls => Err(()),
            Err(_) => Ok(None),
        };
        let targets = match decoded.flow_control() {
            FlowControl::Next => vec![decoded.next_ip()],
            FlowControl::ConditionalBranch => vec![decoded.next_ip(), decoded.near_branch_target()],
            FlowControl::UnconditionalBranch => vec![decoded.near_branch_target()],
            FlowControl::Return | FlowControl::Exception => continue,
            FlowControl::Call | FlowControl::IndirectCall if bytes != SYSCALL && !is_read_by_calls => continue,
            _ => return false,
        };
        // The next instruction may be outside of the map, unless this is an unconditional branch.
        if decoded.flow_control() != FlowControl::UnconditionalBranch && at(decoded.next_ip()).is_err() {
            return false;
        }
        for target in targets {
            match follows(target) {
                Ok(next) => waiting.extend(next),
                Err(()) => return false,
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodeView, FunctionExtent, analyze};

    /// Whether a mask may be lent to the first system call of this code.
    fn lends(bytes: &[u8], number: Option<u32>) -> bool {
        let start = TargetAddress(0x10_0000);
        let map = analyze(
            &CodeView { start, bytes },
            &FunctionExtent {
                start,
                size: bytes.len() as u64,
                fragments: Vec::new(),
            },
        );
        let mut calls = map.code().iter();
        let index = calls
            .position(|instruction| map.bytes_of(*instruction) == SYSCALL)
            .unwrap();
        can_lend(&map, index, number)
    }

    fn behind(code: &[u8]) -> Vec<u8> {
        [&[0xb8, 130, 0, 0, 0, 0x0f, 5], code].concat()
    }

    #[test]
    fn a_register_that_is_read_again_is_left_alone() {
        const SIGSUSPEND: Option<u32> = Some(130);
        const PPOLL: Option<u32> = Some(271);
        assert!(lends(&behind(&[0xc3]), SIGSUSPEND));
        assert!(lends(&behind(&[0xc3]), None));
        assert!(!lends(&behind(&[0xc3]), Some(14)), "no wait");
        // mov rax, rdi; ret
        let read = behind(&[0x48, 0x89, 0xf8, 0xc3]);
        assert!(!lends(&read, SIGSUSPEND));
        assert!(lends(&read, PPOLL), "another register");
        assert!(!lends(&read, None), "perhaps that one");
        // mov al, [rdi + 8]; ret
        assert!(!lends(&behind(&[0x8a, 0x47, 8, 0xc3]), SIGSUSPEND));
        // xor edi, edi; mov rax, rdi; ret
        assert!(lends(&behind(&[0x31, 0xff, 0x48, 0x89, 0xf8, 0xc3]), SIGSUSPEND));
        // mov dil, 1; mov rax, rdi; ret: the first changes only a part of the register
        assert!(!lends(&behind(&[0x40, 0xb7, 1, 0x48, 0x89, 0xf8, 0xc3]), SIGSUSPEND));
        // je +4; xor edi, edi; ret; nop; mov rax, rdi; ret
        let branch = behind(&[0x74, 4, 0x31, 0xff, 0xc3, 0x90, 0x48, 0x89, 0xf8, 0xc3]);
        assert!(!lends(&branch, SIGSUSPEND));
        // A loop: jmp -9, back to the load of the number.
        assert!(!lends(&behind(&[0xeb, 0xf7]), SIGSUSPEND), "the call itself reads it");
    }

    #[test]
    fn a_function_that_is_called_may_read_its_first_argument() {
        // call +0 (to the ret); ret
        let call = behind(&[0xe8, 0, 0, 0, 0, 0xc3]);
        assert!(!lends(&call, Some(130)));
        assert!(lends(&call, Some(271)));
        // mov edi, edx; call +0; ret: as in the C library
        assert!(lends(&behind(&[0x89, 0xd7, 0xe8, 0, 0, 0, 0, 0xc3]), Some(130)));
        // jmp to another function
        let tail = behind(&[0xe9, 0, 1, 0, 0]);
        assert!(!lends(&tail, Some(130)));
        assert!(lends(&tail, Some(281)));
        // The map ends here.
        assert!(!lends(&behind(&[0x90]), Some(281)));
    }
}
