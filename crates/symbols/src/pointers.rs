//! Pointers to code in a module's data: tables of labels, of functions, of methods.
//!
//! In a position-independent image the loader makes them (R_X86_64_RELATIVE); in one at a fixed address they are words of
//! its data. Nothing says which words are pointers, so a number that happens to lie in the code counts as one, too.

use object::elf;
use object::endian::LittleEndian;

use crate::elf::{Elf, table};
use crate::linkage::DynamicEntries;

/// The addresses of code to which pointers lead, ascending.
pub(crate) fn find(elf: &Elf) -> Vec<u64> {
    let mut found = Vec::new();
    let mut add = |address: u64| {
        if elf.executable_at(address).is_some() {
            found.push(address);
        }
    };
    if elf.elf_type == elf::ET_DYN.0 {
        let relocations = DynamicEntries::of(elf).table(elf, elf::DT_RELA, elf::DT_RELASZ);
        for raw in table::<elf::Rela64<LittleEndian>>(relocations) {
            if raw.r_info.get(LittleEndian) as u32 == elf::R_X86_64_RELATIVE.0 {
                add(raw.r_addend.get(LittleEndian) as u64);
            }
        }
    } else {
        for segment in elf.segments.iter().filter(|segment| !segment.executable) {
            let bytes = elf.at_offset(segment.offset, segment.file_bytes).unwrap_or_default();
            let skipped = segment.address.wrapping_neg() as usize & 7;
            let words = bytes.get(skipped..).unwrap_or_default().chunks_exact(8);
            words
                .filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)))
                .for_each(&mut add);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
