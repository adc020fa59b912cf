//! Which `evict` has which springboard.

use std::collections::BTreeMap;
use std::ops::Range;

use super::run::RunPlan;
use super::springboard::Springboard;
use crate::order::sort_by_number;
use crate::{Tactic, TargetAddress};

/// Text that is taken: disjoint ranges.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(BTreeMap<u64, u64>);

impl Claims {
    pub(super) fn add(&mut self, range: Range<TargetAddress>) {
        let end = self.0.entry(range.start.0).or_default();
        *end = range.end.0.max(*end);
    }

    pub(super) fn remove(&mut self, range: &Range<TargetAddress>) {
        self.0.remove(&range.start.0);
    }

    /// Those that begin in a range.
    pub(super) fn within(&self, range: &Range<TargetAddress>) -> Vec<Range<TargetAddress>> {
        let inside = self.0.range(range.start.0..range.end.0);
        inside
            .map(|(start, end)| TargetAddress(*start)..TargetAddress(*end))
            .collect()
    }

    /// Ranges are short: one that overlaps begins at most this far in front.
    pub(super) fn is_free(&self, range: &Range<TargetAddress>) -> bool {
        const LONGEST_CLAIM: u64 = 64;
        let before = range.start.0.saturating_sub(LONGEST_CLAIM);
        !self.0.range(before..range.end.0).any(|(_, end)| *end > range.start.0)
    }
}

fn needs_springboard(run: &RunPlan) -> bool {
    run.tactic == Tactic::Evict && run.successor.is_none() && run.host().is_none()
}

/// Gives every `evict` its springboard: the first of those that it has left afterwards. The second list has the runs
/// for which there was none. `taken`: text that others have.
pub(super) fn assign(runs: Vec<RunPlan>, taken: &[Range<TargetAddress>]) -> (Vec<RunPlan>, Vec<RunPlan>) {
    let mut claims = Claims::default();
    for range in taken.iter().cloned() {
        claims.add(range);
    }
    for run in &runs {
        claims.add(run.start..run.claimed_end());
    }
    // Those with the least choice first.
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.retain(|index| runs.get(*index).is_some_and(needs_springboard));
    sort_by_number(&mut order, |index| {
        runs.get(*index).map_or(0, |run| run.springboards.len() as u64)
    });
    let mut runs: Vec<Option<RunPlan>> = runs.into_iter().map(Some).collect();
    let mut homeless = Vec::new();
    for index in order {
        let Some(slot) = runs.get_mut(index) else { continue };
        let Some(run) = slot else { continue };
        match run
            .springboards
            .iter()
            .position(|springboard| claims.is_free(&springboard.range()))
        {
            Some(found) => {
                run.springboards.swap(0, found);
                claims.add(
                    run.springboards
                        .first()
                        .map_or(run.start..run.start, Springboard::range),
                );
            }
            None => homeless.extend(slot.take()),
        }
    }
    (runs.into_iter().flatten().collect(), homeless)
}
