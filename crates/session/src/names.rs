//! The fourth field of a probe description, and the errors in it. Pure.
//!
//! | name | means |
//! |---|---|
//! | nothing, or a glob | the names that it matches among `entry`, `return` and the offsets of all instructions |
//! | `entry`, `return` | the function's first instruction; every exit of it |
//! | `pause` | the instructions `pause` of the function, and of nameless code that it jumps to: where it spins |
//! | hexadecimal | the instruction at that offset from the entry, modulo 2^64 ([`nanoprobe_text::code`]) |
//! | hexadecimal, function `-` | the instruction at that address |
//!
//! An address is an address in the module's image, as nm and objdump show it, or one in the running process. Where both
//! are possible, it is the image's; then the two are the same. Without a module the address is one in the process, or
//! in the program's image: libraries' images all begin at 0. The probe's name is always the address in the image.
//!
//! The tags are those of libdtrace (dt_pid.c) for the same mistakes. Manual: "pid Provider", Function Offset
//! Probes.

use nanoprobe_lang::glob;
use nanoprobe_text::code::NoInstruction;
use nanoprobe_types::NoLine;

/// The meaning of the name field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A pattern that is matched against `entry`, `return` and every offset.
    Glob(String),
    /// `entry`.
    Entry,
    /// `return`.
    Return,
    /// `pause`.
    Pauses,
    /// A number in hexadecimal.
    Offset(u64),
    /// Anything else.
    Invalid,
}

/// This function field means an address of the module, not an address in a function.
pub const NO_FUNCTION: &str = "-";

impl Name {
    /// Reads the field.
    pub fn parse(field: &str) -> Name {
        let Some(literal) = glob::literal(field) else {
            return Name::Glob(field.to_owned());
        };
        match literal.as_str() {
            "entry" => return Name::Entry,
            "return" => return Name::Return,
            "pause" => return Name::Pauses,
            _ => {}
        }
        let digits = literal.strip_prefix("0x").unwrap_or(&literal);
        let all_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(digits, 16) {
            Ok(offset) if all_digits => Name::Offset(offset),
            _ => Name::Invalid,
        }
    }
}

/// An error in a description whose module and function exist, but whose name means no probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    /// The description, with the function that was looked at.
    pub description: String,
    /// The error.
    pub reason: Reason,
}

/// The errors of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The text is not the name of a probe.
    Invalid,
    /// The function has no instruction `pause`.
    NoPause,
    /// With the function `-` the name must be an address, and is not.
    NoAddress,
    /// No function is known around the address.
    NoFunction,
    /// No function is known around the address, which is in a library. DTrace takes only the program's addresses, so
    /// this has its own tag.
    NoFunctionOfLibrary,
    /// No instruction starts at the offset.
    Offset(NoInstruction),
    /// No instruction starts at the address. The number is the address in the image from which offsets count.
    Address(u64, NoInstruction),
    /// The line has no code.
    Line(NoLine),
}

impl NameError {
    /// The tag, which does not change between versions.
    pub fn tag(&self) -> &'static str {
        match &self.reason {
            Reason::Invalid | Reason::NoAddress | Reason::NoPause => "D_PROC_NAME",
            Reason::NoFunctionOfLibrary => "D_PROC_LIB",
            Reason::NoFunction | Reason::Line(NoLine::NoCode { .. }) => "D_PROC_OFF",
            Reason::Line(_) => "D_PROC_LINE",
            Reason::Offset(found) | Reason::Address(_, found) => match found {
                NoInstruction::Outside { .. } => "D_PROC_OFF",
                NoInstruction::Inside { .. } | NoInstruction::Undecodable { .. } => "D_PROC_ALIGN",
            },
        }
    }
}

impl std::error::Error for NameError {}

impl std::fmt::Display for NameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}] {}: ", self.tag(), self.description)?;
        let (base, found) = match &self.reason {
            Reason::Invalid => return write!(f, "the name is neither entry nor return nor an offset in hexadecimal"),
            Reason::NoPause => return write!(f, "the function has no instruction pause, so it never spins"),
            Reason::NoAddress => return write!(f, "after the function -, the name must be an address in hexadecimal"),
            Reason::NoFunction => return write!(f, "no function is known there, so neither are its instructions"),
            Reason::NoFunctionOfLibrary => {
                return write!(
                    f,
                    "in a library, the function - needs an address inside of a known function"
                );
            }
            Reason::Offset(found) => (0, *found),
            Reason::Address(base, found) => (*base, *found),
            Reason::Line(found) => return line(f, found),
        };
        let shown = |offset: u64| offset.wrapping_add(base);
        match found {
            NoInstruction::Outside { bytes } => write!(f, "outside of the function, which has 0x{bytes:x} bytes"),
            NoInstruction::Inside { before, after } => {
                write!(f, "not an instruction's start")?;
                match (before.map(shown), after.map(shown)) {
                    (Some(before), Some(after)) => write!(f, "; the nearest are {before:x} and {after:x}"),
                    (Some(one), None) | (None, Some(one)) => write!(f, "; the nearest is {one:x}"),
                    (None, None) => Ok(()),
                }
            }
            NoInstruction::Undecodable { at } => {
                write!(f, "at or after bytes that are no known instruction, at {:x}", shown(at))
            }
        }
    }
}

fn line(f: &mut std::fmt::Formatter<'_>, found: &NoLine) -> std::fmt::Result {
    match found {
        NoLine::Problem(problem) => {
            write!(f, "{problem}")?;
            problem.help().map_or(Ok(()), |help| write!(f, " ({help})"))
        }
        NoLine::NoFile => write!(f, "the debug information has no code from such a file"),
        NoLine::NoCode { before, after } => {
            write!(f, "no code begins on this line")?;
            match (before, after) {
                (Some(before), Some(after)) => write!(f, "; the nearest lines with code are {before} and {after}"),
                (Some(one), None) | (None, Some(one)) => write!(f, "; the nearest line with code is {one}"),
                (None, None) => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_glob_a_word_or_a_number() {
        for (field, expected) in [
            ("", Name::Glob(String::new())),
            ("*", Name::Glob("*".to_owned())),
            ("1?", Name::Glob("1?".to_owned())),
            ("entry", Name::Entry),
            ("return", Name::Return),
            ("pause", Name::Pauses),
            ("0", Name::Offset(0)),
            ("1a", Name::Offset(0x1a)),
            ("1A", Name::Offset(0x1a)),
            ("0x1a", Name::Offset(0x1a)),
            ("ffffffffffffff80", Name::Offset(0x80_u64.wrapping_neg())),
            ("10000000000000000", Name::Invalid),
            ("+1", Name::Invalid),
            ("0x", Name::Invalid),
            ("entry2", Name::Invalid),
        ] {
            assert_eq!(Name::parse(field), expected, "{field:?}");
        }
    }

    #[test]
    fn messages_have_a_tag_and_the_nearest() {
        let text = |reason| {
            let description = "pid7:a.out:func:3".to_owned();
            NameError { description, reason }.to_string()
        };
        let inside = |before, after| NoInstruction::Inside { before, after };
        assert_eq!(
            text(Reason::Offset(inside(Some(1), Some(4)))),
            "[D_PROC_ALIGN] pid7:a.out:func:3: not an instruction's start; the nearest are 1 and 4"
        );
        assert_eq!(
            text(Reason::Address(0x1130, inside(Some(0x1a), None))),
            "[D_PROC_ALIGN] pid7:a.out:func:3: not an instruction's start; the nearest is 114a"
        );
        assert_eq!(
            text(Reason::Offset(NoInstruction::Outside { bytes: 0x2f })),
            "[D_PROC_OFF] pid7:a.out:func:3: outside of the function, which has 0x2f bytes"
        );
        assert!(text(Reason::Invalid).starts_with("[D_PROC_NAME] pid7:a.out:func:3: "));
    }
}
