//! The container: headers of an ELF file, and bytes by offset or by address, all of it bounds-checked.
//!
//! A file has two descriptions. The loader obeys the *segments* (program headers), so they decide about the layout
//! and about what is executable. They always exist. The *sections* are the linker's finer picture. A file may lack
//! them, and where they contradict the segments, the segments count.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use nanoprobe_patch::order::sort_by_numbers;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::endian::LittleEndian;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use crate::address::{AddressRange, ImageAddress};
use crate::error::Error;
use crate::image::Image;
use crate::table::{SECTIONS_MAX, SEGMENTS_MAX};

/// Longer section names are cut: all names that are looked up are shorter.
const SECTION_NAME_BYTES_MAX: usize = 64;

const ENDIAN: LittleEndian = LittleEndian;

/// One PT_LOAD.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub address: u64,
    pub memory_bytes: u64,
    pub offset: u64,
    pub file_bytes: u64,
    pub executable: bool,
    pub writable: bool,
}

/// One section header.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub name: String,
    pub kind: u32,
    pub address: u64,
    pub offset: u64,
    pub bytes: u64,
    pub link: u32,
    pub alignment: u64,
    pub allocated: bool,
    pub executable: bool,
    pub compressed: bool,
}

/// A program header other than PT_LOAD: its place in the file and in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub kind: u32,
    pub address: u64,
    pub memory_bytes: u64,
    pub offset: u64,
    pub file_bytes: u64,
    pub alignment: u64,
}

/// An ELF file with its headers read.
#[derive(Clone)]
pub(crate) struct Elf {
    image: Image,
    pub elf_type: u16,
    pub entry: u64,
    pub segments: Vec<Segment>,
    pub headers: Vec<Header>,
    pub sections: Vec<Section>,
    /// The ranges that contain instructions: the executable sections, or without sections the executable segments.
    /// Sorted, disjoint, each inside the file's part of an executable segment.
    pub executable: Vec<AddressRange>,
}

impl fmt::Debug for Elf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elf")
            .field("type", &self.elf_type)
            .field("segments", &self.segments)
            .finish_non_exhaustive()
    }
}

impl Elf {
    /// Reads the headers of a program or shared object.
    pub fn parse(image: Image, path: &Path) -> Result<Self, Error> {
        let elf = Self::parse_headers(image, path)?;
        let loadable = elf.elf_type == elf::ET_EXEC.0 || elf.elf_type == elf::ET_DYN.0;
        if !loadable || elf.segments.is_empty() {
            return Err(Error::NotLoadable {
                path: path.into(),
                elf_type: elf.elf_type,
            });
        }
        Ok(elf)
    }

    /// Reads the headers of any ELF file for this machine, such as a separate debug file.
    pub fn parse_headers(image: Image, path: &Path) -> Result<Self, Error> {
        let data = &image;
        if data.at(0, 4) != Some(b"\x7fELF") {
            return Err(Error::NotElf { path: path.into() });
        }
        if data.at(4, 2) != Some(&[2, 1]) {
            return Err(Error::OtherMachine { path: path.into() });
        }
        let header = FileHeader64::<LittleEndian>::parse(data).map_err(|_| Error::NotElf { path: path.into() })?;
        if header.e_machine(ENDIAN) != elf::EM_X86_64 {
            return Err(Error::OtherMachine { path: path.into() });
        }
        let damaged = |what| Error::Damaged {
            path: path.into(),
            what,
        };
        let program_headers = header
            .program_headers(ENDIAN, data)
            .map_err(|_| damaged("the program header table"))?;
        let mut segments = Vec::new();
        let mut headers = Vec::new();
        for program_header in program_headers.iter().take(SEGMENTS_MAX) {
            read_program_header(program_header, &mut segments, &mut headers);
        }
        // A stripped or partly mapped image may have no sections, or headers of sections that do not exist.
        let sections = header.section_headers(ENDIAN, data).unwrap_or(&[]);
        let names = header.section_strings(ENDIAN, data, sections).unwrap_or_default();
        let sections = sections
            .iter()
            .take(SECTIONS_MAX)
            .map(|section| read_section(section, section.name(ENDIAN, names).unwrap_or(b"")))
            .collect();
        let (elf_type, entry) = (header.e_type(ENDIAN).0, header.e_entry(ENDIAN));
        let mut elf = Self {
            image,
            elf_type,
            entry,
            segments,
            headers,
            sections,
            executable: Vec::new(),
        };
        elf.executable = elf.find_executable();
        Ok(elf)
    }

    fn find_executable(&self) -> Vec<AddressRange> {
        let in_segments: Vec<AddressRange> = self
            .segments
            .iter()
            .filter(|segment| segment.executable)
            .filter(|segment| {
                let end = segment.offset.checked_add(segment.file_bytes);
                end.is_some_and(|end| end <= self.image.bytes())
            })
            .map(|segment| AddressRange::new(segment.address, segment.address.saturating_add(segment.file_bytes)))
            .collect();
        let in_sections: Vec<AddressRange> = self
            .sections
            .iter()
            .filter(|section| section.executable && section.allocated && section.kind != elf::SHT_NOBITS.0)
            .map(|section| AddressRange::new(section.address, section.address.saturating_add(section.bytes)))
            .filter(|range| {
                in_segments
                    .iter()
                    .any(|outer| outer.start <= range.start && range.end <= outer.end)
            })
            .collect();
        let mut ranges = if in_sections.is_empty() {
            in_segments
        } else {
            in_sections
        };
        // A hole of the file contains no code.
        ranges.retain(|range| self.is_there(range.start.0, range.len()));
        sort_by_numbers(&mut ranges, |range| (range.start.0, range.end.0));
        let mut end = ImageAddress(0);
        for range in &mut ranges {
            range.start = range.start.max(end);
            range.end = range.end.max(range.start);
            end = range.end;
        }
        ranges.retain(|range| !range.is_empty());
        ranges
    }

    /// The whole file.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// This file, with `image` as the source of its bytes if `image` is given.
    pub fn with_image(&self, image: Option<Image>) -> Cow<'_, Elf> {
        match image {
            Some(image) => Cow::Owned(Elf { image, ..self.clone() }),
            None => Cow::Borrowed(self),
        }
    }

    /// Whether [`Elf::section_bytes`] would find the contents of a section. Reads nothing.
    pub fn has_section_bytes(&self, section: &Section) -> bool {
        section.kind != elf::SHT_NOBITS.0 && !section.compressed && self.image.is_there(section.offset, section.bytes)
    }

    /// Replaces the source of the file's bytes by another image of the same file.
    pub fn set_image(&mut self, image: Image) {
        self.image = image;
    }

    /// `bytes` bytes of the file from `offset` on.
    pub fn at_offset(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        self.image.at(offset, bytes)
    }

    /// The offset in the file from which `address` is mapped, and the number of bytes that follow in its segment.
    fn mapped_from(&self, address: u64) -> Option<(u64, u64)> {
        self.segments.iter().find_map(|segment| {
            let skip = address
                .checked_sub(segment.address)
                .filter(|skip| *skip < segment.file_bytes)?;
            Some((segment.offset.checked_add(skip)?, segment.file_bytes - skip))
        })
    }

    /// Whether the file contains the `bytes` bytes that the loader maps at `address`.
    fn is_there(&self, address: u64, bytes: u64) -> bool {
        self.mapped_from(address)
            .is_some_and(|(offset, rest)| bytes <= rest && self.image.is_there(offset, bytes))
    }

    /// `bytes` bytes that the loader maps from the file at `address`.
    pub fn at_address(&self, address: u64, bytes: u64) -> Option<&[u8]> {
        let (offset, rest) = self.mapped_from(address)?;
        self.image.at(offset, bytes).filter(|_| bytes <= rest)
    }

    /// The bytes that the loader maps from the file at `address`, up to the end of the segment.
    pub fn rest_at(&self, address: u64) -> Option<&[u8]> {
        self.some_at(address, u64::MAX)
    }

    /// The bytes that the loader maps from the file at `address`, at most `bytes` of them.
    pub fn some_at(&self, address: u64, bytes: u64) -> Option<&[u8]> {
        let (offset, rest) = self.mapped_from(address)?;
        self.image.rest(offset, rest.min(bytes))
    }

    /// Passes on every aligned word of a segment that is in the file, with its address. If the file lacks some of the
    /// words, none is passed on.
    pub fn each_word(&self, segment: &Segment, take: &mut dyn FnMut(u64, u64)) {
        let skipped = segment.address.wrapping_neg() & 7;
        let Some(bytes) = segment.file_bytes.checked_sub(skipped) else {
            return;
        };
        let start = segment.offset.saturating_add(skipped);
        self.image.scan(start, bytes, &mut |offset, piece| {
            let first = segment.address.wrapping_add(offset.wrapping_sub(segment.offset));
            let slots = (0..).step_by(8).map(|skip| first.wrapping_add(skip));
            let values = piece.chunks_exact(8).filter_map(|word| word.first_chunk());
            slots
                .zip(values)
                .for_each(|(slot, value)| take(slot, u64::from_le_bytes(*value)));
        });
    }

    /// The contents of a section; `None` when it has no contents in the file, or compressed contents.
    pub fn section_bytes(&self, section: &Section) -> Option<&[u8]> {
        if section.kind == elf::SHT_NOBITS.0 || section.compressed {
            return None;
        }
        self.at_offset(section.offset, section.bytes)
    }

    /// The first section of that name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The first program header of that kind.
    pub fn header(&self, kind: elf::ProgramType) -> Option<&Header> {
        self.headers.iter().find(|header| header.kind == kind.0)
    }

    /// The executable range that holds `address`.
    pub fn executable_at(&self, address: u64) -> Option<AddressRange> {
        let address = ImageAddress(address);
        let index = self.executable.partition_point(|range| range.end <= address);
        self.executable
            .get(index)
            .copied()
            .filter(|range| range.contains(address))
    }
}

fn read_program_header(header: &ProgramHeader64<LittleEndian>, segments: &mut Vec<Segment>, headers: &mut Vec<Header>) {
    let address = header.p_vaddr(ENDIAN);
    let memory_bytes = header.p_memsz(ENDIAN);
    let (offset, file_bytes) = (header.p_offset(ENDIAN), header.p_filesz(ENDIAN));
    if header.p_type(ENDIAN) == elf::PT_LOAD {
        let executable = header.p_flags(ENDIAN).0 & elf::PF_X.0 != 0;
        segments.push(Segment {
            address,
            memory_bytes,
            offset,
            file_bytes: file_bytes.min(memory_bytes),
            executable,
            writable: header.p_flags(ENDIAN).0 & elf::PF_W.0 != 0,
        });
    } else {
        let (kind, alignment) = (header.p_type(ENDIAN).0, header.p_align(ENDIAN));
        headers.push(Header {
            kind,
            address,
            memory_bytes,
            offset,
            file_bytes,
            alignment,
        });
    }
}

fn read_section(section: &SectionHeader64<LittleEndian>, name: &[u8]) -> Section {
    let flags = section.sh_flags(ENDIAN).0;
    let has = |flag: u64| flags & flag != 0;
    let name = name.get(..SECTION_NAME_BYTES_MAX).unwrap_or(name);
    Section {
        name: String::from_utf8_lossy(name).into_owned(),
        kind: section.sh_type(ENDIAN).0,
        address: section.sh_addr(ENDIAN),
        offset: section.sh_offset(ENDIAN),
        bytes: section.sh_size(ENDIAN),
        link: section.sh_link(ENDIAN),
        alignment: section.sh_addralign(ENDIAN),
        allocated: has(elf::SHF_ALLOC.0),
        executable: has(elf::SHF_EXECINSTR.0),
        compressed: has(elf::SHF_COMPRESSED.0),
    }
}
