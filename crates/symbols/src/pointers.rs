//! Pointers to code in a module's data: tables of labels, of functions, of methods.
//!
//! In a position-independent image the loader makes them (R_X86_64_RELATIVE); in one at a fixed address they are words
//! of its data. Nothing says which words are pointers, so two neighbours that happen to lie in the code count, too.

use object::elf;
use object::endian::LittleEndian;

use crate::elf::Elf;
use crate::linkage::DynamicEntries;
use crate::table::table;

/// How far apart the labels of one table lie, at most: the largest functions have 100 KiB.
const TABLE_SPAN: u64 = 1 << 20;

/// The addresses of code to which pointers lead, ascending.
///
/// Only those of tables count: a word beside it leads to code nearby. A lone number that looks like an address is none.
pub(crate) fn find(elf: &Elf) -> Vec<u64> {
    let mut words: Vec<(u64, u64)> = Vec::new();
    if elf.elf_type == elf::ET_DYN.0 {
        let relocations = DynamicEntries::of(elf).table(elf, elf::DT_RELA, elf::DT_RELASZ);
        let relative = table::<elf::Rela64<LittleEndian>>(relocations)
            .iter()
            .filter(|raw| raw.r_info.get(LittleEndian) as u32 == elf::R_X86_64_RELATIVE.0);
        words.extend(relative.map(|raw| (raw.r_offset.get(LittleEndian), raw.r_addend.get(LittleEndian) as u64)));
    } else {
        for segment in elf.segments.iter().filter(|segment| !segment.executable) {
            elf.each_word(segment, &mut |slot, value| {
                if elf.executable_at(value).is_some() {
                    words.push((slot, value));
                }
            });
        }
    }
    words.retain(|(_, value)| elf.executable_at(*value).is_some());
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
