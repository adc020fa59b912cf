//! Bytes that are mapped with the code and have no owner. They align the next section, or fill a segment's last page.
//!
//! ```text
//!   .init  50 58 c3 | 00 00 .. 00 | .text ..        the linker aligned .text: fewer bytes than its alignment
//!   .fini  50 58 c3 | 00 00 .. .. | end of page     the kernel maps whole pages: the next bytes of the file, too
//! ```
//!
//! These bytes are executable and belong to no section, so nothing in the file describes them, and no code reads
//! them. If the headers leave a doubt, there is no gap. Doubts are: there are no sections; the space is larger than
//! an alignment explains (a section's header was removed); a segment continues in memory without the file; the page
//! belongs to another segment, too.

use object::elf;

use crate::address::AddressRange;
use crate::elf::Elf;
use crate::table::SECTIONS_MAX;

const PAGE: u64 = 4096;

impl Elf {
    /// The gap that begins at `end`, where an executable section ends. Often the gap is empty.
    pub fn gap_after(&self, end: u64) -> AddressRange {
        let nothing = AddressRange::new(end, end);
        let ends_here = self.executable.iter().any(|range| range.end.0 == end);
        let allocated = || {
            self.sections
                .iter()
                .filter(|section| section.allocated && section.bytes > 0)
        };
        let is_inside = |start: u64, bytes: u64| start < end && end - start < bytes;
        let contradicted = allocated().any(|section| is_inside(section.address, section.bytes));
        if !ends_here || self.sections.len() >= SECTIONS_MAX || allocated().next().is_none() || contradicted {
            return nothing;
        }
        let last = |address: u64, bytes: u64| address < end && end - address <= bytes;
        let mut of_code = self.segments.iter().filter(|segment| segment.executable);
        let Some(segment) = of_code.find(|segment| last(segment.address, segment.file_bytes)) else {
            return nothing;
        };
        let segment_end = segment.address.saturating_add(segment.file_bytes);
        if end < segment_end {
            let next = allocated()
                .filter(|section| section.address >= end && section.kind != elf::SHT_NOBITS.0)
                .min_by_key(|section| section.address);
            return match next {
                Some(next) if next.address < segment_end && next.address - end < next.alignment => {
                    AddressRange::new(end, next.address)
                }
                _ => nothing,
            };
        }
        let Some(page_end) = end.checked_next_multiple_of(PAGE) else {
            return nothing;
        };
        let shares_the_page = self.segments.iter().any(|other| {
            let begins = other.address & !(PAGE - 1);
            begins < page_end && other.address.saturating_add(other.memory_bytes) > end
        });
        if segment.memory_bytes != segment.file_bytes || shares_the_page {
            return nothing;
        }
        AddressRange::new(end, page_end)
    }

    /// `bytes` bytes of code at `address`, as the kernel maps them, up to the end of the segment's last page.
    pub fn code_pages_at(&self, address: u64, bytes: u64) -> Option<&[u8]> {
        let end = address.checked_add(bytes)?;
        let inside = |segment: &&crate::elf::Segment| {
            let segment_end = segment.address.saturating_add(segment.file_bytes);
            let mapped_end = segment_end.checked_next_multiple_of(PAGE).unwrap_or(segment_end);
            segment.executable && segment.address <= address && end <= mapped_end
        };
        let segment = self.segments.iter().find(inside)?;
        self.at_offset(segment.offset.checked_add(address - segment.address)?, bytes)
    }
}
