//! `json(text, path)`: the part of a JSON text that a path names, as illumos' `dtrace_json` finds it.
//!
//! ```text
//! path     names of members and numbers of elements, separated by `.`, `[`, `]`:   a.b[2].c
//! result   a string without its quotes and with its escapes unchanged; anything else as it is written
//! ```
//!
//! The result is the string NULL if the path leads nowhere, or if the text proves not to be JSON. The
//! text after the wanted part is not read. Numbers are decimal, words are `true`, `false` and `null`,
//! and `\u` has four digits. There is one pass over the text. `agent/json.c` does the same.

use std::ops::Range;

/// The part of `text` that `path` names. See the module's description.
#[must_use]
pub fn find<'t>(text: &'t [u8], path: &[u8]) -> Option<&'t [u8]> {
    let mut reader = Reader { text, at: 0 };
    text.get(reader.find(path)?)
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
}

impl Reader<'_> {
    fn find(&mut self, path: &[u8]) -> Option<Range<usize>> {
        let is_separator = |byte: &u8| matches!(byte, b'.' | b'[' | b']');
        let mut found = false;
        for element in path.split(is_separator).filter(|element| !element.is_empty()) {
            found = true;
            match self.next()? {
                b'{' => self.member(element)?,
                b'[' => self.element(element)?,
                _ => return None,
            }
        }
        if found { self.value() } else { None }
    }

    /// Moves to the value of a member: after its colon.
    fn member(&mut self, name: &[u8]) -> Option<()> {
        loop {
            self.take(b'"')?;
            let key = self.string()?;
            let is_it = self.text.get(key) == Some(name);
            self.take(b':')?;
            if is_it {
                return Some(());
            }
            self.value()?;
            self.take(b',')?;
        }
    }

    /// Moves to the start of an element of an array.
    fn element(&mut self, number: &[u8]) -> Option<()> {
        let blanks = number.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let number = number.get(blanks..).unwrap_or_default();
        let digits = match number {
            [b'-', ..] => return None,
            [b'+', digits @ ..] => digits,
            digits => digits,
        };
        let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
        let wanted = digits.fold(0_usize, |value, digit| {
            value.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
        });
        for _ in 0..wanted {
            self.value()?;
            self.take(b',')?;
        }
        Some(())
    }

    /// The value that begins here; for a string, the text between the quotes.
    fn value(&mut self) -> Option<Range<usize>> {
        let first = self.next()?;
        let start = self.at - 1;
        match first {
            b'"' => self.string(),
            b'{' | b'[' => {
                let (mut braces, mut brackets) = (usize::from(first == b'{'), usize::from(first == b'['));
                while braces + brackets > 0 {
                    match self.byte()? {
                        b'"' => {
                            self.string()?;
                        }
                        b'{' => braces += 1,
                        b'[' => brackets += 1,
                        b'}' => braces = braces.checked_sub(1)?,
                        b']' => brackets = brackets.checked_sub(1)?,
                        _ => {}
                    }
                }
                Some(start..self.at)
            }
            b'-' | b'0'..=b'9' => self.number(start),
            b'a'..=b'z' => {
                while self.byte()?.is_ascii_lowercase() {}
                self.at -= 1;
                let word = self.text.get(start..self.at);
                matches!(word, Some(b"true" | b"false" | b"null")).then_some(start..self.at)
            }
            _ => None,
        }
    }

    /// The rest of a number after its first byte. Something must follow the number: if the text ends
    /// there, the number may be cut off.
    fn number(&mut self, start: usize) -> Option<Range<usize>> {
        let (mut in_fraction, mut in_exponent) = (false, false);
        loop {
            match self.byte()? {
                b'0'..=b'9' => {}
                b'+' | b'-' if in_exponent => {}
                b'+' | b'-' => return None,
                b'e' | b'E' if !in_exponent => in_exponent = true,
                b'.' if !in_fraction && !in_exponent => in_fraction = true,
                b'x' | b'X' if !in_fraction && !in_exponent => return None,
                _ => {
                    self.at -= 1;
                    return Some(start..self.at);
                }
            }
        }
    }

    /// The rest of a string after its first quote, without the last one.
    fn string(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        loop {
            match self.byte()? {
                b'"' => return Some(start..self.at - 1),
                b'\\' if self.byte()? == b'u' => {
                    for _ in 0..4 {
                        self.byte().filter(u8::is_ascii_hexdigit)?;
                    }
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    /// The next byte that is not a space.
    fn next(&mut self) -> Option<u8> {
        loop {
            let byte = self.byte()?;
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0c) {
                return Some(byte);
            }
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = self.text.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_members_and_elements() {
        let text = br#" { "a" : {"b": [10, -2.5e3, {"c": "x\"y"}, [true]], "b c": null}, "d": "" }"#;
        let find = |path: &str| find(text, path.as_bytes()).map(|found| std::str::from_utf8(found).unwrap());
        assert_eq!(find("a.b[0]"), Some("10"));
        assert_eq!(find("a.b[1]"), Some("-2.5e3"));
        assert_eq!(find("a.b[2].c"), Some(r#"x\"y"#));
        assert_eq!(find("a.b[2]"), Some(r#"{"c": "x\"y"}"#));
        assert_eq!(find("a.b[3][0]"), Some("true"));
        assert_eq!(find("a.b c"), Some("null"));
        assert_eq!(find("d"), Some(""));
        for nowhere in ["", "b", "a.b[4]", "a.b.c.d", "a.b[0].c", "a.b[-1]"] {
            assert_eq!(find(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn text_that_is_no_json_has_no_parts() {
        for text in [
            &b"{\"a\" 1}"[..],
            b"{a: 1}",
            b"{\"a\": }",
            b"{\"a\": \"x",
            b"",
            b"[",
            b"{\"b\": [1, \"a\": 2}",
            // Malformed numbers and words, and numbers and words at the end of the text.
            b"{\"a\": 0x10}",
            b"{\"a\": 1-2}",
            b"{\"a\": 1.5+2}",
            b"{\"a\": +1}",
            b"{\"a\": .5}",
            b"{\"a\": True}",
            b"{\"a\": nulls}",
            b"{\"a\": 1",
            b"{\"a\": true",
            // Escapes of fewer than four digits.
            b"{\"a\": \"\\u00AZ\"}",
            b"{\"a\": \"\\u00\"}",
            b"{\"b\": \"\\u00A\", \"a\": 1}",
            b"{\"b\": {]}, \"a\": 1}",
        ] {
            assert_eq!(find(text, b"a"), None, "{text:?}");
        }
        assert_eq!(find(b"{\"a\": 1 nonsense", b"a"), Some(&b"1"[..]));
        assert_eq!(find(b"{\"a\": 1.2.3}", b"a"), Some(&b"1.2"[..]));
        assert_eq!(find(b"{\"a\": 1e5-3+}", b"a"), Some(&b"1e5-3+"[..]));
        assert_eq!(find(b"{\"a\": \"\\u00afx\"}", b"a"), Some(&b"\\u00afx"[..]));
    }
}
