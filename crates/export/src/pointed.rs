//! `print()` of a pointer: the address and the value there, as DTrace for Linux shows it.
//!
//! ```text
//! 0x7ffd12345678 = *
//!                                             (struct request) {
//!                                              .kind = (int)3,
//!                                              .name = (char [8]) [
//!                                               (char)'o',
//!                                              ],
//!                                             }
//! ```
//!
//! Zeros are left out, and so are the characters of an array after its first NUL. `...` stands for bytes
//! beyond `printsize`, and for values deeper than ten levels. DTrace's dt_print_visit() is the model. In
//! contrast to DTrace, structures in an array are shown with their members, and floating-point numbers
//! are shown.

use std::io::{Result, Write};

use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::program::{ForeignKind, IntegerType, Member, Type, size_of};
use nanoprobe_lang::types;

use crate::printf::name_of_value;
use crate::typed::{floating, name, unnamed, word};

/// Spaces before the outermost type.
const INDENT: usize = 44;
const DEPTH_MAX: usize = 10;

/// Prints the address and the value at that address, but at most `bytes_max` bytes of the value.
pub(crate) fn print(out: &mut dyn Write, shown: &Type, address: u64, value: &Value, bytes_max: u64) -> Result<()> {
    let bytes = match value {
        Value::Bytes { bytes, .. } => bytes.clone(),
        value => value.as_integer().to_le_bytes().to_vec(),
    };
    writeln!(out, "{address:#x} = *")?;
    let mut visit = Visit {
        out,
        bytes: &bytes,
        size: usize::try_from(bytes_max).unwrap_or(usize::MAX).min(bytes.len()),
        opened: [false; DEPTH_MAX],
        last_depth: 0,
    };
    visit.one("", shown, 0, None, 0)?;
    visit.close(0)
}

struct Visit<'a> {
    out: &'a mut dyn Write,
    bytes: &'a [u8],
    /// How many of the bytes are shown.
    size: usize,
    /// For each depth, whether the last value shown there is a structure whose brace must still be closed.
    opened: [bool; DEPTH_MAX],
    last_depth: usize,
}

/// A bit-field: shift and width.
type Field = Option<(u32, u32)>;

impl Visit<'_> {
    /// Prints a value and all of its parts; `false`: nothing more may be shown.
    fn one(&mut self, called: &str, of: &Type, offset: usize, field: Field, depth: usize) -> Result<bool> {
        if offset >= self.size || depth >= DEPTH_MAX {
            writeln!(self.out, "{:indent$}...", "", indent = INDENT + depth)?;
            return Ok(false);
        }
        if self.last_depth > depth {
            self.close(depth)?;
        }
        let resolved = unnamed(of);
        let size = size_of(resolved)
            .and_then(|size| usize::try_from(size).ok())
            .unwrap_or(0);
        let here = self.bytes.get(offset..).unwrap_or_default();
        let here = here.get(..size).unwrap_or(here);
        let value = match field {
            None => word(here),
            Some((shift, width)) => word(here) >> shift & (u64::MAX >> (64 - width.clamp(1, 64))),
        };
        let is_zero = here.iter().all(|byte| *byte == 0) || (field.is_some() && value == 0);
        if depth == 0 || !is_zero {
            let of_name = name(of, "");
            let of_name = of_name.trim_end();
            let text = match resolved {
                Type::Structure(_) => format!("({of_name}) {{"),
                Type::Array { count: 0, .. } => format!("({of_name}) [],"),
                Type::Array { .. } => format!("({of_name}) ["),
                _ => format!("({of_name}){},", scalar(resolved, here, value, of_name)),
            };
            let dot = if called.is_empty() {
                String::new()
            } else {
                format!(".{called} = ")
            };
            writeln!(self.out, "{:indent$}{dot}{text}", "", indent = INDENT + depth)?;
            if let Some(opened) = self.opened.get_mut(depth) {
                *opened = matches!(resolved, Type::Structure(_));
            }
            self.last_depth = depth;
        }
        match resolved {
            Type::Structure(structure) => {
                let members = structure.body().map(|body| body.members.as_slice()).unwrap_or_default();
                for member in members {
                    if !self.member(member, offset, depth + 1)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Type::Array { of, count } if *count > 0 && !is_zero => self.array(of, *count, offset, depth),
            _ => Ok(true),
        }
    }

    fn member(&mut self, member: &Member, offset: usize, depth: usize) -> Result<bool> {
        let shown = member.shown.as_ref().unwrap_or(&member.member_type);
        let field = member.bits.as_ref().map(|bits| (bits.shift, bits.width));
        let place = offset.saturating_add(usize::try_from(member.offset).unwrap_or(usize::MAX));
        self.one(&member.name, shown, place, field, depth)
    }

    fn array(&mut self, of: &Type, count: u32, offset: usize, depth: usize) -> Result<bool> {
        let size = size_of(of)
            .and_then(|size| usize::try_from(size).ok())
            .unwrap_or(1)
            .max(1);
        let is_text = matches!(unnamed(of), Type::Integer(IntegerType { bytes: 1, signed: true }));
        for index in 0..count as usize {
            let place = offset.saturating_add(index.saturating_mul(size));
            if is_text && self.bytes.get(place) == Some(&0) {
                break;
            }
            if !self.one("", of, place, None, depth + 1)? {
                return Ok(false);
            }
        }
        if self.last_depth > depth + 1 {
            self.close(depth + 1)?;
        }
        writeln!(self.out, "{:indent$}],", "", indent = INDENT + depth)?;
        self.last_depth = depth;
        Ok(true)
    }

    /// Closes and opens braces between the depth of the last value and this depth, at which there is a structure.
    fn close(&mut self, depth: usize) -> Result<()> {
        if !self.opened.get(depth).copied().unwrap_or(false) {
            return Ok(());
        }
        // The outermost structure is opened even if none of its members is shown.
        let from = if depth == 0 {
            self.last_depth.max(1)
        } else {
            self.last_depth
        };
        for level in (depth..from).rev() {
            let comma = if level > 0 { "," } else { "" };
            writeln!(self.out, "{:indent$}}}{comma}", "", indent = INDENT + level)?;
        }
        self.last_depth = depth;
        Ok(())
    }
}

/// A value that is neither a structure nor an array.
fn scalar(of: &Type, bytes: &[u8], value: u64, called: &str) -> String {
    match of {
        Type::Integer(IntegerType { bytes: 1, .. }) if called == "char" => format!("'{}'", char::from(value as u8)),
        Type::Integer(integer) => {
            let value = types::normalise(value as i64, *integer);
            match integer.signed {
                true => value.to_string(),
                false => (value as u64).to_string(),
            }
        }
        Type::Foreign(foreign) => match (foreign.kind(), bytes) {
            (ForeignKind::Enumeration { integer, .. }, _) => {
                name_of_value(foreign, types::normalise(value as i64, *integer)).to_string()
            }
            (ForeignKind::Floating(4), &[a, b, c, d, ..]) => shown(f64::from(f32::from_le_bytes([a, b, c, d]))),
            (ForeignKind::Floating(8), _) => shown(f64::from_bits(value)),
            _ => format!("?({} bit value)", 8 * bytes.len()),
        },
        _ => format!("{value:#x}"),
    }
}

fn shown(value: f64) -> String {
    let mut text = Vec::new();
    // Writing to a vector cannot fail.
    let _ = floating(&mut text, value);
    String::from_utf8_lossy(&text).into_owned()
}
