//! Slots that the loader fills with addresses of code: those of imports, and the choices of IFUNCs' resolvers.
//!
//! ```text
//!   JUMP_SLOT, GLOB_DAT, 64   slot := address of symbol      (the chosen function's, when the symbol is an IFUNC)
//!   IRELATIVE                 slot := resolver()             (an IFUNC of the module itself)
//! ```
//!
//! A symbol's slot may still hold the address of its own PLT entry: with lazy binding it is filled at the first call.

use std::borrow::Cow;

use object::elf;
use object::endian::LittleEndian;

use crate::address::ImageAddress;
use crate::elf::Elf;
use crate::linkage::DynamicEntries;
use crate::name::strip_version;
use crate::symbol_table::NAME_BYTES_MAX;
use crate::table::{string_at, table};

const ENDIAN: LittleEndian = LittleEndian;
/// The limit of bytes of names in one walk, as a multiple of the string table's size, because several slots may name
/// one symbol.
const NAME_BUDGET_FACTOR: usize = 64;

/// The maximal number of variables of which a program has copies.
const COPIES_MAX: usize = 1 << 16;

/// A word of the module that the loader fills with the address of a function or variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation<'a> {
    /// The word (8 bytes).
    pub slot: ImageAddress,
    /// The symbol or resolver that determines the address.
    pub target: RelocationTarget<'a>,
}

/// The source of a slot's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelocationTarget<'a> {
    /// The address of the symbol of that name, plus the addend.
    Symbol {
        name: Cow<'a, str>,
        /// The distance from the symbol's address; nearly always 0.
        addend: i64,
        /// The address of this module's own definition, if there is one. The loader may choose another module's
        /// definition.
        definition: Option<ImageAddress>,
    },
    /// The result of the resolver.
    Indirect {
        /// A function of this module that takes no arguments and returns the address of the chosen code.
        resolver: ImageAddress,
    },
}

/// Variables of libraries that the loader copies into this program (R_X86_64_COPY), as addresses and names. The
/// program and its libraries use only the copies.
pub(crate) fn copies(elf: &Elf) -> Vec<(ImageAddress, String)> {
    let dynamic = DynamicEntries::of(elf);
    let (symbols, strings) = (dynamic.symbols_unbounded(elf), dynamic.strings(elf));
    let relocations = table::<elf::Rela64<LittleEndian>>(dynamic.table(elf, elf::DT_RELA, elf::DT_RELASZ));
    let copied = relocations.iter().filter_map(|raw| {
        let info = raw.r_info.get(ENDIAN);
        if info as u32 != elf::R_X86_64_COPY.0 {
            return None;
        }
        let symbol = symbols.get((info >> 32) as usize)?;
        let name = string_at(strings, symbol.st_name.get(ENDIAN).into(), NAME_BYTES_MAX)?;
        let name = String::from_utf8_lossy(strip_version(name)).into_owned();
        Some((ImageAddress(raw.r_offset.get(ENDIAN)), name))
    });
    copied.take(COPIES_MAX).collect()
}

/// The relocations that carry addresses of symbols or of IFUNCs' choices, .rela.dyn's first.
pub(crate) fn relocations(elf: &Elf) -> Vec<Relocation<'_>> {
    let dynamic = DynamicEntries::of(elf);
    let mut tables = vec![
        dynamic.table(elf, elf::DT_RELA, elf::DT_RELASZ),
        dynamic.table(elf, elf::DT_JMPREL, elf::DT_PLTRELSZ),
    ];
    if dynamic.entries.is_empty() {
        // A static program relocates its IFUNCs itself, by the table between __rela_iplt_start and __rela_iplt_end.
        let allocated = elf
            .sections
            .iter()
            .filter(|section| section.allocated && section.kind == elf::SHT_RELA.0);
        tables.extend(allocated.filter_map(|section| elf.section_bytes(section)));
    }
    let (symbols, strings) = (dynamic.symbols_unbounded(elf), dynamic.strings(elf));
    let mut budget = strings.len().saturating_mul(NAME_BUDGET_FACTOR);
    let mut found = Vec::new();
    for raw in tables.into_iter().flat_map(table::<elf::Rela64<LittleEndian>>) {
        let slot = ImageAddress(raw.r_offset.get(ENDIAN));
        let addend = raw.r_addend.get(ENDIAN);
        let info = raw.r_info.get(ENDIAN);
        let target = match info as u32 {
            kind if kind == elf::R_X86_64_IRELATIVE.0 => RelocationTarget::Indirect {
                resolver: ImageAddress(addend as u64),
            },
            kind if [elf::R_X86_64_JUMP_SLOT.0, elf::R_X86_64_GLOB_DAT.0, elf::R_X86_64_64.0].contains(&kind) => {
                let Some(symbol) = symbols.get((info >> 32) as usize) else {
                    continue;
                };
                let Some(name) = string_at(strings, symbol.st_name.get(ENDIAN).into(), NAME_BYTES_MAX) else {
                    continue;
                };
                let Some(left) = budget.checked_sub(name.len()) else {
                    break;
                };
                budget = left;
                let defined = symbol.st_shndx.get(ENDIAN) != elf::SHN_UNDEF;
                RelocationTarget::Symbol {
                    name: String::from_utf8_lossy(strip_version(name)),
                    addend,
                    definition: defined.then(|| ImageAddress(symbol.st_value.get(ENDIAN))),
                }
            }
            _ => continue,
        };
        found.push(Relocation { slot, target });
    }
    found
}
