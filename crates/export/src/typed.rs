//! `print()`: a value with its type, as mdb's `::print -t` shows it.
//!
//! ```text
//! int 0x1              struct request {
//!                          int kind :4 = 0x3
//!                          int8_t [16] name = [ "work" ]
//!                          struct request *next = 0x7f0000001000
//!                      }
//! ```
//!
//! Types have their names in the source, such as `ushort_t` and `request_t`, if these are known.
//!
//! A value of an enumeration is shown by name, if it has one, also in a bit-field. A structure's members
//! are indented by four columns. The elements of an array are on one line, unless they are structures.

use std::io::{ErrorKind, Result, Write};

use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::program::{Foreign, ForeignKind, IntegerType, Member, Structure, Type, size_of};
use nanoprobe_lang::types;

use crate::printf::name_of_value;

/// The most bytes that are printed for one value: the types of a damaged program may nest endlessly.
const SHOWN_BYTES_MAX: usize = 1 << 20;
/// Structures are shown down to this depth.
const DEPTH_MAX: usize = 32;

/// A writer that accepts no more than a given number of bytes.
struct Limited<'a> {
    out: &'a mut dyn Write,
    left: usize,
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(ErrorKind::FileTooLarge)?;
        self.out.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.out.flush()
    }
}

/// Prints a value of a type. Structures and arrays are given by their bytes.
pub(crate) fn print(out: &mut dyn Write, shown: &Type, value: &Value) -> Result<()> {
    let mut limited = Limited {
        out,
        left: SHOWN_BYTES_MAX,
    };
    match print_whole(&mut limited, shown, value) {
        Err(error) if error.kind() == ErrorKind::FileTooLarge && limited.left < SHOWN_BYTES_MAX => {
            writeln!(limited.out, " ...")
        }
        result => result,
    }
}

/// A type without the names that typedefs give it.
pub(crate) fn unnamed(of: &Type) -> &Type {
    let mut of = of;
    while let Type::Foreign(foreign) = of
        && let ForeignKind::Named(inner) = foreign.kind()
    {
        of = inner;
    }
    of
}

fn print_whole(out: &mut dyn Write, shown: &Type, value: &Value) -> Result<()> {
    write!(out, "{} ", name(shown, ""))?;
    let shown = unnamed(shown);
    match (shown, value) {
        (Type::String, _) => {
            out.write_all(b"\"")?;
            out.write_all(value.as_bytes())?;
            out.write_all(b"\"")?;
        }
        (Type::Foreign(foreign), Value::Integer(value)) => enumeration(out, foreign, *value)?,
        (Type::Structure(_) | Type::Array { .. } | Type::Foreign(_), Value::Bytes { bytes, .. }) => {
            of_bytes(out, shown, bytes, 0, true)?
        }
        (Type::Integer(integer), Value::Integer(value)) => number(out, *value as u64, *integer)?,
        (_, Value::Bytes { bytes, .. }) => {
            for byte in bytes {
                write!(out, "{byte:02x}")?;
            }
        }
        (_, value) => hexadecimal(out, value.as_integer() as u64)?,
    }
    // As in DTrace, nothing follows the brace of a structure.
    match shown {
        Type::Structure(_) => Ok(()),
        _ => writeln!(out),
    }
}

/// The declaration of a name with a type, as DTrace writes it: the name follows the whole type.
pub(crate) fn name(of: &Type, member: &str) -> String {
    let of = types::shown_name(of);
    // `int8_t` and `int16_t` without a typedef were probably C's `char` and `short`.
    let of = match (of.strip_prefix("int8_t"), of.strip_prefix("int16_t")) {
        (Some(rest), _) => format!("char{rest}"),
        (_, Some(rest)) => format!("short{rest}"),
        _ => of,
    };
    let of = nameless(&of).unwrap_or(of);
    let space = if member.is_empty() || of.ends_with(['*', ' ']) {
        ""
    } else {
        " "
    };
    format!("{of}{space}{member}")
}

/// As in DTrace, a structure without a name keeps the space before the name: `struct  {`.
fn nameless(of: &str) -> Option<String> {
    ["struct", "union", "enum"].into_iter().find_map(|keyword| {
        let rest = of.strip_prefix(keyword)?;
        let ends = rest.is_empty() || rest.starts_with(" [") || rest.starts_with(" *");
        ends.then(|| format!("{keyword} {rest}"))
    })
}

/// Prints a number like C's `%#x`, which gives a zero no prefix.
fn hexadecimal(out: &mut dyn Write, value: u64) -> Result<()> {
    if value == 0 {
        write!(out, "0")
    } else {
        write!(out, "{value:#x}")
    }
}

fn is_character(of: &Type) -> bool {
    matches!(unnamed(of), Type::Integer(IntegerType { bytes: 1, signed: true }))
}

fn is_printable(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte)
}

fn number(out: &mut dyn Write, value: u64, of: IntegerType) -> Result<()> {
    let value = match of.bytes {
        bytes @ 1..=7 => value & ((1 << (8 * u32::from(bytes))) - 1),
        _ => value,
    };
    match value as u8 {
        _ if !is_character(&Type::Integer(of)) => hexadecimal(out, value),
        0 => write!(out, "'\\0'"),
        byte if is_printable(byte) => write!(out, "'{}'", char::from(byte)),
        byte => write!(out, "'\\{byte:03o}'"),
    }
}

pub(crate) fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(8)
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Prints a value in memory. `depth` is that of the line on which the value begins.
fn of_bytes(out: &mut dyn Write, of: &Type, bytes: &[u8], depth: usize, outermost: bool) -> Result<()> {
    match unnamed(of) {
        Type::Integer(integer) => number(out, word(bytes), *integer),
        Type::Structure(_) if depth > DEPTH_MAX => write!(out, "{{ ... }}"),
        Type::Structure(structure) => members(out, structure, bytes, depth),
        Type::Foreign(foreign) => of_foreign(out, foreign, bytes),
        Type::Array { of, count } => array(out, of, *count, bytes, depth, outermost),
        _ => hexadecimal(out, word(bytes)),
    }
}

fn of_foreign(out: &mut dyn Write, of: &Foreign, bytes: &[u8]) -> Result<()> {
    match (of.kind(), bytes) {
        (ForeignKind::Enumeration { integer, .. }, _) => {
            enumeration(out, of, types::normalise(word(bytes) as i64, *integer))
        }
        (ForeignKind::Floating(4), &[a, b, c, d, ..]) => floating(out, f64::from(f32::from_le_bytes([a, b, c, d]))),
        (ForeignKind::Floating(8), [_, _, _, _, _, _, _, _, ..]) => floating(out, f64::from_bits(word(bytes))),
        _ => {
            write!(out, "0x")?;
            bytes.iter().rev().try_for_each(|byte| write!(out, "{byte:02x}"))
        }
    }
}

/// Prints the name of a value, or the value if it has no name.
fn enumeration(out: &mut dyn Write, of: &Foreign, value: i64) -> Result<()> {
    write!(out, "{}", name_of_value(of, value))
}

/// Prints a number like C's `%+.7e`.
pub(crate) fn floating(out: &mut dyn Write, value: f64) -> Result<()> {
    let text = format!("{value:+.7e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            write!(out, "{mantissa}e{sign}{digits:0>2}")
        }
        None => write!(out, "{}", text.to_ascii_lowercase()),
    }
}

fn members(out: &mut dyn Write, structure: &Structure, bytes: &[u8], depth: usize) -> Result<()> {
    writeln!(out, "{{")?;
    let inner = depth + 1;
    for member in structure.body().map(|body| body.members.as_slice()).unwrap_or_default() {
        let Member {
            name: member_name,
            member_type,
            offset,
            bits,
            shown,
        } = member;
        let shown = shown.as_ref().unwrap_or(member_type);
        write!(out, "{:indent$}{}", "", name(shown, member_name), indent = 4 * inner)?;
        let here = usize::try_from(*offset)
            .ok()
            .and_then(|offset| bytes.get(offset..))
            .unwrap_or_default();
        let size = size_of(member_type)
            .and_then(|size| usize::try_from(size).ok())
            .unwrap_or(0);
        let here = here.get(..size).unwrap_or(here);
        match bits {
            Some(bits) => {
                let value = word(here) >> bits.shift & (u64::MAX >> (64 - bits.width.clamp(1, 64)));
                write!(out, " :{} = ", bits.width)?;
                // If the unit has another size than the type, the names of the values are still shown.
                match (member_type, unnamed(shown)) {
                    (Type::Foreign(foreign), _) | (_, Type::Foreign(foreign)) => {
                        let unused = 64 - bits.width.clamp(1, 64);
                        let is_signed = foreign.integer().is_some_and(|integer| integer.signed);
                        let extended = ((value << unused) as i64) >> unused;
                        enumeration(out, foreign, if is_signed { extended } else { value as i64 })?;
                    }
                    _ => hexadecimal(out, value)?,
                }
            }
            None => {
                write!(out, "{}", if member_name.is_empty() { " " } else { " = " })?;
                of_bytes(out, shown, here, inner, false)?;
            }
        }
        writeln!(out)?;
    }
    write!(out, "{:indent$}}}", "", indent = 4 * depth)
}

fn array(out: &mut dyn Write, of: &Type, count: u32, bytes: &[u8], depth: usize, outermost: bool) -> Result<()> {
    let size = size_of(of)
        .and_then(|size| usize::try_from(size).ok())
        .unwrap_or(1)
        .max(1);
    let elements = || bytes.chunks(size).take(count as usize);
    if is_character(of)
        && let Some(end) = bytes.iter().position(|byte| !is_printable(*byte))
        && bytes.get(end) == Some(&0)
    {
        let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default());
        return match outermost {
            true => write!(out, "\"{text}\""),
            false => write!(out, "[ \"{text}\" ]"),
        };
    }
    write!(out, "[ ")?;
    let has_lines = matches!(unnamed(of), Type::Structure(_));
    for (index, element) in elements().enumerate() {
        if index > 0 {
            write!(out, ", ")?;
        }
        if has_lines {
            write!(out, "\n{:indent$}{} ", "", name(of, ""), indent = 4 * (depth + 1))?;
        }
        of_bytes(out, of, element, depth + 1, false)?;
    }
    if has_lines {
        write!(out, "\n{:indent$}]", "", indent = 4 * depth)
    } else {
        write!(out, " ]")
    }
}

#[cfg(test)]
mod tests {
    use super::nameless;

    #[test]
    fn a_structure_without_a_name_keeps_the_space_before_its_name() {
        assert_eq!(nameless("struct").as_deref(), Some("struct "));
        assert_eq!(nameless("union [2]").as_deref(), Some("union  [2]"));
        assert_eq!(nameless("struct *").as_deref(), Some("struct  *"));
        for named in ["struct s", "structure", "int", "union u *"] {
            assert_eq!(nameless(named), None, "{named}");
        }
    }
}
