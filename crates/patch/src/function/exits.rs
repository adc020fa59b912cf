//! The ways out of a function: where its return probes lie.

use iced_x86::{Decoder, DecoderOptions, OpKind};

use super::instruction::Instruction;
use super::kind::Kind;
use super::map::FunctionMap;
use crate::{FireCondition, TargetAddress};

/// One instruction by which a function is left.
///
/// | instruction | leaves |
/// |---|---|
/// | `ret`, `ret n`, `rep ret`, `bnd ret`, far and interrupt returns, far jumps | always |
/// | `jmp` to outside (tail call) | always |
/// | `jmp [rip + x]` (tail call through the GOT) | always |
/// | `jcc`, `loop`, `jrcxz` to outside | if taken |
/// | `jmp reg`, `jmp [memory]` | if its target is outside: an indirect tail call, or a switch with an unknown table |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exit {
    /// The instruction.
    pub site: TargetAddress,
    /// Bytes from the function's start: `arg0` of a return probe.
    pub offset: u64,
    /// When it leaves.
    pub condition: FireCondition,
}

impl FunctionMap {
    /// Every way out of the function, ascending: see [`Exit`].
    pub fn exits(&self) -> Vec<Exit> {
        exits(self)
    }

    /// The jumps among them, ascending: to another function, which returns in this one's place.
    pub fn tail_jumps(&self) -> Vec<TargetAddress> {
        tail_jumps(self)
    }

    /// Its return instructions, ascending, when it is left by these and by nothing else. After each of them the
    /// returned value is known; a jump to another function would have yet to compute it. `None`: it is left
    /// otherwise, or may be.
    pub fn returns_only(&self) -> Option<Vec<TargetAddress>> {
        returns(self)
    }

    /// Whether a direct jump of the function's own leads to this address: calls, and addresses that are
    /// only taken, do not.
    pub fn jumps_to(&self, address: TargetAddress) -> bool {
        jumps_to(self, address)
    }
}

fn exits(map: &FunctionMap) -> Vec<Exit> {
    map.code()
        .iter()
        .take_while(|instruction| instruction.offset < map.code_size())
        .filter_map(|instruction| {
            let condition = leaves(map, *instruction)?;
            let site = map.address(instruction.offset);
            Some(Exit {
                site,
                offset: u64::from(instruction.offset),
                condition,
            })
        })
        .collect()
}

/// The ways out that are jumps. A far jump changes more than the instruction pointer.
fn tail_jumps(map: &FunctionMap) -> Vec<TargetAddress> {
    let code = map.code().iter().take_while(|found| found.offset < map.code_size());
    code.filter(|found| !matches!(found.kind, Kind::Return | Kind::FarJump))
        .filter(|found| leaves(map, **found).is_some())
        .map(|found| map.address(found.offset))
        .collect()
}

/// The returns of a function that is left in no other way.
fn returns(map: &FunctionMap) -> Option<Vec<TargetAddress>> {
    let is_return = |instruction: &&Instruction| instruction.kind == Kind::Return;
    let code = || map.code().iter().take_while(|found| found.offset < map.code_size());
    let left_otherwise = |instruction: &Instruction| !is_return(&instruction) && leaves(map, *instruction).is_some();
    if code().any(left_otherwise) || !map.has_all_exits() || map.undecodable().is_some() {
        return None;
    }
    Some(
        code()
            .filter(is_return)
            .map(|found| map.address(found.offset))
            .collect(),
    )
}

fn leaves(map: &FunctionMap, instruction: Instruction) -> Option<FireCondition> {
    match instruction.kind {
        Kind::Return | Kind::FarJump => Some(FireCondition::Always),
        Kind::Jump | Kind::Conditional => {
            let target = TargetAddress(decode(map, instruction).near_branch_target());
            let condition = if instruction.kind == Kind::Jump {
                FireCondition::Always
            } else {
                FireCondition::IfTaken
            };
            (!map.is_inside(target)).then_some(condition)
        }
        Kind::IndirectJump if map.stays_inside.binary_search(&instruction.offset).is_ok() => None,
        Kind::IndirectJump => {
            let decoded = decode(map, instruction);
            let through_got = decoded.op0_kind() == OpKind::Memory && decoded.is_ip_rel_memory_operand();
            Some(if through_got {
                FireCondition::Always
            } else {
                FireCondition::IfLeaves
            })
        }
        Kind::Plain | Kind::Nop | Kind::Call | Kind::System | Kind::Stop | Kind::Breakpoint => None,
    }
}

fn jumps_to(map: &FunctionMap, address: TargetAddress) -> bool {
    let own = map.code().iter().take_while(|found| found.offset < map.code_size());
    own.filter(|found| matches!(found.kind, Kind::Jump | Kind::Conditional))
        .any(|found| decode(map, *found).near_branch_target() == address.0)
}

fn decode(map: &FunctionMap, instruction: Instruction) -> iced_x86::Instruction {
    let address = map.address(instruction.offset).0;
    Decoder::with_ip(64, map.bytes_of(instruction), address, DecoderOptions::NONE).decode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodeView, FunctionExtent, analyze};

    fn jumps_to_its_start(bytes: &[u8]) -> bool {
        let start = TargetAddress(0x40_0000);
        let extent = FunctionExtent {
            start,
            size: bytes.len() as u64,
            fragments: Vec::new(),
        };
        analyze(&CodeView { start, bytes }, &extent).jumps_to(start)
    }

    #[test]
    fn only_jumps_lead_back_to_the_start() {
        // dec edi; jnz start; ret, and jmp start.
        assert!(jumps_to_its_start(&[0xff, 0xcf, 0x75, 0xfc, 0xc3]));
        assert!(jumps_to_its_start(&[0xff, 0xcf, 0xeb, 0xfc]));
        assert!(jumps_to_its_start(&[0xff, 0xc9, 0xe2, 0xfc, 0xc3]));
        // call start; ret: a recursion. lea rax, [start]; ret: its address. jnz to after the start.
        assert!(!jumps_to_its_start(&[0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3]));
        assert!(!jumps_to_its_start(&[0x48, 0x8d, 0x05, 0xf9, 0xff, 0xff, 0xff, 0xc3]));
        assert!(!jumps_to_its_start(&[0xff, 0xcf, 0x75, 0xfe, 0xc3]));
    }
}
