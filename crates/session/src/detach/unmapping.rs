//! Unmapping: which parts of our regions are still mapped, and still belong to us.

use std::collections::HashSet;
use std::mem::offset_of;

use nanoprobe_arena::layout::{
    Control, REGION_ARENA, REGION_RETURNS, REGION_STACKS, REGION_TABLE, REGION_TEXT, Region,
};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Map, Mapping, MappingKind, Permissions, Stopped};

use crate::error::SessionError;
use crate::layout::REGIONS_MAX;

/// A limit of the number of parts; no session maps so many.
const PARTS_MAX: usize = 2 * REGIONS_MAX as usize;

/// The beginning of the name of an arena's file; a number of the attach follows.
pub(super) const ARENA_NAME: &[u8] = b"/memfd:nanoprobe-";

/// Whether a process has an arena mapped.
pub fn has_arena(map: &Map) -> bool {
    map.mappings().iter().any(is_arena)
}

pub(crate) fn is_arena(mapping: &Mapping) -> bool {
    mapping.permissions.shared
        && mapping
            .path()
            .is_some_and(|path| path.as_os_str().as_encoded_bytes().starts_with(ARENA_NAME))
}

/// Unmaps from the table's end to its start, where the arena is: until then the arena lists what is left. A region
/// may have been published and never mapped, or unmapped before the tracer was killed, and the program may have
/// mapped something there since. So only what looks like ours is unmapped.
pub(super) fn unmap(
    stopped: &mut Stopped,
    arena: Option<TargetAddress>,
    regions: &[Region],
) -> Result<(), SessionError> {
    let map = stopped.process().map()?;
    stopped.process().set_scratch(None);
    let tid = stopped.best_thread()?;
    let mut remote = stopped.remote(tid)?;
    // A forged table may name the same address in every region: a part that was unmapped is not unmapped again.
    let mut gone = HashSet::new();
    for (index, region) in regions.iter().enumerate().rev() {
        if gone.len() > PARTS_MAX {
            break;
        }
        for (start, end) in mapped_parts(&map, region) {
            let (address, bytes) = (TargetAddress(start), end - start);
            if !gone.insert((start, end)) {
                continue;
            }
            if is_ours(region) {
                remote.unmap(address, bytes)?;
            } else {
                // An error means that the mapping stays split.
                let _ = remote.advise(address, bytes, libc::MADV_NORMAL);
            }
        }
        if let Some(arena) = arena.filter(|_| region.kind != REGION_ARENA) {
            let count = TargetAddress(arena.0 + offset_of!(Control, region_count) as u64);
            // An error means that the program has unmapped the arena, so no later `restore` will read it.
            let _ = remote.process().memory().write(count, &(index as u32).to_le_bytes());
        }
    }
    Ok(remote.finish()?)
}

/// Whether we have mapped the region; the program's text was only set apart ([`crate::apart`]).
pub(super) fn is_ours(region: &Region) -> bool {
    region.kind != REGION_TEXT
}

/// The parts of a region that are still mapped, and look like our mappings, or like text that was set apart.
pub(super) fn mapped_parts(map: &Map, region: &Region) -> Vec<(u64, u64)> {
    let end = region.address.saturating_add(region.bytes);
    // A region that was just being mapped when the tracer was killed has no access rights, if the process locks its
    // memory.
    let is_begun = |mapping: &&Mapping| {
        mapping.kind == MappingKind::Anonymous
            && mapping.permissions == Permissions::default()
            && (mapping.start.0, mapping.end.0) == (region.address, end)
    };
    // Only the mappings that the region may touch: a forged table may have many regions, and the map many lines.
    let mappings = map.mappings();
    let first = mappings.partition_point(|mapping| mapping.end.0 <= region.address);
    let parts = mappings
        .get(first..)
        .unwrap_or_default()
        .iter()
        .take_while(|mapping| mapping.start.0 < end)
        .filter(|mapping| is_like(mapping, region.kind) || is_begun(mapping));
    let parts = parts.map(|mapping| (mapping.start.0.max(region.address), mapping.end.0.min(end)));
    parts.filter(|(start, end)| start < end).collect()
}

fn is_like(mapping: &Mapping, kind: u32) -> bool {
    let may = mapping.permissions;
    let private = mapping.kind == MappingKind::Anonymous && !may.shared;
    match kind {
        REGION_ARENA => is_arena(mapping),
        REGION_TEXT => matches!(mapping.kind, MappingKind::File { .. }) && !may.shared && may.execute && !may.write,
        REGION_TABLE | REGION_RETURNS | REGION_STACKS => private && may.read && may.write && !may.execute,
        _ => private && may.read && !may.write && may.execute,
    }
}

#[cfg(test)]
mod tests {
    use nanoprobe_arena::layout::REGION_CODE;

    use super::*;

    /// A mapping of the program's in the place of one of ours stays.
    #[test]
    fn only_what_looks_like_ours_is_unmapped() {
        let map = Map::parse(
            b"1000-3000 r-xp 00000000 00:00 0 \n\
              3000-4000 rw-p 00000000 00:00 0 \n\
              4000-5000 r-xp 00000000 fe:00 12                     /usr/lib/plugin.so\n\
              5000-6000 rwxp 00000000 00:00 0 \n\
              8000-9000 rw-s 00000000 00:01 99                     /memfd:nanoprobe-0123456789abcdef (deleted)\n\
              9000-a000 rw-s 00000000 00:01 98                     /memfd:other (deleted)\n\
              b000-d000 ---p 00000000 00:00 0 \n",
        );
        let parts = |kind, address, bytes| {
            let region = Region {
                address,
                bytes,
                kind,
                reserved: 0,
            };
            mapped_parts(&map, &region)
        };
        assert_eq!(parts(REGION_CODE, 0x2000, 0x6000), [(0x2000, 0x3000)]);
        assert_eq!(parts(REGION_CODE, 0x1000, 0x1000), [(0x1000, 0x2000)]);
        assert_eq!(parts(REGION_TABLE, 0x1000, 0x8000), [(0x3000, 0x4000)]);
        assert_eq!(parts(REGION_ARENA, 0x1000, u64::MAX), [(0x8000, 0x9000)]);
        assert!(parts(REGION_CODE, 0x6000, 0x2000).is_empty(), "a hole");
        assert_eq!(parts(REGION_CODE, 0xb000, 0x2000), [(0xb000, 0xd000)]);
        assert!(
            parts(REGION_CODE, 0xb000, 0x1000).is_empty(),
            "a part of what the program keeps free"
        );
        assert!(has_arena(&map));
    }
}
