//! `json(text, path)`: the part of a JSON text that a path names, as illumos' `dtrace_json` finds it.
//!
//! ```text
//! path     name of a member, number of an element in an array; separated by `.`, `[`, `]`:   a.b[2].c
//! result   a string without its quotes, its escapes as they stand; of all else the text itself
//! ```
//!
//! The empty string where the path leads nowhere, and where the text is not JSON as far as it is looked at: what lies
//! behind the part that is found may be anything. One pass. `agent/json.c` does the same.

use std::ops::Range;

/// See the module's description.
#[must_use]
pub fn find(text: &[u8], path: &[u8]) -> Vec<u8> {
    let mut reader = Reader { text, at: 0 };
    let range = reader.find(path).unwrap_or_default();
    text.get(range).unwrap_or_default().to_vec()
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

    /// Behind the colon of a member.
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

    /// In front of an element of an array.
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

    /// The value that begins here; of a string what is between the quotes.
    fn value(&mut self) -> Option<Range<usize>> {
        let first = self.next()?;
        let start = self.at - 1;
        match first {
            b'"' => self.string(),
            b'{' | b'[' => {
                let mut depth = 1_usize;
                while depth > 0 {
                    match self.byte()? {
                        b'"' => {
                            self.string()?;
                        }
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                }
                Some(start..self.at)
            }
            _ => {
                let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
                let rest = self.text.get(start..).unwrap_or_default();
                let length = rest.iter().take_while(|byte| is_part(byte)).count();
                self.at = start + length;
                (length > 0).then_some(start..self.at)
            }
        }
    }

    /// What is left of a string behind its first quote, without the last one.
    fn string(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        loop {
            match self.byte()? {
                b'"' => return Some(start..self.at - 1),
                b'\\' => {
                    self.byte()?;
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    /// The next byte that is no space.
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
        let find = |path: &str| String::from_utf8(find(text, path.as_bytes())).unwrap();
        assert_eq!(find("a.b[0]"), "10");
        assert_eq!(find("a.b[1]"), "-2.5e3");
        assert_eq!(find("a.b[2].c"), r#"x\"y"#);
        assert_eq!(find("a.b[2]"), r#"{"c": "x\"y"}"#);
        assert_eq!(find("a.b[3][0]"), "true");
        assert_eq!(find("a.b c"), "null");
        assert_eq!(find("d"), "");
        for nowhere in ["", "b", "a.b[4]", "a.b.c.d", "a.b[0].c", "a.b[-1]"] {
            assert_eq!(find(nowhere), "", "{nowhere}");
        }
    }

    #[test]
    fn what_is_no_json_has_no_parts() {
        for text in [
            &b"{\"a\" 1}"[..],
            b"{a: 1}",
            b"{\"a\": }",
            b"{\"a\": \"x",
            b"",
            b"[",
            b"{\"b\": [1, \"a\": 2}",
        ] {
            assert_eq!(find(text, b"a"), b"", "{text:?}");
        }
        assert_eq!(find(b"{\"a\": 1 nonsense", b"a"), b"1");
    }
}
