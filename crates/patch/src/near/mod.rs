//! Where detours live: a pure allocator of near memory.

use std::ops::Range;

use crate::{RunPlan, TargetAddress};

/// Near memory, to be mapped in holes of the target's address space. Pure: it decides, the caller maps
/// [`NearSpace::regions`].
#[derive(Clone, Debug)]
pub struct NearSpace {
    holes: Vec<Range<u64>>,
    page: u64,
}

impl NearSpace {
    /// An allocator over the holes of the target's address map. The caller has taken out of them what must stay free:
    /// where the heap grows (above its end), where stacks grow (below them), the first pages.
    pub fn new(holes: Vec<Range<u64>>, page_size: u64) -> Self {
        Self { holes, page: page_size }
    }

    /// Takes `length` bytes for the detour of `run`, so that its constraint and its reach are satisfied; opens a new
    /// region when none of the open ones serves. `None` when there is no such place.
    pub fn place(&mut self, run: &RunPlan, length: usize) -> Option<TargetAddress> {
        todo!("{run:?} {length} {:?} {}", self.holes, self.page)
    }

    /// Places many runs (each with its `detour_length`), the most constrained ones first; the answers are in the order
    /// of the runs.
    pub fn place_all(&mut self, runs: &[&RunPlan]) -> Vec<Option<TargetAddress>> {
        runs.iter().map(|run| self.place(run, run.detour_length)).collect()
    }

    /// What is to be mapped, ascending, disjoint, neighbours merged, whole pages.
    pub fn regions(&self) -> Vec<Range<TargetAddress>> {
        Vec::new()
    }
}
