//! The subroutines, one row each. The checker, the messages and the tests of the reference follow
//! from these rows.
//!
//! A new subroutine has its row here, its function in [`Function`], its code in the interpreter and
//! in the code generator, and its line in `docs/d`.

use crate::program::{Function, IntegerType, Type};

/// What a subroutine takes, as in DTrace's prototypes.
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
    /// A pointer to anything, or to something of so many bytes.
    Pointer(Option<u64>),
}

/// The result of a subroutine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Yields {
    /// Nothing, or bytes; the arguments say how many.
    Nothing,
    String,
    Integer(IntegerType),
    /// A pointer to memory that has no type.
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

/// A subroutine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subroutine {
    pub(super) name: &'static str,
    /// Its name in the reference, in the first column of a table.
    #[cfg_attr(not(test), allow(dead_code, reason = "a test compares it with the reference"))]
    pub(super) shown: &'static str,
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
            function,
            parameters,
            optional: 0,
            yields: Yields::Nothing,
            since_1_1: false,
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

/// The names of all.
pub(super) fn subroutine_names() -> impl Iterator<Item = &'static str> {
    SUBROUTINES.iter().map(|row| row.name)
}

/// The subroutine of this name.
pub(super) fn subroutine(name: &str) -> Option<Subroutine> {
    SUBROUTINES.iter().find(|row| row.name == name).copied()
}

const fn integer(bytes: u8, signed: bool) -> IntegerType {
    IntegerType { bytes, signed }
}

const fn signed(bytes: u8) -> Yields {
    Yields::Integer(integer(bytes, true))
}

const fn unsigned(bytes: u8) -> Yields {
    Yields::Integer(integer(bytes, false))
}

use Kind::{Address, Pointer, Size, Text};
const INT: Kind = Kind::Integer(integer(4, true));
const LONG: Kind = Kind::Integer(integer(8, true));
const CHARACTER: Kind = Kind::Integer(integer(1, true));
const SHORT: Kind = Kind::Integer(integer(2, false));
const WORD: Kind = Kind::Integer(integer(4, false));
const QUAD: Kind = Kind::Integer(integer(8, false));

/// All of them, by their names.
const SUBROUTINES: &[Subroutine] = &[
    Subroutine::new("alloca", "alloca(size)", Function::Allocate, &[Size]).yields(Yields::Pointer),
    Subroutine::new("basename", "basename(path)", Function::BaseName, &[Text]).yields(Yields::String),
    Subroutine::new(
        "bcopy",
        "bcopy(source, destination, size)",
        Function::CopyInTo,
        &[Pointer(None), Pointer(None), Size],
    ),
    Subroutine::new("cleanpath", "cleanpath(path)", Function::CleanPath, &[Text]).yields(Yields::String),
    Subroutine::new("copyin", "copyin(address, size)", Function::CopyIn, &[Address, Size]),
    Subroutine::new(
        "copyinstr",
        "copyinstr(address[, size])",
        Function::CopyInString,
        &[Address, Size],
    )
    .yields(Yields::String)
    .optional(),
    Subroutine::new(
        "copyinto",
        "copyinto(address, size, destination)",
        Function::CopyInTo,
        &[Address, Size, Pointer(None)],
    ),
    Subroutine::new(
        "copyout",
        "copyout(buffer, address, size)",
        Function::CopyOut,
        &[Pointer(None), Address, Size],
    ),
    Subroutine::new(
        "copyoutstr",
        "copyoutstr(string, address, size)",
        Function::CopyOutString,
        &[Text, Address, Size],
    ),
    Subroutine::new("dirname", "dirname(path)", Function::DirectoryName, &[Text]).yields(Yields::String),
    Subroutine::new("htonl", "htonl", Function::Swap32, &[WORD]).yields(unsigned(4)),
    Subroutine::new("htonll", "htonll", Function::Swap64, &[QUAD]).yields(unsigned(8)),
    Subroutine::new("htons", "htons", Function::Swap16, &[SHORT]).yields(unsigned(2)),
    Subroutine::new(
        "index",
        "index(string, wanted[, position])",
        Function::Index,
        &[Text, Text, INT],
    )
    .yields(signed(4))
    .optional()
    .since_1_1(),
    Subroutine::new(
        "inet_ntoa",
        "inet_ntoa(address)",
        Function::AddressToString,
        &[Pointer(Some(4))],
    )
    .yields(Yields::String),
    Subroutine::new(
        "inet_ntoa6",
        "inet_ntoa6(address[, strict])",
        Function::AddressToString6,
        &[Pointer(Some(16)), INT],
    )
    .yields(Yields::String)
    .optional(),
    Subroutine::new(
        "inet_ntop",
        "inet_ntop(family, address)",
        Function::AddressToString,
        &[INT, Pointer(None)],
    )
    .yields(Yields::String),
    Subroutine::new("json", "json(text, path)", Function::Json, &[Text, Text]).yields(Yields::String),
    Subroutine::new(
        "link_ntop",
        "link_ntop(type, address)",
        Function::LinkToString,
        &[INT, Pointer(None)],
    )
    .yields(Yields::String),
    Subroutine::new(
        "lltostr",
        "lltostr(number[, base])",
        Function::NumberToString,
        &[LONG, INT],
    )
    .yields(Yields::String)
    .optional(),
    Subroutine::new("ntohl", "ntohl", Function::Swap32, &[WORD]).yields(unsigned(4)),
    Subroutine::new("ntohll", "ntohll", Function::Swap64, &[QUAD]).yields(unsigned(8)),
    Subroutine::new("ntohs", "ntohs", Function::Swap16, &[SHORT]).yields(unsigned(2)),
    Subroutine::new("progenyof", "progenyof(pid)", Function::ProgenyOf, &[INT]).yields(signed(4)),
    Subroutine::new("rand", "rand()", Function::Random, &[]).yields(signed(4)),
    Subroutine::new("rindex", "rindex(...)", Function::LastIndex, &[Text, Text, INT])
        .yields(signed(4))
        .optional()
        .since_1_1(),
    Subroutine::new("speculation", "speculation()", Function::Speculation, &[]).yields(signed(4)),
    Subroutine::new(
        "strchr",
        "strchr(string, character)",
        Function::StringCharacter,
        &[Text, CHARACTER],
    )
    .yields(Yields::String)
    .since_1_1(),
    Subroutine::new("strjoin", "strjoin(left, right)", Function::StringJoin, &[Text, Text]).yields(Yields::String),
    Subroutine::new("strlen", "strlen(string)", Function::StringLength, &[Text]).yields(unsigned(8)),
    Subroutine::new(
        "strrchr",
        "strrchr(...)",
        Function::StringLastCharacter,
        &[Text, CHARACTER],
    )
    .yields(Yields::String)
    .since_1_1(),
    Subroutine::new(
        "strstr",
        "strstr(string, wanted)",
        Function::StringSearch,
        &[Text, Text],
    )
    .yields(Yields::String)
    .since_1_1(),
    Subroutine::new(
        "strtok",
        "strtok(string, separators)",
        Function::StringToken,
        &[Text, Text],
    )
    .yields(Yields::String)
    .since_1_1(),
    Subroutine::new(
        "strtoll",
        "strtoll(string[, base])",
        Function::StringToNumber,
        &[Text, INT],
    )
    .yields(signed(8))
    .optional(),
    Subroutine::new(
        "substr",
        "substr(string, index[, length])",
        Function::Substring,
        &[Text, INT, INT],
    )
    .yields(Yields::String)
    .optional()
    .since_1_1(),
    Subroutine::new("tolower", "tolower(string)", Function::LowerCase, &[Text]).yields(Yields::String),
    Subroutine::new("toupper", "toupper(string)", Function::UpperCase, &[Text]).yields(Yields::String),
];

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
            let wanted = row.parameters.iter().filter(|kind| matches!(kind, Text)).count();
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
