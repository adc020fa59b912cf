//! Values at run time, and their bytes in records.

use crate::layout::{FieldKind, RecordField};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An integer or a pointer, normalised to its type (unsigned 64-bit values as their bit
    /// pattern). 0 is also the string NULL, which compares as the empty string, and faults when
    /// it is read.
    Integer(i64),
    /// A string without its NUL.
    String(Vec<u8>),
    /// Bytes in scratch memory.
    Bytes {
        /// Address of the bytes.
        address: u64,
        bytes: Vec<u8>,
    },
    /// Return addresses, innermost first.
    Stack(Vec<u64>),
}

impl Value {
    /// The integer, or the address of bytes; 0 for other values.
    pub fn as_integer(&self) -> i64 {
        match self {
            Value::Integer(value) => *value,
            Value::Bytes { address, .. } => *address as i64,
            Value::String(_) | Value::Stack(_) => 0,
        }
    }

    /// The contents of the string or of the bytes; empty for other values.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Value::String(bytes) | Value::Bytes { bytes, .. } => bytes,
            Value::Integer(_) | Value::Stack(_) => &[],
        }
    }

    /// Writes the value as a field of a record, cut to `room`: see [`crate::layout`]. A string
    /// always ends in a NUL.
    pub fn write(&self, room: &mut [u8]) {
        let put = |room: &mut [u8], bytes: &[u8]| {
            let count = bytes.len().min(room.len());
            if let (Some(to), Some(from)) = (room.get_mut(..count), bytes.get(..count)) {
                to.copy_from_slice(from);
            }
        };
        room.fill(0);
        match self {
            Value::Integer(value) => put(room, &value.to_le_bytes()),
            Value::Bytes { bytes, .. } => put(room, bytes),
            Value::String(bytes) => {
                let text = room.len().saturating_sub(1);
                put(room.get_mut(..text).unwrap_or_default(), bytes);
            }
            Value::Stack(frames) => {
                let count = frames.len().min((room.len() / 8).saturating_sub(1));
                let words = std::iter::once(count as u64).chain(frames.iter().copied());
                let bytes: Vec<u8> = words.take(count + 1).flat_map(u64::to_le_bytes).collect();
                put(room, &bytes);
            }
        }
    }
}

/// Reads a field of a record (with its header). The record may hold anything: a string without a
/// NUL ends with its field, and a stack has at most the frames it has room for. `None`: the field
/// does not lie in the record.
pub fn read_field(record: &[u8], field: &RecordField) -> Option<Value> {
    let start = field.offset as usize;
    let bytes = record.get(start..start.checked_add(field.bytes as usize)?)?;
    Some(match field.kind {
        FieldKind::Integer(integer) => {
            let value = i64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
            Value::Integer(super::arithmetic::normalise(value, integer))
        }
        FieldKind::String => Value::String(until_nul(bytes).to_vec()),
        FieldKind::Bytes => Value::Bytes {
            address: 0,
            bytes: bytes.to_vec(),
        },
        FieldKind::Stack { frames, .. } => {
            let mut words = words(bytes);
            let count = words.next()?.min(u64::from(frames));
            Value::Stack(words.take(usize::try_from(count).unwrap_or(usize::MAX)).collect())
        }
    })
}

/// The bytes before the first NUL.
pub(super) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Whole words, little endian.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .chunks_exact(8)
        .filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)))
}
