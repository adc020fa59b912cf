//! Names of code in processes that have no session: samples of the whole system.
//!
//! The same address means different code in different processes. So in keys and records a number stands for each name,
//! and equal names have one number. The names stay when the process is gone.
//!
//! The numbers begin with the bits 01. Addresses of programs begin with 00, those of the kernel with 11, and frames of
//! interpreted code with 10.

use std::collections::HashMap;

const FIRST: u64 = 1 << 62;
/// As many names are kept. Further ones are all called [`OTHERS`].
const NAMES_MAX: usize = 1 << 20;
const OTHERS: &str = "[more names than are kept]";

/// A name of code: what is printed, and the function without the place in it.
type Named = (String, String);

/// The names, by their numbers.
#[derive(Debug, Default)]
pub struct Foreign {
    list: Vec<Named>,
    numbers: HashMap<Named, u64>,
}

impl Foreign {
    /// The number of a name. `function`: the name without the place in it, if the text does not show where it ends.
    pub fn number(&mut self, text: String, function: Option<String>) -> u64 {
        let end = text
            .rsplit_once("+0x")
            .map_or(text.len(), |(function, _)| function.len());
        let function = function.unwrap_or_else(|| text.get(..end).unwrap_or_default().to_owned());
        let mut named = (text, function);
        if let Some(number) = self.numbers.get(&named) {
            return *number;
        }
        if self.list.len() >= NAMES_MAX {
            named = (OTHERS.to_owned(), OTHERS.to_owned());
        }
        let next = FIRST + self.list.len() as u64;
        let number = *self.numbers.entry(named.clone()).or_insert(next);
        if number == next {
            self.list.push(named);
        }
        number
    }

    fn get(&self, number: u64) -> Option<&Named> {
        self.list.get(usize::try_from(number.checked_sub(FIRST)?).ok()?)
    }

    /// What is printed for a number.
    pub fn text(&self, number: u64) -> Option<&str> {
        self.get(number).map(|(text, _)| text.as_str())
    }

    /// The function of a number, without the place in it.
    pub fn function(&self, number: u64) -> Option<&str> {
        self.get(number).map(|(_, function)| function.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_one_number() {
        let mut names = Foreign::default();
        let (a, b) = (
            names.number("a.out`main+0x1c".to_owned(), None),
            names.number("libc.so.6`read".to_owned(), None),
        );
        let line = names.number("work:7".to_owned(), Some("work".to_owned()));
        assert_eq!(names.number("a.out`main+0x1c".to_owned(), None), a);
        assert_ne!(a, b);
        assert_eq!(
            [a, b, line].map(|number| (names.text(number), names.function(number))),
            [
                (Some("a.out`main+0x1c"), Some("a.out`main")),
                (Some("libc.so.6`read"), Some("libc.so.6`read")),
                (Some("work:7"), Some("work"))
            ]
        );
        for address in [0, 0x40_1000, FIRST - 1, FIRST + 3, u64::MAX, 2 << 62] {
            assert_eq!(names.text(address), None, "{address:#x}");
        }
    }
}
