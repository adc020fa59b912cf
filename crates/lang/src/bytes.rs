//! Strings that can hold any bytes.
//!
//! A D text need not be UTF-8: old scripts have names in Latin-1, and a string may hold any byte
//! (`"\xff"`). Inside the compiler such a text is a Rust string. A byte that is not part of a UTF-8
//! character becomes one character of its own, from a range of Unicode that is for private use:
//!
//! ```text
//! 'a' e9 '"'       "a\u{10ffe9}\""        and back
//! ```
//!
//! A text that already has such characters is converted byte by byte, so that every text can be
//! converted back exactly.

use std::borrow::Cow;

/// The private character for a byte that is not part of a UTF-8 character is this number plus the byte (0x80 to 0xff).
const STAND_IN: u32 = 0x10_ff00;
/// The first byte, in UTF-8, of all characters from U+100000 on.
const HIGH: u8 = 0xf4;

/// The string that represents these bytes.
#[must_use]
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match byte_of(character) {
                None => text.push(character),
                Some(_) => text.extend(character.encode_utf8(&mut [0; 4]).bytes().filter_map(stand_in)),
            }
        }
        text.extend(chunk.invalid().iter().copied().filter_map(stand_in));
    }
    text
}

/// The bytes that a string represents.
#[must_use]
pub fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    if !text.as_bytes().contains(&HIGH) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match byte_of(character) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// The string for people to read: each byte that is not part of a character is shown as the
/// replacement character.
#[must_use]
pub fn readable(text: &str) -> String {
    let shown = |character: char| byte_of(character).map_or(character, |_| char::REPLACEMENT_CHARACTER);
    text.chars().map(shown).collect()
}

fn stand_in(byte: u8) -> Option<char> {
    char::from_u32(STAND_IN + u32::from(byte))
}

fn byte_of(character: char) -> Option<u8> {
    let byte = u32::from(character).checked_sub(STAND_IN)?;
    u8::try_from(byte).ok().filter(|byte| *byte >= 0x80)
}

#[cfg(test)]
mod tests {
    use super::{bytes_of, readable, text_of};

    #[test]
    fn any_bytes_come_back() {
        let texts: [&[u8]; 6] = [
            b"",
            "caf\u{e9} \u{10ffff} \u{100000}".as_bytes(),
            b"caf\xe9",
            b"\xff\xc3\xa9\xc3",
            "\u{10ffe9}\u{10ff41}\u{10ff80}".as_bytes(),
            b"\xf4\x8f\xbf",
        ];
        for text in texts {
            assert_eq!(bytes_of(&text_of(text)), text);
        }
    }

    #[test]
    fn utf_8_text_stays() {
        assert_eq!(text_of("é\u{100000}".as_bytes()), "é\u{100000}");
        assert_eq!(text_of(b"a\xe9").chars().count(), 2);
        assert_eq!(readable(&text_of(b"a\xe9")), "a\u{fffd}");
    }
}
