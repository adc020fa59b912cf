//! Strings as strace writes them: in quotes, with C's escapes, cut after a number of bytes.

use crate::meaning::Bytes;

/// Bytes in quotes. `is_cut`: there are more, so dots follow.
#[must_use]
pub fn quoted(bytes: &[u8], is_cut: bool) -> String {
    let mut text = String::from("\"");
    for (index, &byte) in bytes.iter().enumerate() {
        escape(&mut text, byte, bytes.get(index + 1).copied());
    }
    text.push('"');
    if is_cut {
        text.push_str("...");
    }
    text
}

/// A path without quotes, for angle brackets around it.
#[must_use]
pub(crate) fn path(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (index, &byte) in bytes.iter().enumerate() {
        let next = bytes.get(index + 1).copied();
        match byte {
            b'<' | b'>' => octal(&mut text, byte, next),
            _ => escape(&mut text, byte, next),
        }
    }
    text
}

/// As [`quoted`], with the form of a buffer.
#[must_use]
pub(crate) fn buffer(bytes: &[u8], is_cut: bool, form: Bytes) -> String {
    match form {
        Bytes::Hexadecimal => {
            let inside: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("\"{inside}\"{}", if is_cut { "..." } else { "" })
        }
        Bytes::Quoted | Bytes::Terminated => quoted(bytes, is_cut),
    }
}

/// One byte. An octal escape ([`octal`]) has three digits only where an octal digit follows.
fn escape(text: &mut String, byte: u8, next: Option<u8>) {
    match byte {
        b'"' => text.push_str("\\\""),
        b'\\' => text.push_str("\\\\"),
        b'\n' => text.push_str("\\n"),
        b'\t' => text.push_str("\\t"),
        b'\r' => text.push_str("\\r"),
        0x0b => text.push_str("\\v"),
        0x0c => text.push_str("\\f"),
        b' '..=b'~' => text.push(char::from(byte)),
        _ => octal(text, byte, next),
    }
}

fn octal(text: &mut String, byte: u8, next: Option<u8>) {
    match next {
        Some(b'0'..=b'7') => text.push_str(&format!("\\{byte:03o}")),
        _ => text.push_str(&format!("\\{byte:o}")),
    }
}

/// The bytes up to the first NUL, and whether there is one.
#[must_use]
pub fn terminated(bytes: &[u8]) -> (&[u8], bool) {
    match bytes.iter().position(|&byte| byte == 0) {
        Some(end) => (bytes.get(..end).unwrap_or_default(), true),
        None => (bytes, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a line that strace 6.1 prints when a program is started.
    #[test]
    fn bytes_are_escaped_as_by_strace() {
        assert_eq!(
            quoted(b"\x7fELF\x02\x01\x01\x03\0\0\0\0", true),
            r#""\177ELF\2\1\1\3\0\0\0\0"..."#
        );
        assert_eq!(quoted(b"a\"b\\c\n\t\r\x0b\x0c", false), r#""a\"b\\c\n\t\r\v\f""#);
        assert_eq!(quoted(b"\x001\x00a\xff9\x008", false), r#""\0001\0a\3779\08""#);
        assert_eq!(buffer(b"\x01\xab", false, Bytes::Hexadecimal), r#""\x01\xab""#);
    }
}
