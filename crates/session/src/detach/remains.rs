//! The remains of dead tracers in a process: their arenas, found in the map, and the contents of their tables.
//!
//! The process may have forged all of it, and a forged table may cost the reader more than the process. So every
//! table is read piece by piece, and only as far as it lies in the arena's own mapping. The bounds are below.

use std::io::Error;

use nanoprobe_arena::Structure;
use nanoprobe_arena::layout::{Control, MAGIC, REGION_ARENA, REGION_CODE, Region, Semaphore, Site};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Map, Mapping, Memory, MemoryError, Process, is_locked};

use super::unmapping::is_arena;
use crate::error::SessionError;
use crate::layout::{REGIONS_MAX, SEMAPHORES_MAX, SITES_MAX};

/// How many arenas one `restore` looks at. The next call looks at further arenas.
const ARENAS_MAX: usize = 16;
/// Tables are read in pieces of this size. A piece of a site table without a single site ends the table.
const PIECE_BYTES: u64 = 64 << 10;

/// The head of a dead tracer's arena.
pub(crate) struct Found {
    pub head: Control,
    /// The address at which the arena is mapped.
    pub start: u64,
    /// How many bytes of the arena are mapped from `start` without a gap.
    pub bytes: u64,
}

/// The contents of the tables in a dead tracer's arena.
pub(crate) struct Remains {
    pub head: Control,
    pub sites: Vec<Site>,
    pub semaphores: Vec<Semaphore>,
    /// The mappings that the arena lists. The first is the arena itself.
    pub regions: Vec<Region>,
    /// The number of entries that no tracer can have written.
    pub damaged: usize,
}

/// What a tracer has in the process.
pub(crate) struct Own<'a> {
    /// Where its arena lies.
    pub arena: u64,
    /// When it attached, in ns of CLOCK_MONOTONIC.
    pub began_ns: u64,
    pub regions: &'a [Region],
    pub sites: &'a [Site],
}

impl Own<'_> {
    /// Whether an address lies in its detours, or its other code.
    pub fn has_code(&self, address: u64) -> bool {
        let holds = |region: &Region| address.wrapping_sub(region.address) < region.bytes;
        self.regions
            .iter()
            .any(|region| region.kind == REGION_CODE && holds(region))
    }
}

impl Remains {
    /// What the tracer whose arena lies there has in the process.
    pub fn own(&self, arena: u64) -> Own<'_> {
        Own {
            arena,
            began_ns: self.head.clock_ns,
            regions: &self.regions,
            sites: &self.sites,
        }
    }
}

impl Found {
    /// Whether the arena's tables have the same places and lengths as in `head`.
    pub fn is_like(&self, head: &Control) -> bool {
        let tables = |head: &Control| {
            [
                head.magic,
                head.arena_address,
                head.sites_offset,
                u64::from(head.site_count),
                head.regions_offset,
                u64::from(head.region_count),
                head.semaphores_offset,
                u64::from(head.semaphore_count),
            ]
        };
        tables(&self.head) == tables(head)
    }

    /// Whether the arena's tracer was killed before it had written more than the first part of the control block.
    fn is_begun(&self) -> bool {
        self.head.arena_address == 0 && [0, MAGIC].contains(&self.head.magic)
    }

    /// Whether the arena's head holds the arena's own address, or is still empty.
    pub fn describes_itself(&self) -> bool {
        self.head.arena_address == self.start || self.is_begun()
    }

    /// If the head of the arena is still empty, puts the arena's address into it.
    pub fn told(mut self) -> Found {
        if self.is_begun() {
            self.head = Control {
                arena_address: self.start,
                ..Control::default()
            };
        }
        self
    }
}

/// Whether the process was forked from the traced process.
pub(crate) fn is_child(process: &Process, head: &Control) -> bool {
    i64::from(head.target_pid) != i64::from(process.facts().inner_pid)
}

/// The arenas of a process.
#[derive(Default)]
pub(crate) struct Arenas {
    /// Those of dead tracers.
    pub dead: Vec<Found>,
    /// The number of a tracer that lives, as its arena states it.
    pub living: Option<u32>,
}

/// The arenas of a process.
///
/// # Errors
/// Nanoprobe cannot find out whether the tracers live; or the head of a dead tracer's arena is destroyed.
pub(crate) fn find(process: &Process, map: &Map) -> Result<Arenas, SessionError> {
    let pid = process.pid();
    let mut all = Arenas::default();
    let mappings = map.mappings();
    let starts = mappings.iter().enumerate();
    for (index, mapping) in starts.filter(|(_, mapping)| is_arena(mapping) && mapping.offset == 0) {
        let Some(found) = found(process.memory(), mappings.get(index..).unwrap_or_default()) else {
            continue;
        };
        match (is_held(pid, mapping)?, found.describes_itself()) {
            // A live tracer maps the arenas of its targets, too, but at other addresses.
            (true, false) => continue,
            (true, true) => {
                all.living.get_or_insert(found.head.tracer_pid);
                continue;
            }
            (false, false) => return Err(SessionError::Overwritten { pid }),
            (false, true) => {}
        }
        all.dead.push(found.told());
        if all.dead.len() == ARENAS_MAX {
            break;
        }
    }
    Ok(all)
}

/// The arena at this address, whether or not its tracer lives.
pub(crate) fn at(process: &Process, map: &Map, arena: TargetAddress) -> Option<Found> {
    let mappings = map.mappings();
    let first = mappings
        .iter()
        .position(|mapping| mapping.start == arena && is_arena(mapping))?;
    found(process.memory(), mappings.get(first..)?).filter(Found::describes_itself)
}

/// The head of the arena that the first of these mappings begins.
pub(crate) fn found(memory: &Memory, mappings: &[Mapping]) -> Option<Found> {
    let start = mappings.first()?.start;
    let mut bytes = vec![0; Control::BYTES];
    memory.read(start, &mut bytes).ok()?;
    Some(Found {
        head: Control::from_bytes(&bytes)?,
        start: start.0,
        bytes: extent(mappings),
    })
}

/// Whether a live tracer holds the lock on the file.
pub(crate) fn is_held(pid: i32, mapping: &Mapping) -> Result<bool, SessionError> {
    is_locked(mapping).map_err(|error: Error| SessionError::LocksUnknown {
        pid,
        reason: error.to_string(),
    })
}

/// How far the mappings after the first one continue its file without a gap.
fn extent(mappings: &[Mapping]) -> u64 {
    let Some(first) = mappings.first() else { return 0 };
    let goes_on = |end: u64, mapping: &Mapping| {
        mapping.start.0 == end
            && (mapping.device, mapping.inode) == (first.device, first.inode)
            && mapping.offset == end - first.start.0
    };
    let mut end = first.end.0;
    for mapping in mappings.iter().skip(1) {
        if !goes_on(end, mapping) {
            break;
        }
        end = mapping.end.0;
    }
    end - first.start.0
}

/// Reads the tables of an arena; `is_child`: in a child of the traced process.
///
/// # Errors
/// The process has ended.
pub(crate) fn read(memory: &Memory, found: &Found, is_child: bool) -> Result<Remains, SessionError> {
    let head = found.head;
    let mut damaged = 0;
    let mut table = |offset: u64, count: u32, most: u32, bytes: usize| Table {
        start: found.start.saturating_add(offset),
        bytes: room(found.bytes, offset, count, most, bytes, &mut damaged),
    };
    let sites = table(head.sites_offset, head.site_count, SITES_MAX, Site::BYTES);
    let region_count = if is_child {
        head.region_capacity.min(REGIONS_MAX)
    } else {
        head.region_count
    };
    let regions = table(head.regions_offset, region_count, REGIONS_MAX, Region::BYTES);
    let semaphores = table(
        head.semaphores_offset,
        head.semaphore_count,
        SEMAPHORES_MAX,
        Semaphore::BYTES,
    );
    let is_site = |site: &Site| (1..=16).contains(&site.length);
    let sites = sites.read(memory, is_site, &mut damaged)?;
    // A child's table has no count, and lists all sites that ever existed.
    let mut ended = 0;
    let mut regions = regions.read(memory, |region: &Region| region.address != 0, &mut ended)?;
    let semaphores = semaphores.read(memory, |_: &Semaphore| true, &mut damaged)?;
    // The table's own entry comes first, unless the tracer was killed before it had written it.
    regions.retain(|region| region.kind != REGION_ARENA);
    regions.insert(
        0,
        Region {
            address: found.start,
            bytes: found.bytes.max(head.arena_bytes),
            kind: REGION_ARENA,
            reserved: 0,
        },
    );
    Ok(Remains {
        head,
        sites,
        semaphores,
        regions,
        damaged,
    })
}

/// How many bytes of a table lie in the arena's mapping. Entries beyond these, or beyond the maximum that tracers
/// write, count as damage.
fn room(mapped: u64, offset: u64, count: u32, most: u32, bytes: usize, damaged: &mut usize) -> u64 {
    let fit = mapped.saturating_sub(offset) / bytes as u64;
    let real = u64::from(count).min(u64::from(most)).min(fit);
    *damaged += usize::try_from(u64::from(count) - real).unwrap_or(usize::MAX);
    real * bytes as u64
}

struct Table {
    start: u64,
    bytes: u64,
}

impl Table {
    /// Yields the entries that make sense, and counts the others. Stops where nothing more is written.
    fn read<S: Structure>(
        &self,
        memory: &Memory,
        is_any: impl Fn(&S) -> bool,
        damaged: &mut usize,
    ) -> Result<Vec<S>, MemoryError> {
        let mut all = Vec::new();
        let piece = PIECE_BYTES - PIECE_BYTES % S::BYTES as u64;
        let mut bytes = vec![0; usize::try_from(piece.min(self.bytes)).unwrap_or(0)];
        let mut done = 0;
        while done < self.bytes {
            let length = usize::try_from(self.bytes - done)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let Some(part) = bytes.get_mut(..length) else { break };
            let read = memory.read_some(TargetAddress(self.start + done), part)?;
            let before = all.len();
            let entries = part.chunks_exact(S::BYTES).take(read / S::BYTES);
            all.extend(entries.filter_map(S::from_bytes).filter(|entry| is_any(entry)));
            let found = all.len() - before;
            *damaged += length / S::BYTES - found;
            done += length as u64;
            if read < length || found == 0 {
                *damaged += usize::try_from((self.bytes - done) / S::BYTES as u64).unwrap_or(usize::MAX);
                break;
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_no_longer_than_its_mapping() {
        let mut damaged = 0;
        assert_eq!(room(4096, 96, 10, 100, 40, &mut damaged), 400);
        assert_eq!(damaged, 0);
        assert_eq!(room(4096, 96, 1000, 1 << 20, 40, &mut damaged), 4000);
        assert_eq!(damaged, 900);
        assert_eq!(room(4096, u64::MAX, 7, 100, 40, &mut damaged), 0);
        assert_eq!(room(1 << 30, 0, u32::MAX, 5, 40, &mut 0), 200);
    }

    #[test]
    fn an_arena_goes_on_only_with_its_own_file() {
        let map = Map::parse(
            b"1000-3000 rw-s 00000000 00:01 7                     /memfd:nanoprobe-0 (deleted)\n\
              3000-4000 r--s 00002000 00:01 7                     /memfd:nanoprobe-0 (deleted)\n\
              4000-5000 rw-s 00003000 00:01 8                     /memfd:nanoprobe-1 (deleted)\n",
        );
        assert_eq!(extent(map.mappings()), 0x3000);
        assert_eq!(extent(&map.mappings()[2..]), 0x1000);
        assert_eq!(extent(&[]), 0);
    }
}
