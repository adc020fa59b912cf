//! `trace()` of strings and bytes. They are printed as text if they are text, otherwise as a dump.
//!
//! ```text
//!              0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f  0123456789abcdef
//!         0: 68 65 6c 6c 6f 00 ff                             hello..
//! ```

use std::io::{Result, Write};

use nanoprobe_lang::interpret::Value;

use crate::number::{self, Shape};

/// A string (the bytes before its NUL) in a column of `width` bytes; `room` is the size of its
/// field in the record. Quiet output has no columns.
pub(crate) fn string(out: &mut dyn Write, text: &[u8], room: usize, width: i64, quiet: bool, raw: bool) -> Result<()> {
    let printable = std::str::from_utf8(text).is_ok_and(|text| text.chars().all(is_printable));
    if raw || !printable {
        let mut whole = text.to_vec();
        whole.resize(room.max(text.len()), 0);
        return dump(out, &whole);
    }
    column(out, text, width, quiet)
}

/// The bytes that `tracemem` shows. The value that is recorded after the bytes says how many to show. Without such a
/// value, or if there are fewer bytes, all bytes are shown.
pub(crate) fn traced<'v>(mut recorded: impl Iterator<Item = &'v Value>) -> &'v [u8] {
    let bytes = recorded.next().map_or(&[][..], Value::as_bytes);
    let shown = recorded
        .next()
        .and_then(|shown| usize::try_from(shown.as_integer()).ok());
    shown.and_then(|shown| bytes.get(..shown)).unwrap_or(bytes)
}

/// Prints bytes that may be text. Printable ASCII up to the end, or followed only by NULs, is text.
pub(crate) fn bytes(out: &mut dyn Write, bytes: &[u8], width: i64, quiet: bool, raw: bool) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let rest = bytes.get(text.len()..).unwrap_or_default();
    let is_text = !text.is_empty()
        && text
            .iter()
            .all(|byte| is_printable(char::from(*byte)) && byte.is_ascii());
    if raw || !is_text || rest.iter().any(|byte| *byte != 0) {
        return dump(out, bytes);
    }
    // Text that fills its whole field is printed in a column even in quiet output.
    column(out, text, width, quiet && !rest.is_empty())
}

/// Bell and backspace count as printable, as in DTrace.
fn is_printable(character: char) -> bool {
    !character.is_control() || character.is_ascii_whitespace() || matches!(character, '\u{7}' | '\u{8}' | '\u{b}')
}

fn column(out: &mut dyn Write, text: &[u8], width: i64, quiet: bool) -> Result<()> {
    if quiet {
        return out.write_all(text);
    }
    out.write_all(if width < 0 { b"  " } else { b" " })?;
    out.write_all(&number::text(text, Shape::of_width(width)))
}

fn dump(out: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    const MARGIN: &str = "     ";
    write!(out, "\n{MARGIN}      ")?;
    for column in 0..16 {
        write!(out, "  {column:x}")?;
    }
    writeln!(out, "  0123456789abcdef")?;
    for (row, line) in bytes.chunks(16).enumerate() {
        write!(out, "{MARGIN}{:5x}:", row * 16)?;
        for byte in line {
            write!(out, " {byte:02x}")?;
        }
        for _ in line.len()..16 {
            write!(out, "   ")?;
        }
        write!(out, "  ")?;
        let visible = |byte: &u8| if (b' '..=b'~').contains(byte) { *byte } else { b'.' };
        out.write_all(&line.iter().map(visible).collect::<Vec<u8>>())?;
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: &[u8], quiet: bool) -> String {
        let mut out = Vec::new();
        bytes(&mut out, value, -10, quiet, false).unwrap();
        String::from_utf8(out).unwrap()
    }

    const HEAD: &str = "\n             0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f  0123456789abcdef\n";

    #[test]
    fn text_is_recognised() {
        assert_eq!(shown(b"hello\0\0", false), "  hello     ");
        assert_eq!(shown(b"hello\0\0", true), "hello");
        assert_eq!(shown(b"hello", true), "  hello     ");
        assert_eq!(shown(b"", false), "");
        assert_eq!(
            shown(b"hello\0x", false),
            format!("{HEAD}         0: 68 65 6c 6c 6f 00 78                             hello.x\n")
        );
        assert_eq!(
            shown(&(0x30..0x42).chain([200]).collect::<Vec<u8>>(), false),
            format!(
                "{HEAD}         0: 30 31 32 33 34 35 36 37 38 39 3a 3b 3c 3d 3e 3f  0123456789:;<=>?\n        10: 40 41 \
                 c8                                         @A.\n"
            )
        );
    }

    #[test]
    fn strings_stay_strings() {
        let show = |text: &str, raw| {
            let mut out = Vec::new();
            string(&mut out, text.as_bytes(), 8, -6, false, raw).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(show("", false), "        ");
        assert_eq!(show("né", false), "  né   "); // widths count bytes
        assert_eq!(
            show("a\u{1}", false),
            format!("{HEAD}         0: 61 01 00 00 00 00 00 00                          a.......\n")
        );
        assert_eq!(
            show("ab", true),
            format!("{HEAD}         0: 61 62 00 00 00 00 00 00                          ab......\n")
        );
    }
}
