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
    /// Which executions of the instruction leave the function.
    pub condition: FireCondition,
}

impl FunctionMap {
    /// Every way out of the function, ascending: see [`Exit`].
    pub fn exits(&self) -> Vec<Exit> {
        exits(self)
    }

    /// The jumps among the exits, ascending: each leads to another function, which returns to the caller of this
    /// function.
    pub fn tail_jumps(&self) -> Vec<TargetAddress> {
        tail_jumps(self)
    }

    /// The function's return instructions, ascending, if nothing else leaves it. At each of them the returned value
    /// is known, whereas a tail call has yet to compute it. `None` if the function is, or may be, left in another
    /// way.
    pub fn returns_only(&self) -> Option<Vec<TargetAddress>> {
        returns(self)
    }

    /// Whether control flow continues after the last instruction, into the bytes that follow. After a call or a system
    /// call the answer is false, because it may never return.
    pub fn goes_on_after_its_end(&self) -> bool {
        let own = self.code().iter();
        let last = own.take_while(|found| found.offset < self.code_size()).last();
        last.is_some_and(|last| last.end() == self.size && matches!(last.kind, Kind::Plain | Kind::Conditional))
    }

    /// Whether a direct jump of the function leads to this address. Calls do not count, and neither do addresses that
    /// are only taken.
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

/// The exits that are jumps. Far jumps are left out: they change more than the instruction pointer.
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
        // dec edi; jnz start; ret, and a jmp to the start.
        assert!(jumps_to_its_start(&[0xff, 0xcf, 0x75, 0xfc, 0xc3]));
        assert!(jumps_to_its_start(&[0xff, 0xcf, 0xeb, 0xfc]));
        assert!(jumps_to_its_start(&[0xff, 0xc9, 0xe2, 0xfc, 0xc3]));
        // call start; ret: a recursion. lea rax, [start]; ret: the start's address. jnz to an address after the start.
        assert!(!jumps_to_its_start(&[0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3]));
        assert!(!jumps_to_its_start(&[0x48, 0x8d, 0x05, 0xf9, 0xff, 0xff, 0xff, 0xc3]));
        assert!(!jumps_to_its_start(&[0xff, 0xcf, 0x75, 0xfe, 0xc3]));
    }
}
