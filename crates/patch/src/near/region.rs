//! One open region: its gaps, and which of its pages are in use.

use std::ops::Range;

use super::request::Request;

/// No detour is shorter than this, so smaller gaps are not kept.
const SMALLEST_GAP: u64 = 16;

#[derive(Clone, Debug)]
pub(super) struct Region {
    pub range: Range<u64>,
    page: u64,
    /// The free gaps: ascending, disjoint.
    gaps: Vec<Range<u64>>,
    /// For each page, whether a detour lies in it.
    touched: Vec<bool>,
    /// Upper bounds of a gap's length: in all pages, and in touched pages.
    longest: [u64; 2],
}

/// Which pages a placement may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    All = 0,
    /// Only pages in which a detour lies already: these cost no further memory.
    Touched = 1,
}

impl Region {
    pub fn new(range: Range<u64>, page: u64) -> Self {
        let length = range.end - range.start;
        let pages = length.div_ceil(page) as usize;
        Self {
            gaps: vec![range.clone()],
            range,
            page,
            touched: vec![false; pages],
            longest: [length, 0],
        }
    }

    /// Takes the lowest suitable place.
    pub fn place(&mut self, request: &Request, pages: Pages) -> Option<u64> {
        if self.longest[pages as usize] < request.length {
            return None;
        }
        // Most regions have no suitable address at all; one check of the whole range shows this.
        request.first_in(self.range.clone())?;
        match self.find(request, pages) {
            Ok(address) => {
                self.place_at(address, request.length);
                Some(address)
            }
            Err(longest) => {
                self.longest[pages as usize] = longest;
                None
            }
        }
    }

    /// The lowest suitable place, as [`Region::place`] would take it.
    pub fn peek(&self, request: &Request, pages: Pages) -> Option<u64> {
        if self.longest[pages as usize] < request.length {
            return None;
        }
        request.first_in(self.range.clone())?;
        self.find(request, pages).ok()
    }

    /// The lowest suitable place, or the length of the longest gap.
    fn find(&self, request: &Request, pages: Pages) -> Result<u64, u64> {
        let mut longest = 0;
        for gap in &self.gaps {
            let mut rest = gap.clone();
            while !rest.is_empty() {
                let part = match pages {
                    Pages::All => rest.clone(),
                    Pages::Touched => self.touched_part(rest.clone()),
                };
                rest.start = part.end;
                let length = part.end - part.start;
                longest = longest.max(length);
                if length < request.length {
                    continue;
                }
                if let Some(address) = request.first_in(part.start..part.end - request.length + 1) {
                    return Ok(address);
                }
            }
        }
        Err(longest)
    }

    /// The lowest part of a range that lies in touched pages; if there is none, it is empty and lies at the range's
    /// end.
    fn touched_part(&self, range: Range<u64>) -> Range<u64> {
        let page_of = |address: u64| ((address - self.range.start) / self.page) as usize;
        let is_touched = |page: usize| self.touched.get(page).copied().unwrap_or(false);
        let start_of = |page: usize| self.range.start + page as u64 * self.page;
        let mut page = page_of(range.start);
        while start_of(page) < range.end && !is_touched(page) {
            page += 1;
        }
        let start = start_of(page).clamp(range.start, range.end);
        while start_of(page) < range.end && is_touched(page) {
            page += 1;
        }
        start..start_of(page).clamp(start, range.end)
    }

    /// Takes `length` bytes at an address that lies in a gap.
    pub fn place_at(&mut self, address: u64, length: u64) {
        let index = self.gaps.partition_point(|gap| gap.end <= address);
        let Some(gap) = self.gaps.get(index).cloned() else {
            return;
        };
        let rest = [gap.start..address, address + length..gap.end];
        let rest = rest
            .into_iter()
            .filter(|rest| rest.end.saturating_sub(rest.start) >= SMALLEST_GAP);
        self.gaps.splice(index..=index, rest);
        let first = (address - self.range.start) / self.page;
        let last = (address + length - 1 - self.range.start) / self.page;
        for page in first..=last {
            if let Some(touched @ false) = self.touched.get_mut(page as usize) {
                *touched = true;
                self.longest[Pages::Touched as usize] = u64::MAX;
            }
        }
    }

    /// Releases what [`Region::place_at`] took.
    pub fn release(&mut self, address: u64, length: u64) {
        let mut gap = address.max(self.range.start)..address.saturating_add(length).min(self.range.end);
        if gap.is_empty() {
            return;
        }
        let first = self.gaps.partition_point(|free| free.end < gap.start);
        let behind = self.gaps.partition_point(|free| free.start <= gap.end).max(first);
        for joined in self.gaps.get(first..behind).unwrap_or_default() {
            gap = gap.start.min(joined.start)..gap.end.max(joined.end);
        }
        self.gaps.splice(first..behind, [gap]);
        self.longest = [u64::MAX; 2];
    }
}
