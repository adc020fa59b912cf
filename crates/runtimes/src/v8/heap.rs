//! Objects of V8's heap, read from outside while the program runs: everything has a bound, and may be nonsense.

use super::Layout;
use crate::memory::{Memory, bytes, half, word};

/// Strings that consist of more pieces are not read.
const PIECES_MAX: usize = 4096;

/// A heap, and how its objects are made.
#[derive(Clone, Copy)]
pub(super) struct Heap<'a> {
    pub memory: &'a dyn Memory,
    pub layout: &'a Layout,
}

/// The content of a small integer.
pub(super) fn small(word: u64) -> Option<u32> {
    (word as u32 == 0).then_some((word >> 32) as u32)
}

impl Heap<'_> {
    pub fn word(&self, object: u64, offset: i32) -> Option<u64> {
        word(self.memory, object.checked_add_signed(offset.into())?)
    }

    pub fn half(&self, object: u64, offset: i32) -> Option<u32> {
        half(self.memory, object.checked_add_signed(offset.into())?)
    }

    /// A word of an object, by its number; the first one is its map.
    pub fn slot(&self, object: u64, index: u32) -> Option<u64> {
        let offset = u64::from(index) * 8;
        word(self.memory, object.checked_add(offset)?.checked_sub(1)?)
    }

    pub fn type_of(&self, object: u64) -> Option<u32> {
        let is_tagged = |value: u64| value & 3 == 1;
        let map = self
            .slot(object, 0)
            .filter(|map| is_tagged(object) && is_tagged(*map))?;
        Some(self.half(map, self.layout.agent.map_type)? & 0xffff)
    }

    pub fn is(&self, object: u64, kind: u32) -> bool {
        self.type_of(object) == Some(kind)
    }

    /// An element of an array of this type, if it has so many.
    pub fn element(&self, kind: u32, array: u64, index: u32) -> Option<u64> {
        let agent = &self.layout.agent;
        let length = small(self.word(array, agent.array_length)?)?;
        if !self.is(array, kind) || index >= length {
            return None;
        }
        self.word(array.checked_add(u64::from(index) * 8)?, agent.array_start)
    }

    /// The bytes of a ByteArray, if they are not more than `most`.
    pub fn byte_array(&self, object: u64, most: u32) -> Option<Vec<u8>> {
        if !self.is(object, self.layout.agent.bytes_type) {
            return None;
        }
        let length = small(self.slot(object, 1)?).filter(|length| *length <= most)?;
        bytes(self.memory, object.checked_add(15)?, length as usize)
    }

    /// The text of a string, up to `most` characters.
    pub fn text(&self, object: u64, most: u32) -> Option<String> {
        let mut units = Vec::new();
        self.units(object, most, &mut units)?;
        let characters = char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER));
        // A control character in a name could act on the terminal.
        let shown = |character: char| match character.is_control() {
            true => char::REPLACEMENT_CHARACTER,
            false => character,
        };
        Some(characters.map(shown).collect())
    }

    /// The units of a string, up to `most` of them.
    pub fn units(&self, object: u64, most: u32, into: &mut Vec<u16>) -> Option<()> {
        let most = most as usize;
        // Pieces that are not yet read, the first one last: each a string, where it begins, and how many units of it.
        let mut pieces = vec![(object, 0, most)];
        for _ in 0..PIECES_MAX {
            let Some((object, skip, count)) = pieces.pop() else {
                return Some(());
            };
            let kind = self.type_of(object).filter(|kind| *kind < self.layout.not_string)?;
            let length = self.half(object, 11)? as usize;
            let count = length.checked_sub(skip)?.min(count).min(most.checked_sub(into.len())?);
            let is_narrow = kind & 8 != 0;
            match kind & 7 {
                0 => self.flat(object.checked_add(15)?, is_narrow, skip, count, into)?,
                1 => {
                    let (first, second) = (self.slot(object, 2)?, self.slot(object, 3)?);
                    let before = self.half(first, 11)? as usize;
                    let from_first = before.saturating_sub(skip).min(count);
                    pieces.push((second, skip.saturating_sub(before), count - from_first));
                    pieces.push((first, skip.min(before), from_first));
                }
                2 => self.flat(self.slot(object, 3)?, is_narrow, skip, count, into)?,
                3 => {
                    let offset = small(self.slot(object, 3)?)? as usize;
                    pieces.push((self.slot(object, 2)?, skip.checked_add(offset)?, count));
                }
                5 => pieces.push((self.slot(object, 2)?, skip, count)),
                _ => return None,
            }
        }
        None
    }

    fn flat(&self, start: u64, is_narrow: bool, skip: usize, count: usize, into: &mut Vec<u16>) -> Option<()> {
        let width = if is_narrow { 1 } else { 2 };
        let start = start.checked_add((skip * width) as u64)?;
        let read = bytes(self.memory, start, count * width)?;
        match is_narrow {
            true => into.extend(read.iter().map(|byte| u16::from(*byte))),
            false => into.extend(read.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit))),
        }
        Some(())
    }
}
