//! The order of a detour's parts.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::fires::{Block, emit_block};
use super::{Runtime, frame};
use crate::assemble::{Assembled, Assembler, Label};
use crate::function::Kind;
use crate::relocate::{Original, relocate};
use crate::trap::{Copy, emit_descriptor, emit_routines};
use crate::{Displaced, FireCondition, Refusal, TargetAddress, TrapForm};

/// What a detour is made of.
#[derive(Clone, Copy)]
pub(crate) struct Content<'a> {
    pub instructions: &'a [Displaced],
    /// Where the run ends and the detour jumps back to.
    pub end: TargetAddress,
    /// The function's ranges.
    pub inside: &'a [Range<TargetAddress>],
    /// Of a trap: its form. It has one instruction.
    pub trap: Option<TrapForm>,
}

/// A detour, still movable. All positions are in bytes from its start.
#[derive(Clone, Debug)]
pub(crate) struct Composed {
    pub code: Assembled,
    /// For each instruction: where it begins with what fires in front of it.
    pub entries: Vec<u64>,
    /// For each instruction: where its relocated form begins.
    pub relocated: Vec<u64>,
    /// Jumps that leave the detour, and places to which the kernel returns, and where they lead.
    pub leaving: Vec<(u64, TargetAddress)>,
    /// From where on a relocated instruction has pushed words that its original, when it faults, has not.
    pub pushed: Vec<(u64, TargetAddress, u8)>,
    /// Of a trap that the agent's signal handler carries out: its `struct np_emulation`.
    pub descriptor: Option<u64>,
    /// How many 8-byte words in front of the literals are that.
    pub descriptor_words: usize,
}

/// Something to be laid out behind the hot path.
pub(crate) enum Rare {
    /// A thread that was not found in the table: ask the agent, go on at `found`, or at `leave` without a context.
    Miss { here: Label, found: Label, leave: Label },
    /// A hit while handlers run: counted, goes on at `behind`.
    Missed { here: Label, behind: Label },
    /// The direction flag is set, and functions want it clear.
    Backwards { here: Label, behind: Label },
    /// A dispatcher changed what the block does not restore: everything is loaded by its `resume`.
    Resume { here: Label, resume: TargetAddress },
}

/// Where a conditional branch leads.
fn branch_target(instruction: &Instruction) -> Option<TargetAddress> {
    (Kind::of(instruction) == Kind::Conditional).then(|| TargetAddress(instruction.near_branch_target()))
}

pub(crate) fn compose(content: Content<'_>, runtime: &Runtime) -> Result<Composed, Refusal> {
    let mut code = Assembler::default();
    let mut rare = Vec::new();
    let mut edges = Vec::new();
    let (mut leaving, mut pushed) = (Vec::new(), Vec::new());
    let (mut entries, mut relocated, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let mut goes_on = true;
    let starts: Vec<Label> = content.instructions.iter().map(|_| code.label()).collect();
    for (index, displaced) in content.instructions.iter().enumerate() {
        let Displaced { address, bytes, points } = displaced;
        let instruction = Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE).decode();
        let original = Original {
            instruction: &instruction,
            bytes,
        };
        let kind = Kind::of(&instruction);

        if let Some(start) = starts.get(index) {
            code.bind(*start);
            entries.push(*start);
        }
        // A branch to a later instruction of the run stays in the detour: in the text that instruction traps. One to an
        // earlier one does not, or a loop would never be seen outside.
        let later = content.instructions.iter().zip(&starts).skip(index + 1);
        let within = branch_target(&instruction)
            .and_then(|target| later.into_iter().find(|(other, _)| other.address == target))
            .map(|(_, start)| *start);
        if let Some(block) = Block::of(points, FireCondition::Always) {
            emit_block(&mut code, &mut rare, runtime, &block, None)?;
        }
        if let Some(block) = Block::of(points, FireCondition::IfLeaves) {
            if kind != Kind::IndirectJump {
                return Err(Refusal::NoSuchEdge {
                    site: *address,
                    edge: "leaving",
                });
            }
            emit_block(&mut code, &mut rare, runtime, &block, Some((original, content.inside)))?;
        }
        relocated.push(code.here());
        let taken = Block::of(points, FireCondition::IfTaken).map(|block| (block, code.label()));
        let moved = relocate(&mut code, original, taken.as_ref().map(|(_, label)| *label).or(within))?;
        ends.push(code.here());
        let next = TargetAddress(instruction.next_ip());
        leaving.extend(moved.returns_to.map(|label| (label, next)));
        pushed.extend(moved.pushed.map(|(label, words)| (label, *address, words)));
        if let Some(block) = Block::of(points, FireCondition::Behind) {
            if kind.is_transfer() || matches!(kind, Kind::Call | Kind::Conditional) {
                return Err(Refusal::NoSuchEdge {
                    site: *address,
                    edge: "straight",
                });
            }
            emit_block(&mut code, &mut rare, runtime, &block.reported_at(next), None)?;
        }
        let target = TargetAddress(instruction.near_branch_target());
        edges.extend(taken.map(|(block, label)| (block, label, target, within)));
        goes_on = !kind.is_transfer() && kind != Kind::Call;
    }
    if goes_on {
        leaving.push((code.here(), content.end));
        code.external(&[0xe9], content.end);
    }
    for (block, label, target, within) in edges {
        code.bind(label);
        emit_block(&mut code, &mut rare, runtime, &block, None)?;
        leaving.push((code.here(), target));
        match within {
            Some(start) => code.jump(start),
            None => code.external(&[0xe9], target),
        }
    }
    let trap = match (
        content.trap,
        content.instructions,
        entries.as_slice(),
        relocated.as_slice(),
        ends.as_slice(),
    ) {
        (Some(form @ (TrapForm::Emulate | TrapForm::Step)), [displaced], [entry], [start], [end]) => {
            let copy = Copy {
                entry: *entry,
                start: *start,
                end: *end,
            };
            let pending = emit_routines(&mut code, &mut rare, runtime, displaced, form, copy)?;
            Some((displaced, pending))
        }
        _ => None,
    };
    for path in rare {
        frame::emit_rare(&mut code, runtime, path);
    }
    let descriptor = trap.map(|(displaced, pending)| emit_descriptor(&mut code, &content, displaced, pending));

    let code = code.finish()?;
    let positions = |labels: Vec<Label>| labels.into_iter().map(|label| code.position(label)).collect();
    let (entries, relocated) = (positions(entries), positions(relocated));
    let leaving = leaving
        .into_iter()
        .map(|(label, target)| (code.position(label), target))
        .collect();
    let pushed = pushed.into_iter();
    let pushed = pushed
        .map(|(label, original, words)| (code.position(label), original, words))
        .collect();
    let (descriptor, descriptor_words) = match descriptor {
        Some((label, words)) => (Some(code.position(label)), words),
        None => (None, 0),
    };
    Ok(Composed {
        code,
        entries,
        relocated,
        leaving,
        pushed,
        descriptor,
        descriptor_words,
    })
}
