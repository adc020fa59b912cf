//! `printf` and `printa` formats, parsed once.
//!
//! A format is text with conversions, `%[flags][width][.precision][size]conversion`:
//!
//! ```text
//! flags       # + - 0 space ' @ ?   in any order; @: the value of an aggregation; ?: width 16, a pointer's
//! width       digits, or *: an integer argument
//! precision   . and digits, or *: an integer argument
//! size        h l ll L: how wide the argument must be; never needed, because integers print at their own width
//! conversion  a A c C d i e E f g G k o p s S T u v wc ws x X Y %
//! ```
//!
//! Parsing finds errors in the text of the format; [`Format::check`] finds errors in the arguments.
//! Both use DTrace's tags. The crate `export` prints. Manual: "Output Formatting".
//!
//! As in DTrace a precision of 0 is the same as none: `%.0s` prints the whole string.

mod check;

use crate::program::Foreign;

pub use check::check_joined;

/// The widest field that a format can ask for. A wider one is a mistake.
pub const WIDTH_MAX: u32 = 16_777_215;

/// A parsed format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The text as written, with escapes already replaced.
    pub text: String,
    /// Literal text and conversions, in order; adjacent literals are joined, so that two never follow each other.
    pub pieces: Vec<Piece>,
    /// For each argument: the enumeration of the program that its values belong to, if any. `%s` prints
    /// the enumerators.
    pub names: Vec<Option<Foreign>>,
}

impl Format {
    /// For each argument, in order: the conversion that prints it; `None`: the argument is a width or a
    /// precision.
    pub fn conversions(&self) -> impl Iterator<Item = Option<Conversion>> + '_ {
        let directives = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Directive(directive) => Some(directive),
            Piece::Literal(_) => None,
        });
        directives.flat_map(|directive| {
            let given = [directive.width, directive.precision];
            let dimensions = given
                .into_iter()
                .filter(|given| *given == Dimension::Argument)
                .map(|_| None);
            dimensions.chain([Some(directive.conversion)])
        })
    }
}

/// Part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text that is copied (`%%` has become `%`).
    Literal(String),
    /// A conversion.
    Directive(Directive),
}

/// A conversion with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directive {
    /// The number of this conversion in the format, from 1. Messages name it; `%%` counts, too.
    pub number: u32,
    /// Which flags are set.
    pub flags: Flags,
    /// The minimum width.
    pub width: Dimension,
    pub precision: Dimension,
    /// The size prefix.
    pub size: Size,
    /// The conversion as written: `d`, `x`, ...
    pub letter: char,
    /// Which kind of value is converted, and how.
    pub conversion: Conversion,
}

impl Directive {
    /// Size and letter, as messages write them: `lld`.
    pub fn name(&self) -> String {
        format!("{}{}", self.size.text(), self.letter)
    }
}

/// A width or a precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Dimension {
    /// Not given.
    #[default]
    Unset,
    /// Given as a number, at most [`WIDTH_MAX`].
    Fixed(u32),
    /// `*`: the next argument, an integer, is the width or the precision.
    Argument,
}

/// The flags between `%` and the conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags {
    /// `#`: alternate form.
    pub alternate: bool,
    /// `+`: a sign in front of positive numbers.
    pub plus: bool,
    /// `-`: aligned to the left. If both `-` and `0` are given, the last one counts.
    pub left: bool,
    /// `0`: padded with zeros.
    pub zero: bool,
    /// A space in front of positive numbers.
    pub space: bool,
    /// `'`: thousands grouped (in the C locale: not at all).
    pub group: bool,
    /// `@`: the value of an aggregation rather than an element of its key.
    pub aggregation: bool,
}

/// The size prefix between the width and the conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Size {
    /// No prefix: any width.
    #[default]
    Any,
    /// `h`: 2 bytes.
    Short,
    /// `l`: 8 bytes; `lc` and `ls` are wide characters.
    Long,
    /// `ll`: 8 bytes.
    LongLong,
    /// `L`: long double.
    LongDouble,
    /// `w`: wide characters.
    Wide,
}

impl Size {
    fn text(self) -> &'static str {
        match self {
            Size::Any => "",
            Size::Short => "h",
            Size::Long => "l",
            Size::LongLong => "ll",
            Size::LongDouble => "L",
            Size::Wide => "w",
        }
    }
}

/// The effect of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conversion {
    /// `%a`, `%A`: an address as a symbol (``module`symbol+offset``).
    Address,
    /// `%c`: a byte as a character.
    Character,
    /// `%C`: a byte as a character, or its escape.
    EscapedCharacter,
    /// `%d`: decimal, signed as the argument's type; with a size prefix, and for `%i`, always signed.
    Decimal,
    /// `%u`: decimal, unsigned.
    Unsigned,
    /// `%o`: octal, unsigned.
    Octal,
    /// `%x`: hexadecimal, unsigned.
    Hexadecimal,
    /// `%X`: hexadecimal in capitals.
    HexadecimalUpper,
    /// `%p`: an address, printed like `%x`.
    Pointer,
    /// `%e`, `%E`, `%f`, `%g`, `%G`: floating point. No D expression here has such a type.
    Float,
    /// `%k`: a stack.
    Stack,
    /// `%s`: a string.
    String,
    /// `%S`: a string with its unprintable bytes escaped.
    EscapedString,
    /// `%wc`, `%lc`: a wide character.
    WideCharacter,
    /// `%ws`, `%ls`: a wide string.
    WideString,
    /// `%Y`: ns since the epoch as `1990 Jan  1 00:00:00`.
    Date,
    /// `%v`: any value as its type says: an integer in decimal, an enumerator by name, a string.
    Value,
    /// `%T`: ns since the epoch as `Mon, 01 Jan 1990 00:00:00 UTC` (RFC 822).
    MailDate,
}

impl Conversion {
    /// Whether the conversion writes a number.
    #[must_use]
    pub fn is_of_integers(self) -> bool {
        use Conversion::{Decimal, Hexadecimal, HexadecimalUpper, Octal, Unsigned};
        matches!(self, Decimal | Unsigned | Octal | Hexadecimal | HexadecimalUpper)
    }

    /// The conversion of a size and a letter. The pairs are those of DTrace's dictionary.
    fn find(size: Size, letter: char) -> Option<Conversion> {
        let conversion = match (size, letter) {
            (Size::Any | Size::Short | Size::Long | Size::LongLong, 'd' | 'i') => Conversion::Decimal,
            (Size::Any | Size::Short | Size::Long | Size::LongLong, 'u') => Conversion::Unsigned,
            (Size::Any | Size::Short | Size::Long | Size::LongLong, 'o') => Conversion::Octal,
            (Size::Any | Size::Short | Size::Long | Size::LongLong, 'x') => Conversion::Hexadecimal,
            (Size::Any | Size::Short | Size::Long | Size::LongLong, 'X') => Conversion::HexadecimalUpper,
            (Size::Any | Size::LongDouble, 'e' | 'E' | 'f' | 'g' | 'G') => Conversion::Float,
            (Size::Wide | Size::Long, 'c') => Conversion::WideCharacter,
            (Size::Wide | Size::Long, 's') => Conversion::WideString,
            (Size::Any, 'a' | 'A') => Conversion::Address,
            (Size::Any, 'c') => Conversion::Character,
            (Size::Any, 'C') => Conversion::EscapedCharacter,
            (Size::Any, 'k') => Conversion::Stack,
            (Size::Any, 'p') => Conversion::Pointer,
            (Size::Any, 's') => Conversion::String,
            (Size::Any, 'S') => Conversion::EscapedString,
            (Size::Any, 'T') => Conversion::MailDate,
            (Size::Any, 'v') => Conversion::Value,
            (Size::Any, 'Y') => Conversion::Date,
            _ => return None,
        };
        Some(conversion)
    }
}

/// An error in a format or its arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FormatError {
    /// DTrace's tag: `D_PRINTF_...`, or `D_SYNTAX` for a malformed conversion (DTrace has no tag for it).
    pub tag: &'static str,
    /// The message for people, without the tag and the place.
    pub message: String,
}

impl FormatError {
    fn new(tag: &'static str, message: String) -> FormatError {
        FormatError { tag, message }
    }

    fn syntax(number: u32, what: &str) -> FormatError {
        FormatError::new("D_SYNTAX", format!("format conversion #{number} {what}"))
    }
}

impl Format {
    /// Parses the text of a format.
    ///
    /// # Errors
    /// `D_PRINTF_FMT_EMPTY` for an empty text. `D_SYNTAX` for a conversion that is unknown, cut
    /// short, contradictory, or wider than [`WIDTH_MAX`].
    pub fn parse(text: &str) -> Result<Format, FormatError> {
        if text.is_empty() {
            return Err(FormatError::new(
                "D_PRINTF_FMT_EMPTY",
                "format string is empty".to_owned(),
            ));
        }
        let mut format = Format {
            text: text.to_owned(),
            pieces: Vec::new(),
            names: Vec::new(),
        };
        let mut number = 0;
        let mut rest = text;
        while let Some(at) = rest.find('%') {
            let (literal, directive) = rest.split_at(at);
            format.push_literal(literal);
            number += 1;
            let directive = directive.strip_prefix('%').unwrap_or_default();
            if let Some(after) = directive.strip_prefix('%') {
                format.push_literal("%");
                rest = after;
            } else {
                let (directive, after) = parse_directive(number, directive)?;
                format.pieces.push(Piece::Directive(directive));
                rest = after;
            }
        }
        format.push_literal(rest);
        Ok(format)
    }

    /// The conversions, in order.
    pub fn directives(&self) -> impl Iterator<Item = &Directive> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Directive(directive) => Some(directive),
            Piece::Literal(_) => None,
        })
    }

    fn push_literal(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Literal(literal)) => literal.push_str(text),
            _ => self.pieces.push(Piece::Literal(text.to_owned())),
        }
    }
}

/// Parses what follows a `%`; yields the conversion and what follows it.
fn parse_directive(number: u32, text: &str) -> Result<(Directive, &str), FormatError> {
    let mut flags = Flags::default();
    let mut dimensions = [Dimension::Unset; 2]; // width, precision
    let mut pointer = false;
    let mut after_dot = false;
    let mut prefix = String::new();
    let mut rest = text;
    loop {
        let Some(character) = rest.chars().next() else {
            return Err(FormatError::syntax(number, "name expected before end of format string"));
        };
        let here = rest;
        rest = here.get(character.len_utf8()..).unwrap_or_default();
        let dimension = &mut dimensions[usize::from(after_dot)];
        match character {
            '0' if !after_dot && *dimension == Dimension::Unset => {
                flags.zero = true;
                flags.left = false;
            }
            '0'..='9' => {
                (*dimension, rest) = parse_dimension(number, here)?;
            }
            '*' if *dimension == Dimension::Argument => {
                let which = if after_dot { "precision" } else { "width" };
                let what = format!("has more than one '*' specified for the output {which}");
                return Err(FormatError::syntax(number, &what));
            }
            '*' => *dimension = Dimension::Argument,
            '.' if after_dot => return Err(FormatError::syntax(number, "has more than one '.' specified")),
            '.' => after_dot = true,
            '#' => flags.alternate = true,
            '+' => flags.plus = true,
            '-' => {
                flags.left = true;
                flags.zero = false;
            }
            ' ' => flags.space = true,
            '\'' => flags.group = true,
            '@' => flags.aggregation = true,
            '?' => pointer = true,
            'h' | 'l' | 'L' | 'w' => prefix.push(character),
            '$' => return Err(FormatError::syntax(number, "uses unsupported positional format (%n$)")),
            '%' => {
                return Err(FormatError::syntax(
                    number,
                    "cannot be combined with other format flags: %%",
                ));
            }
            letter => {
                let (size, conversion) = conversion_of(number, &prefix, letter)?;
                let [mut width, precision] = dimensions;
                if pointer {
                    width = Dimension::Fixed(16);
                }
                return Ok((
                    Directive {
                        number,
                        flags,
                        width,
                        precision,
                        size,
                        letter,
                        conversion,
                    },
                    rest,
                ));
            }
        }
    }
}

/// The number at the front of `text`, as a width or a precision, and the rest of the text.
fn parse_dimension(number: u32, text: &str) -> Result<(Dimension, &str), FormatError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (digits, after) = text.split_at(digits);
    let value = digits.parse().ok().filter(|value| *value <= WIDTH_MAX);
    let value = value.ok_or_else(|| {
        FormatError::syntax(
            number,
            &format!("has a width or precision beyond {WIDTH_MAX}: {digits}"),
        )
    })?;
    Ok((Dimension::Fixed(value), after))
}

/// The size that a prefix means, and the conversion that size and letter mean together.
fn conversion_of(number: u32, prefix: &str, letter: char) -> Result<(Size, Conversion), FormatError> {
    let size = match prefix {
        "" => Some(Size::Any),
        "h" => Some(Size::Short),
        "l" => Some(Size::Long),
        "ll" => Some(Size::LongLong),
        "L" => Some(Size::LongDouble),
        "w" => Some(Size::Wide),
        _ => None,
    };
    let found = size.and_then(|size| Some((size, Conversion::find(size, letter)?)));
    found.ok_or_else(|| FormatError::syntax(number, &format!("is undefined: %{prefix}{letter}")))
}

#[cfg(test)]
mod tests;
