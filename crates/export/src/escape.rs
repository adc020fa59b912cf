//! `%S` and `%C`: bytes as C writes them.

/// Printable ASCII stays as it is. Other bytes become C's escapes, or else three octal digits.
pub(crate) fn escaped(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    for byte in bytes {
        let letter = match byte {
            0 => b'0',
            0x07 => b'a',
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            b'"' | b'\\' => *byte,
            b' '..=b'~' => {
                text.push(*byte);
                continue;
            }
            _ => {
                text.extend_from_slice(format!("\\{byte:03o}").as_bytes());
                continue;
            }
        };
        text.extend_from_slice(&[b'\\', letter]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn invisible_characters_are_spelled_out() {
        assert_eq!(escaped(b"a b\"\\\n\t\x07\0~"), b"a b\\\"\\\\\\n\\t\\a\\0~");
        assert_eq!(escaped("\u{1}é\u{7f}".as_bytes()), b"\\001\\303\\251\\177");
    }
}
