//! The ways out of a function: where its return probes lie.

use iced_x86::{Decoder, DecoderOptions, OpKind};

use super::{FunctionMap, Instruction, Kind};
use crate::{FireCondition, TargetAddress};

/// One instruction by which a function is left.
///
/// | instruction | leaves |
/// |---|---|
/// | `ret`, `ret n`, `rep ret`, `bnd ret`, far and interrupt returns, far jumps | always |
/// | `jmp` to outside (tail call) | always |
/// | `jmp [rip + x]` (tail call through the GOT) | always |
/// | `jcc`, `loop`, `jrcxz` to outside | if taken |
/// | `jmp reg`, `jmp [memory]` | if its target is outside: an indirect tail call, or a switch whose table is not known |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exit {
    /// The instruction.
    pub site: TargetAddress,
    /// Bytes from the function's start: `arg0` of a return probe.
    pub offset: u64,
    /// When it leaves.
    pub condition: FireCondition,
}

pub(super) fn exits(map: &FunctionMap) -> Vec<Exit> {
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

/// The returns of a function that is left in no other way.
pub(super) fn returns(map: &FunctionMap) -> Option<Vec<TargetAddress>> {
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

fn decode(map: &FunctionMap, instruction: Instruction) -> iced_x86::Instruction {
    let address = map.address(instruction.offset).0;
    Decoder::with_ip(64, map.bytes_of(instruction), address, DecoderOptions::NONE).decode()
}
