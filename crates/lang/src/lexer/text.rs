//! Strings and character constants, with C's escapes.

use super::{Lexer, TokenKind};
use crate::bytes::bytes_of;
use crate::diagnostic::Diagnostic;
use crate::syntax::IntegerLiteral;

impl Lexer<'_> {
    pub(super) fn string(&mut self) -> Result<TokenKind, Diagnostic> {
        let bytes = self.quoted('"', "D_STR_NL", "the string is not closed on its line")?;
        Ok(TokenKind::String(until_nul(bytes)))
    }

    pub(super) fn character(&mut self) -> Result<TokenKind, Diagnostic> {
        let start = self.position;
        let bytes = self.quoted('\'', "D_CHR_NL", "the character constant is not closed on its line")?;
        if bytes.is_empty() {
            return Err(Diagnostic::new(
                "D_CHR_NULL",
                self.span(start),
                "empty character constant",
            ));
        }
        if bytes.len() > 8 {
            return Err(Diagnostic::new(
                "D_CHR_OFLOW",
                self.span(start),
                format!(
                    "a character constant of {} bytes: at most 8 fit into an integer",
                    bytes.len()
                ),
            ));
        }
        let value = bytes.iter().fold(0, |value, byte| (value << 8) | u64::from(*byte));
        Ok(TokenKind::Integer(IntegerLiteral {
            value,
            decimal: false,
            unsigned: false,
            long: false,
            negative: false,
        }))
    }

    /// The bytes between two quotes, with escapes replaced.
    fn quoted(&mut self, quote: char, tag: &'static str, open: &str) -> Result<Vec<u8>, Diagnostic> {
        let start = self.position;
        let inner = &self.rest()[1..];
        let mut end = None;
        let mut escaped = false;
        for (index, character) in inner.char_indices() {
            match character {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                _ if character == quote => {
                    end = Some(index);
                    break;
                }
                _ => {}
            }
        }
        match end {
            Some(end) => {
                self.position = start + 1 + end + 1;
                Ok(unescape(&inner[..end]))
            }
            None => {
                self.position = start + 1 + inner.find('\n').unwrap_or(inner.len());
                Err(Diagnostic::new(tag, self.span(start), open)
                    .with_help(format!("close it with {quote}; a line break is written \\n")))
            }
        }
    }
}

/// D's strings end at their first NUL.
pub(super) fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// Replaces C's escapes: `\a \b \f \n \r \t \v \\ \" \' \?`, octal, hexadecimal. As in DTrace, an
/// unknown escape keeps its backslash.
pub(super) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&bytes_of(&rest[..at]));
        rest = &rest[at + 1..];
        let Some(character) = rest.chars().next() else { break };
        let simple = match character {
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            _ => None,
        };
        if let Some(byte) = simple {
            bytes.push(byte);
            rest = &rest[1..];
        } else if character.is_digit(8) {
            rest = number(rest, 8, 3, &mut bytes);
        } else if character == 'x' && rest[1..].starts_with(|c: char| c.is_ascii_hexdigit()) {
            rest = number(&rest[1..], 16, 2, &mut bytes);
        } else {
            if !matches!(character, '\\' | '"' | '\'' | '?') {
                bytes.push(b'\\');
            }
            bytes.extend_from_slice(&bytes_of(&rest[..character.len_utf8()]));
            rest = &rest[character.len_utf8()..];
        }
    }
    bytes.extend_from_slice(&bytes_of(rest));
    bytes
}

/// Takes at most `limit` digits; yields the text after them.
fn number<'t>(text: &'t str, radix: u32, limit: usize, bytes: &mut Vec<u8>) -> &'t str {
    let digits = text.chars().take(limit).take_while(|c| c.is_digit(radix)).count();
    let value = u32::from_str_radix(&text[..digits], radix).unwrap_or(0);
    bytes.push(value.to_le_bytes()[0]);
    &text[digits..]
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn escapes_are_those_of_c() {
        assert_eq!(unescape(r#"a\n\t\\\"\'\?b"#), b"a\n\t\\\"'?b");
        assert_eq!(unescape(r"\101\1012\x41g\0"), b"AA2Ag\0");
        assert_eq!(unescape(r"\é\q\xg"), r"\é\q\xg".as_bytes());
        assert_eq!(unescape(r"end\"), b"end");
    }
}
