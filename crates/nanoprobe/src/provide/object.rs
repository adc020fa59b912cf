//! The object: a relocatable ELF file with a semaphore for each probe, which is 0 while nothing
//! traces the probe.
//!
//! ```text
//! header | .probes: two bytes each | .symtab | .strtab | .shstrtab | section headers
//! ```
//!
//! The symbols are hidden: each program and library that the object is linked into has its own.

use nanoprobe_lang::providers::Provider;

use super::semaphore;

const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// `unsigned short`
const SEMAPHORE_BYTES: usize = 2;

/// A section's header, without the offset of its name.
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    link: u32,
    info: u32,
    alignment: u64,
    entry_bytes: u64,
    content: Vec<u8>,
}

/// The object with all semaphores.
pub fn object(providers: &[Provider]) -> Vec<u8> {
    let names: Vec<String> = providers
        .iter()
        .flat_map(|provider| {
            provider
                .probes
                .iter()
                .map(|probe| semaphore(&provider.name, &probe.name))
        })
        .collect();
    let mut symbols = vec![0; SYMBOL_BYTES];
    let mut strings = vec![0];
    for (index, name) in names.iter().enumerate() {
        symbols.extend(symbol(strings.len(), index * SEMAPHORE_BYTES));
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    file(vec![
        Section::of(".probes", PROGBITS, vec![0; names.len() * SEMAPHORE_BYTES]).with(WRITE | ALLOC, 2),
        Section {
            link: 3,
            info: 1,
            entry_bytes: SYMBOL_BYTES as u64,
            ..Section::of(".symtab", SYMTAB, symbols).with(0, 8)
        },
        Section::of(".strtab", STRTAB, strings),
        // This section says that no executable stack is needed.
        Section::of(".note.GNU-stack", PROGBITS, Vec::new()),
    ])
}

const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const WRITE: u64 = 1;
const ALLOC: u64 = 2;

impl Section {
    fn of(name: &'static str, kind: u32, content: Vec<u8>) -> Section {
        Section {
            name,
            kind,
            flags: 0,
            link: 0,
            info: 0,
            alignment: 1,
            entry_bytes: 0,
            content,
        }
    }

    fn with(self, flags: u64, alignment: u64) -> Section {
        Section {
            flags,
            alignment,
            ..self
        }
    }
}

/// A global, hidden object in the first section.
fn symbol(name: usize, value: usize) -> Vec<u8> {
    const GLOBAL_OBJECT: u8 = (1 << 4) | 1;
    const HIDDEN: u8 = 2;
    const SECTION: u16 = 1;
    let mut bytes = Vec::with_capacity(SYMBOL_BYTES);
    bytes.extend((name as u32).to_le_bytes());
    bytes.extend([GLOBAL_OBJECT, HIDDEN]);
    bytes.extend(SECTION.to_le_bytes());
    bytes.extend((value as u64).to_le_bytes());
    bytes.extend((SEMAPHORE_BYTES as u64).to_le_bytes());
    bytes
}

/// The sections of a file, after the null section and before the section of their names.
fn file(mut sections: Vec<Section>) -> Vec<u8> {
    sections.push(Section::of(".shstrtab", STRTAB, Vec::new()));
    let mut names = vec![0];
    let mut places = Vec::new();
    for section in &sections {
        places.push(names.len() as u32);
        names.extend(section.name.as_bytes());
        names.push(0);
    }
    if let Some(last) = sections.last_mut() {
        last.content = names;
    }
    let mut content = vec![0; HEADER_BYTES];
    let mut headers = vec![0; SECTION_BYTES];
    for (section, name) in sections.iter().zip(places) {
        content.resize(content.len().next_multiple_of(section.alignment as usize), 0);
        headers.extend(name.to_le_bytes());
        headers.extend(section.kind.to_le_bytes());
        headers.extend(section.flags.to_le_bytes());
        headers.extend(0_u64.to_le_bytes());
        headers.extend((content.len() as u64).to_le_bytes());
        headers.extend((section.content.len() as u64).to_le_bytes());
        headers.extend(section.link.to_le_bytes());
        headers.extend(section.info.to_le_bytes());
        headers.extend(section.alignment.to_le_bytes());
        headers.extend(section.entry_bytes.to_le_bytes());
        content.extend(&section.content);
    }
    content.resize(content.len().next_multiple_of(8), 0);
    let header = file_header(content.len() as u64, sections.len() as u16 + 1);
    content.splice(..HEADER_BYTES, header);
    content.extend(headers);
    content
}

/// The header of a 64-bit relocatable file whose last section has the sections' names.
fn file_header(sections_at: u64, sections: u16) -> Vec<u8> {
    const RELOCATABLE: u16 = 1;
    const X86_64: u16 = 62;
    const VERSION: u32 = 1;
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    bytes.resize(16, 0);
    bytes.extend(RELOCATABLE.to_le_bytes());
    bytes.extend(X86_64.to_le_bytes());
    bytes.extend(VERSION.to_le_bytes());
    // No entry, no segments.
    bytes.extend([0; 16]);
    bytes.extend(sections_at.to_le_bytes());
    bytes.extend([0; 4]);
    for half in [HEADER_BYTES as u16, 0, 0, SECTION_BYTES as u16, sections, sections - 1] {
        bytes.extend(half.to_le_bytes());
    }
    bytes
}
