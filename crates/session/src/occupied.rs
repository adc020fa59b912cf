//! The text that other tracers' patches occupy ([`crate::others`]).

use std::collections::BTreeMap;
use std::ops::Range;

use nanoprobe_arena::layout::Site;
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Memory;

/// The length of a jump.
pub(crate) const JUMP_BYTES: usize = 5;

/// The patches of others that are in the text.
#[derive(Default)]
pub(crate) struct Occupied {
    /// The patch on top at each address, and where the longest one there ends.
    sites: BTreeMap<u64, (Site, u64)>,
    /// Where displaced instructions are now, by their addresses. For the first instruction of a patch: the patch's
    /// detour.
    pub homes: BTreeMap<TargetAddress, Home>,
}

/// Where a displaced instruction is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub address: TargetAddress,
    /// The code there. Where yet another tracer traps there: a jump to its detour.
    pub code: Vec<u8>,
    /// The first byte there.
    pub first: u8,
    /// Whether the agent whose detour it is is asked before ours when a thread traps.
    pub is_asked_before: bool,
}

impl Home {
    /// The detour of a patch that traps; `None`: its agent is asked first, so we see nothing of its traps.
    fn detour(&self) -> Option<TargetAddress> {
        Some(self.address).filter(|_| !self.is_asked_before)
    }
}

/// What is at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// The first byte of a jump to another tracer's detour.
    Jump {
        /// The jump's bytes.
        jump: [u8; JUMP_BYTES],
        /// The bytes that it has replaced.
        replaced: [u8; JUMP_BYTES],
    },
    /// The first byte of another patch: a trap, or a short jump to a springboard.
    Other {
        first: u8,
        /// The detour; `None`: it is not known.
        detour: Option<TargetAddress>,
    },
    /// An instruction that a patch has displaced.
    Displaced {
        /// Where the instruction is now; `None`: that is not known.
        home: Option<Home>,
    },
}

impl Occupied {
    /// Those of these patches that are in the text. A list of sites also has those that are not there any more.
    pub fn of<'a>(sites: impl Iterator<Item = &'a Site>, memory: &Memory) -> Occupied {
        let mut by_address: BTreeMap<u64, Vec<&Site>> = BTreeMap::new();
        for site in sites.filter(|site| site.length > 0) {
            by_address.entry(site.address).or_default().push(site);
        }
        let mut occupied = BTreeMap::new();
        let mut page = Page::default();
        for (address, there) in by_address {
            // The patch on top of others is the one whose bytes are all there.
            let mut is_there = |site: &&&Site| {
                let patched = bytes(&site.patched, site);
                page.bytes(memory, address, patched.len()) == Some(patched)
            };
            let Some(top) = there.iter().find(&mut is_there) else {
                continue;
            };
            let mut all = vec![*top];
            // A patch below reaches further than the patch on top.
            while let Some(below) = there
                .iter()
                .find(|site| !all.contains(site) && all.iter().any(|above| is_stacked(above, site)))
            {
                all.push(below);
            }
            let end = all
                .iter()
                .map(|site| address.saturating_add(u64::from(site.length)))
                .max();
            occupied.insert(address, (**top, end.unwrap_or(address)));
        }
        Occupied {
            sites: occupied,
            homes: BTreeMap::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// What is at this address; `None`: the program's own text.
    pub fn at(&self, address: TargetAddress) -> Option<Occupant> {
        let near = self.sites.range(..=address.0).rev().take(SITE_BYTES_MAX);
        let mut over = near.filter(|(_, (_, end))| address.0 < *end);
        let (start, (site, _)) = over.next()?;
        if *start != address.0 || over.next().is_some() {
            let home = self.homes.get(&address).cloned();
            return Some(Occupant::Displaced { home });
        }
        Some(match head(&site.patched).zip(head(&site.original)) {
            Some((jump, replaced)) if is_jump(site) => Occupant::Jump { jump, replaced },
            _ => Occupant::Other {
                first: site.patched.first().copied().unwrap_or_default(),
                detour: self.homes.get(&address).and_then(Home::detour),
            },
        })
    }

    /// Whether a patch changes any byte of this range.
    pub fn touches(&self, range: &Range<u64>) -> bool {
        let near = self.sites.range(..range.end).rev().take(SITE_BYTES_MAX);
        near.into_iter().any(|(_, (_, end))| range.start < *end)
    }

    /// The text that is taken.
    pub fn ranges(&self) -> impl Iterator<Item = Range<TargetAddress>> {
        let all = self.sites.iter();
        all.map(|(start, (_, end))| TargetAddress(*start)..TargetAddress(*end))
    }
}

/// The longest site. So many sites may begin before an address and still reach it.
const SITE_BYTES_MAX: usize = 16;

fn bytes<'a>(all: &'a [u8; 16], site: &Site) -> &'a [u8] {
    all.get(..(site.length as usize).min(all.len())).unwrap_or_default()
}

/// Whether a patch changes no byte: it is a trap over a trap.
pub(crate) fn is_silent(site: &Site) -> bool {
    bytes(&site.original, site) == bytes(&site.patched, site)
}

/// A jump, as it would be at `site`; `None`: it does not reach.
pub(crate) fn jump_to(site: TargetAddress, detour: TargetAddress) -> Option<[u8; JUMP_BYTES]> {
    let after = site.0.checked_add(JUMP_BYTES as u64)?;
    let distance = i32::try_from(detour.0.wrapping_sub(after).cast_signed()).ok()?;
    let [a, b, c, d] = distance.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

/// Whether a patch begins with a jump to a detour.
fn is_jump(site: &Site) -> bool {
    const JUMP: u8 = 0xe9;
    site.length as usize >= JUMP_BYTES && site.patched.first() == Some(&JUMP)
}

/// Whether the patch `above` was made over the patch `below`: at its first byte, whose bytes it displaces.
pub(crate) fn is_stacked(above: &Site, below: &Site) -> bool {
    let displaced = bytes(&above.original, above);
    let there = bytes(&below.patched, below);
    above.address == below.address && !displaced.is_empty() && there.starts_with(displaced)
}

fn head(bytes: &[u8; 16]) -> Option<[u8; JUMP_BYTES]> {
    bytes.first_chunk().copied()
}

/// The page of text that was read last.
#[derive(Default)]
struct Page {
    start: u64,
    bytes: Vec<u8>,
}

impl Page {
    /// `None`: not all of these bytes are mapped.
    fn bytes(&mut self, memory: &Memory, address: u64, length: usize) -> Option<&[u8]> {
        const BYTES: u64 = 4096;
        let place = |page: &Page| {
            let from = usize::try_from(address.checked_sub(page.start)?).ok()?;
            let range = from..from.checked_add(length)?;
            (range.end <= page.bytes.len()).then_some(range)
        };
        if place(self).is_none() {
            let page = address - address % BYTES;
            self.start = if address % BYTES + length as u64 > BYTES {
                address
            } else {
                page
            };
            self.bytes.resize(BYTES as usize, 0);
            let read = memory
                .read_some(TargetAddress(self.start), &mut self.bytes)
                .unwrap_or(0);
            self.bytes.truncate(read);
        }
        let range = place(self)?;
        self.bytes.get(range)
    }
}

#[cfg(test)]
mod tests {
    use nanoprobe_arena::layout::{TACTIC_JUMP, TACTIC_RUN};

    use super::*;
    use crate::site_table;

    fn site(address: u64, original: &[u8], patched: &[u8], tactic: u32) -> Site {
        site_table::site(TargetAddress(address), original, patched, tactic)
    }

    const FIRST: [u8; 5] = [0xe9, 1, 2, 3, 4];
    const SECOND: [u8; 5] = [0xe9, 5, 6, 7, 8];

    #[test]
    fn the_patch_on_top_is_the_one_whose_bytes_are_there() {
        let text = [SECOND.as_slice(), &[0xcc, 0x90, 0x55]].concat();
        let at = text.as_ptr() as u64;
        let first = site(
            at,
            &[0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3],
            &[FIRST.as_slice(), &[0xcc]].concat(),
            TACTIC_RUN,
        );
        let second = site(at, &FIRST, &SECOND, TACTIC_JUMP);
        // The third one has been taken back.
        let third = site(at + 7, &[0x55], &[0xcc], 0);
        let occupied = Occupied::of([second, first, third].iter(), &Memory::of_self().unwrap());
        assert_eq!(
            occupied.at(TargetAddress(at)),
            Some(Occupant::Jump {
                jump: SECOND,
                replaced: FIRST
            })
        );
        assert_eq!(
            occupied.at(TargetAddress(at + 4)),
            Some(Occupant::Displaced { home: None })
        );
        assert_eq!(occupied.at(TargetAddress(at + 7)), None);
        assert!(occupied.touches(&(at - 3..at + 1)));
        assert!(!occupied.touches(&(at + 7..at + 9)));
    }
}
