//! The order of keys.
//!
//! Strings and stacks are compared by their bytes, as in DTrace. Integers are compared by their values, so
//! their order is that of the printed numbers. (DTrace compares all integers as unsigned.)

use std::cmp::Ordering;

use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::program::KeyType;

/// The order of two keys of these types. The comparison begins with the element at `position`, goes on to
/// the last one, and continues with the first.
pub(crate) fn compare_keys(types: &[KeyType], left: &[Value], right: &[Value], position: usize) -> Ordering {
    let position = if position < left.len() { position } else { 0 };
    let elements = || {
        left.iter()
            .zip(right)
            .zip(types)
            .map(|((left, right), key_type)| compare_elements(key_type, left, right))
    };
    let first = |order: Ordering, next: Ordering| order.then(next);
    elements()
        .skip(position)
        .chain(elements().take(position))
        .fold(Ordering::Equal, first)
}

/// Whether integers of a key may be negative.
fn is_signed(key_type: &KeyType) -> bool {
    match key_type {
        KeyType::Integer(integer) => integer.signed,
        KeyType::Enumeration(of) => of.integer().is_some_and(|integer| integer.signed),
        _ => false,
    }
}

fn compare_elements(key_type: &KeyType, left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Integer(left), Value::Integer(right)) if is_signed(key_type) => left.cmp(right),
        (Value::Integer(left), Value::Integer(right)) => (*left as u64).cmp(&(*right as u64)),
        (Value::Stack(left), Value::Stack(right)) => {
            let bytes = |frames: &[u64]| frames.iter().flat_map(|frame| frame.to_le_bytes()).collect::<Vec<u8>>();
            bytes(left).cmp(&bytes(right))
        }
        _ => left.as_bytes().cmp(right.as_bytes()),
    }
}
