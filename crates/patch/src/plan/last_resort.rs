//! The last resort before a trap: a run into which a known branch leads.
//!
//! A thread that comes by that branch meets a trapping byte. Invariant I1 makes that safe, but it costs a signal. For
//! each time that a run is entered at its start, a branch to the head of a loop in it may be taken a million times.
//! The text does not say how often. So an instruction without a probe is never made to trap for the sake of one with
//! a probe.
//!
//! This changes if the instructions to which branches lead are probed as well. They would have traps of their own:
//!
//! ```text
//!            each by itself                   together
//!   S:       int3     a signal a hit          jmp detour    a jump a hit
//!   T:       int3     a signal a hit          (boundary)    a signal for a branch to it, nothing more for a thread
//!   ...                                                     that comes from S
//! ```
//!
//! No thread pays more than before. A thread that comes from S pays only for a jump. [`RunPlan::entered`] says where
//! branches arrive.

use super::planner::{Choice, Planner, Quality};
use super::run::RunPlan;
use super::shape::{BranchTargets, JUMP, shape_at};
use super::sites::Site;

impl Planner<'_> {
    /// A run over a site for which there is no other run. It may also cover later sites to which branches lead, if
    /// there is no other run for them either. `rest`: the later sites in reverse order.
    pub(super) fn last_resort(&self, site: &Site, rest: &[Site]) -> Option<Choice> {
        let map = self.map;
        if self.force.is_some() {
            return None;
        }
        let first = *map.code().get(site.index)?;
        let mut trapping = Vec::new();
        for (number, other) in rest.iter().rev().enumerate() {
            let offset = map.code().get(other.index)?.offset;
            if offset >= first.offset + JUMP {
                break;
            }
            if !map.is_target_from_outside(offset, first.offset) {
                continue;
            }
            let behind = rest.get(..rest.len() - number - 1)?;
            let alone = self.choose(other, behind, first.end());
            if alone.is_some() || self.choose_with_successor(other, behind, first.end()).is_some() {
                return None;
            }
            trapping.push(offset);
        }
        if trapping.is_empty() {
            return None;
        }
        let shape = shape_at(map, site.index, site.index, JUMP, BranchTargets::Trapping(&trapping))?;
        let (run, covered): (RunPlan, usize) = self.cover(&shape, std::slice::from_ref(site), rest)?;
        Some(Choice {
            quality: Quality::PartlyTrapping,
            first: site.index,
            run,
            covered,
        })
    }
}
