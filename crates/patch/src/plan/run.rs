//! The plan of a function: its patches, and what each displaces.

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
    /// Use this tactic only; points for which it does not fit are refused.
    pub force: Option<Tactic>,
    /// Asked now and then whether the plan is still wanted. When it is not, what comes out is not whole.
    pub is_cancelled: Option<fn() -> bool>,
}

impl PlanOptions {
    pub(crate) fn cancelled(&self) -> bool {
        self.is_cancelled.is_some_and(|is_cancelled| is_cancelled())
    }
}

/// What to do to one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionPlan {
    /// The patches, ascending, disjoint (up to [`RunPlan::claimed_end`]).
    pub runs: Vec<RunPlan>,
    /// The points that cannot be placed: site and reason.
    pub refusals: Vec<(TargetAddress, Refusal)>,
}

/// One patch: the instructions it displaces and what their detour must satisfy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlan {
    /// The first displaced instruction; the patch is written here.
    pub start: TargetAddress,
    /// How the jump finds room.
    pub tactic: Tactic,
    /// The instructions that the detour executes, in order, each with the points before it.
    pub instructions: Vec<Displaced>,
    /// For a pun: how many of the last instructions stay in place as well, since the jump shares bytes with them.
    pub kept: usize,
    /// Bytes from `start` to where the detour jumps back: the instructions and, after a final unconditional transfer,
    /// the padding that the patch needs.
    pub length: usize,
    /// The text that the patch replaces, at most 16 bytes: for a trap its instruction, or the beginning of it; 2 for an
    /// `evict`, 5 for a jump, more when instructions with points start after the jump's bytes: the first byte of each
    /// becomes `int3`. Those that a pun keeps are among the 5.
    pub original: Vec<u8>,
    /// Which bytes of the jump must be trapping bytes, or the original ones.
    pub constraint: JumpConstraint,
    /// For an `evict`: where its short jump may lead. The first is used; the others are for [`crate::reconcile`].
    pub springboards: Vec<Springboard>,
    /// For an `evict` without springboard: the instruction directly after it, at which another run starts. Its jump's
    /// first bytes are the last ones of this run's jump, so the two are placed together, and go together.
    pub successor: Option<TargetAddress>,
    /// Whose springboard lies in the rear of the last instruction.
    pub guest: Option<Guest>,
    /// Starts of padding nops inside the patch. They are not copied: a thread that arrives there goes
    /// on after the patch.
    pub padding_boundaries: Vec<TargetAddress>,
    /// The detour's length in bytes, at most.
    pub detour_length: usize,
    /// The addresses from which everything that the detour refers to can be reached: all of it must lie inside. Empty
    /// when there is no such address.
    pub reach: Range<TargetAddress>,
    /// The function's ranges: a jump into them is no exit ([`crate::FireCondition::IfLeaves`]).
    pub inside: Vec<Range<TargetAddress>>,
    /// The next best patch from the same start with the same points, for when no address spells the bytes that this one
    /// needs, or there is no springboard.
    pub alternative: Option<Box<RunPlan>>,
    /// Instructions with points to which known branches lead from outside: a thread that comes that way traps.
    pub entered: Vec<TargetAddress>,
    /// What kept a better patch from these sites, where that was found out after planning.
    pub obstacle: Option<Obstacle>,
}

impl RunPlan {
    /// Where the displaced instructions end: the detour jumps back to it.
    pub fn end(&self) -> TargetAddress {
        TargetAddress(self.start.0.saturating_add(self.length as u64))
    }

    /// The text that no other patch may change lies from `start` up to here: the run, what its jump
    /// puns, and the alternative.
    pub fn claimed_end(&self) -> TargetAddress {
        let jump = match self.tactic {
            Tactic::Trap => self.start,
            // The rest of its jump is the successor's.
            Tactic::Evict if self.successor.is_some() => self.start,
            Tactic::Evict => TargetAddress(self.start.0.saturating_add(2)),
            Tactic::Jump | Tactic::Run | Tactic::Pun => TargetAddress(self.start.0.saturating_add(5)),
        };
        let alternative = self.alternative.as_ref().map_or(self.start, |run| run.claimed_end());
        self.end().max(jump).max(alternative)
    }

    /// Where the jump to the detour lies: at the start, or on the springboard.
    pub fn jump(&self) -> TargetAddress {
        self.springboard().map_or(self.start, |springboard| springboard.jump)
    }

    /// For an `evict`: the springboard that is used.
    pub fn springboard(&self) -> Option<&Springboard> {
        self.springboards.first().filter(|_| self.tactic == Tactic::Evict)
    }

    /// For an `evict` whose springboard lies in a displaced instruction: the start of that one's run. The two are
    /// placed together; this one needs that one in the text.
    pub fn host(&self) -> Option<TargetAddress> {
        self.springboard().and_then(|springboard| springboard.host)
    }

    /// Whether nothing fires in it: it is there for the sake of the run before it.
    pub fn is_silent(&self) -> bool {
        self.instructions.iter().all(|displaced| displaced.points.is_empty())
    }

    /// The same points in the next best way, for a run whose jump found no place: the alternative, else traps.
    /// Repeated, it ends with traps.
    pub fn fallback(&self) -> FunctionPlan {
        match &self.alternative {
            Some(run) => FunctionPlan {
                runs: vec![(**run).clone()],
                refusals: Vec::new(),
            },
            None => self.as_traps(),
        }
    }

    /// The same, or refusals where a tactic is forced; the first obstacle is taken down.
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

    /// Where the detour may begin such that all of it lies within [`RunPlan::reach`]. May be empty.
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
    /// Its original address.
    pub address: TargetAddress,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What fires before it (or on its taken edge).
    pub points: Vec<Point>,
}

impl Displaced {
    /// The instruction at its original address.
    pub(crate) fn decode(&self) -> Instruction {
        Decoder::with_ip(64, &self.bytes, self.address.0, DecoderOptions::NONE).decode()
    }
}
