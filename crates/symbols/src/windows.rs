//! The pieces in which a large part of a file is read if not all of it is needed. A program of 100 MB may have 50 MB
//! of data, of which only a few tables of jumps are needed.
//!
//! ```text
//!   section with code, or small     one window
//!   large section without           windows of 256 KiB, each with the beginning of the next one
//!   between sections                none
//! ```
//!
//! If no window contains a requested range, the whole part is read.

use std::ops::Range;
use std::sync::OnceLock;

/// Sections without code that are larger than this have several windows.
const SECTION_BYTES_MAX: u64 = 4 << 20;
/// The distance from one window of a section to the next.
const STRIDE_BYTES: u64 = 256 << 10;
/// How far a window extends into the next one.
const OVERLAP_BYTES: u64 = 16 << 10;
/// A window extends beyond its section up to the end of the page, which is mapped with the section.
const PAGE_BYTES: u64 = 4096;

/// The place of a section in the file.
#[derive(Clone, Debug)]
pub(crate) struct SectionRange {
    pub range: Range<u64>,
    pub has_code: bool,
}

/// The windows of a part.
#[derive(Default)]
pub(crate) struct Windows(
    /// Ascending by their starts.
    Vec<Window>,
);

struct Window {
    range: Range<u64>,
    /// The bytes; empty if they could not be read.
    contents: OnceLock<Vec<u8>>,
}

impl Windows {
    /// The windows of a part, whose bytes are not read yet. There are none if there is no part. Overlapping sections,
    /// which no linker makes, have no windows.
    pub fn of(part: Option<&Range<u64>>, sections: &[SectionRange]) -> Windows {
        let Some(part) = part else {
            return Windows::default();
        };
        let mut inside: Vec<&SectionRange> = sections
            .iter()
            .filter(|section| part.start <= section.range.start && section.range.end <= part.end)
            .filter(|section| !section.range.is_empty())
            .collect();
        inside.sort_by_key(|section| section.range.start);
        let overlap = |pair: &[&SectionRange]| matches!(pair, [one, next] if next.range.start < one.range.end);
        if inside.windows(2).any(overlap) {
            return Windows::default();
        }
        let ranges = inside.iter().flat_map(|section| {
            let Range { start, end } = section.range.clone();
            let is_one = section.has_code || end - start <= SECTION_BYTES_MAX;
            let (stride, more) = match is_one {
                true => (end - start, PAGE_BYTES),
                false => (STRIDE_BYTES, OVERLAP_BYTES),
            };
            let stop = end.saturating_add(PAGE_BYTES).min(part.end);
            let starts = (start..end).step_by(usize::try_from(stride).unwrap_or(usize::MAX));
            starts.map(move |from| from..from.saturating_add(stride + more).min(stop))
        });
        let window = |range| Window {
            range,
            contents: OnceLock::new(),
        };
        Windows(ranges.map(window).collect())
    }

    /// The window that contains a range, and its start. `read` reads a window on first use.
    pub fn around(&self, wanted: &Range<u64>, read: impl FnOnce(Range<u64>) -> Vec<u8>) -> Option<(&[u8], u64)> {
        let behind = self.0.partition_point(|window| window.range.start <= wanted.start);
        let window = self.0.get(behind.checked_sub(1)?)?;
        let has_all = wanted.start < window.range.end && wanted.end <= window.range.end;
        has_all.then(|| {
            let contents = window.contents.get_or_init(|| read(window.range.clone()));
            (contents.as_slice(), window.range.start)
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These windows without their bytes.
    pub fn unread(&self) -> Windows {
        let unread = |window: &Window| Window {
            range: window.range.clone(),
            contents: OnceLock::new(),
        };
        Windows(self.0.iter().map(unread).collect())
    }

    /// The number of bytes that are held.
    pub fn held_bytes(&self) -> u64 {
        let read = self.0.iter().filter_map(|window| window.contents.get());
        read.map(|contents| contents.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(range: Range<u64>, has_code: bool) -> SectionRange {
        SectionRange { range, has_code }
    }

    /// The bytes of a range of a file in which each byte depends on its offset.
    fn bytes_at(range: Range<u64>) -> Vec<u8> {
        range.map(|at| (at / 4096) as u8).collect()
    }

    #[test]
    fn a_window_reads_only_its_part_of_the_file() {
        const DATA: u64 = 8 << 20;
        let code = section(0x1000..0x40_0000, true);
        let data = section(0x40_0000..0x40_0000 + DATA, false);
        let end = data.range.end + PAGE_BYTES / 2;
        let windows = Windows::of(Some(&(0..end)), &[data, code]);
        assert_eq!(windows.0.len() as u64, 1 + DATA / STRIDE_BYTES);
        for wanted in [
            0x1000..0x40_0000,
            0x1234..0x1235,
            0x3f_fff8..0x40_0000,
            0x40_0000..0x40_0008,
            0x40_0000 + STRIDE_BYTES - 4..0x40_0000 + STRIDE_BYTES + 4,
            end - 8..end,
        ] {
            let (bytes, start) = windows.around(&wanted, bytes_at).expect("a window has it");
            let from = (wanted.start - start) as usize;
            let found = &bytes[from..from + (wanted.end - wanted.start) as usize];
            assert_eq!(found, bytes_at(wanted.clone()), "{wanted:x?}");
        }
        let windows = Windows::of(Some(&(0..end)), &[section(0x1000..end, false)]);
        for nowhere in [0..8, 0xff8..0x1008, 0x1000..0x1000 + 2 * STRIDE_BYTES, 0..end] {
            assert!(
                windows.around(&nowhere, |_| panic!("not to be read")).is_none(),
                "{nowhere:x?}"
            );
        }
        assert_eq!(windows.held_bytes(), 0);
    }

    #[test]
    fn overlapping_sections_have_no_windows() {
        let both = [section(0..0x2000, true), section(0x1000..0x3000, false)];
        assert!(Windows::of(Some(&(0..0x10_0000)), &both).0.is_empty());
    }
}
