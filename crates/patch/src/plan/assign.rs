//! Assigns springboards to the `evict` runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::run::RunPlan;
use super::springboard::Springboard;
use crate::order::sort_by_number;
use crate::{Tactic, TargetAddress};

/// Ranges of text that are taken; they are disjoint.
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

    /// The taken ranges that begin in this range.
    pub(super) fn within(&self, range: &Range<TargetAddress>) -> Vec<Range<TargetAddress>> {
        let inside = self.0.range(range.start.0..range.end.0);
        inside
            .map(|(start, end)| TargetAddress(*start)..TargetAddress(*end))
            .collect()
    }

    /// Whether no taken range overlaps this one. Ranges are short, so a range that overlaps it begins at most
    /// `LONGEST_CLAIM` bytes before it.
    pub(super) fn is_free(&self, range: &Range<TargetAddress>) -> bool {
        const LONGEST_CLAIM: u64 = 64;
        let before = range.start.0.saturating_sub(LONGEST_CLAIM);
        !self.0.range(before..range.end.0).any(|(_, end)| *end > range.start.0)
    }
}

fn needs_springboard(run: &RunPlan) -> bool {
    run.tactic == Tactic::Evict && run.successor.is_none() && run.host().is_none()
}

/// Gives every `evict` a springboard, which is put first in the list of the run. The second list has the runs without a
/// springboard. `taken`: text that belongs to other patches.
pub(super) fn assign(mut runs: Vec<RunPlan>, taken: &[Range<TargetAddress>]) -> (Vec<RunPlan>, Vec<RunPlan>) {
    let mut claims = Claims::default();
    for range in taken.iter().cloned() {
        claims.add(range);
    }
    for run in &runs {
        claims.add(run.start..run.claimed_end());
    }
    // The runs with the least choice go first.
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.retain(|index| runs.get(*index).is_some_and(needs_springboard));
    sort_by_number(&mut order, |index| {
        runs.get(*index).map_or(0, |run| run.springboards.len() as u64)
    });
    let mut homeless = BTreeSet::new();
    for index in order {
        let Some(run) = runs.get_mut(index) else { continue };
        let mut springboards = run.springboards.iter();
        match springboards.position(|springboard| claims.is_free(&springboard.range())) {
            Some(found) => {
                run.springboards.swap(0, found);
                claims.add(
                    run.springboards
                        .first()
                        .map_or(run.start..run.start, Springboard::range),
                );
            }
            None => {
                homeless.insert(index);
            }
        }
    }
    // The other runs are not moved in memory, because they may be those of all functions of a program.
    let mut index = 0..;
    let homeless = runs.extract_if(.., |_| index.next().is_some_and(|index| homeless.contains(&index)));
    let homeless = homeless.collect();
    (runs, homeless)
}
