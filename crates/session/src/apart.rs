//! Text that is patched is set apart: it gets mappings of its own.
//!
//! A fork leaves out the page tables of a file's mapping in which nobody has written, and copies those of the whole
//! mapping if one page was written (`vma_needs_copy` in the kernel's mm/memory.c):
//!
//! ```text
//!   the program's text     |..........P...............................................|   all of it is copied
//!   set apart              |..........|P|.............................................|   one page is copied
//! ```
//!
//! So before the first byte is written the pages with patches get an advice that the rest has not. The kernel splits
//! the mapping there. MADV_RANDOM asks for no reading ahead, which is nothing to pages that patches have copied into
//! memory. At the end the advice is taken back, and the mappings become one again.

use std::collections::BTreeSet;
use std::ops::Range;

use nanoprobe_arena::ControlBlock;
use nanoprobe_arena::layout::REGION_TEXT;
use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::Module;
use nanoprobe_target::Stopped;
use nanoprobe_text::Patch;
use nanoprobe_text::modules::Modules;

use crate::arming::ranges;
use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::layout::PAGE_BYTES;
use crate::placement::Changes;

/// A fork copies two more mappings in the time in which it copies so many pages' entries of page tables.
const PAGES_OF_TWO_MAPPINGS: u64 = 22;
/// A text is split if that spares a fork the entries of so many pages: some 20 us. To split it takes about as long,
/// once.
const WORTH_PAGES: u64 = 256;
/// Parts of a text that are set apart at most: a process has a limited number of mappings.
const PARTS_MAX: usize = 32;

impl Attachment {
    /// Maps the near memory that patches need, and sets their text apart. `modules`: where the patches may lie.
    ///
    /// # Errors
    /// The target refuses the mappings.
    pub(crate) fn make_room(
        &mut self,
        stopped: &mut Stopped,
        modules: &Modules,
        changes: &Changes,
    ) -> Result<(), SessionError> {
        self.map_regions(stopped, &changes.regions)?;
        self.set_apart(stopped, modules, &changes.patches)
    }

    /// Sets apart the text that the patches will change, where forks gain by that. A text that cannot be split is
    /// only slower to fork.
    ///
    /// # Errors
    /// The thread cannot be led home.
    fn set_apart(&mut self, stopped: &mut Stopped, modules: &Modules, patches: &[Patch]) -> Result<(), SessionError> {
        let pages = pages_of(patches);
        // Where a library was unloaded, other memory may lie now.
        let loaded = modules.list().iter().enumerate();
        let loaded = loaded.filter_map(|(index, module)| modules.is_loaded(index).then_some(module));
        let parts = loaded.filter_map(text_of).flat_map(|text| parts(text, &pages));
        let parts: Vec<Range<u64>> = parts.collect();
        if parts.is_empty() {
            return Ok(());
        }
        let tid = stopped.best_thread()?;
        let mut remote = stopped.remote(tid)?;
        for part in parts {
            let (address, bytes) = (TargetAddress(part.start), part.end - part.start);
            if self.publish(REGION_TEXT, address, bytes).is_err() {
                break;
            }
            if remote.advise(address, bytes, libc::MADV_RANDOM).is_err() {
                ControlBlock::open(self.memory()?)?.withdraw_region()?;
                self.regions.pop();
                break;
            }
        }
        Ok(remote.finish()?)
    }
}

/// The numbers of the pages that patches change.
fn pages_of(patches: &[Patch]) -> BTreeSet<u64> {
    let ranges = patches.iter().flat_map(ranges);
    let ends = ranges.flat_map(|range| {
        let last = range
            .address
            .0
            .saturating_add(range.original.len().saturating_sub(1) as u64);
        [range.address.0, last]
    });
    ends.map(|address| address / PAGE_BYTES).collect()
}

/// The numbers of the pages from a module's first instruction to its last one.
fn text_of(module: &Module) -> Option<Range<u64>> {
    let address = |image| module.bias().to_target(image).0;
    let start = module.executable_ranges().map(|range| address(range.start)).min()?;
    let end = module.executable_ranges().map(|range| address(range.end)).max()?;
    Some(start / PAGE_BYTES..end.div_ceil(PAGE_BYTES))
}

/// The addresses that are set apart of a text, given the numbers of its pages and of the pages with patches.
fn parts(text: Range<u64>, pages: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let pages: Vec<u64> = pages.range(text.clone()).copied().collect();
    let (Some(first), Some(last)) = (pages.first(), pages.last()) else {
        return Vec::new();
    };
    // The pages without patches between one page and the next.
    let between = pages.windows(2).filter_map(|pair| match pair {
        [page, next] => Some(page + 1..*next),
        _ => None,
    });
    let width = |gap: &Range<u64>| gap.end - gap.start;
    let mut gaps: Vec<Range<u64>> = between.filter(|gap| width(gap) > PAGES_OF_TWO_MAPPINGS).collect();
    gaps.sort_by_key(|gap| std::cmp::Reverse(width(gap)));
    gaps.truncate(PARTS_MAX - 1);
    let outside = (first - text.start) + (text.end - last - 1);
    let inside: u64 = gaps.iter().map(|gap| width(gap) - PAGES_OF_TWO_MAPPINGS).sum();
    if outside + inside < WORTH_PAGES {
        return Vec::new();
    }
    gaps.sort_by_key(|gap| gap.start);
    let starts = [*first].into_iter().chain(gaps.iter().map(|gap| gap.end));
    let ends = gaps.iter().map(|gap| gap.start).chain([last + 1]);
    let addresses = |(start, end): (u64, u64)| start * PAGE_BYTES..end * PAGE_BYTES;
    starts.zip(ends).map(addresses).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "a list of one part")]

    use super::*;

    fn parts_in_pages(text: Range<u64>, pages: impl IntoIterator<Item = u64>) -> Vec<Range<u64>> {
        let parts = parts(text, &pages.into_iter().collect());
        let page = |part: Range<u64>| part.start / PAGE_BYTES..part.end / PAGE_BYTES;
        parts.into_iter().map(page).collect()
    }

    #[test]
    fn near_pages_are_one_part_and_distant_ones_two() {
        assert_eq!(parts_in_pages(100..2100, [500, 501, 523, 600]), [500..524, 600..601]);
        assert_eq!(parts_in_pages(100..2100, [100]), [100..101]);
        assert_eq!(parts_in_pages(100..2100, [2099]), [2099..2100]);
        assert_eq!(parts_in_pages(100..2100, [99, 2100]), []);
    }

    #[test]
    fn a_text_is_whole_if_forks_gain_little() {
        assert_eq!(parts_in_pages(0..250, [10]), []);
        assert_eq!(parts_in_pages(0..257, [10]), [10..11]);
        assert_eq!(parts_in_pages(0..2000, (0..2000).step_by(20)), []);
        assert_eq!(parts_in_pages(0..2000, 0..1800), []);
        assert_eq!(parts_in_pages(0..2000, 0..1700), [0..1700]);
    }

    #[test]
    fn the_widest_gaps_are_spared() {
        let pages = (0..100).map(|page| page * 30 + if page >= 50 { 1000 } else { 0 });
        let parts = parts_in_pages(0..4000, pages);
        assert_eq!(parts.len(), PARTS_MAX);
        let spared = |part: &[Range<u64>]| part[0].end..part[1].start;
        assert!(parts.windows(2).map(spared).any(|gap| gap == (1471..2500)), "{parts:?}");
    }
}
