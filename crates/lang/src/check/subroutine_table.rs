//! The subroutines, one row each. The checker, the messages and the reference's table follow from
//! these rows.
//!
//! A new subroutine has its row in `rows`, its function in [`Function`], and its code in the interpreter
//! and in the code generator.

mod rows;

use crate::program::{Function, IntegerType, Type};
use rows::SUBROUTINES;

/// The kind of a subroutine's parameter, as in DTrace's prototypes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `uintptr_t`; a pointer is accepted.
    Address,
    /// `size_t`
    Size,
    /// `const char *`
    Text,
    /// An integer, cut to this type.
    Integer(IntegerType),
    /// A pointer to anything, or to something of this many bytes.
    Pointer(Option<u64>),
}

/// The result of a subroutine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Yields {
    /// Nothing, or bytes whose number the arguments decide.
    Nothing,
    String,
    Integer(IntegerType),
    /// A pointer to memory without a type.
    Pointer,
}

impl Yields {
    pub(super) fn value_type(self) -> Type {
        match self {
            Yields::Nothing => Type::Void,
            Yields::String => Type::String,
            Yields::Integer(integer) => Type::Integer(integer),
            Yields::Pointer => Type::Pointer(None),
        }
    }
}

/// Where the reference describes a subroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// On its own line, with this text.
    Own(&'static str),
    /// On the line of the subroutine of this name.
    Of(&'static str),
    /// In the reference's part on actions that change something.
    Elsewhere,
}

/// A subroutine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subroutine {
    pub(super) name: &'static str,
    /// The form of a call, as the reference shows it.
    pub(super) shown: &'static str,
    /// The line of the reference.
    pub(super) line: Line,
    pub(super) function: Function,
    pub(super) parameters: &'static [Kind],
    /// How many of the last parameters may be left out.
    pub(super) optional: usize,
    pub(super) yields: Yields,
    /// The subroutine came with D 1.1. A text for an earlier version may use its name for anything.
    pub(super) since_1_1: bool,
}

impl Subroutine {
    const fn new(name: &'static str, shown: &'static str, function: Function, parameters: &'static [Kind]) -> Self {
        Subroutine {
            name,
            shown,
            line: Line::Elsewhere,
            function,
            parameters,
            optional: 0,
            yields: Yields::Nothing,
            since_1_1: false,
        }
    }

    const fn line(self, meaning: &'static str) -> Self {
        Subroutine {
            line: Line::Own(meaning),
            ..self
        }
    }

    /// The subroutine shares the line of another.
    const fn line_of(self, name: &'static str) -> Self {
        Subroutine {
            line: Line::Of(name),
            ..self
        }
    }

    const fn yields(self, yields: Yields) -> Self {
        Subroutine { yields, ..self }
    }

    /// The last parameter may be left out.
    const fn optional(self) -> Self {
        Subroutine { optional: 1, ..self }
    }

    const fn since_1_1(self) -> Self {
        Subroutine {
            since_1_1: true,
            ..self
        }
    }
}

/// The lines of the reference: the forms of call on a line, and the effects of the subroutines.
pub fn subroutine_lines() -> impl Iterator<Item = (Vec<&'static str>, &'static str)> {
    SUBROUTINES.iter().filter_map(|row| {
        let Line::Own(meaning) = row.line else { return None };
        let others = SUBROUTINES.iter().filter(|other| other.line == Line::Of(row.name));
        let shown = std::iter::once(row).chain(others).map(|row| row.shown).collect();
        Some((shown, meaning))
    })
}

/// The names of all subroutines.
pub(super) fn subroutine_names() -> impl Iterator<Item = &'static str> {
    SUBROUTINES.iter().map(|row| row.name)
}

/// The subroutine of this name.
pub(super) fn subroutine(name: &str) -> Option<Subroutine> {
    SUBROUTINES.iter().find(|row| row.name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Parameter;

    #[test]
    fn rows_are_in_order_and_each_name_has_one() {
        assert!(SUBROUTINES.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn the_program_s_functions_have_the_names_of_their_rows() {
        for row in SUBROUTINES {
            let named = subroutine(row.function.name());
            let named = named.unwrap_or_else(|| panic!("{} has no row", row.function.name()));
            assert_eq!(
                named.function.yields_string(),
                matches!(named.yields, Yields::String),
                "{}",
                named.name
            );
        }
    }

    #[test]
    fn texts_stay_texts() {
        for row in SUBROUTINES.iter().filter(|row| row.function.name() == row.name) {
            let (parameters, _) = row.function.parameters();
            let texts = parameters.iter().filter(|kind| matches!(kind, Parameter::Text)).count();
            let wanted = row.parameters.iter().filter(|kind| matches!(kind, Kind::Text)).count();
            assert_eq!(texts, wanted, "{}", row.name);
        }
    }

    #[test]
    fn the_reference_has_each_in_a_table() {
        let chapters = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/d")).unwrap();
        let texts = chapters.map(|chapter| std::fs::read_to_string(chapter.unwrap().path()).unwrap());
        let reference: String = texts.collect();
        let first_cells: Vec<&str> = reference
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
            .collect();
        for row in SUBROUTINES {
            let names = |cell: &&&str| cell.split(['`', ' ']).any(|word| word == row.name) || cell.contains(row.shown);
            assert!(first_cells.iter().any(|cell| names(&cell)), "{}", row.shown);
        }
    }
}
