//! Fields of text: the effect of flags, width and precision in C's printf.

use nanoprobe_lang::format::{Flags, WIDTH_MAX};

/// How one conversion is padded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub flags: Flags,
    /// Minimum width in bytes.
    pub width: usize,
    /// The precision. As in DTrace, 0 means the same as `None`.
    pub precision: Option<usize>,
}

impl Shape {
    /// A shape with only a width. A negative width aligns to the left.
    pub(crate) fn of_width(width: i64) -> Shape {
        Shape::default().with_width(width)
    }

    /// The shape with this width, for example from a `*`. A negative width aligns to the left.
    pub(crate) fn with_width(mut self, width: i64) -> Shape {
        if width < 0 {
            self.flags.left = true;
            self.flags.zero = false;
        }
        self.width = clamp(width.unsigned_abs());
        self
    }

    /// The shape with this precision; 0 or less means no precision.
    pub(crate) fn with_precision(mut self, precision: i64) -> Shape {
        self.precision = u64::try_from(precision)
            .ok()
            .filter(|precision| *precision > 0)
            .map(clamp);
        self
    }
}

fn clamp(size: u64) -> usize {
    size.min(u64::from(WIDTH_MAX)) as usize
}

/// The base of the digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Decimal,
    Octal,
    Hexadecimal,
    HexadecimalUpper,
}

/// A signed decimal number.
pub(crate) fn signed(value: i64, shape: Shape) -> Vec<u8> {
    let sign = match value {
        i64::MIN..=-1 => "-",
        _ if shape.flags.plus => "+",
        _ if shape.flags.space => " ",
        _ => "",
    };
    number(sign, value.unsigned_abs().to_string(), shape)
}

/// An unsigned number.
pub(crate) fn unsigned(value: u64, base: Base, shape: Shape) -> Vec<u8> {
    let (prefix, digits) = match base {
        Base::Decimal => ("", value.to_string()),
        Base::Octal => (if value == 0 { "" } else { "0" }, format!("{value:o}")),
        Base::Hexadecimal => (if value == 0 { "" } else { "0x" }, format!("{value:x}")),
        Base::HexadecimalUpper => (if value == 0 { "" } else { "0X" }, format!("{value:X}")),
    };
    let prefix = if shape.flags.alternate { prefix } else { "" };
    if base == Base::Octal && !prefix.is_empty() {
        // The leading 0 is a digit, and counts for the precision.
        return number("", format!("0{digits}"), shape);
    }
    number(prefix, digits, shape)
}

/// Prefix and digits, padded with zeros up to the precision, or up to the width if the flag says so.
fn number(prefix: &str, mut digits: String, shape: Shape) -> Vec<u8> {
    let zeros = match shape.precision {
        Some(precision) => precision,
        None if shape.flags.zero && !shape.flags.left => shape.width.saturating_sub(prefix.len()),
        None => 0,
    };
    if digits.len() < zeros {
        digits.insert_str(0, &"0".repeat(zeros - digits.len()));
    }
    pad([prefix.as_bytes(), digits.as_bytes()].concat(), shape)
}

/// A text, cut to the precision and padded to the width; both count bytes.
pub(crate) fn text(text: &[u8], shape: Shape) -> Vec<u8> {
    let kept = shape
        .precision
        .and_then(|precision| text.get(..precision))
        .unwrap_or(text);
    pad(kept.to_vec(), shape)
}

fn pad(mut field: Vec<u8>, shape: Shape) -> Vec<u8> {
    let spaces = shape.width.saturating_sub(field.len());
    if shape.flags.left {
        field.resize(field.len() + spaces, b' ');
    } else {
        field.splice(0..0, std::iter::repeat_n(b' ', spaces));
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use nanoprobe_lang::format::{Dimension, Format};

    /// The shape of a format's only conversion.
    fn shape(text: &str) -> Shape {
        let format = Format::parse(text).unwrap();
        let directive = *format.directives().next().unwrap();
        let fixed = |dimension| {
            if let Dimension::Fixed(value) = dimension {
                i64::from(value)
            } else {
                0
            }
        };
        let shape = Shape {
            flags: directive.flags,
            ..Shape::default()
        };
        shape
            .with_width(fixed(directive.width))
            .with_precision(fixed(directive.precision))
    }

    #[test]
    fn numbers_are_padded_as_c_does_it() {
        let show = |format, value| String::from_utf8(signed(value, shape(format))).unwrap();
        for (format, value, expected) in [
            ("%d", -5, "-5"),
            ("%5d", -5, "   -5"),
            ("%-5d|", -5, "-5   "),
            ("%05d", -5, "-0005"),
            ("%+d", 5, "+5"),
            ("% d", 5, " 5"),
            ("%+ d", 5, "+5"),
            ("%.4d", -5, "-0005"),
            ("%08.4d", -5, "   -0005"),
            ("%.0d", 0, "0"),
            ("%d", i64::MIN, "-9223372036854775808"),
        ] {
            assert_eq!(show(format, value), expected, "{format} {value}");
        }
        let show = |format, value, base| String::from_utf8(unsigned(value, base, shape(format))).unwrap();
        assert_eq!(show("%x", 255, Base::Hexadecimal), "ff");
        assert_eq!(show("%#x", 255, Base::Hexadecimal), "0xff");
        assert_eq!(show("%#x", 0, Base::Hexadecimal), "0");
        assert_eq!(show("%#08x", 255, Base::Hexadecimal), "0x0000ff");
        assert_eq!(show("%#X", 255, Base::HexadecimalUpper), "0XFF");
        assert_eq!(show("%#o", 8, Base::Octal), "010");
        assert_eq!(show("%#.3o", 8, Base::Octal), "010");
        assert_eq!(show("%+u", 5, Base::Decimal), "5");
        assert_eq!(show("%?p", 255, Base::Hexadecimal), "              ff");
    }

    #[test]
    fn texts_are_cut_and_padded() {
        let show = |format| String::from_utf8(text(b"hello", shape(format))).unwrap();
        assert_eq!(show("%8s"), "   hello");
        assert_eq!(show("%-8s"), "hello   ");
        assert_eq!(show("%.3s"), "hel");
        assert_eq!(show("%6.3s"), "   hel");
        assert_eq!(show("%.0s"), "hello"); // as in DTrace
        assert_eq!(show("%3s"), "hello");
        assert_eq!(text(b"x", Shape::of_width(-3)), b"x  ");
        assert_eq!(text(b"x", Shape::of_width(i64::MIN)).len(), WIDTH_MAX as usize);
    }
}
