//! `printf` and `printa` formats, parsed once.
//!
//! A format is text with conversions, `%[flags][width][.precision][size]conversion`:
//!
//! ```text
//! flags       # + - 0 space ' @ ?       @: the value of an aggregation; ?: the width of a pointer (0x and 16 digits)
//! width       digits, or *: an integer argument
//! precision   . and digits, or * likewise
//! size        h hh l ll L: taken, and checked where DTrace checks them; integers are 64 bits wide anyway
//! conversion  a A c C d D i e E f F g G k o O p s S u U wc ws x X Y %
//! ```
//!
//! Parsing finds what is wrong with the text; [`Format::check`] what is wrong with the arguments. Both answer with
//! DTrace's tags (`D_PRINTF_...`), which the manual's chapter "Output Formatting" and the error catalogue share.
//! Rendering is the business of `export`.

use crate::program::{Aggregation, Type};

/// A parsed format.
#[derive(Clone, Debug, PartialEq)]
pub struct Format {
    /// As written, escapes already replaced.
    pub text: String,
    /// Literal text and conversions, in order; adjacent literals are joined.
    pub pieces: Vec<Piece>,
}

/// Part of a format.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Copied as it is (`%%` has become `%`).
    Literal(String),
    /// A conversion.
    Directive(Directive),
}

/// A conversion with its modifiers.
#[derive(Clone, Debug, PartialEq)]
pub struct Directive {
    /// Which flags are set.
    pub flags: Flags,
    /// The minimum width.
    pub width: Dimension,
    /// The precision.
    pub precision: Dimension,
    /// The size prefix, as written; empty when there is none.
    pub size: String,
    /// What is converted, and how.
    pub conversion: Conversion,
}

/// A width or a precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Dimension {
    /// Not given.
    #[default]
    Unset,
    /// Given as a number.
    Fixed(u32),
    /// `*`: the next argument, an integer.
    Argument,
}

/// The flags between `%` and the width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags {
    /// `#`: alternate form.
    pub alternate: bool,
    /// `+`: a sign in front of positive numbers.
    pub plus: bool,
    /// `-`: to the left.
    pub left: bool,
    /// `0`: padded with zeros.
    pub zero: bool,
    /// A space in front of positive numbers.
    pub space: bool,
    /// `'`: thousands grouped (in the C locale: not at all).
    pub group: bool,
    /// `@`: the value of an aggregation rather than an element of its key.
    pub aggregation: bool,
    /// `?`: as wide as a pointer.
    pub pointer: bool,
}

/// A conversion character of the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is what its character says")]
pub enum Conversion {
    /// `%a`, `%A`: an address as symbol (`module`symbol+offset`).
    Address,
    /// `%c`: a byte as a character.
    Character,
    /// `%C`: a byte as a character, or its escape.
    EscapedCharacter,
    /// `%d`, `%D`, `%i`: decimal, signed or not as the argument's type is.
    Decimal,
    /// `%u`, `%U`: decimal, unsigned.
    Unsigned,
    /// `%o`, `%O`.
    Octal,
    /// `%x`.
    Hexadecimal,
    /// `%X`.
    HexadecimalUpper,
    /// `%p`: an address in hexadecimal.
    Pointer,
    /// `%e`, `%E`, `%f`, `%F`, `%g`, `%G`: floating point, which no D expression has.
    Float,
    /// `%k`: a stack.
    Stack,
    /// `%s`: a string.
    String,
    /// `%S`: a string with its unprintable bytes escaped.
    EscapedString,
    /// `%wc`: a wide character.
    WideCharacter,
    /// `%ws`: a wide string.
    WideString,
    /// `%Y`: ns since the epoch as `1990 Jan  1 00:00:00`.
    Date,
}

/// What is wrong with a format or its arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FormatError {
    /// DTrace's tag: `D_PRINTF_...`.
    pub tag: &'static str,
    /// For people; without the tag and the place.
    pub message: String,
}

impl Format {
    /// Parses the text of a format.
    ///
    /// # Errors
    /// `D_PRINTF_FMT`-like tags: an unknown conversion, a conversion cut short, a width out of range.
    pub fn parse(text: &str) -> Result<Format, FormatError> {
        let _ = text;
        todo!()
    }

    /// Checks the arguments of a `printf`: their number and types.
    pub fn check(&self, arguments: &[Type]) -> Result<(), FormatError> {
        let _ = arguments;
        todo!()
    }

    /// Checks the aggregations of a `printa`: keys against conversions, `%@` against their number.
    pub fn check_aggregations(&self, aggregations: &[&Aggregation]) -> Result<(), FormatError> {
        let _ = aggregations;
        todo!()
    }
}
