//! Unused executable bytes of a process: those that the linker left between the end of a code segment and the end of
//! its last page.
//!
//! The headers of the file say where a segment ends, but the kernel maps whole pages. So the rest of the last page is
//! mapped executable, and belongs to nothing in the file. The headers are read from the process's memory. Bytes count
//! as unused only if the headers say so *and* they are zero.

use nanoprobe_patch::TargetAddress;

use crate::map::{Map, Mapping, MappingKind};
use crate::memory::Memory;

const PAGE: u64 = 4096;
/// The number of bytes at the end of a segment's last page that are considered.
const BYTES_MAX: u64 = 2048;
const ELF_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const PROGRAM_HEADERS_MAX: u16 = 64;
const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;

/// A range after the end of a code segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unused {
    start: TargetAddress,
    end: TargetAddress,
    /// The address and head of the vDSO. A program does not move the vDSO, so its place stays valid without another
    /// look at the map.
    vdso: Option<(TargetAddress, [u8; ELF_HEADER])>,
}

impl Unused {
    pub fn start(&self) -> TargetAddress {
        self.start
    }

    pub fn end(&self) -> TargetAddress {
        self.end
    }

    pub fn bytes(&self) -> usize {
        usize::try_from(self.end.0.saturating_sub(self.start.0)).unwrap_or(0)
    }

    /// Whether the range certainly still exists, without a look at the map.
    pub fn is_still_there(&self, memory: &Memory) -> bool {
        self.vdso
            .is_some_and(|(head, bytes)| memory.read_array::<ELF_HEADER>(head).is_ok_and(|now| now == bytes))
    }
}

/// All unused ranges after code; the vDSO's range comes first.
pub(crate) fn places<'a>(map: &'a Map, memory: &'a Memory) -> impl Iterator<Item = Unused> + 'a {
    let of_kind = move |vdso: bool| {
        map.mappings().iter().filter(move |mapping| {
            let private = mapping.permissions.execute && !mapping.permissions.shared;
            let is_vdso = mapping.kind == MappingKind::Vdso;
            private && is_vdso == vdso && (vdso || mapping.path().is_some())
        })
    };
    of_kind(true)
        .chain(of_kind(false))
        .filter_map(move |mapping| unused_end(map, mapping, memory))
}

fn unused_end(map: &Map, mapping: &Mapping, memory: &Memory) -> Option<Unused> {
    let is_vdso = mapping.kind == MappingKind::Vdso;
    // The file's first page, in the nearest mapping below: a file may be mapped more than once.
    let is_head = |other: &&Mapping| {
        other.offset == 0
            && (other.device, other.inode) == (mapping.device, mapping.inode)
            && other.kind == mapping.kind
    };
    let head = map
        .mappings()
        .iter()
        .rev()
        .skip_while(|other| other.start > mapping.start)
        .find(is_head)?;
    let header: [u8; ELF_HEADER] = memory.read_array(head.start).ok()?;
    let file_end = segment_end(&header, head.start, mapping, memory)?;
    let start = mapping.start.0.checked_add(file_end.checked_sub(mapping.offset)?)?;
    let start = start.next_multiple_of(16).max(mapping.end.0.saturating_sub(BYTES_MAX));
    (start < mapping.end.0).then_some(Unused {
        start: TargetAddress(start),
        end: mapping.end,
        vdso: is_vdso.then_some((head.start, header)),
    })
}

/// If the mapping shows the last page of a segment, the offset in the file at which this segment ends.
fn segment_end(header: &[u8; ELF_HEADER], head: TargetAddress, mapping: &Mapping, memory: &Memory) -> Option<u64> {
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = word(header, 32)?;
    let size = usize::from(half(header, 54)?);
    let count = half(header, 56)?;
    if size != PROGRAM_HEADER || count > PROGRAM_HEADERS_MAX || table > PAGE {
        return None;
    }
    let mut bytes = vec![0; size * usize::from(count)];
    memory
        .read(TargetAddress(head.0.checked_add(table)?), &mut bytes)
        .ok()?;
    let loads = || {
        let entries = bytes.chunks_exact(PROGRAM_HEADER);
        entries.filter_map(load).filter(|segment| segment.kind == PT_LOAD)
    };
    let lowest = loads().find(|segment| segment.offset < PAGE)?;
    let bias = head.0.wrapping_sub(lowest.address - lowest.address % PAGE);
    let (shown, last) = (
        mapping.start.0.wrapping_sub(mapping.offset),
        mapping.offset.checked_add(mapping.bytes())?,
    );
    // The mapping must be one that the loader made. The program may have mapped the same file elsewhere.
    let is_shown = |segment: &Segment| {
        bias.wrapping_add(segment.address) == shown.wrapping_add(segment.offset)
            && segment.flags & PF_X != 0
            && segment.in_file == segment.in_memory
    };
    let ends = loads()
        .filter(is_shown)
        .filter_map(|segment| segment.offset.checked_add(segment.in_file));
    ends.filter(|end| last.saturating_sub(PAGE) < *end && *end <= last)
        .max()
}

struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    in_file: u64,
    in_memory: u64,
}

fn load(entry: &[u8]) -> Option<Segment> {
    Some(Segment {
        kind: long(entry, 0)?,
        flags: long(entry, 4)?,
        offset: word(entry, 8)?,
        address: word(entry, 16)?,
        in_file: word(entry, 32)?,
        in_memory: word(entry, 40)?,
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This process has such ranges. Each ends where its mapping ends, and is shorter than a page.
    #[test]
    fn the_bytes_after_a_segment_are_unused() {
        let memory = Memory::of_self().unwrap();
        let map = Map::parse(&std::fs::read("/proc/self/maps").unwrap());
        let places: Vec<Unused> = places(&map, &memory).collect();
        assert!(!places.is_empty());
        for place in places {
            let mapping = map.find(place.start).unwrap();
            assert_eq!(mapping.end, place.end);
            assert!(mapping.permissions.execute && place.bytes() < 4096);
        }
    }

    #[test]
    fn without_headers_no_bytes_count_as_unused() {
        let memory = Memory::of_self().unwrap();
        let map = Map::parse(b"1000-2000 r-xp 00001000 fe:00 12 /usr/bin/x\n3000-4000 r-xp 00000000 00:00 0 \n");
        assert_eq!(places(&map, &memory).count(), 0);
    }
}
