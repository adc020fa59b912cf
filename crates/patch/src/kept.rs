//! The registers and flags that a caller may rely on after a call, by the ABI's rules or beyond them.
//!
//! A compiler that sees a function knows which registers the function leaves alone. It keeps values in them over a
//! call of it (gcc's `-fipa-ra`, on from -O1). So whatever is called in place of the function must leave them alone,
//! too. To find these registers, all code that the function can execute is followed, into every function that it
//! calls directly. If it makes a call whose target is not in its instructions, then the compiler did not know the
//! target either, and relies on nothing.

use std::collections::HashSet;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register,
};

use crate::TargetAddress;

/// The limit of examined instructions, which bounds the time.
const INSTRUCTIONS_MAX: usize = 4096;

/// Which registers a function leaves unchanged, so that its callers may rely on their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Whether the function leaves some registers unchanged that the ABI lets a callee change.
    pub any: bool,
    /// Whether rax is unchanged. If so, the function returns nothing in rax.
    pub rax: bool,
    /// Whether rdx is unchanged.
    pub rdx: bool,
    /// Whether all vector and x87 registers are unchanged.
    pub vectors: bool,
}

/// The registers that callers of the function at `entry` may rely on.
///
/// `text` yields the original bytes at an address, at least 15 if there are so many, or none if nothing is known.
pub fn kept_registers(entry: TargetAddress, text: &mut dyn FnMut(TargetAddress) -> Vec<u8>) -> Kept {
    let mut seen = HashSet::from([entry.0]);
    let mut pending = vec![entry.0];
    let mut info = InstructionInfoFactory::new();
    let mut changed: HashSet<Register> = HashSet::new();
    // Here the target of the call is not known, but the compiler may have known it.
    let mut is_unknown = false;
    while let Some(address) = pending.pop() {
        let bytes = text(TargetAddress(address));
        let instruction = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE).decode();
        if instruction.is_invalid() || seen.len() > INSTRUCTIONS_MAX {
            is_unknown = true;
            continue;
        }
        for used in info.info(&instruction).used_registers() {
            let is_read = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            if !is_read || !used.register().is_gpr() {
                changed.insert(used.register().full_register());
            }
        }
        let mut ways = Vec::new();
        match ways_on(&instruction, &mut ways) {
            Way::Written => {}
            Way::Unknown => is_unknown = true,
            Way::Foreign => return Kept::default(),
        }
        pending.extend(ways.into_iter().filter(|way| seen.insert(*way)));
    }
    let is_vector =
        |register: &Register| !register.is_gpr() && !register.is_segment_register() && *register != Register::RIP;
    Kept {
        any: true,
        rax: !is_unknown && !changed.contains(&Register::RAX),
        rdx: !is_unknown && !changed.contains(&Register::RDX),
        vectors: !is_unknown && !changed.iter().any(is_vector),
    }
}

enum Way {
    Written,
    Unknown,
    /// A call through a table of addresses, as into other modules, or through a pointer.
    Foreign,
}

fn ways_on(instruction: &Instruction, ways: &mut Vec<u64>) -> Way {
    match instruction.flow_control() {
        FlowControl::Next => ways.push(instruction.next_ip()),
        FlowControl::ConditionalBranch => ways.extend([instruction.near_branch_target(), instruction.next_ip()]),
        FlowControl::UnconditionalBranch => ways.push(instruction.near_branch_target()),
        FlowControl::Call if instruction.code() == Code::Call_rel32_64 => {
            ways.extend([instruction.near_branch_target(), instruction.next_ip()]);
        }
        FlowControl::Call if instruction.code() == Code::Syscall => ways.push(instruction.next_ip()),
        FlowControl::Return | FlowControl::Exception => {}
        FlowControl::IndirectCall => return Way::Foreign,
        FlowControl::IndirectBranch => {
            let is_table = instruction.op0_kind() == OpKind::Memory
                && instruction.is_ip_rel_memory_operand()
                && instruction.memory_index() == Register::None;
            return if is_table { Way::Foreign } else { Way::Unknown };
        }
        _ => return Way::Unknown,
    }
    Way::Written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(code: &[u8]) -> Kept {
        let start = 0x1000;
        kept_registers(TargetAddress(start), &mut |address| {
            let from = (address.0.wrapping_sub(start) as usize).min(code.len());
            code.get(from..).unwrap_or_default().to_vec()
        })
    }

    #[test]
    fn a_function_keeps_what_it_does_not_change() {
        let all = Kept {
            any: true,
            rax: true,
            rdx: true,
            vectors: true,
        };
        assert_eq!(kept(&[0xc3]), all, "ret");
        assert_eq!(
            kept(&[0x48, 0x89, 0xf8, 0xc3]),
            Kept { rax: false, ..all },
            "mov rax, rdi"
        );
        assert_eq!(kept(&[0x31, 0xd2, 0xc3]), Kept { rdx: false, ..all }, "xor edx, edx");
        assert_eq!(
            kept(&[0x66, 0x0f, 0xef, 0xc0, 0xc3]),
            Kept { vectors: false, ..all },
            "pxor xmm0, xmm0"
        );
        // call +1; ret; nop: mov rax, rdi; ret.
        let calls = [0xe8, 1, 0, 0, 0, 0xc3, 0x48, 0x89, 0xf8, 0xc3];
        assert_eq!(kept(&calls), Kept { rax: false, ..all });
    }

    #[test]
    fn callers_rely_on_nothing_if_unknown_code_is_called() {
        assert_eq!(kept(&[0xff, 0xd0, 0xc3]), Kept::default(), "call rax");
        assert_eq!(kept(&[0xff, 0x25, 0, 0, 0, 0]), Kept::default(), "jmp [rip]");
        let unknown = Kept {
            any: true,
            ..Kept::default()
        };
        assert_eq!(kept(&[0xff, 0xe0]), unknown, "jmp rax");
        assert_eq!(kept(&[]), unknown);
    }
}
