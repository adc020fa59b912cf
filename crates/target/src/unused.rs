//! Bytes of a process without an owner: what the linker left between the end of a segment of code and the end
//! of its last page.
//!
//! The headers of the file say where a segment ends, and the kernel maps whole pages; the rest of the last page is
//! mapped executable, and nothing describes it. The file's own headers are asked, as the process has them in memory;
//! bytes count as unused only where these say so *and* they are zero. What cannot be proven is not used.

use nanoprobe_patch::TargetAddress;

use crate::map::{Map, Mapping, MappingKind};
use crate::memory::Memory;

const PAGE: u64 = 4096;
/// How much of the end of a segment is looked at.
const BYTES_MAX: u64 = 2048;
const ELF_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const PROGRAM_HEADERS_MAX: u16 = 64;
const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;

/// A range after the end of a segment of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unused {
    start: TargetAddress,
    end: TargetAddress,
    /// The vDSO's head: a program does not move it, so that its place holds without another look at the map.
    vdso: Option<(TargetAddress, [u8; ELF_HEADER])>,
}

impl Unused {
    /// The first byte.
    pub fn start(&self) -> TargetAddress {
        self.start
    }

    /// The first byte after it.
    pub fn end(&self) -> TargetAddress {
        self.end
    }

    /// How many there are.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.end.0.saturating_sub(self.start.0)).unwrap_or(0)
    }

    /// Whether the map need not be asked again.
    pub fn is_still_there(&self, memory: &Memory) -> bool {
        self.vdso
            .is_some_and(|(head, bytes)| memory.read_array::<ELF_HEADER>(head).is_ok_and(|now| now == bytes))
    }
}

/// All such ranges; the vDSO's first.
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
    // The same file's first page, the nearest below: a file may be mapped more than once.
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

/// Where in the file the segment ends whose last page the mapping shows.
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
    // The loader's mapping of the segment, not one that the program has made of the same file.
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

    /// The bytes of our own modules are unused where the headers say so, and there are some.
    #[test]
    fn what_follows_a_segment_is_unused() {
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
    fn nothing_is_unused_where_no_header_tells() {
        let memory = Memory::of_self().unwrap();
        let map = Map::parse(b"1000-2000 r-xp 00001000 fe:00 12 /usr/bin/x\n3000-4000 r-xp 00000000 00:00 0 \n");
        assert_eq!(places(&map, &memory).count(), 0);
    }
}
