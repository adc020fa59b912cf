//! Restartable sequences (`man 2 rseq`): code that the kernel restarts after an interruption.
//!
//! The program leaves a descriptor for each, 32 bytes, in the section `__rseq_cs`; `__rseq_cs_ptr_array` has pointers
//! to descriptors that lie elsewhere:
//!
//! ```text
//!   u32 version, u32 flags    0
//!   u64 start_ip              the first instruction
//!   u64 post_commit_offset    bytes from there to the end of the last one
//!   u64 abort_ip              where an interrupted thread continues; 4 bytes of signature precede it
//! ```
//!
//! In a position-independent image the loader fills in the addresses. If there are relocations for the addresses, the
//! values of the relocations count, otherwise the values in the file. Descriptors in other sections, or in a file
//! without sections, are found by the usual signature, which hardly ever occurs in other code.

use std::collections::BTreeSet;

use object::elf;
use object::endian::LittleEndian;

use crate::address::{AddressRange, ImageAddress};
use crate::elf::Elf;
use crate::linkage::DynamicEntries;
use crate::table::table;
use nanoprobe_patch::order::{sort_by_number, sort_by_numbers};

/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u64 = 32;
/// Bytes of a signature.
const SIGNATURE_BYTES: u64 = 4;
/// RSEQ_SIG of the C library and of librseq, as bytes of the code.
const SIGNATURE: [u8; 4] = 0x5305_3053_u32.to_le_bytes();
/// The most sequences that are read: no program has so many.
const SEQUENCES_MAX: usize = 1 << 16;

/// One restartable sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RestartableSequence {
    /// The address of the sequence's first instruction.
    pub start: ImageAddress,
    /// The address after the sequence's last instruction.
    pub end: ImageAddress,
    /// The address at which an interrupted thread continues.
    pub abort: ImageAddress,
}

/// All sequences of an image.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequences {
    /// The sequences by start, each with the highest end of all up to it.
    by_start: Vec<(RestartableSequence, u64)>,
    by_abort: Vec<RestartableSequence>,
}

impl Sequences {
    pub fn of(elf: &Elf) -> Sequences {
        let aborts = signed(elf);
        let named = |name: &str| elf.sections.iter().any(|section| section.name == name);
        if aborts.is_empty() && !named("__rseq_cs") && !named("__rseq_cs_ptr_array") {
            return Sequences::default();
        }
        let words = Words::of(elf);
        let mut found = BTreeSet::new();
        for section in elf.sections.iter().filter(|section| section.allocated) {
            // The section may claim bytes beyond the end of the file, so the number of slots is limited.
            let end = section.address.saturating_add(section.bytes);
            match section.name.as_str() {
                "__rseq_cs" => {
                    // The linker may have put bytes before the first descriptor, to align it.
                    let first = section.address.next_multiple_of(8);
                    let slots = (first..end).step_by(8).take(4 * SEQUENCES_MAX);
                    found.extend(slots.filter_map(|slot| words.descriptor(slot)));
                }
                "__rseq_cs_ptr_array" => {
                    let slots = (section.address..end).step_by(8).take(SEQUENCES_MAX);
                    found.extend(slots.filter_map(|slot| words.descriptor(words.at(slot)?)));
                }
                _ => {}
            }
        }
        if !aborts.is_empty() {
            found.extend(words.that_lead_to(&aborts).filter_map(|slot| words.descriptor(slot)));
        }
        let mut highest = 0;
        let by_start: Vec<(RestartableSequence, u64)> = found
            .into_iter()
            .take(SEQUENCES_MAX)
            .map(|sequence| {
                highest = highest.max(sequence.end.0);
                (sequence, highest)
            })
            .collect();
        let mut by_abort: Vec<RestartableSequence> = by_start.iter().map(|(sequence, _)| *sequence).collect();
        sort_by_number(&mut by_abort, |sequence| sequence.abort.0);
        Sequences { by_start, by_abort }
    }

    /// The sequences with a part in a range: a byte of the sequence, the byte before it, the signature, or the address
    /// after that.
    pub fn touching(&self, range: AddressRange) -> Vec<RestartableSequence> {
        let behind = self
            .by_start
            .partition_point(|(sequence, _)| sequence.start.0 <= range.end.0);
        let mut found: Vec<RestartableSequence> = self
            .by_start
            .iter()
            .take(behind)
            .rev()
            .take_while(|(_, highest)| *highest > range.start.0)
            .map(|(sequence, _)| *sequence)
            .filter(|sequence| sequence.end.0 > range.start.0)
            .collect();
        let first = self
            .by_abort
            .partition_point(|sequence| sequence.abort.0 < range.start.0);
        let reach = range.end.0.saturating_add(SIGNATURE_BYTES);
        let aborts = self.by_abort.iter().skip(first);
        found.extend(aborts.take_while(|sequence| sequence.abort.0 < reach));
        sort_by_number(&mut found, |sequence| sequence.abort.0);
        sort_by_numbers(&mut found, |sequence| (sequence.start.0, sequence.end.0));
        found.dedup();
        found
    }
}

/// The addresses in the code that have the usual signature before them.
fn signed(elf: &Elf) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for range in &elf.executable {
        let code = elf.at_address(range.start.0, range.len()).unwrap_or_default();
        let mut from = 0;
        // The first byte is rare, so this is little more than a search for one byte.
        while let Some(next) = code
            .get(from..)
            .and_then(|rest| rest.iter().position(|byte| *byte == SIGNATURE[0]))
        {
            let at = from + next;
            if code.get(at..).is_some_and(|rest| rest.starts_with(&SIGNATURE)) && found.len() < SEQUENCES_MAX {
                found.insert(range.start.0 + at as u64 + SIGNATURE_BYTES);
            }
            from = at + 1;
        }
    }
    found
}

/// The words of an image as the program sees them.
struct Words<'a> {
    elf: &'a Elf,
    /// The addresses of the words that the loader fills in, ascending, with their values.
    filled: Vec<(u64, u64)>,
}

impl<'a> Words<'a> {
    fn of(elf: &'a Elf) -> Words<'a> {
        let dynamic = DynamicEntries::of(elf);
        let symbols = dynamic.symbols_unbounded(elf);
        let relocations = table::<elf::Rela64<LittleEndian>>(dynamic.table(elf, elf::DT_RELA, elf::DT_RELASZ));
        let value = |raw: &elf::Rela64<LittleEndian>| {
            let (info, addend) = (raw.r_info.get(LittleEndian), raw.r_addend.get(LittleEndian) as u64);
            match info as u32 {
                kind if kind == elf::R_X86_64_RELATIVE.0 => Some(addend),
                kind if kind == elf::R_X86_64_64.0 => {
                    let symbol = symbols.get((info >> 32) as usize)?;
                    let defined = symbol.st_shndx.get(LittleEndian) != elf::SHN_UNDEF;
                    defined.then(|| symbol.st_value.get(LittleEndian).wrapping_add(addend))
                }
                _ => None,
            }
        };
        let mut filled: Vec<(u64, u64)> = relocations
            .iter()
            .filter_map(|raw| Some((raw.r_offset.get(LittleEndian), value(raw)?)))
            .collect();
        filled.sort_unstable();
        Words { elf, filled }
    }

    fn at(&self, slot: u64) -> Option<u64> {
        let found = self.filled.binary_search_by_key(&slot, |(slot, _)| *slot);
        match found.ok().and_then(|index| self.filled.get(index)) {
            Some((_, value)) => Some(*value),
            None => Some(u64::from_le_bytes(*self.elf.at_address(slot, 8)?.first_chunk()?)),
        }
    }

    /// The descriptor at an address, if there is one.
    fn descriptor(&self, address: u64) -> Option<RestartableSequence> {
        address.checked_add(DESCRIPTOR_BYTES)?;
        // The kernel knows only version 0; flags are no longer used.
        let version = self.at(address)? as u32;
        let (start, length, abort) = (self.at(address + 8)?, self.at(address + 16)?, self.at(address + 24)?);
        let end = start.checked_add(length)?;
        let code = self.elf.executable_at(start)?;
        self.elf.executable_at(abort)?;
        let is_whole = version == 0 && length != 0 && end <= code.end.0;
        let is_apart = abort.wrapping_sub(start) >= length;
        (is_whole && is_apart).then_some(RestartableSequence {
            start: ImageAddress(start),
            end: ImageAddress(end),
            abort: ImageAddress(abort),
        })
    }

    /// The addresses of possible descriptors whose abort address is one of these addresses.
    fn that_lead_to(&self, aborts: &BTreeSet<u64>) -> impl Iterator<Item = u64> {
        const LAST_WORD: u64 = DESCRIPTOR_BYTES - 8;
        let filled = self.filled.iter().filter(|(_, value)| aborts.contains(value));
        let mut slots: Vec<u64> = filled.map(|(slot, _)| *slot).collect();
        for segment in self.elf.segments.iter().filter(|segment| !segment.executable) {
            self.elf.each_word(segment, &mut |slot, value| {
                if aborts.contains(&value) {
                    slots.push(slot);
                }
            });
        }
        slots.into_iter().filter_map(|slot| slot.checked_sub(LAST_WORD))
    }
}
