//! Keys of aggregations and of associative arrays, as bytes.
//!
//! ```text
//! integer   8 bytes, extended by its type
//! string    its bytes, a NUL, zeros up to a multiple of 8
//! bytes     the bytes of a structure, zeros up to a multiple of 8
//! stack     u64 number of frames, then the frames, innermost first
//! ```
//!
//! Elements follow each other without separators: the types of the key say how to read them. Equal
//! keys have equal bytes, and different keys of the same types have different bytes.

use super::Value;
use super::value::{until_nul, words};
use crate::program::KeyType;

/// Appends an integer, already normalised.
pub fn push_integer(key: &mut Vec<u8>, value: i64) {
    key.extend_from_slice(&value.to_le_bytes());
}

/// Appends a string: the bytes before its first NUL, at most `string_limit - 1` of them.
pub fn push_string(key: &mut Vec<u8>, text: &[u8], string_limit: u32) {
    let text = until_nul(text);
    let room = (string_limit as usize).saturating_sub(1);
    key.extend_from_slice(text.get(..room).unwrap_or(text));
    key.push(0);
    key.resize(key.len().next_multiple_of(8), 0);
}

/// Appends a stack.
pub fn push_stack(key: &mut Vec<u8>, frames: &[u64]) {
    key.extend_from_slice(&(frames.len() as u64).to_le_bytes());
    key.extend(frames.iter().flat_map(|frame| frame.to_le_bytes()));
}

/// The key of these elements.
pub fn key_bytes(elements: &[Value], string_limit: u32) -> Vec<u8> {
    let mut key = Vec::new();
    for element in elements {
        match element {
            Value::String(text) => push_string(&mut key, text, string_limit),
            Value::Stack(frames) => push_stack(&mut key, frames),
            Value::Integer(_) | Value::Bytes { .. } => push_integer(&mut key, element.as_integer()),
        }
    }
    key
}

/// The elements of a key. `None`: the bytes are not a key of these types (too short, a string
/// without a NUL, more frames than bytes).
pub fn read_key(types: &[KeyType], key: &[u8]) -> Option<Vec<Value>> {
    let mut rest = key;
    let elements = types.iter().map(|key_type| {
        let (value, bytes) = match key_type {
            KeyType::Integer(integer) => {
                let value = words(rest).next()? as i64;
                (Value::Integer(super::arithmetic::normalise(value, *integer)), 8)
            }
            KeyType::Enumeration(of) => {
                let value = words(rest).next()? as i64;
                (Value::Integer(of.normalised(value)), 8)
            }
            KeyType::Symbol(_) => (Value::Integer(words(rest).next()? as i64), 8),
            KeyType::String | KeyType::Function => {
                let end = rest.iter().position(|byte| *byte == 0)?;
                (Value::String(rest.get(..end)?.to_vec()), (end + 1).next_multiple_of(8))
            }
            KeyType::Bytes { size } => {
                let (size, bytes) = (*size as usize, 8 * key_type.words()? as usize);
                let bytes_of = rest.get(..size)?.to_vec();
                (
                    Value::Bytes {
                        address: 0,
                        bytes: bytes_of,
                    },
                    bytes,
                )
            }
            KeyType::Stack(_) => {
                let count = usize::try_from(words(rest).next()?).ok()?;
                let bytes = count.checked_add(1)?.checked_mul(8)?;
                (Value::Stack(words(rest.get(8..bytes)?).collect()), bytes)
            }
        };
        rest = rest.get(bytes..)?;
        Some(value)
    });
    elements.collect()
}
