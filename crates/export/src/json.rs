//! Writes JSON: one value, one line.
//!
//! Integers are written completely, up to 64 bits, signed or unsigned. A reader that converts them to
//! floating point loses the last bits of addresses and times. Bytes that are not UTF-8 cannot be a JSON
//! string; [`text`] describes how they are written.

use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    Boolean(bool),
    Number(i128),
    /// A number with a fraction. Infinity and NaN become `null`, because JSON has no names for them.
    Floating(f64),
    Text(String),
    /// `[ ... ]`
    List(Vec<Json>),
    /// `{ ... }`, with the members in this order.
    Object(Vec<(&'static str, Json)>),
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Json {
        Json::Text(text)
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl From<$number> for Json {
            fn from(number: $number) -> Json {
                Json::Number(i128::from(number))
            }
        })*
    };
}

numbers!(u8 i32 u32 i64 u64);

/// Bytes that should be text. UTF-8 becomes a string; anything else becomes `{"text": ..., "hex": ...}`,
/// where `text` has U+FFFD instead of each bad byte, and `hex` has every byte.
#[must_use]
pub fn text(bytes: &[u8]) -> Json {
    match std::str::from_utf8(bytes) {
        Ok(text) => Json::from(text),
        Err(_) => Json::Object(vec![
            ("text", Json::Text(String::from_utf8_lossy(bytes).into_owned())),
            ("hex", hex(bytes)),
        ]),
    }
}

/// Bytes as hexadecimal digits, two for each byte.
#[must_use]
pub fn hex(bytes: &[u8]) -> Json {
    Json::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Boolean(value) => write!(f, "{value}"),
            Json::Number(number) => write!(f, "{number}"),
            Json::Floating(number) if number.is_finite() => write!(f, "{number:?}"),
            Json::Floating(_) => f.write_str("null"),
            Json::Text(text) => string(f, text),
            Json::List(values) => {
                f.write_str("[")?;
                for (index, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if index > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Json::Object(members) => {
                f.write_str("{")?;
                for (index, (name, value)) in members.iter().enumerate() {
                    f.write_str(if index > 0 { "," } else { "" })?;
                    string(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    use fmt::Write as _;
    f.write_str("\"")?;
    for character in text.chars() {
        match character {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            '\r' => f.write_str("\\r")?,
            // Some readers treat U+2028 and U+2029 as the end of a line.
            '\0'..' ' | '\u{7f}' | '\u{85}' | '\u{2028}' | '\u{2029}' => write!(f, "\\u{:04x}", u32::from(character))?,
            _ => f.write_char(character)?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_whole() {
        let value = Json::Object(vec![
            ("a", Json::List(vec![Json::Null, u64::MAX.into(), i64::MIN.into()])),
            ("b \"", Json::from("x\n\u{1}\u{2028}é\\")),
            ("c", Json::Object(Vec::new())),
        ]);
        let right = r#"{"a":[null,18446744073709551615,-9223372036854775808],"b \"":"x\n\u0001\u2028é\\","c":{}}"#;
        assert_eq!(value.to_string(), right);
    }

    #[test]
    fn no_byte_is_lost() {
        assert_eq!(text("é".as_bytes()).to_string(), "\"é\"");
        assert_eq!(text(b"a\xff\0").to_string(), r#"{"text":"a�\u0000","hex":"61ff00"}"#);
    }
}
