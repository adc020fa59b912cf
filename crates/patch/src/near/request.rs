//! The conditions that the address of a detour must satisfy.

use std::ops::Range;

use crate::{JumpConstraint, RunPlan, Tactic, TargetAddress};

/// A request for a place.
pub(super) struct Request {
    pub constraint: JumpConstraint,
    /// The address from which displacements count.
    pub base: u64,
    /// The addresses at which the detour may begin so that it reaches everything to which it refers.
    pub starts: Range<u64>,
    pub length: u64,
}

impl Request {
    pub fn of(run: &RunPlan, length: usize) -> Option<Self> {
        let starts = run.detour_starts(length);
        Some(Self {
            constraint: jump_constraint(run),
            base: run.jump().checked_add(5)?.0,
            starts: starts.start.0..starts.end.0,
            length: length.max(1) as u64,
        })
    }

    /// The lowest address in a range at which the detour may begin.
    pub fn first_in(&self, range: Range<u64>) -> Option<u64> {
        let low = range.start.max(self.starts.start);
        let high = range.end.min(self.starts.end);
        if low >= high {
            return None;
        }
        let distance = TargetAddress(low).distance_from(TargetAddress(self.base))?;
        let distance = self.constraint.next(distance)?;
        let address = self.base.checked_add_signed(i64::from(distance))?;
        (low..high).contains(&address).then_some(address)
    }
}

/// The constraint of the jump that leads to the detour.
pub(super) fn jump_constraint(run: &RunPlan) -> JumpConstraint {
    match run.tactic {
        Tactic::Trap => JumpConstraint::FREE,
        Tactic::Evict => run
            .springboard()
            .map_or(run.constraint, |springboard| springboard.constraint),
        Tactic::Jump | Tactic::Run | Tactic::Pun => run.constraint,
    }
}
