//! The input of planning, the quality of a shape, and the run of a shape over its sites.

use std::collections::BTreeSet;
use std::ops::Range;

use super::displace::displace;
use super::run::RunPlan;
use super::shape::{BranchTargets, Followers, JUMP, SHORT_JUMP, Shape, pun_at, shape_at};
use super::sites::Site;
use super::springboard;
use crate::function::{FunctionMap, Padding};
use crate::order::sort_by_number;
use crate::{JumpConstraint, Tactic};

/// The quality of a shape, best first: the cost of a hit, then how likely a place for the detour is. The figures are
/// the measured cost of a hit beyond that of a jump, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Quality {
    /// A jump over instructions without a call.
    Jump,
    /// A pun with windows of 64 KiB or more, whose detour executes copies of the instructions that share bytes with
    /// the jump: 0.
    Pun,
    /// The run before the site, extended: 0. A thread that comes to the site by an unknown branch traps.
    Extended,
    /// A short jump to a springboard: 0.2. Places for springboards are scarce.
    Evict,
    /// A pun whose detour jumps back to the bytes that are shared: 5.
    SharedPun,
    /// A jump over a call or system call, which is executed out of line. Its return is mispredicted: 11.
    JumpWithCall,
    EvictWithCall,
    PunWithCall,
    ExtendedWithCall,
    /// Three or four bytes are punned. This leaves a window of 256 bytes, or one address, so the detour has a page of
    /// its own. A pun that shares bytes with code that is not known to be executed has the same rank.
    NarrowPun,
    /// The jump ends with the successor's jump: 5, and 1 for a thread that comes to the successor.
    OnSuccessor,
    /// A thread that comes by a known branch traps; other threads do not.
    PartlyTrapping,
}

/// The input of planning.
pub(super) struct Planner<'a> {
    pub(super) map: &'a FunctionMap,
    pub(super) force: Option<Tactic>,
    /// The padding in which springboards may lie.
    pub(super) padding: &'a [Padding],
    /// The ranges in which detours may lie.
    pub(super) near: &'a [Range<u64>],
    /// The sites, by the index of their instruction, for which there was no springboard.
    pub(super) barred: BTreeSet<usize>,
}

/// A run for a site.
pub(super) struct Choice {
    pub quality: Quality,
    /// Index of the run's first instruction.
    pub first: usize,
    pub run: RunPlan,
    /// The number of later sites that the run covers as well.
    pub covered: usize,
}

/// A planned run, and the sites that it covers.
pub(super) struct Previous {
    /// Index of the run's first instruction.
    pub first: usize,
    pub sites: Vec<Site>,
}

impl Planner<'_> {
    /// Every shape that starts with instruction `first` and contains instruction `site`, the best first.
    pub(super) fn shapes(&self, first: usize, site: usize) -> Vec<(Quality, Shape)> {
        let map = self.map;
        let with_call = |shape: &Shape, without, with| if shape.avoided { with } else { without };
        let run = shape_at(map, first, site, JUMP, BranchTargets::Refuse).map(|shape| match shape.keeps_unreached {
            true => (Quality::NarrowPun, shape),
            false => (with_call(&shape, Quality::Jump, Quality::JumpWithCall), shape),
        });
        let puns = [Followers::Copied, Followers::Executed].map(|followers| {
            let shape = pun_at(map, first, site, followers)?;
            let quality = if shape.punned > 2 {
                Quality::NarrowPun
            } else if shape.avoided {
                Quality::PunWithCall
            } else if shape.shared {
                Quality::SharedPun
            } else {
                Quality::Pun
            };
            Some((quality, shape))
        });
        let evict = shape_at(map, first, site, SHORT_JUMP, BranchTargets::Refuse)
            .map(|shape| (with_call(&shape, Quality::Evict, Quality::EvictWithCall), shape));
        let is_shared = first == 0 && map.is_successor();
        let evict = evict.filter(|_| !self.barred.contains(&site) && !is_shared);
        let partly =
            shape_at(map, first, site, JUMP, BranchTargets::BehindJump).map(|shape| (Quality::PartlyTrapping, shape));
        let [copied, executed] = puns;
        let mut shapes: Vec<(Quality, Shape)> = [copied, executed, run, evict, partly].into_iter().flatten().collect();
        shapes.retain(|(_, shape)| self.force.is_none_or(|tactic| tactic == shape.tactic()));
        sort_by_number(&mut shapes, |(quality, _)| *quality as u64);
        shapes
    }

    /// Whether there is near memory at the addresses to which a jump at the run's start can lead. This is almost always
    /// true if the jump does not pun.
    pub(super) fn has_place(&self, run: &RunPlan, constraint: JumpConstraint) -> bool {
        if constraint.punned() == 0 {
            return true;
        }
        let window = constraint.window();
        let behind = run.start.0.saturating_add(u64::from(JUMP));
        let starts = run.detour_starts(run.detour_length);
        let low = behind.saturating_add_signed(window.start).max(starts.start.0);
        let high = behind.saturating_add_signed(window.end).min(starts.end.0);
        let first = self.near.partition_point(|hole| hole.end <= low);
        low < high && self.near.get(first).is_some_and(|hole| hole.start < high)
    }

    /// The run of a shape over `sites` and those of `rest` that it reaches, with their number. `None` if the run
    /// cannot be moved, has no springboard, or claims text in which another site lies. Neither a displaced padding
    /// nop (never executed) nor a punned instruction (must stay as it is) can have handlers.
    pub(super) fn cover(&self, shape: &Shape, sites: &[Site], rest: &[Site]) -> Option<(RunPlan, usize)> {
        let map = self.map;
        let covered = rest.iter().rev().take_while(|other| other.index < shape.behind).count();
        let next_site = rest
            .iter()
            .rev()
            .nth(covered)
            .and_then(|other| map.code().get(other.index));
        if next_site.is_some_and(|next| next.offset < shape.claimed_end()) {
            return None;
        }
        let mut springboards = Vec::new();
        if shape.jump == SHORT_JUMP {
            let start = map.address(map.code().get(shape.first)?.offset);
            springboards = springboard::candidates(start, shape.constraint.has_boundary_at(1), self.padding);
            // A run that reaches into padding needs a part of the padding for itself.
            let own = start..map.address(shape.claimed_end());
            springboards.retain(|springboard| {
                let range = springboard.range();
                (range.end <= own.start || own.end <= range.start) && !map.is_taken(&range)
            });
            if springboards.is_empty() {
                return None;
            }
        }
        let sites: Vec<&Site> = sites.iter().chain(rest.iter().rev().take(covered)).collect();
        let run = displace(map, shape, &sites, springboards).ok()?;
        let has_place = shape.jump == SHORT_JUMP || self.has_place(&run, run.constraint);
        has_place.then_some((run, covered))
    }
}
