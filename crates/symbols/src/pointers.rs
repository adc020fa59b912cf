//! Pointers to code in a module's data: tables of labels, of functions, of methods.
//!
//! In a position-independent image the loader fills them in (R_X86_64_RELATIVE). In an image at a fixed address they
//! are words of its data. Nothing says which words are pointers, so two neighbouring words count as pointers if both
//! look like addresses of code.

use object::elf;
use object::endian::LittleEndian;

use crate::elf::Elf;
use crate::linkage::DynamicEntries;
use crate::table::table;

/// The largest distance between the labels of one table: the largest functions are about 100 KiB long.
const TABLE_SPAN: u64 = 1 << 20;

/// The addresses of code to which pointers lead, ascending.
///
/// Only pointers in tables count: a neighbouring word leads to code nearby. A lone number that looks like an address
/// does not count.
pub(crate) fn find(elf: &Elf) -> Vec<u64> {
    let mut words: Vec<(u64, u64)> = Vec::new();
    each(elf, &mut |slot, value| {
        if elf.executable_at(value).is_some() {
            words.push((slot, value));
        }
    });
    words.sort_unstable();
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let &[(slot, value), (next_slot, next)] = pair else {
            continue;
        };
        if next_slot == slot.wrapping_add(8) && value.abs_diff(next) < TABLE_SPAN {
            found.extend([value, next]);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Hands on all words of the module's data that may be pointers: where they are, and where they lead.
pub(crate) fn each(elf: &Elf, take: &mut dyn FnMut(u64, u64)) {
    if elf.elf_type == elf::ET_DYN.0 {
        let relocations = DynamicEntries::of(elf).table(elf, elf::DT_RELA, elf::DT_RELASZ);
        let relative = table::<elf::Rela64<LittleEndian>>(relocations)
            .iter()
            .filter(|raw| raw.r_info.get(LittleEndian) as u32 == elf::R_X86_64_RELATIVE.0);
        for raw in relative {
            take(raw.r_offset.get(LittleEndian), raw.r_addend.get(LittleEndian) as u64);
        }
    } else {
        for segment in elf.segments.iter().filter(|segment| !segment.executable) {
            elf.each_word(segment, take);
        }
    }
}
