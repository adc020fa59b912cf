//! How deep the stack is at the jumps that leave a function: where the return address lies, for code
//! without call frame information.
//!
//! ```text
//!   push rbx               8
//!   sub rsp, 32            40
//!   call ...               40
//!   add rsp, 32            8
//!   pop rbx                0
//!   jmp other              the stack pointer points at the return address
//! ```
//!
//! rsp is followed, and so is rbp while it holds a frame's address. Where two ways join with different values, the
//! value is unknown. A loaded or computed value is unknown, too. A jump at an unknown depth is not reported.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::kind::Kind;
use super::map::FunctionMap;
use super::stack::{INSTRUCTIONS_MAX, Node, nodes};
use crate::TargetAddress;

/// The distance from each register up to the return address, in bytes; `None`: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Depths {
    rsp: Option<i64>,
    rbp: Option<i64>,
}

impl Depths {
    fn join(self, other: Depths) -> Depths {
        Depths {
            rsp: self.rsp.filter(|depth| other.rsp == Some(*depth)),
            rbp: self.rbp.filter(|depth| other.rbp == Some(*depth)),
        }
    }
}

/// The jumps out of a function ([`FunctionMap::tail_jumps`]) at which the stack pointer points at the return address,
/// whichever way a thread came. The first part begins with the function's entry.
pub fn frameless_jumps(parts: &[FunctionMap]) -> Vec<TargetAddress> {
    let jumps: Vec<TargetAddress> = parts.iter().flat_map(FunctionMap::tail_jumps).collect();
    let count = |part: &FunctionMap| part.code().len();
    if jumps.is_empty() || parts.iter().map(count).sum::<usize>() > INSTRUCTIONS_MAX {
        return Vec::new();
    }
    let nodes = nodes(parts);
    let depths = depths(&nodes);
    let at = |node: &Node| parts.get(node.part).map(|part| part.address(node.offset));
    let known = nodes.iter().zip(depths);
    let frameless = known.filter(|(_, depths)| depths.is_some_and(|depths| depths.rsp == Some(0)));
    frameless
        .filter_map(|(node, _)| at(node).filter(|address| jumps.contains(address)))
        .collect()
}

/// The depths before each instruction that is reached from the entry.
fn depths(nodes: &[Node]) -> Vec<Option<Depths>> {
    let mut depths = vec![None; nodes.len()];
    let mut factory = InstructionInfoFactory::new();
    let entry = Depths {
        rsp: Some(0),
        rbp: None,
    };
    let mut pending = Vec::new();
    if let Some(first) = depths.first_mut() {
        *first = Some(entry);
        pending.push(0);
    }
    while let Some(index) = pending.pop() {
        let Some((node, Some(before))) = nodes.get(index).zip(depths.get(index).copied()) else {
            continue;
        };
        let behind = step(before, node, &mut factory);
        for successor in node.successors.iter() {
            let Some(known) = depths.get_mut(successor) else {
                continue;
            };
            let joined = known.map_or(behind, |known: Depths| known.join(behind));
            if *known != Some(joined) {
                *known = Some(joined);
                pending.push(successor);
            }
        }
    }
    depths
}

fn step(before: Depths, node: &Node, factory: &mut InstructionInfoFactory) -> Depths {
    let code = &node.code;
    if node.kind == Kind::Call {
        // A callee pops the return address. But a call whose target is the next instruction only pushes it, so the
        // depth is then unknown.
        let is_pushed = code.near_branch_target() == code.next_ip() && code.op0_kind() == OpKind::NearBranch64;
        return Depths {
            rsp: before.rsp.filter(|_| !is_pushed),
            ..before
        };
    }
    let mut behind = before;
    for used in factory.info(code).used_registers() {
        if matches!(
            used.access(),
            OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
        ) {
            match used.register().full_register() {
                Register::RSP => behind.rsp = None,
                Register::RBP => behind.rbp = None,
                _ => {}
            }
        }
    }
    let is = |operand: u32, register: Register| {
        code.op_count() > operand && code.op_kind(operand) == OpKind::Register && code.op_register(operand) == register
    };
    match code.mnemonic() {
        Mnemonic::Leave => behind.rsp = before.rbp.map(|depth| depth.wrapping_sub(8)),
        Mnemonic::Enter => {}
        Mnemonic::Mov if is(0, Register::RBP) && is(1, Register::RSP) => behind.rbp = before.rsp,
        Mnemonic::Mov if is(0, Register::RSP) && is(1, Register::RBP) => behind.rsp = before.rbp,
        Mnemonic::Lea if is(0, Register::RSP) => behind.rsp = address(before, code),
        Mnemonic::Lea if is(0, Register::RBP) => behind.rbp = address(before, code),
        Mnemonic::Add | Mnemonic::Sub if is(0, Register::RSP) => behind.rsp = moved(before.rsp, code),
        _ if code.is_stack_instruction() && !is(0, Register::RSP) => {
            let bytes = i64::from(code.stack_pointer_increment());
            behind.rsp = before.rsp.map(|depth| depth.wrapping_sub(bytes));
        }
        _ => {}
    }
    behind
}

/// The depth that `lea` computes from `[rsp + n]` or `[rbp + n]`.
fn address(before: Depths, code: &Instruction) -> Option<i64> {
    let base = match code.memory_base() {
        Register::RSP => before.rsp,
        Register::RBP => before.rbp,
        _ => None,
    };
    let displacement = code.memory_displacement64() as i64;
    base.filter(|_| code.memory_index() == Register::None)
        .map(|depth| depth.wrapping_sub(displacement))
}

fn moved(depth: Option<i64>, code: &Instruction) -> Option<i64> {
    let bytes = code.try_immediate(1).ok()? as i64;
    let up = if code.mnemonic() == Mnemonic::Add {
        bytes
    } else {
        bytes.wrapping_neg()
    };
    depth.map(|depth| depth.wrapping_sub(up))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodeView, FunctionExtent, analyze};

    /// The offsets of the jumps without a frame in a function with this code.
    fn frameless(bytes: &[u8]) -> Vec<u64> {
        let start = TargetAddress(0x40_0000);
        let extent = FunctionExtent {
            start,
            size: bytes.len() as u64,
            fragments: Vec::new(),
        };
        let found = frameless_jumps(&[analyze(&CodeView { start, bytes }, &extent)]);
        found.into_iter().map(|address| address.0 - start.0).collect()
    }

    #[test]
    fn a_jump_after_the_end_of_the_frame_is_found() {
        assert_eq!(frameless(&[0xe9, 0, 0x10, 0, 0]), [0]);
        // push rbx; sub rsp, 16; call; add rsp, 16; pop rbx; jmp.
        let code = [
            0x53, 0x48, 0x83, 0xec, 16, 0xe8, 0, 0x10, 0, 0, 0x48, 0x83, 0xc4, 16, 0x5b, 0xe9, 0, 0x10, 0, 0,
        ];
        assert_eq!(frameless(&code), [15]);
        // push rbp; mov rbp, rsp; push rbx; sub rsp, rdi; lea rsp, [rbp-8]; pop rbx; pop rbp; jmp *rax.
        let code = [
            0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x29, 0xfc, 0x48, 0x8d, 0x65, 0xf8, 0x5b, 0x5d, 0xff, 0xe0,
        ];
        assert_eq!(frameless(&code), [14]);
        // push rbp; mov rbp, rsp; and rsp, -32; leave; jmp.
        let code = [
            0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xe0, 0xc9, 0xe9, 0, 0x10, 0, 0,
        ];
        assert_eq!(frameless(&code), [9]);
        // test edi, edi; jne outside; push rbx; pop rbx; ret.
        assert_eq!(
            frameless(&[0x85, 0xff, 0x0f, 0x85, 0, 0x10, 0, 0, 0x53, 0x5b, 0xc3]),
            [2]
        );
    }

    #[test]
    fn a_jump_on_another_depth_or_stack_is_not_found() {
        // push rbx; jmp: a jump into code at the end of another function. Several functions share such code.
        assert_eq!(frameless(&[0x53, 0xe9, 0, 0x10, 0, 0]), [] as [u64; 0]);
        // mov rsp, [rdi]; jmp *rdx: longjmp.
        assert_eq!(frameless(&[0x48, 0x8b, 0x27, 0xff, 0xe2]), [] as [u64; 0]);
        // pop rdx; jmp *rdx: a return by a jump. The return address is popped, so rsp points above it.
        assert_eq!(frameless(&[0x5a, 0xff, 0xe2]), [] as [u64; 0]);
        // test edi, edi; je +1; push rbx; jmp: two depths.
        assert_eq!(
            frameless(&[0x85, 0xff, 0x74, 1, 0x53, 0xe9, 0, 0x10, 0, 0]),
            [] as [u64; 0]
        );
        // call +0; jmp: the pushed address is still on the stack.
        assert_eq!(frameless(&[0xe8, 0, 0, 0, 0, 0xe9, 0, 0x10, 0, 0]), [] as [u64; 0]);
    }
}
