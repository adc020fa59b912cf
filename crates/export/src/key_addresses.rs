//! The addresses in the bytes of an aggregation's key.

use nanoprobe_lang::interpret::{Value, key};
use nanoprobe_lang::program::{KeyType, SymbolKind};

/// The offsets in a key's bytes of the addresses that are printed as names.
pub fn symbols_in(types: &[KeyType], bytes: &[u8]) -> Vec<(usize, SymbolKind)> {
    let mut offset = 0;
    let mut found = Vec::new();
    let values = key::read_key(types, bytes).unwrap_or_default();
    for (key_type, value) in types.iter().zip(values) {
        if let KeyType::Symbol(kind) = key_type {
            found.push((offset, *kind));
        }
        offset += bytes_of(&value);
    }
    found
}

/// How an address in a key is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressUse {
    /// A frame of a stack: the first one is the thread's position, the others are return addresses.
    Frame { is_first: bool },
    /// The argument of `uaddr()`, `usym()` or `umod()`.
    Symbol(SymbolKind),
}

/// The offsets in a key's bytes of all addresses.
pub(crate) fn addresses_in(types: &[KeyType], bytes: &[u8]) -> Vec<(usize, AddressUse)> {
    let symbols = symbols_in(types, bytes).into_iter();
    let mut found: Vec<_> = symbols
        .map(|(offset, kind)| (offset, AddressUse::Symbol(kind)))
        .collect();
    let mut offset = 0;
    for value in key::read_key(types, bytes).unwrap_or_default() {
        if let Value::Stack(frames) = &value {
            let frames = frames.iter().take_while(|address| **address != 0).enumerate();
            // The number of the frames comes first.
            found.extend(
                frames.map(|(index, _)| (offset + 8 * (index + 1), AddressUse::Frame { is_first: index == 0 })),
            );
        }
        offset += bytes_of(&value);
    }
    found
}

/// The bytes of an element in a key.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::String(text) => (text.len() + 1).next_multiple_of(8),
        Value::Stack(frames) => 8 * (frames.len() + 1),
        Value::Bytes { bytes, .. } => bytes.len().next_multiple_of(8),
        Value::Integer(_) => 8,
    }
}
