//! Which units can have information about a function. This is found in the bytes, without reading entries.
//!
//! Of a library's two thousand units only a few mention a name. Such a unit has one of these in its bytes:
//!
//! ```text
//!   .debug_str   ... x m a l l o c \0 ...            1  the name, or an offset at which it ends a string
//!   .debug_info  ... [offset, 4 bytes] ...           2  that offset anywhere: the unit around it may have the
//!                                                       function
//!                ... [offset of that entry] ...      3  the unit around it refers to such an entry: it may have
//!                                                       copies (link-time optimisation), or an entry that completes
//!                                                       that one, and to which again others may refer
//! ```
//!
//! Bytes that mean something else only add units. If names are numbered (`DW_FORM_strx`), or too much
//! would have to be searched for, all units are read.

use std::collections::BTreeSet;

use gimli::{DebugInfoOffset, Section as _, constants as dw};

use crate::entry::{Entry, EntryId, Reader};
use crate::units::UnitIndex;
use crate::{DebugInfo, Problem};

/// The most offsets at which strings end in a name.
const OFFSETS_MAX: usize = 1 << 12;
/// How often the units are searched for references to the entries found: an entry, the entry that completes it, ...
const ROUNDS_MAX: usize = 4;

impl DebugInfo {
    /// The units that may have copies of the functions to which a name without wildcards refers, in their order.
    pub(crate) fn units_of_copies(
        &self,
        reader: &Reader<'_>,
        name: &str,
        answers: &dyn Fn(&str) -> Option<String>,
    ) -> Vec<UnitIndex> {
        let all = || (0..self.units().count()).map(UnitIndex).collect();
        if let Some(known) = self.copies_of.lock().ok().and_then(|known| known.get(name).cloned()) {
            return known;
        }
        let found: Vec<UnitIndex> = match self.units_mentioning(reader, name, answers) {
            Some(found) => found.into_iter().collect(),
            None => all(),
        };
        if let Ok(mut known) = self.copies_of.lock() {
            known.insert(name.to_owned(), found.clone());
        }
        found
    }

    /// The units that mention a name. `None`: all units have to be read.
    fn units_mentioning(
        &self,
        reader: &Reader<'_>,
        name: &str,
        answers: &dyn Fn(&str) -> Option<String>,
    ) -> Option<BTreeSet<UnitIndex>> {
        let dwarf = &reader.dwarf;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
        let last = name.rsplit("::").next().filter(|last| !last.is_empty())?;
        if !name.bytes().all(is_plain) || last.contains(':') || !dwarf.debug_str_offsets.reader().is_empty() {
            return None;
        }
        let (info, strings) = (dwarf.debug_info.reader().slice(), dwarf.debug_str.reader().slice());
        let offsets: Option<Vec<u32>> = named(strings, last).map(|at| u32::try_from(at).ok()).collect();
        let offsets = Patterns::of(offsets.filter(|offsets| offsets.len() <= OFFSETS_MAX)?);
        let unit_at = |at: usize| self.units().at(DebugInfoOffset(at));
        let mut units: BTreeSet<UnitIndex> = offsets.found_in(info).filter_map(unit_at).collect();
        units.extend(named(info, last).filter_map(unit_at));
        // Types, with the functions that they declare, may have units in a separate section.
        units.extend(
            (0..self.units().count())
                .map(UnitIndex)
                .filter(|unit| self.units().offset(*unit).is_none()),
        );
        let mut new: Vec<UnitIndex> = units.iter().copied().collect();
        for _ in 0..ROUNDS_MAX {
            let mut places = Vec::new();
            for unit in new {
                // Of a damaged unit, the part that could be read counts.
                let _damaged = reader.functions(unit, answers, &mut places);
            }
            if places.is_empty() {
                return Some(units);
            }
            let referring: BTreeSet<UnitIndex> = Patterns::of(places).found_in(info).filter_map(unit_at).collect();
            new = referring.difference(&units).copied().collect();
            units.extend(&new);
        }
        None
    }
}

impl Reader<'_> {
    /// Appends the offsets of the unit's functions to which `answers` answers.
    fn functions(
        &self,
        index: UnitIndex,
        answers: &dyn Fn(&str) -> Option<String>,
        places: &mut Vec<u32>,
    ) -> Result<(), Problem> {
        let damaged = |_| self.info.damaged("a unit's entries");
        let unit = self.unit(index)?;
        let Some(DebugInfoOffset(start)) = self.info.units().offset(index) else {
            return Ok(());
        };
        let mut entry = Entry {
            id: EntryId { unit: index, offset: 0 },
            die: crate::Die::null(),
        };
        let mut entries = unit.entries_raw(None).map_err(damaged)?;
        while !entries.is_empty() {
            entry.id.offset = entries.next_offset().0;
            let Some(abbreviation) = entries.read_abbreviation().map_err(damaged)? else {
                continue;
            };
            if abbreviation.tag() != dw::DW_TAG_subprogram {
                entries.skip_attributes(abbreviation.attributes()).map_err(damaged)?;
                continue;
            }
            entry.die.tag = dw::DW_TAG_subprogram;
            entries
                .read_attributes(abbreviation.attributes(), &mut entry.die.attrs)
                .map_err(damaged)?;
            let is_meant = self.linkage_name(&entry).is_some_and(|name| answers(&name).is_some());
            if is_meant && let Ok(place) = u32::try_from(start.saturating_add(entry.id.offset)) {
                places.push(place);
            }
        }
        Ok(())
    }
}

/// The offsets of strings in `bytes` that are the name, alone or with the arguments of a template.
fn named<'b>(bytes: &'b [u8], name: &'b str) -> impl Iterator<Item = usize> + use<'b> {
    let ends = |at: &usize| matches!(bytes.get(at + name.len()), Some(0 | b'<'));
    memchr::memmem::find_iter(bytes, name).filter(ends)
}

/// Words of four bytes that are searched for, at any offset.
struct Patterns {
    words: Vec<u32>,
    /// A bit for each lower half of such a word. For most places one test is enough.
    halves: Vec<u64>,
}

impl Patterns {
    fn of(mut words: Vec<u32>) -> Patterns {
        words.sort_unstable();
        words.dedup();
        let mut halves = vec![0_u64; 1 << 10];
        for word in &words {
            if let Some(bits) = halves.get_mut(usize::from(*word as u16 >> 6)) {
                *bits |= 1 << (word & 63);
            }
        }
        Patterns { words, halves }
    }

    /// The offsets at which one of the words is found.
    fn found_in<'s>(&'s self, bytes: &'s [u8]) -> impl Iterator<Item = usize> + use<'s> {
        let words = bytes.array_windows::<4>().map(|word| u32::from_le_bytes(*word));
        let is_here = |word: u32| {
            let bits = self.halves.get(usize::from(word as u16 >> 6)).copied().unwrap_or(0);
            bits >> (word & 63) & 1 != 0 && self.words.binary_search(&word).is_ok()
        };
        words
            .enumerate()
            .filter(move |(_, word)| is_here(*word))
            .map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_where_it_ends_a_string() {
        let found: Vec<usize> = named(b"malloc\0xmalloc\0malloc_trim\0mal\0malloc<int>\0malloc", "malloc").collect();
        assert_eq!(found, [0, 8, 31]);
    }

    #[test]
    fn words_are_found_at_any_place() {
        let patterns = Patterns::of(vec![0x0403_0201, 0x0001_0201, 0x0403_0201]);
        let bytes = [9, 1, 2, 3, 4, 1, 2, 1, 0, 7, 1, 2, 3];
        assert_eq!(patterns.found_in(&bytes).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(Patterns::of(Vec::new()).found_in(&bytes).count(), 0);
        assert_eq!(patterns.found_in(&[1, 2]).count(), 0);
    }
}
