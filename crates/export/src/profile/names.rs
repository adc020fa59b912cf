//! The names of a profile's frames, each kept once.

use std::collections::HashMap;
use std::rc::Rc;

/// The maximal number of different names. Further names become [`OTHERS`].
const NAMES_MAX: usize = 1 << 20;
/// Longer names are cut.
const NAME_BYTES_MAX: usize = 4096;
/// The name of the frames whose own names found no room.
const OTHERS: &str = "(others)";

/// The number of a name.
pub(crate) type NameId = u32;

/// A table of names. Each has a number.
#[derive(Debug, Default)]
pub(crate) struct Names {
    texts: Vec<Rc<str>>,
    numbers: HashMap<Rc<str>, NameId>,
}

impl Names {
    /// The number of a name. Control characters become `?`: names come from the traced process or from a file.
    pub fn number(&mut self, text: &str) -> NameId {
        let text = text.get(..text.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default();
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        // XML permits neither control characters nor these two characters.
        let is_bad = |character: char| character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}');
        let clean: String = match text.trim() {
            "" => "?".to_owned(),
            text => text
                .chars()
                .map(|character| if is_bad(character) { '?' } else { character })
                .collect(),
        };
        let clean = if self.texts.len() < NAMES_MAX { &*clean } else { OTHERS };
        if let Some(number) = self.numbers.get(clean) {
            return *number;
        }
        let number = self.texts.len() as NameId;
        let kept: Rc<str> = Rc::from(clean);
        self.texts.push(kept.clone());
        self.numbers.insert(kept, number);
        number
    }

    /// The name of a number; empty for a number that was never given.
    pub fn text(&self, number: NameId) -> &str {
        self.texts.get(number as usize).map_or("", |text| text)
    }

    /// All names, in the order of their numbers.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts.iter().map(|text| &**text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once_and_without_control_characters() {
        let mut names = Names::default();
        let first = names.number("operator new");
        assert_eq!(names.number("operator new"), first);
        let bad = names.number("a\nb\u{ffff}");
        assert_eq!(names.text(bad), "a?b?");
        let empty = names.number(" ");
        assert_eq!(names.text(empty), "?");
        let long = names.number(&"ä".repeat(NAME_BYTES_MAX));
        assert_eq!(names.text(long).len(), NAME_BYTES_MAX);
        assert_eq!(names.all().len(), 4);
    }
}
