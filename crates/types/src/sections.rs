//! The sections of DWARF, from the module's own file or else from its separate debug file. They are decompressed if
//! necessary. The sections of location lists are read when the place of a variable is needed.

use std::ops::Range;
use std::sync::OnceLock;

use gimli::{DwarfSections, SectionId};
use nanoprobe_symbols::{Image, Module, files};
use object::elf::FileHeader64;
use object::endian::LittleEndian;
use object::read::elf::{ElfFile, ElfSection64};
use object::{CompressionFormat, Object, ObjectSection};

use crate::problem::Problem;

/// A section that claims a greater size than this is not decompressed.
const DECOMPRESSED_BYTES_MAX: u64 = 4 << 30;
/// By which factor a section may grow. zlib's best factor is 1032, and a false claim would cost us memory.
const RATIO_MAX: u64 = 2048;

/// The sections that are decompressed in parallel with .debug_info.
const BESIDE: [SectionId; 4] = [
    SectionId::DebugLine,
    SectionId::DebugStr,
    SectionId::DebugLineStr,
    SectionId::DebugRngLists,
];
/// Sections up to this size are decompressed at once.
const SMALL_BYTES_MAX: u64 = 64 << 10;

type File<'d> = ElfFile<'d, FileHeader64<LittleEndian>, &'d Image>;

/// The bytes of a section.
pub(crate) enum Section {
    /// There is no such section.
    Absent,
    /// A part of the file.
    Part(Image, Range<u64>),
    /// Decompressed bytes.
    Own(Vec<u8>),
    /// A section that is decompressed when it is needed. If this fails, the section counts as empty.
    Packed(Packed),
}

/// A section that few questions need.
pub(crate) struct Packed {
    image: Image,
    id: SectionId,
    bytes: OnceLock<Vec<u8>>,
}

impl Section {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Section::Absent => &[],
            Section::Part(image, range) => image.at(range.start, range.end - range.start).unwrap_or_default(),
            Section::Own(bytes) => bytes,
            Section::Packed(packed) => packed.bytes.get().map_or(&[], Vec::as_slice),
        }
    }

    /// Decompresses a section whose decompression was deferred.
    pub fn unpack(&self) {
        if let Section::Packed(packed) = self {
            packed.bytes.get_or_init(|| packed.unpacked().unwrap_or_default());
        }
    }
}

impl Packed {
    fn unpacked(&self) -> Option<Vec<u8>> {
        let file = File::parse(&self.image).ok()?;
        decompressed(&file.section_by_name(self.id.name())?)
    }
}

/// A section of the file. `Err`: the section cannot be decompressed.
fn section_of(file: &File<'_>, image: &Image, id: SectionId) -> Result<Section, ()> {
    let Some(section) = file.section_by_name(id.name()) else {
        return Ok(Section::Absent);
    };
    let range = section.compressed_file_range().map_err(|_| ())?;
    if range.format == CompressionFormat::None {
        let part = section.file_range().and_then(|(offset, bytes)| {
            let end = offset.checked_add(bytes)?;
            image.is_there(offset, bytes).then_some(offset..end)
        });
        return Ok(part.map_or(Section::Absent, |range| Section::Part(image.clone(), range)));
    }
    if is_put_off(id) {
        return Ok(Section::Packed(Packed {
            image: image.clone(),
            id,
            bytes: OnceLock::new(),
        }));
    }
    decompressed(&section).map(Section::Own).ok_or(())
}

/// Whether decompression is deferred: for location lists, which are large, and only needed for the places of variables.
fn is_put_off(id: SectionId) -> bool {
    matches!(id, SectionId::DebugLoc | SectionId::DebugLocLists)
}

/// The content of a compressed section; `None`: the section claims to be too large.
fn decompressed<'d>(section: &impl ObjectSection<'d>) -> Option<Vec<u8>> {
    let compressed = section.compressed_data().ok()?;
    let most = (compressed.data.len() as u64)
        .saturating_mul(RATIO_MAX)
        .min(DECOMPRESSED_BYTES_MAX);
    if compressed.uncompressed_size > most {
        return None;
    }
    Some(compressed.decompress().ok()?.into_owned())
}

/// The sections of a module's debug information.
pub(crate) fn load(module: &Module) -> Result<DwarfSections<Section>, Problem> {
    if let Some(own) = sections_of(module.image(), module.name())? {
        return Ok(own);
    }
    let none = || Problem::None {
        module: module.name().to_owned(),
    };
    let (_, separate) = files::find_debug_file(module).ok_or_else(none)?;
    sections_of(&separate, module.name())?.ok_or_else(none)
}

/// The sections of a file, if it has a .debug_info.
fn sections_of(image: &Image, module: &str) -> Result<Option<DwarfSections<Section>>, Problem> {
    let file = File::parse(image).map_err(|_| Problem::Damaged {
        module: module.to_owned(),
        what: "its file's headers",
    })?;
    let has_entries = file
        .section_by_name(SectionId::DebugInfo.name())
        .is_some_and(|section| section.size() > 0 && section.file_range().is_some());
    if !has_entries {
        return Ok(None);
    }
    // Decompression is most of the cost of opening, so a second thread does a part of it.
    let sections = std::thread::scope(|scope| {
        let is_large = |section: &ElfSection64<'_, '_, LittleEndian, &Image>| {
            let range = section.compressed_file_range();
            range.is_ok_and(|range| range.format != CompressionFormat::None && range.compressed_size > SMALL_BYTES_MAX)
        };
        let is_worth_it = file
            .section_by_name(SectionId::DebugInfo.name())
            .is_some_and(|info| is_large(&info));
        let mut others = is_worth_it.then(|| {
            let file = &file;
            scope.spawn(move || {
                let unpacked =
                    |id: &SectionId| Some((*id, decompressed(&file.section_by_name(id.name()).filter(is_large)?)?));
                BESIDE.iter().filter_map(unpacked).collect::<Vec<_>>()
            })
        });
        let mut beside = Vec::new();
        DwarfSections::load(|id: SectionId| {
            if BESIDE.contains(&id)
                && let Some(others) = others.take()
            {
                beside = others.join().unwrap_or_default();
            }
            if let Some(at) = beside.iter().position(|(known, _)| *known == id) {
                return Ok(Section::Own(beside.swap_remove(at).1));
            }
            section_of(&file, image, id).map_err(|()| Problem::Compressed {
                module: module.to_owned(),
                section: id.name(),
            })
        })
    })?;
    Ok(Some(sections))
}
