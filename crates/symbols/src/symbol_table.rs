//! Symbols as the file has them: .symtab and .dynsym, and the dynamic segment's table if sections are stripped.
//!
//! Nothing is copied here: names are borrowed from the string table. A hostile table can make every one of a million
//! symbols point at the same megabyte of name. So names have two limits: [`NAME_BYTES_MAX`] for each name, and a
//! small multiple of the string table's size for all names of one walk.

use std::borrow::Cow;

use object::elf;
use object::endian::LittleEndian;

use crate::address::ImageAddress;
use crate::elf::Elf;
use crate::linkage::DynamicEntries;
use crate::name::strip_version;
use crate::table::{string_at, table};

/// A symbol with a longer name is ignored. Mangled names of several thousand bytes do occur.
pub(crate) const NAME_BYTES_MAX: usize = 32 * 1024;
/// The limit of bytes of names that one walk reads, in multiples of the string table's size. Names may share their
/// tails in the table, so the sum can exceed the table a little.
const NAME_BUDGET_FACTOR: usize = 8;

const ENDIAN: LittleEndian = LittleEndian;
type RawSymbol = elf::Sym64<LittleEndian>;

/// The kind of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SymbolKind {
    /// STT_FUNC.
    Function,
    /// STT_GNU_IFUNC: the address is a resolver.
    Ifunc,
    /// STT_OBJECT and STT_COMMON: data.
    Object,
    /// STT_TLS: the address is an offset in the thread-local image.
    ThreadLocal,
    /// STT_NOTYPE: a label.
    Label,
}

/// A defined symbol of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    pub name: Cow<'a, str>,
    pub address: ImageAddress,
    /// The symbol's size in bytes; 0: not stated.
    pub size: u64,
    pub kind: SymbolKind,
    /// Whether other compilation units see the symbol (STB_GLOBAL, STB_WEAK, STB_GNU_UNIQUE).
    pub global: bool,
    /// Whether the symbol has the version that a new link would use: false for `name@VERSION`, kept for old programs.
    pub default_version: bool,
}

/// Calls `visit` with every defined symbol of the file, .symtab's first; stops when it returns false.
pub(crate) fn for_each<'a>(elf: &'a Elf, visit: impl FnMut(Symbol<'a>) -> bool) {
    for_each_of(elf, None, visit);
}

/// Visits the symbols of one name.
pub(crate) fn for_each_named<'a>(elf: &'a Elf, name: &str, visit: impl FnMut(Symbol<'a>) -> bool) {
    for_each_of(elf, Some(name.as_bytes()), visit);
}

fn for_each_of<'a>(elf: &'a Elf, wanted: Option<&[u8]>, mut visit: impl FnMut(Symbol<'a>) -> bool) {
    let mut found = false;
    for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        for (index, section) in elf
            .sections
            .iter()
            .enumerate()
            .filter(|(_, section)| section.kind == kind.0)
        {
            let Some(symbols) = elf.section_bytes(section) else {
                continue;
            };
            let strings = elf
                .sections
                .get(section.link as usize)
                .and_then(|strings| elf.section_bytes(strings));
            let versions = elf
                .sections
                .iter()
                .find(|versions| versions.kind == elf::SHT_GNU_VERSYM.0 && versions.link as usize == index)
                .and_then(|versions| elf.section_bytes(versions));
            found = true;
            if !walk(
                table(symbols),
                strings.unwrap_or(b""),
                versions.unwrap_or(b""),
                wanted,
                &mut visit,
            ) {
                return;
            }
        }
    }
    if !found {
        let (symbols, strings) = DynamicEntries::of(elf).symbols(elf);
        walk(table(symbols), strings, b"", wanted, &mut visit);
    }
}

/// Whether the file has a full symbol table (is not stripped).
pub(crate) fn has_full_table(elf: &Elf) -> bool {
    let mut tables = elf.sections.iter().filter(|section| section.kind == elf::SHT_SYMTAB.0);
    tables.any(|section| section.bytes >= size_of::<RawSymbol>() as u64 && elf.has_section_bytes(section))
}

fn walk<'a>(
    symbols: &'a [RawSymbol],
    strings: &'a [u8],
    versions: &'a [u8],
    wanted: Option<&[u8]>,
    visit: &mut impl FnMut(Symbol<'a>) -> bool,
) -> bool {
    let mut budget = strings
        .len()
        .saturating_mul(NAME_BUDGET_FACTOR)
        .saturating_add(NAME_BYTES_MAX);
    for (index, raw) in symbols.iter().enumerate() {
        // Nearly all names differ from the wanted name in their first bytes, so these are compared first.
        if wanted.is_some_and(|wanted| !may_be(raw, strings, wanted)) {
            continue;
        }
        let symbol = read(raw, strings).filter(|symbol| wanted.is_none_or(|wanted| symbol.name.as_bytes() == wanted));
        if let Some(mut symbol) = symbol {
            let version = versions.get(index * 2..index * 2 + 2);
            // The top bit marks a version that a new link does not use.
            symbol.default_version &= version.is_none_or(|version| version.last().is_some_and(|high| high & 0x80 == 0));
            let Some(left) = budget.checked_sub(symbol.name.len() + 1) else {
                return true;
            };
            budget = left;
            if !visit(symbol) {
                return false;
            }
        }
    }
    true
}

/// Whether a symbol's name begins with these bytes.
fn may_be(raw: &RawSymbol, strings: &[u8], name: &[u8]) -> bool {
    let rest = strings.get(raw.st_name.get(ENDIAN) as usize..);
    rest.is_some_and(|rest| rest.starts_with(name))
}

fn read<'a>(raw: &'a RawSymbol, strings: &'a [u8]) -> Option<Symbol<'a>> {
    let section = raw.st_shndx.get(ENDIAN);
    if section == elf::SHN_UNDEF || section == elf::SHN_ABS || section == elf::SHN_COMMON {
        return None;
    }
    let kind = match raw.st_info.0 & 0xf {
        0 => SymbolKind::Label,
        1 | 5 => SymbolKind::Object,
        2 => SymbolKind::Function,
        6 => SymbolKind::ThreadLocal,
        10 => SymbolKind::Ifunc,
        _ => return None,
    };
    let full = string_at(strings, raw.st_name.get(ENDIAN).into(), NAME_BYTES_MAX)?;
    let name = strip_version(full);
    if name.is_empty() {
        return None;
    }
    Some(Symbol {
        name: String::from_utf8_lossy(name),
        address: ImageAddress(raw.st_value.get(ENDIAN)),
        size: raw.st_size.get(ENDIAN),
        kind,
        global: raw.st_info.0 >> 4 != elf::STB_LOCAL.0,
        default_version: full.len() == name.len() || full.get(name.len()..name.len() + 2) == Some(b"@@"),
    })
}
