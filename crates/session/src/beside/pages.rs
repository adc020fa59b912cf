//! The pages of text in which patches lie, read at one moment.

use std::collections::BTreeSet;
use std::ops::Range;

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Memory;
use nanoprobe_text::Patch;

use crate::layout::PAGE_BYTES;

/// Neighbouring pages are read at once, but no more than these.
const PAGES_AT_ONCE: usize = 16;

/// The numbers of the pages that a patch changes.
pub(super) fn pages_of(patch: &Patch) -> Range<u64> {
    let built = &patch.built;
    let end = built.address.0.saturating_add(built.patched.len() as u64);
    built.address.0 / PAGE_BYTES..end.div_ceil(PAGE_BYTES)
}

/// Pages of text, as far as they could be read.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Runs of neighbouring pages in ascending order: the first address, and the bytes.
    runs: Vec<(u64, Vec<u8>)>,
}

impl Pages {
    /// Reads the pages in which the patches lie.
    pub fn of(patches: &[&Patch], memory: &Memory) -> Pages {
        Pages::read(patches.iter().flat_map(|patch| pages_of(patch)).collect(), memory)
    }

    /// Reads pages, given their numbers. Pages that the process shares with children stay shared.
    fn read(pages: BTreeSet<u64>, memory: &Memory) -> Pages {
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        let pages: Vec<u64> = pages.into_iter().collect();
        let follows = |page: &u64, next: &u64| page + 1 == *next;
        for run in pages.chunk_by(follows).flat_map(|run| run.chunks(PAGES_AT_ONCE)) {
            let Some(first) = run.first() else { continue };
            let start = first * PAGE_BYTES;
            let mut bytes = vec![0; run.len() * PAGE_BYTES as usize];
            if memory.read_shared(TargetAddress(start), &mut bytes) == bytes.len() {
                runs.push((start, bytes));
                continue;
            }
            // A page cannot be read, as where a library was unloaded: each is tried by itself.
            for page in run {
                let start = page * PAGE_BYTES;
                let mut bytes = vec![0; PAGE_BYTES as usize];
                let read = memory.read_shared(TargetAddress(start), &mut bytes);
                bytes.truncate(read);
                runs.push((start, bytes));
            }
        }
        Pages { runs }
    }

    /// The bytes from `address` to the end of a run; empty if it was not read.
    fn from(&self, address: u64) -> &[u8] {
        let after = self.runs.partition_point(|(start, _)| *start <= address);
        let run = after.checked_sub(1).and_then(|index| self.runs.get(index));
        run.and_then(|(start, bytes)| bytes.get((address - start) as usize..))
            .unwrap_or_default()
    }

    /// The byte at an address.
    pub fn byte_at(&self, address: u64) -> Option<u8> {
        self.from(address).first().copied()
    }

    /// Whether these bytes are at an address. False also if a run ends within them.
    pub fn holds(&self, address: TargetAddress, bytes: &[u8]) -> bool {
        self.from(address.0).starts_with(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_is_read() -> std::io::Result<()> {
        let page = PAGE_BYTES as usize;
        let file = tempfile::tempfile()?;
        let text: Vec<u8> = (0..40 * page + 10).map(|index| (index / 100) as u8).collect();
        std::os::unix::fs::FileExt::write_all_at(&file, &text, 0)?;
        let memory = Memory::of_file(file);
        let wanted = [3, 4, 7].into_iter().chain(10..30).chain(39..50);
        let pages = Pages::read(wanted.clone().collect(), &memory);
        for number in 0..50 {
            for offset in [0, 9, 10, page - 1] {
                let place = number * page + offset;
                let there = text
                    .get(place)
                    .copied()
                    .filter(|_| wanted.clone().any(|page| page == number as u64));
                assert_eq!(pages.byte_at(place as u64), there, "{place}");
            }
        }
        let holds = |place: usize, bytes: usize| {
            let expected = text.get(place..place + bytes).unwrap_or(&[]);
            pages.holds(TargetAddress(place as u64), expected)
        };
        assert!(holds(3 * page, 5) && holds(5 * page - 5, 5) && holds(4 * page - 2, 5));
        assert!(!holds(8 * page - 2, 5), "the next page was not asked for");
        assert!(!pages.holds(TargetAddress(3 * PAGE_BYTES), &[0xcc]));
        assert!(!pages.holds(TargetAddress(0), &[0]) && !pages.holds(TargetAddress(u64::MAX), &[0]));
        Ok(())
    }
}
