//! The original bytes of sites, written wherever ours still stand.
//!
//! Work and memory depend on the number of sites only, and not on their contents. The sites are walked by address,
//! with a window over the bytes of the sites around each ([`Known`]).

use nanoprobe_arena::layout::{Site, TACTIC_MADE};
use nanoprobe_patch::{BREAKPOINT, TargetAddress};
use nanoprobe_target::{Memory, MemoryError};

use super::{Detached, bytes_of};
use crate::error::SessionError;
use crate::made_calls::is_call;

/// The longest site.
const SITE_BYTES: u64 = 16;
/// Text is read in pieces of this many bytes.
const WINDOW_BYTES: u64 = 4096;
/// Text is written in batches of this many sites.
const BATCH: usize = 4096;

/// Writes the original bytes wherever ours still stand. Each byte is compared by itself. The tracer may have been
/// killed in the middle of the breakpoint protocol, or of a write that crosses pages, or while it replaced one
/// patch by another.
///
/// # Errors
/// The text cannot be written.
pub(super) fn restore_sites(memory: &Memory, sites: &[Site], detached: &mut Detached) -> Result<(), SessionError> {
    // Sorted by address; sites at one address stay in the order in which they were published.
    let all = 0..u32::try_from(sites.len()).unwrap_or(u32::MAX);
    // Nothing is mapped at the very end of the address space, and addresses there would overflow.
    let is_any = |index: &u32| site_at(sites, *index).is_some_and(|site| site.address < u64::MAX - SITE_BYTES);
    let mut order: Vec<u32> = all.filter(is_any).collect();
    detached.foreign += sites.len() - order.len();
    order.sort_by_key(|index| site_at(sites, *index).map_or(0, |site| site.address));
    let sorted = || order.iter().filter_map(|index| Some((*index, site_at(sites, *index)?)));
    let mut known = Known::default();
    let mut text = Text::default();
    let mut writes = Writes::default();
    let mut ahead = sorted().peekable();
    for (index, site) in sorted() {
        let end = site.address.saturating_add(SITE_BYTES);
        while let Some((_, next)) = ahead.next_if(|(_, next)| next.address < end) {
            known.add(next);
        }
        if writes.is_full(site.address) {
            writes.flush(memory)?;
        }
        let (original, _) = bytes_of(site);
        let now = text.read(memory, site.address, original.len())?;
        if now == Some(original) {
            continue;
        }
        if site.tactic == TACTIC_MADE {
            // The program may have made other code there, or none.
            if is_call(memory, TargetAddress(site.address), true) {
                writes.add(index, site.address, original);
                detached.restored += 1;
            }
            continue;
        }
        let is_ours = |(address, byte): (u64, &u8)| *byte == BREAKPOINT || known.holds(address, *byte);
        if now.is_some_and(|now| (site.address..).zip(now).all(is_ours)) {
            writes.add(index, site.address, original);
            detached.restored += 1;
        } else {
            detached.foreign += 1;
        }
    }
    writes.flush(memory)
}

/// Whether all sites that are mapped have their original bytes.
///
/// # Errors
/// The text cannot be read.
pub(super) fn are_original(memory: &Memory, sites: &[Site]) -> Result<bool, SessionError> {
    let mut text = Text::default();
    for site in sites {
        let (original, _) = bytes_of(site);
        let now = text.read(memory, site.address, original.len())?;
        if now.is_some_and(|now| now != original) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn site_at(sites: &[Site], index: u32) -> Option<&Site> {
    sites.get(usize::try_from(index).ok()?)
}

/// For each address around the current address, the set of bytes that sites may have there.
struct Known {
    /// Indexed by address, modulo the length. The length is twice the number of addresses that are in use at a time.
    slots: [(u64, [u64; 4]); 4 * SITE_BYTES as usize],
}

impl Default for Known {
    fn default() -> Known {
        Known {
            slots: [(u64::MAX, [0; 4]); 4 * SITE_BYTES as usize],
        }
    }
}

impl Known {
    fn place(address: u64) -> usize {
        (address % (4 * SITE_BYTES)) as usize
    }

    fn add(&mut self, site: &Site) {
        let (original, patched) = bytes_of(site);
        for ((address, original), patched) in (site.address..).zip(original).zip(patched) {
            let Some(slot) = self.slots.get_mut(Known::place(address)) else {
                continue;
            };
            if slot.0 != address {
                *slot = (address, [0; 4]);
            }
            for byte in [*original, *patched] {
                if let Some(word) = slot.1.get_mut(usize::from(byte / 64)) {
                    *word |= 1 << (byte % 64);
                }
            }
        }
    }

    fn holds(&self, address: u64, byte: u8) -> bool {
        self.slots
            .get(Known::place(address))
            .filter(|slot| slot.0 == address)
            .and_then(|slot| slot.1.get(usize::from(byte / 64)))
            .is_some_and(|word| word & 1 << (byte % 64) != 0)
    }
}

/// Text of the target, read page by page as the sites come.
#[derive(Default)]
struct Text {
    start: u64,
    bytes: Vec<u8>,
}

impl Text {
    /// `None`: not all of these bytes are mapped.
    fn read(&mut self, memory: &Memory, address: u64, length: usize) -> Result<Option<&[u8]>, MemoryError> {
        let inside = |text: &Text| {
            let from = usize::try_from(address.checked_sub(text.start)?).ok()?;
            let range = from..from.checked_add(length)?;
            text.bytes.get(range.clone()).is_some().then_some(range)
        };
        if inside(self).is_none() {
            // A piece that ends before the site does is read anew from the site on.
            let page = address - address % WINDOW_BYTES;
            let crosses = address % WINDOW_BYTES + length as u64 > WINDOW_BYTES;
            self.start = if crosses { address } else { page };
            self.bytes.resize(WINDOW_BYTES as usize, 0);
            let read = memory.read_some(TargetAddress(self.start), &mut self.bytes)?;
            self.bytes.truncate(read);
        }
        Ok(inside(self).and_then(|range| self.bytes.get(range)))
    }
}

/// Bytes to write, by ascending address. Where two sites overlap, the one that was published later counts.
#[derive(Default)]
struct Writes {
    bytes: Vec<(u64, u32, u8)>,
    sites: usize,
}

impl Writes {
    fn add(&mut self, index: u32, address: u64, original: &[u8]) {
        self.sites += 1;
        self.bytes
            .extend((address..).zip(original).map(|(address, byte)| (address, index, *byte)));
    }

    /// Whether enough bytes are gathered, and none of them overlap the sites from `address` on.
    fn is_full(&self, address: u64) -> bool {
        self.sites >= BATCH && self.bytes.iter().rev().take(64).all(|(last, ..)| *last < address)
    }

    fn flush(&mut self, memory: &Memory) -> Result<(), SessionError> {
        self.sites = 0;
        self.bytes.sort_unstable();
        let mut last: Vec<(u64, u8)> = Vec::with_capacity(self.bytes.len());
        for (address, _, byte) in self.bytes.drain(..) {
            match last.last_mut().filter(|entry| entry.0 == address) {
                Some(entry) => entry.1 = byte,
                None => last.push((address, byte)),
            }
        }
        let pieces: Vec<_> = last
            .iter()
            .map(|(address, byte)| (TargetAddress(*address), std::slice::from_ref(byte)))
            .collect();
        Ok(memory.write_text(&pieces)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(address: u64, original: &[u8], patched: &[u8]) -> Site {
        let mut site = Site {
            address,
            length: original.len() as u32,
            ..Site::default()
        };
        site.original[..original.len()].copy_from_slice(original);
        site.patched[..patched.len()].copy_from_slice(patched);
        site
    }

    fn after(text: &mut [u8], sites: impl Fn(u64) -> Vec<Site>) -> Detached {
        let mut detached = Detached::default();
        let memory = Memory::of_self().unwrap();
        restore_sites(&memory, &sites(text.as_ptr() as u64), &mut detached).unwrap();
        detached
    }

    #[test]
    fn ours_becomes_original_and_others_stay() {
        let mut text = [9, 9, 9, 1, 2, 5, 6, 0xcc];
        let detached = after(&mut text, |at| {
            vec![
                site(at + 7, &[3], &[0xcc]),
                site(at, &[1, 2], &[9, 9]),
                site(at + 2, &[3], &[8]),
                site(at + 3, &[1, 2], &[0xcc, 0xcc]),
                // Half of the patch was written.
                site(at + 5, &[5, 7], &[4, 6]),
            ]
        });
        assert_eq!(text, [1, 2, 9, 1, 2, 5, 7, 3]);
        assert_eq!((detached.restored, detached.foreign), (3, 1));
    }

    /// If two patches overlap, each of them accepts the bytes that the other may have left.
    #[test]
    fn overlapping_sites_know_each_others_bytes() {
        let mut text = [0xe9, 0x44, 0x55];
        let detached = after(&mut text, |at| {
            vec![site(at + 1, &[2, 3], &[0x44, 0x55]), site(at, &[1, 2], &[0xe9, 0x33])]
        });
        assert_eq!(text, [1, 2, 3]);
        assert_eq!((detached.restored, detached.foreign), (2, 0));
    }

    #[test]
    fn unmapped_places_are_foreign() {
        let mut detached = Detached::default();
        let memory = Memory::of_self().unwrap();
        let sites = [site(4096, &[1], &[2]), site(u64::MAX - 2, &[1, 2], &[3, 4])];
        restore_sites(&memory, &sites, &mut detached).unwrap();
        assert_eq!(detached.foreign, 2);
    }
}
