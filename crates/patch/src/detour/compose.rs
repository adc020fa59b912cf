//! The order of a detour's parts.

use std::ops::Range;

use iced_x86::Instruction;

use super::fires::{Block, Leaving, emit_block};
use super::frame;
use super::rare::Rare;
use super::runtime::Runtime;
use crate::assemble::{Assembled, Assembler, Label};
use crate::function::Kind;
use crate::relocate::{Original, relocate};
use crate::trap::{Copy, Pending, emit_descriptor, emit_routines};
use crate::{Displaced, FireCondition, Refusal, TargetAddress, TrapForm};

/// The parts of a detour.
#[derive(Clone, Copy)]
pub(crate) struct Content<'a> {
    pub instructions: &'a [Displaced],
    /// Where the run ends and the detour jumps back to.
    pub end: TargetAddress,
    /// The function's ranges.
    pub inside: &'a [Range<TargetAddress>],
    /// If the run is a trap, the form of the trap. Such a run has only one instruction.
    pub trap: Option<TrapForm>,
}

/// A detour whose address is not chosen yet. All positions are in bytes from its start.
#[derive(Clone, Debug)]
pub(crate) struct Composed {
    pub code: Assembled,
    /// For each instruction: the start of the fires before it.
    pub entries: Vec<u64>,
    /// For each instruction: the start of its relocated form.
    pub relocated: Vec<u64>,
    /// The jumps that leave the detour, and the places to which the kernel returns, each with the address to which it
    /// leads.
    pub leaving: Vec<(u64, TargetAddress)>,
    /// Places at which a relocated instruction may fault after it has pushed words, whereas the original would not have
    /// pushed them. Each has the position, the original's address, and the number of words.
    pub pushed: Vec<(u64, TargetAddress, u8)>,
    /// For a trap that the agent's signal handler carries out: the position of its `struct np_emulation`.
    pub descriptor: Option<u64>,
    /// The size of that structure, in 8-byte words before the literals.
    pub descriptor_words: usize,
}

/// The target of a conditional branch.
fn branch_target(instruction: &Instruction) -> Option<TargetAddress> {
    (Kind::of(instruction) == Kind::Conditional).then(|| TargetAddress(instruction.near_branch_target()))
}

pub(crate) fn compose(content: Content<'_>, runtime: &Runtime) -> Result<Composed, Refusal> {
    let mut composer = Composer::new(content, runtime);
    let mut goes_on = true;
    for (index, displaced) in content.instructions.iter().enumerate() {
        goes_on = composer.instruction(index, displaced)?;
    }
    if goes_on {
        let here = composer.code.here();
        composer.leaving.push((here, content.end));
        composer.code.external(&[0xe9], content.end);
    }
    composer.taken_edges()?;
    composer.finish()
}

/// The fires on a branch's taken edge, and the target of the edge.
struct TakenEdge {
    block: Block,
    label: Label,
    target: TargetAddress,
    /// Its label if the target is a later instruction of the run.
    within: Option<Label>,
}

/// A detour in the making.
struct Composer<'a> {
    content: Content<'a>,
    runtime: &'a Runtime,
    code: Assembler,
    rare: Vec<Rare>,
    edges: Vec<TakenEdge>,
    leaving: Vec<(Label, TargetAddress)>,
    pushed: Vec<(Label, TargetAddress, u8)>,
    /// For each instruction: the label of the fires before it.
    entries: Vec<Label>,
    /// For each instruction so far: the label of its relocated form,
    relocated: Vec<Label>,
    /// and the label after its relocated form.
    ends: Vec<Label>,
}

impl<'a> Composer<'a> {
    fn new(content: Content<'a>, runtime: &'a Runtime) -> Composer<'a> {
        let mut code = Assembler::default();
        let entries = content.instructions.iter().map(|_| code.label()).collect();
        Composer {
            content,
            runtime,
            code,
            rare: Vec::new(),
            edges: Vec::new(),
            leaving: Vec::new(),
            pushed: Vec::new(),
            entries,
            relocated: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Appends one instruction with its fires. Returns whether control flow continues after it.
    fn instruction(&mut self, index: usize, displaced: &Displaced) -> Result<bool, Refusal> {
        let Displaced { address, bytes, points } = displaced;
        let instruction = displaced.decode();
        let original = Original {
            instruction: &instruction,
            bytes,
        };
        let kind = Kind::of(&instruction);

        if let Some(entry) = self.entries.get(index) {
            self.code.bind(*entry);
        }
        if let Some(block) = Block::of(points, FireCondition::Always) {
            self.block(&block, None)?;
        }
        if let Some(block) = Block::of(points, FireCondition::IfLeaves) {
            if kind != Kind::IndirectJump {
                return Err(Refusal::NoSuchEdge {
                    site: *address,
                    edge: "leaving",
                });
            }
            self.block(&block, Some((original, self.content.inside)))?;
        }
        self.relocated.push(self.code.here());
        let within = self.target_within(index, &instruction);
        let taken = Block::of(points, FireCondition::IfTaken).map(|block| (block, self.code.label()));
        let target = taken.as_ref().map(|(_, label)| *label).or(within);
        let moved = relocate(&mut self.code, original, target)?;
        self.ends.push(self.code.here());
        let next = TargetAddress(instruction.next_ip());
        self.leaving.extend(moved.returns_to.map(|label| (label, next)));
        self.pushed
            .extend(moved.pushed.map(|(label, words)| (label, *address, words)));
        if let Some(block) = Block::of(points, FireCondition::Behind) {
            if kind.is_transfer() || matches!(kind, Kind::Call | Kind::Conditional) {
                return Err(Refusal::NoSuchEdge {
                    site: *address,
                    edge: "straight",
                });
            }
            self.block(&block.reported_at(next), None)?;
        }
        self.edges.extend(taken.map(|(block, label)| TakenEdge {
            block,
            label,
            target: TargetAddress(instruction.near_branch_target()),
            within,
        }));
        Ok(!kind.is_transfer() && kind != Kind::Call)
    }

    /// The label of a branch target that is a later instruction of the run. Such a branch stays in the detour, because
    /// the instruction traps in the text. A branch to an earlier instruction leaves the detour: a loop inside the
    /// detour would never return to the text.
    fn target_within(&self, index: usize, instruction: &Instruction) -> Option<Label> {
        let target = branch_target(instruction)?;
        let mut later = self.content.instructions.iter().zip(&self.entries).skip(index + 1);
        later
            .find(|(other, _)| other.address == target)
            .map(|(_, entry)| *entry)
    }

    fn block(&mut self, block: &Block, leaving: Option<Leaving<'_>>) -> Result<(), Refusal> {
        emit_block(&mut self.code, &mut self.rare, self.runtime, block, leaving)
    }

    fn taken_edges(&mut self) -> Result<(), Refusal> {
        for edge in std::mem::take(&mut self.edges) {
            self.code.bind(edge.label);
            self.block(&edge.block, None)?;
            let here = self.code.here();
            self.leaving.push((here, edge.target));
            match edge.within {
                Some(start) => self.code.jump(start),
                None => self.code.external(&[0xe9], edge.target),
            }
        }
        Ok(())
    }

    /// Appends the routines of a trap that the agent's signal handler carries out.
    fn routines(&mut self) -> Result<Option<(&'a Displaced, Pending)>, Refusal> {
        let Some(form @ (TrapForm::Emulate | TrapForm::Step)) = self.content.trap else {
            return Ok(None);
        };
        let ([displaced], [entry], [start], [end]) = (
            self.content.instructions,
            self.entries.as_slice(),
            self.relocated.as_slice(),
            self.ends.as_slice(),
        ) else {
            return Ok(None);
        };
        let copy = Copy {
            entry: *entry,
            start: *start,
            end: *end,
        };
        let pending = emit_routines(&mut self.code, &mut self.rare, self.runtime, displaced, form, copy)?;
        Ok(Some((displaced, pending)))
    }

    fn finish(mut self) -> Result<Composed, Refusal> {
        let trap = self.routines()?;
        for path in std::mem::take(&mut self.rare) {
            frame::emit_rare(&mut self.code, self.runtime, path);
        }
        let inside = self.content.inside;
        let descriptor = trap.map(|(displaced, pending)| emit_descriptor(&mut self.code, inside, displaced, pending));
        let code = self.code.finish()?;
        let position = |label: Label| code.position(label);
        let leaving = self.leaving.into_iter();
        let pushed = self.pushed.into_iter();
        let entries = self.entries.into_iter().map(position).collect();
        let relocated = self.relocated.into_iter().map(position).collect();
        let leaving = leaving.map(|(label, target)| (position(label), target)).collect();
        let pushed = pushed
            .map(|(label, original, words)| (position(label), original, words))
            .collect();
        let (descriptor, descriptor_words) = match descriptor {
            Some((label, words)) => (Some(position(label)), words),
            None => (None, 0),
        };
        Ok(Composed {
            entries,
            relocated,
            leaving,
            pushed,
            descriptor,
            descriptor_words,
            code,
        })
    }
}
