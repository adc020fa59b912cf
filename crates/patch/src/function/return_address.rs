//! Functions whose return address should not be replaced: they read it, or return in an unusual way.
//!
//! The stack is followed in a line from the entry to the first branch or call, which is where compilers and people
//! load a return address:
//!
//! ```text
//!   mov rdx, [rsp]           the caller's address as an argument: dlsym, setjmp, mcount, heap profilers
//!   push rbp; mov rbp, rsp
//!   mov rax, [rbp + 8]       the same anywhere in a function with a frame
//!   ret 16                   takes words off the stack with it
//! ```
//!
//! The search is incomplete: a function may pass its frame's address to another function, which reads the return
//! address. That function then finds the thunk's address in place of the caller's; nothing else goes wrong.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction as Decoded, Mnemonic, OpKind, Register};

use super::map::FunctionMap;
use crate::TargetAddress;

/// Why a return address should stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReturnAddressUse {
    /// An instruction reads the return address.
    #[error("the instruction at {site} reads the return address")]
    Read {
        /// The instruction.
        site: TargetAddress,
    },
    /// A `ret n`, or a far or an interrupt return.
    #[error("the function returns in an unusual way at {site}")]
    OddReturn {
        /// The instruction.
        site: TargetAddress,
    },
}

impl FunctionMap {
    /// The first use of the return address other than to return, as far as the function's code shows.
    pub fn return_address_use(&self) -> Option<ReturnAddressUse> {
        find(self)
    }
}

fn find(map: &FunctionMap) -> Option<ReturnAddressUse> {
    // The bytes pushed since the entry, while known; and whether rbp holds the frame.
    let (mut depth, mut framed) = (Some(0_i64), false);
    for instruction in map.code().iter().take_while(|found| found.offset < map.code_size()) {
        let site = map.address(instruction.offset);
        let decoded = Decoder::with_ip(64, map.bytes_of(*instruction), site.0, DecoderOptions::NONE).decode();
        if is_odd_return(&decoded) {
            return Some(ReturnAddressUse::OddReturn { site });
        }
        let slot = if decoded.memory_base() == Register::RSP {
            depth
        } else {
            (framed && decoded.memory_base() == Register::RBP).then_some(8)
        };
        if slot.is_some_and(|slot| reads_at(&decoded, slot)) {
            return Some(ReturnAddressUse::Read { site });
        }
        framed |= depth == Some(8)
            && decoded.mnemonic() == Mnemonic::Mov
            && decoded.op0_register() == Register::RBP
            && decoded.op1_register() == Register::RSP;
        depth = match decoded.flow_control() {
            FlowControl::Next => depth.and_then(|depth| moved(&decoded, depth)),
            _ => None,
        };
    }
    None
}

fn is_odd_return(decoded: &Decoded) -> bool {
    let code = decoded.code();
    decoded.flow_control() == FlowControl::Return && code != Code::Retnq
}

/// Whether the instruction reads an operand in memory at `[base + displacement]`.
fn reads_at(decoded: &Decoded, displacement: i64) -> bool {
    let in_memory = (0..decoded.op_count()).position(|operand| decoded.op_kind(operand) == OpKind::Memory);
    let only_written = in_memory == Some(0) && matches!(decoded.mnemonic(), Mnemonic::Mov | Mnemonic::Movaps);
    in_memory.is_some()
        && !only_written
        && decoded.mnemonic() != Mnemonic::Lea
        && decoded.memory_index() == Register::None
        && decoded.memory_displacement64() as i64 == displacement
}

/// The depth after an instruction; `None` if the stack pointer is no longer known.
fn moved(decoded: &Decoded, depth: i64) -> Option<i64> {
    if decoded.is_stack_instruction() {
        return Some(depth - i64::from(decoded.stack_pointer_increment()));
    }
    let writes = decoded.op_count() > 0 && decoded.op0_register() == Register::RSP;
    if !writes || matches!(decoded.mnemonic(), Mnemonic::Cmp | Mnemonic::Test) {
        return Some(depth);
    }
    let immediate = decoded.try_immediate(1).ok().map(|value| value as i64);
    match decoded.mnemonic() {
        Mnemonic::Sub => Some(depth + immediate?),
        Mnemonic::Add => Some(depth - immediate?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodeView, FunctionExtent, analyze};

    fn used(bytes: &[u8]) -> Option<(bool, u64)> {
        let start = TargetAddress(0x1000);
        let extent = FunctionExtent {
            start,
            size: bytes.len() as u64,
            fragments: Vec::new(),
        };
        match analyze(&CodeView { start, bytes }, &extent).return_address_use()? {
            ReturnAddressUse::Read { site } => Some((true, site.0 - 0x1000)),
            ReturnAddressUse::OddReturn { site } => Some((false, site.0 - 0x1000)),
        }
    }

    #[test]
    fn reads_of_the_return_address_are_found() {
        // mov rdx, [rsp]; ret
        assert_eq!(used(&[0x48, 0x8b, 0x14, 0x24, 0xc3]), Some((true, 0)));
        // push rbx; sub rsp, 16; mov rdx, [rsp + 24]; ret
        let deeper = [0x53, 0x48, 0x83, 0xec, 0x10, 0x48, 0x8b, 0x54, 0x24, 0x18, 0xc3];
        assert_eq!(used(&deeper), Some((true, 5)));
        // push rbp; mov rbp, rsp; call +0; mov rax, [rbp + 8]; ret
        let framed = [0x55, 0x48, 0x89, 0xe5, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x45, 8, 0xc3];
        assert_eq!(used(&framed), Some((true, 9)));
        // push [rsp]; ret
        assert_eq!(used(&[0xff, 0x34, 0x24, 0xc3]), Some((true, 0)));
        // ret 8
        assert_eq!(used(&[0xc2, 8, 0]), Some((false, 0)));
    }

    #[test]
    fn other_memory_reads_are_not_taken_for_it() {
        // push rbx; mov rdx, [rsp]: the pushed word; sub rsp, 8; mov rdx, [rsp + 24]: an argument; ret
        let words = [
            0x53, 0x48, 0x8b, 0x14, 0x24, 0x48, 0x83, 0xec, 8, 0x48, 0x8b, 0x54, 0x24, 0x18, 0xc3,
        ];
        assert_eq!(used(&words), None);
        // push rbp; mov rbp, rsp; mov rax, [rbp + 16]; mov rax, [rbp - 8]; pop rbp; ret
        let framed = [
            0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x45, 0x10, 0x48, 0x8b, 0x45, 0xf8, 0x5d, 0xc3,
        ];
        assert_eq!(used(&framed), None);
        // lea r10, [rsp + 8]; and rsp, -32; mov rax, [rsp]; ret
        let aligned = [
            0x4c, 0x8d, 0x54, 0x24, 8, 0x48, 0x83, 0xe4, 0xe0, 0x48, 0x8b, 4, 0x24, 0xc3,
        ];
        assert_eq!(used(&aligned), None);
    }
}
