//! The sections of DWARF: from the module's own file, else from its separate debug file; decompressed where they have to be.

use std::ops::Range;
use std::sync::Arc;

use gimli::{DwarfSections, SectionId};
use nanoprobe_symbols::{ImageBytes, Module, files};
use object::elf::FileHeader64;
use object::endian::LittleEndian;
use object::read::elf::ElfFile;
use object::{CompressionFormat, Object, ObjectSection};

use crate::problem::Problem;

/// A section that says it becomes larger is not decompressed.
const DECOMPRESSED_BYTES_MAX: u64 = 4 << 30;
/// How many times larger a section may become: zlib's best is 1032, and a lie costs us memory.
const RATIO_MAX: u64 = 2048;

/// The bytes of a section.
pub(crate) enum Section {
    /// There is none.
    Absent,
    /// A part of the file.
    Part(ImageBytes, Range<usize>),
    /// Decompressed.
    Own(Vec<u8>),
}

impl Section {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Section::Absent => &[],
            Section::Part(image, range) => (**image).as_ref().get(range.clone()).unwrap_or_default(),
            Section::Own(bytes) => bytes,
        }
    }
}

/// The sections of a module's debug information.
pub(crate) fn load(module: &Module) -> Result<DwarfSections<Section>, Problem> {
    if let Some(own) = sections_of(&module.image(), module.name())? {
        return Ok(own);
    }
    let none = || Problem::None {
        module: module.name().to_owned(),
    };
    let (_, bytes) = files::find_debug_file(module).ok_or_else(none)?;
    let separate: ImageBytes = Arc::new(bytes);
    sections_of(&separate, module.name())?.ok_or_else(none)
}

/// The sections of a file that has a .debug_info.
fn sections_of(image: &ImageBytes, module: &str) -> Result<Option<DwarfSections<Section>>, Problem> {
    let data: &[u8] = (**image).as_ref();
    let file = ElfFile::<FileHeader64<LittleEndian>>::parse(data).map_err(|_| Problem::Damaged {
        module: module.to_owned(),
        what: "its file's headers",
    })?;
    let has_entries = file
        .section_by_name(SectionId::DebugInfo.name())
        .is_some_and(|section| section.size() > 0 && section.file_range().is_some());
    if !has_entries {
        return Ok(None);
    }
    let sections = DwarfSections::load(|id: SectionId| {
        let Some(section) = file.section_by_name(id.name()) else {
            return Ok(Section::Absent);
        };
        let broken = || Problem::Compressed {
            module: module.to_owned(),
            section: id.name(),
        };
        let range = section.compressed_file_range().map_err(|_| broken())?;
        if range.format == CompressionFormat::None {
            let part = section.file_range().and_then(|(offset, bytes)| {
                let start = usize::try_from(offset).ok()?;
                let end = start.checked_add(usize::try_from(bytes).ok()?)?;
                data.get(start..end).map(|_| start..end)
            });
            return Ok(part.map_or(Section::Absent, |range| Section::Part(image.clone(), range)));
        }
        let compressed = section.compressed_data().map_err(|_| broken())?;
        let most = (compressed.data.len() as u64)
            .saturating_mul(RATIO_MAX)
            .min(DECOMPRESSED_BYTES_MAX);
        if compressed.uncompressed_size > most {
            return Err(broken());
        }
        let bytes = compressed.decompress().map_err(|_| broken())?;
        Ok(Section::Own(bytes.into_owned()))
    })?;
    Ok(Some(sections))
}
