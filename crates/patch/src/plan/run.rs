//! The plan of a function: its patches, and the instructions that each patch displaces.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::guest::Guest;
use super::obstacle::Obstacle;
use super::springboard::Springboard;
use crate::detour::Content;
use crate::{JumpConstraint, Point, Refusal, Tactic, TargetAddress};

/// Choices of the user.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanOptions {
    /// Only this tactic may be used. Points for which it does not fit are refused.
    pub force: Option<Tactic>,
    /// Asked now and then whether the plan is still wanted. If it is not, the result is incomplete.
    pub is_cancelled: Option<fn() -> bool>,
}

impl PlanOptions {
    pub(crate) fn cancelled(&self) -> bool {
        self.is_cancelled.is_some_and(|is_cancelled| is_cancelled())
    }
}

/// The plan of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionPlan {
    /// The patches, ascending, disjoint (up to [`RunPlan::claimed_end`]).
    pub runs: Vec<RunPlan>,
    /// The points that cannot be placed, as sites and reasons.
    pub refusals: Vec<(TargetAddress, Refusal)>,
}

/// One patch: the instructions that it displaces, and the requirements of their detour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlan {
    pub start: TargetAddress,
    /// The tactic by which the jump finds room.
    pub tactic: Tactic,
    /// The instructions that the detour executes, in order, each with the points before it.
    pub instructions: Vec<Displaced>,
    /// For a pun: how many of the last instructions also stay in place, since the jump shares bytes with them.
    pub kept: usize,
    /// Bytes from `start` to where the detour jumps back: the instructions and, after a final unconditional transfer,
    /// the padding that the patch needs.
    pub length: usize,
    /// The text that the patch replaces, at most 16 bytes. For a trap it is the instruction, or its beginning; for an
    /// `evict` it is 2 bytes; for a jump it is 5, including the bytes that a pun keeps. The text is longer if
    /// instructions with points start after the jump's bytes: the first byte of each becomes `int3`.
    pub original: Vec<u8>,
    /// Which bytes of the jump must be trapping bytes, and which must be the original bytes.
    pub constraint: JumpConstraint,
    /// For an `evict`: the springboards to which its short jump may lead. The first one is used; the others are for
    /// [`crate::reconcile`].
    pub springboards: Vec<Springboard>,
    /// For an `evict` without a springboard: the next instruction, at which another run starts. The first bytes of
    /// that run's jump are the last bytes of this run's jump. So the two are placed together, and removed together.
    pub successor: Option<TargetAddress>,
    /// The springboard of another run in the rear of the last instruction.
    pub guest: Option<Guest>,
    /// The starts of padding nops inside the patch. They are not copied: a thread that arrives there continues after
    /// the patch.
    pub padding_boundaries: Vec<TargetAddress>,
    /// The largest length of the detour, in bytes.
    pub detour_length: usize,
    /// The addresses from which the detour can reach everything that it refers to: the whole detour must lie inside.
    /// Empty when there is no such address.
    pub reach: Range<TargetAddress>,
    /// The function's ranges: a jump into them is no exit ([`crate::FireCondition::IfLeaves`]).
    pub inside: Vec<Range<TargetAddress>>,
    /// The next best patch from the same start with the same points. It is used if no free address fits this patch's
    /// constraint, or if this patch gets no springboard.
    pub alternative: Option<Box<RunPlan>>,
    /// Instructions with points to which known branches lead from outside. A thread that comes by such a branch traps.
    pub entered: Vec<TargetAddress>,
    /// The reason why these sites have no better patch, if it was found out after planning.
    pub obstacle: Option<Obstacle>,
}

impl RunPlan {
    /// The end of the displaced instructions, to which the detour jumps back.
    pub fn end(&self) -> TargetAddress {
        TargetAddress(self.start.0.saturating_add(self.length as u64))
    }

    /// The end of the text, from `start` on, that no other patch may change: the run, the bytes that its jump puns, and
    /// the alternative.
    pub fn claimed_end(&self) -> TargetAddress {
        let jump = match self.tactic {
            Tactic::Trap => self.start,
            // The last bytes of its jump belong to the successor.
            Tactic::Evict if self.successor.is_some() => self.start,
            Tactic::Evict => TargetAddress(self.start.0.saturating_add(2)),
            Tactic::Jump | Tactic::Run | Tactic::Pun => TargetAddress(self.start.0.saturating_add(5)),
        };
        let alternative = self.alternative.as_ref().map_or(self.start, |run| run.claimed_end());
        self.end().max(jump).max(alternative)
    }

    /// The address of the jump to the detour: the run's start, or that of the springboard's jump.
    pub fn jump(&self) -> TargetAddress {
        self.springboard().map_or(self.start, |springboard| springboard.jump)
    }

    /// For an `evict`: the springboard that is used.
    pub fn springboard(&self) -> Option<&Springboard> {
        self.springboards.first().filter(|_| self.tactic == Tactic::Evict)
    }

    /// For an `evict` whose springboard lies in a displaced instruction: the start of that instruction's run. The two
    /// runs are placed together, and this patch needs that patch in the text.
    pub fn host(&self) -> Option<TargetAddress> {
        self.springboard().and_then(|springboard| springboard.host)
    }

    /// Whether no handler fires in the run, which exists only to make room for another run.
    pub fn is_silent(&self) -> bool {
        self.instructions.iter().all(|displaced| displaced.points.is_empty())
    }

    /// A plan of the same points in the next best way, for a run whose jump found no place: the alternative if there is
    /// one, else traps.
    pub fn fallback(&self) -> FunctionPlan {
        match &self.alternative {
            Some(run) => FunctionPlan {
                runs: vec![(**run).clone()],
                refusals: Vec::new(),
            },
            None => self.as_traps(),
        }
    }

    /// The fallback of the run, or refusals if a tactic is forced. The first obstacle is kept in the result.
    pub(crate) fn fallback_under(&self, options: &PlanOptions, obstacle: Obstacle) -> FunctionPlan {
        match options.force {
            None => {
                let mut plan = self.fallback();
                let obstacle = self.obstacle.unwrap_or(obstacle);
                plan.runs.iter_mut().for_each(|run| run.obstacle = Some(obstacle));
                plan
            }
            Some(tactic) => {
                let sites = self
                    .instructions
                    .iter()
                    .filter(|displaced| !displaced.points.is_empty());
                let obstacle = Some(self.obstacle.unwrap_or(obstacle));
                let refusal = |site| {
                    let refusal = Refusal::TacticUnavailable { site, tactic, obstacle };
                    (site, refusal)
                };
                FunctionPlan {
                    runs: Vec::new(),
                    refusals: sites.map(|displaced| refusal(displaced.address)).collect(),
                }
            }
        }
    }

    /// The addresses at which the detour may begin so that all of it lies within [`RunPlan::reach`]. May be empty.
    pub fn detour_starts(&self, detour_length: usize) -> Range<TargetAddress> {
        let end = self.reach.end.0.saturating_sub(detour_length as u64).saturating_add(1);
        self.reach.start..TargetAddress(end)
    }

    pub(crate) fn content(&self) -> Content<'_> {
        Content {
            instructions: &self.instructions,
            end: self.end(),
            inside: &self.inside,
            trap: None,
        }
    }
}

/// One displaced instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Displaced {
    pub address: TargetAddress,
    pub bytes: Vec<u8>,
    /// The points that fire before the instruction, or when its branch is taken.
    pub points: Vec<Point>,
}

impl Displaced {
    /// The instruction at its original address.
    pub(crate) fn decode(&self) -> Instruction {
        Decoder::with_ip(64, &self.bytes, self.address.0, DecoderOptions::NONE).decode()
    }
}
