//! The bytes of a file to which its headers give a meaning, and which the file really contains.
//!
//! ```text
//!   headers          the file header, both tables
//!   PT_LOAD, notes   as the program headers say, to the end of the last page
//!   sections         as the section headers say, without those that have no bytes in the file
//!        |
//!        v   overlapping ranges are merged; long holes of the file are left out
//!   parts            read at once, or on demand (large sections that are not mapped: DWARF, symbols)
//!        |
//!        v   of the largest parts, on demand
//!   windows          its sections; of a large one without code (snapshots, tables of Unicode) a piece
//! ```
//!
//! The parts of a file that is kept open are forgotten after planning, and read again on demand. By then the file may
//! have changed: it is compared by [`FileIdentity`] after each read, and a changed file yields nothing. An owner who
//! resets the time of the last write deceives that comparison. So no reader relies on an earlier read; each read checks
//! its own bounds. And no text is patched where the process's memory differs from the file.
//!
//! So memory and time are bounded by the data that the file really stores, not by the file's length or headers: a
//! hole is read as zeros only if it is short compared with the data around it.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use nanoprobe_patch::order::sort_by_numbers;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::endian::LittleEndian;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use rustix::fs::SeekFrom;

use crate::error::Error;
use crate::identity::FileIdentity;
use crate::kept::{Kept, may_keep_one_more, read};
use crate::table::{SECTIONS_MAX, SEGMENTS_MAX, table};
use crate::windows::{SectionRange, Windows};

/// Larger files are refused: browsers with their debugging information have 1 to 2 GiB.
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 30;
/// The size of a file header.
const HEADER_BYTES: u64 = 64;
/// Segments are mapped by pages.
const PAGE: u64 = 4096;
/// Sections that are not mapped are read at once if they have at most this size.
const SMALL_BYTES: u64 = 64 << 10;
/// A file with a larger part is kept open.
const LARGE_BYTES: u64 = 16 << 20;
/// Of a file that is kept open, larger parts are read by windows, because a few of these may be enough.
const WINDOWED_BYTES: u64 = 256 << 10;
/// The size of one read of bytes that are only searched.
const SCANNED_BYTES: usize = 1 << 20;
/// A hole is read as zeros if it has at most as many bytes as the data so far plus this number.
const SPARE_HOLE_BYTES: u64 = 16 << 20;
/// The most pieces of data in a file that are considered. The rest is left out.
const PIECES_MAX: usize = 1 << 20;

const ENDIAN: LittleEndian = LittleEndian;

/// A part of a file.
struct Part {
    range: Range<u64>,
    /// The bytes; empty if they could not be read.
    contents: OnceLock<Vec<u8>>,
    /// The pieces that are read if only some bytes of the part are needed.
    windows: Windows,
}

/// The parts of a file, ascending and disjoint.
pub(crate) struct Parts {
    file: Option<Arc<Kept>>,
    file_bytes: u64,
    /// The number of the file's bytes outside of long holes.
    data_bytes: u64,
    list: Vec<Part>,
}

/// A range of the file that has a meaning.
struct Wanted {
    range: Range<u64>,
    is_put_off: bool,
}

impl Parts {
    /// Reads the headers of an ELF file, and the parts that they describe. `path` is for messages.
    pub fn of(file: File, path: &Path) -> Result<Parts, Error> {
        let io = |source| Error::Io {
            path: path.into(),
            source,
        };
        let metadata = file.metadata().map_err(io)?;
        let unreadable = |what| Error::Unreadable {
            path: path.into(),
            what,
        };
        if !metadata.is_file() {
            return Err(unreadable("not a regular file"));
        }
        // The file header is read first, so that a file that is not ELF costs only one small read.
        let header = read(&file, 0..HEADER_BYTES.min(metadata.len())).ok_or_else(|| unreadable("it cannot be read"))?;
        if header.get(..4) != Some(b"\x7fELF") {
            return Err(Error::NotElf { path: path.into() });
        }
        if metadata.len() > FILE_BYTES_MAX {
            return Err(unreadable("larger than 4 GiB"));
        }
        let (wanted, sections) = wanted(&file, &header, metadata.len());
        let wanted = merged(wanted);
        let pieces = pieces(&file, metadata.len());
        let mut parts = Parts {
            file: None,
            file_bytes: metadata.len(),
            data_bytes: pieces.iter().map(|piece| piece.end - piece.start).sum(),
            list: Vec::new(),
        };
        let is_large = |range: &Range<u64>| range.end - range.start >= LARGE_BYTES;
        let is_put_off = |wanted: &Wanted| wanted.is_put_off || is_large(&wanted.range);
        let is_kept = wanted.iter().any(is_put_off) && may_keep_one_more();
        for wanted in wanted {
            for range in present(&wanted.range, &pieces) {
                let has_windows = is_kept && range.end - range.start >= WINDOWED_BYTES;
                let part = Part {
                    windows: Windows::of(has_windows.then_some(&range), &sections),
                    range,
                    contents: OnceLock::new(),
                };
                if !(is_kept && wanted.is_put_off || has_windows) {
                    let _first = part.contents.set(read(&file, part.range.clone()).unwrap_or_default());
                }
                parts.list.push(part);
            }
        }
        let identity = FileIdentity::of(&metadata);
        parts.file = is_kept.then(|| Arc::new(Kept::new(file, identity)));
        Ok(parts)
    }

    /// The length of the file when it was opened.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Whether the file is more than a few pieces of data in a large hole.
    pub fn is_dense(&self) -> bool {
        self.data_bytes >= self.file_bytes / 16
    }

    /// These parts without the bytes that they hold, which are read again on demand. `None` if that is impossible, or
    /// would save little.
    pub fn unread(&self) -> Option<Parts> {
        let is_large = self.list.iter().any(|part| !part.windows.is_empty());
        let file = self.file.clone().filter(|_| is_large)?;
        let unread = |part: &Part| Part {
            range: part.range.clone(),
            contents: OnceLock::new(),
            windows: part.windows.unread(),
        };
        Some(Parts {
            file: Some(file),
            file_bytes: self.file_bytes,
            data_bytes: self.data_bytes,
            list: self.list.iter().map(unread).collect(),
        })
    }

    /// Whether the file is kept open for parts that are not read yet.
    pub fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// The number of bytes that are held.
    pub fn held_bytes(&self) -> u64 {
        let whole = |part: &Part| part.contents.get().map_or(0, |contents| contents.len() as u64);
        self.list
            .iter()
            .map(|part| whole(part) + part.windows.held_bytes())
            .sum()
    }

    fn find(&self, offset: u64) -> Option<&Part> {
        let index = self.list.partition_point(|part| part.range.end <= offset);
        self.list.get(index).filter(|part| part.range.start <= offset)
    }

    /// The bytes of a part that contain `bytes` bytes from an offset on, or as many of them as exist; and the position
    /// at which they begin.
    pub fn part_at(&self, offset: u64, bytes: u64) -> Option<(&[u8], u64)> {
        let part = self.find(offset)?;
        let file = self.file.as_ref();
        let read = |range: Range<u64>| file.and_then(|kept| kept.read(range)).unwrap_or_default();
        let end = offset.saturating_add(bytes).min(part.range.end);
        if part.contents.get().is_none()
            && let Some((window, start)) = part.windows.around(&(offset..end), read)
        {
            return Some((window, offset - start));
        }
        let contents = part.contents.get_or_init(|| read(part.range.clone()));
        Some((contents, offset - part.range.start))
    }

    /// Passes on all of these bytes in pieces of whole words, ascending, with their offsets. Bytes that are not held
    /// are read only for this call. Passes on nothing if no part has all of them.
    pub fn scan(&self, offset: u64, bytes: u64, take: &mut dyn FnMut(u64, &[u8])) {
        let Some(part) = self.find(offset).filter(|_| self.has(offset, bytes)) else {
            return;
        };
        let range = offset..offset + bytes;
        let (Some(file), None) = (&self.file, part.contents.get()) else {
            let (contents, start) = self.part_at(offset, bytes).unwrap_or_default();
            let end = start.saturating_add(bytes);
            let inside = usize::try_from(start).ok().zip(usize::try_from(end).ok());
            return take(
                offset,
                inside
                    .and_then(|(start, end)| contents.get(start..end))
                    .unwrap_or_default(),
            );
        };
        for start in range.clone().step_by(SCANNED_BYTES) {
            let end = range.end.min(start + SCANNED_BYTES as u64);
            match file.read(start..end) {
                Some(piece) => take(start, &piece),
                None => return,
            }
        }
    }

    /// Whether a part holds all of these bytes.
    pub fn has(&self, offset: u64, bytes: u64) -> bool {
        let end = offset.checked_add(bytes);
        self.find(offset)
            .is_some_and(|part| end.is_some_and(|end| end <= part.range.end))
    }
}

/// The ranges of a file to which its headers give a meaning, and its sections.
fn wanted(file: &File, header: &[u8], file_bytes: u64) -> (Vec<Wanted>, Vec<SectionRange>) {
    let mut found = Vec::new();
    let mut ranges = Vec::new();
    let mut want = |offset: u64, bytes: u64, is_put_off: bool| {
        let end = offset.saturating_add(bytes).min(file_bytes);
        if offset < end {
            let range = offset..end;
            found.push(Wanted { range, is_put_off });
        }
    };
    want(0, HEADER_BYTES, false);
    let Ok(header) = FileHeader64::<LittleEndian>::parse(header) else {
        return (found, ranges);
    };
    let in_file = |offset: u64, bytes: u64| {
        let end = offset.checked_add(bytes).filter(|end| *end <= file_bytes)?;
        read(file, offset..end)
    };
    let segments_at = header.e_phoff(ENDIAN);
    let count = u64::from(header.e_phnum(ENDIAN)).min(SEGMENTS_MAX as u64);
    want(segments_at, u64::from(header.e_phnum(ENDIAN)) * 56, false);
    let segments = in_file(segments_at, count * 56).unwrap_or_default();
    for segment in table::<ProgramHeader64<LittleEndian>>(&segments) {
        let (offset, bytes) = (segment.p_offset(ENDIAN), segment.p_filesz(ENDIAN));
        // The rest of the last page is mapped, too.
        let end = offset.saturating_add(bytes);
        let end = end.checked_next_multiple_of(PAGE).unwrap_or(end);
        match segment.p_type(ENDIAN) == elf::PT_LOAD {
            true if bytes > 0 => want(offset, end - offset, false),
            _ => want(offset, bytes, false),
        }
    }
    let sections_at = header.e_shoff(ENDIAN);
    let first = in_file(sections_at, 64).filter(|_| sections_at > 0).unwrap_or_default();
    let count = match (
        header.e_shnum(ENDIAN),
        table::<SectionHeader64<LittleEndian>>(&first).first(),
    ) {
        (0, Some(first)) => first.sh_size(ENDIAN),
        (count, _) => u64::from(count),
    };
    // No program has a longer table. If the file says so, its sections are ignored.
    if sections_at == 0 || count > u64::from(u16::MAX) {
        return (found, ranges);
    }
    want(sections_at, count * 64, false);
    let sections = in_file(sections_at, count.min(SECTIONS_MAX as u64) * 64).unwrap_or_default();
    for section in table::<SectionHeader64<LittleEndian>>(&sections) {
        let kind = section.sh_type(ENDIAN);
        if kind == elf::SHT_NOBITS || kind == elf::SHT_NULL {
            continue;
        }
        let bytes = section.sh_size(ENDIAN);
        let is_mapped = section.sh_flags(ENDIAN).0 & elf::SHF_ALLOC.0 != 0;
        let is_put_off = !is_mapped && bytes > SMALL_BYTES;
        want(section.sh_offset(ENDIAN), bytes, is_put_off);
        ranges.push(SectionRange {
            range: section.sh_offset(ENDIAN)..section.sh_offset(ENDIAN).saturating_add(bytes),
            has_code: section.sh_flags(ENDIAN).0 & elf::SHF_EXECINSTR.0 != 0,
        });
    }
    (found, ranges)
}

/// Merges overlapping ranges, so that each byte of the file is held once.
fn merged(mut wanted: Vec<Wanted>) -> Vec<Wanted> {
    sort_by_numbers(&mut wanted, |wanted| (wanted.range.start, wanted.range.end));
    let mut merged: Vec<Wanted> = Vec::new();
    for next in wanted {
        match merged.last_mut() {
            Some(last) if next.range.start < last.range.end => {
                last.range.end = last.range.end.max(next.range.end);
                last.is_put_off &= next.is_put_off;
            }
            _ => merged.push(next),
        }
    }
    merged
}

/// The ranges of a file's data, ascending, including short holes; the whole file if the file system does not show
/// holes.
fn pieces(file: &File, file_bytes: u64) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let (mut at, mut data, mut holes) = (0, 0, 0);
    for _ in 0..PIECES_MAX {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.clamp(at, file_bytes),
            // NXIO: only a hole follows.
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).map_or(file_bytes, |end| end.min(file_bytes));
        if end <= start {
            break;
        }
        let hole = start - found.last().map_or(0, |last| last.end);
        let is_short = hole <= (data + SPARE_HOLE_BYTES).saturating_sub(holes);
        data += end - start;
        match found.last_mut() {
            Some(last) if is_short => {
                holes += hole;
                last.end = end;
            }
            _ => found.push(start..end),
        }
        at = end;
    }
    found
}

/// The parts of a range that the file really has.
fn present(range: &Range<u64>, pieces: &[Range<u64>]) -> Vec<Range<u64>> {
    let first = pieces.partition_point(|piece| piece.end <= range.start);
    let inside = pieces.iter().skip(first).take_while(|piece| piece.start < range.end);
    inside
        .map(|piece| piece.start.max(range.start)..piece.end.min(range.end))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;
    use crate::image::Image;

    fn sparse(data: &[(u64, &[u8])], bytes: u64) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        for (at, data) in data {
            file.seek(std::io::SeekFrom::Start(*at)).unwrap();
            file.write_all(data).unwrap();
        }
        file
    }

    #[test]
    fn a_hole_that_is_long_beside_the_data_is_left_out() {
        let file = sparse(
            &[(0, &[1; 8192]), (64 << 10, &[2; 4096]), (1 << 30, &[3; 4096])],
            4 << 30,
        );
        let found = pieces(&file, 4 << 30);
        if found.len() == 1 {
            // This file system does not show holes.
            return;
        }
        assert_eq!(found, [0..(64 << 10) + 4096, 1 << 30..(1 << 30) + 4096]);
        let parts = present(&(4096..(1 << 30) + 100), &found);
        assert_eq!(parts, [4096..(64 << 10) + 4096, 1 << 30..(1 << 30) + 100]);
    }

    #[test]
    fn a_file_answers_as_its_bytes_do() {
        let path = std::env::current_exe().unwrap();
        let whole = Image::from(Arc::new(std::fs::read(&path).unwrap()) as crate::ImageBytes);
        let parts = Image::from(Parts::of(File::open(&path).unwrap(), &path).unwrap());
        assert_eq!(whole.bytes(), parts.bytes());
        let elf = crate::elf::Elf::parse(parts.clone(), &path).unwrap();
        assert!(elf.sections.len() > 20);
        for section in elf.sections.iter().filter(|section| section.kind != elf::SHT_NOBITS.0) {
            let of = |image: &Image| image.at(section.offset, section.bytes).map(<[u8]>::to_vec);
            assert!(of(&whole) == of(&parts) && of(&whole).is_some(), "{}", section.name);
            assert!(parts.is_there(section.offset, section.bytes));
        }
        for segment in &elf.segments {
            assert!(parts.is_there(segment.offset, segment.file_bytes));
            let end = segment.offset + segment.file_bytes;
            assert_eq!(
                parts.rest(end - 1, 100).map(|rest| rest[0]),
                whole.rest(end - 1, 1).map(|rest| rest[0])
            );
        }
        for image in [&whole, &parts] {
            assert_eq!(image.at(image.bytes(), 1), None);
            assert_eq!(image.at(0, u64::MAX), None);
            assert_eq!(image.at(u64::MAX, 2), None);
            assert!(!image.is_there(u64::MAX, 2));
        }
    }

    #[test]
    fn forgotten_parts_are_read_again_from_the_same_file_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let whole = Parts::of(File::open(&path).unwrap(), &path).unwrap();
        let Some(unread) = whole.unread() else {
            assert!(
                (bytes.len() as u64) < 2 * LARGE_BYTES,
                "a large part is read by windows"
            );
            return;
        };
        assert_eq!(unread.held_bytes(), 0);
        let read = |parts: &Parts, at: usize| {
            parts
                .part_at(at as u64, 8)
                .map(|(found, start)| found[start as usize..][..8].to_vec())
        };
        let offsets = (0..bytes.len() - 8)
            .step_by(bytes.len() / 64)
            .filter(|at| whole.has(*at as u64, 8));
        for at in offsets {
            assert_eq!(read(&unread, at).unwrap(), bytes[at..at + 8]);
        }
        let again = whole.unread().unwrap();
        File::options().write(true).open(&path).unwrap().set_len(8).unwrap();
        assert!(again.part_at(0, 8).is_some_and(|(found, _)| found.is_empty()));
    }

    #[test]
    fn other_files_are_not_read() {
        for (content, bytes) in [(&b"#!/bin/sh"[..], 4 << 30), (&b"\x7fEL"[..], 3)] {
            let file = sparse(&[(0, content)], bytes);
            assert!(matches!(Parts::of(file, Path::new("x")), Err(Error::NotElf { .. })));
        }
        let file = sparse(&[(0, b"\x7fELF")], (4 << 30) + 1);
        assert!(matches!(Parts::of(file, Path::new("x")), Err(Error::Unreadable { .. })));
    }
}
