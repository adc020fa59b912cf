//! One open region: its gaps.

use std::ops::Range;

use super::Request;

/// No detour is shorter than this, so smaller gaps are forgotten.
const SMALLEST_GAP: u64 = 16;

#[derive(Clone, Debug)]
pub(super) struct Region {
    pub range: Range<u64>,
    /// Free, ascending, disjoint.
    gaps: Vec<Range<u64>>,
    /// No gap is longer than this.
    longest: u64,
}

impl Region {
    pub fn new(range: Range<u64>) -> Self {
        let longest = range.end - range.start;
        Self { gaps: vec![range.clone()], range, longest }
    }

    /// Takes the lowest suitable place.
    pub fn place(&mut self, request: &Request) -> Option<u64> {
        if self.longest < request.length {
            return None;
        }
        // Most regions do not suit at all: one look at the whole range tells.
        request.first_in(self.range.clone())?;
        let mut longest = 0;
        for gap in &self.gaps {
            let length = gap.end - gap.start;
            longest = longest.max(length);
            if length < request.length {
                continue;
            }
            if let Some(address) = request.first_in(gap.start..gap.end - request.length + 1) {
                self.place_at(address, request.length);
                return Some(address);
            }
        }
        self.longest = longest;
        None
    }

    /// Takes `length` bytes at an address that lies in a gap.
    pub fn place_at(&mut self, address: u64, length: u64) {
        let index = self.gaps.partition_point(|gap| gap.end <= address);
        let Some(gap) = self.gaps.get(index).cloned() else { return };
        let rest = [gap.start..address, address + length..gap.end];
        let rest = rest.into_iter().filter(|rest| rest.end.saturating_sub(rest.start) >= SMALLEST_GAP);
        self.gaps.splice(index..=index, rest);
    }
}
