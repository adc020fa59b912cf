//! Integer constants: decimal, octal, hexadecimal, with the suffixes `u`, `l`, `ll` in either case and order.

use super::{Lexer, TokenKind};
use crate::diagnostic::Diagnostic;
use crate::syntax::IntegerLiteral;

/// Why a text is not an integer constant.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NumberError {
    /// The text has a character that is neither a digit of the base nor a suffix.
    Digit(char),
    /// The value has more than 64 bits.
    Overflow,
}

impl Lexer<'_> {
    pub(super) fn number(&mut self) -> Result<TokenKind, Diagnostic> {
        let start = self.position;
        let rest = self.rest();
        let mut length = rest
            .bytes()
            .take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            .count();
        let dotted = rest.as_bytes().get(length) == Some(&b'.') && !rest[length..].starts_with("...");
        if dotted {
            length += 1 + rest[length + 1..].bytes().take_while(u8::is_ascii_alphanumeric).count();
        }
        self.position += length;
        let text = &rest[..length];
        let exponent = text.trim_start_matches(|c: char| c.is_ascii_digit());
        if dotted || (exponent.starts_with(['e', 'E']) && exponent[1..].bytes().all(|b| b.is_ascii_digit())) {
            return Err(Diagnostic::new(
                "D_SYNTAX",
                self.span(start),
                "floating-point constants are not permitted",
            )
            .with_help("D has no floating point; scale the value and use integers"));
        }
        match parse(text) {
            Ok(literal) => Ok(TokenKind::Integer(literal)),
            Err(NumberError::Digit(digit)) => Err(Diagnostic::new(
                // As in DTrace a letter ends the number, and a name follows.
                if digit.is_ascii_digit() {
                    "D_INT_DIGIT"
                } else {
                    "D_SYNTAX"
                },
                self.span(start),
                format!("the constant {text} contains the invalid digit `{digit}`"),
            )),
            Err(NumberError::Overflow) => Err(Diagnostic::new(
                "D_INT_OFLOW",
                self.span(start),
                format!("the constant {text} does not fit into 64 bits"),
            )),
        }
    }
}

/// An integer constant from its whole text.
pub(super) fn parse(text: &str) -> Result<IntegerLiteral, NumberError> {
    let (radix, digits) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if text.starts_with('0') => (8, text),
        None => (10, text),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, suffix) = digits.split_at(end);
    let (unsigned, long) = match suffix.to_ascii_lowercase().as_str() {
        "" => (false, false),
        "u" => (true, false),
        "l" | "ll" => (false, true),
        "ul" | "ull" | "lu" | "llu" => (true, true),
        _ => {
            return Err(NumberError::Digit(
                suffix.chars().find(|c| !"uUlL".contains(*c)).unwrap_or('u'),
            ));
        }
    };
    if digits.is_empty() {
        return Err(NumberError::Digit(text.chars().nth(1).unwrap_or('x')));
    }
    let value = u64::from_str_radix(digits, radix).map_err(|_| NumberError::Overflow)?;
    Ok(IntegerLiteral {
        value,
        decimal: radix == 10,
        unsigned,
        long,
        negative: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<(u64, bool, bool), NumberError> {
        parse(text).map(|l| (l.value, l.unsigned, l.long))
    }

    #[test]
    fn bases_and_suffixes() {
        assert_eq!(value("0"), Ok((0, false, false)));
        assert_eq!(value("12345"), Ok((12345, false, false)));
        assert_eq!(value("017"), Ok((15, false, false)));
        assert_eq!(value("0xfFuLL"), Ok((255, true, true)));
        assert_eq!(value("18446744073709551615ul"), Ok((u64::MAX, true, true)));
    }

    #[test]
    fn what_is_no_number() {
        assert_eq!(value("08"), Err(NumberError::Digit('8')));
        assert_eq!(value("12ab"), Err(NumberError::Digit('a')));
        assert_eq!(value("0x"), Err(NumberError::Digit('x')));
        assert_eq!(value("1uu"), Err(NumberError::Digit('u')));
        assert_eq!(value("18446744073709551616"), Err(NumberError::Overflow));
    }
}
