//! Structures and arrays as keys: a key consists of their words.
//!
//! ```text
//! int x[struct s, int];    x[s, 1]     the element [word 0 of s, word 1 of s, 1]
//! @[s] = count()                       the key of two words, printed as the bytes of s
//! ```
//!
//! As in DTrace all bytes count, including those between the members. Where the size is not a
//! multiple of 8, the last word is filled with zeros.

use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::effects::has_effects;
use crate::lower::refusals::refuse_whole;
use crate::lower::refusals::unsupported;
use crate::lower::sequence::after;
use crate::lower::unions::gathered_word;
use crate::lower::{convert, memory};
use crate::program::{Expression, Type, size_of};
use crate::source::Span;
use crate::syntax::Node;
use crate::types;

/// The most bytes that a structure may have as a key.
const BYTES_MAX: u64 = 128;

/// An element of a key.
pub(super) enum KeyElement {
    /// An integer, a pointer or a string; for an enumeration of the program, with its type.
    Value(Expression),
    /// A structure or an array: its words, its size in bytes, and its type.
    Words(Vec<Expression>, u32, Type),
}

impl Checker {
    /// The values that one written key consists of.
    pub(super) fn key_element(&mut self, node: &Node) -> Checked<KeyElement> {
        let found = self.operand(node)?;
        match &found.value_type {
            // An array of characters is taken as a string.
            Type::Array { of, .. } if size_of(of) == Some(1) && !matches!(of.as_ref(), Type::Structure(_)) => {
                let text = match self.variables.gathered(&found)? {
                    Some(bytes) => bytes,
                    None => memory::decayed(memory::placed(found)?),
                };
                Ok(KeyElement::Value(convert::to_string(text)))
            }
            Type::Structure(_) | Type::Array { .. } => self.key_words(found),
            _ => Ok(KeyElement::Value(memory::placed(found)?)),
        }
    }

    fn key_words(&mut self, found: Expression) -> Checked<KeyElement> {
        let (of, span) = (found.value_type.clone(), found.span);
        let size = match size_of(&of) {
            Some(size @ 1..=BYTES_MAX) => size,
            Some(0) | None => {
                let message = format!(
                    "an expression of the type {} may not be used as a key",
                    types::name(&of)
                );
                return Err(Diagnostic::new("D_KEY_TYPE", span, message));
            }
            Some(_) => {
                let what = "a structure or array of more than 128 bytes as a key";
                return Err(unsupported("N_STRUCT", what, span));
            }
        };
        let mut before = None;
        let whole = self.repeatable(found, &mut before)?;
        let mut words = (0..size)
            .step_by(8)
            .map(|start| gathered_word(&whole, start, (size - start).min(8), span))
            .collect::<Checked<Vec<_>>>()?;
        if let Some(first) = words.first_mut() {
            *first = after(before, first.clone(), span);
        }
        Ok(KeyElement::Words(words, u32::try_from(size).unwrap_or(0), of))
    }

    /// A structure whose parts can be read one by one: the operand's own place, or a copy that is made after
    /// `before`.
    fn repeatable(&mut self, found: Expression, before: &mut Option<Expression>) -> Checked<Expression> {
        let of = found.value_type.clone();
        let bytes = match self.variables.gathered(&found)? {
            Some(gathered) => gathered,
            None => {
                refuse_whole(&found)?;
                if !has_effects(&found) {
                    return Ok(found);
                }
                memory::bytes_of(memory::placed(found)?)
            }
        };
        Ok(self.variables.copied(bytes, &of, before))
    }

    /// The keys of an element, and the types of the keys as written. `prototype`: the types of the keys
    /// of an array that exists, and the place that fixed them.
    pub(super) fn keys(
        &mut self,
        name: &str,
        keys: &[Node],
        prototype: Option<(&[Type], Span)>,
        span: Span,
    ) -> Checked<(Vec<Expression>, Vec<Type>)> {
        if let Some((types, first)) = prototype
            && types.len() != keys.len()
        {
            return Err(
                length_mismatch(name, keys.len(), types.len(), span).with_related(first, "its keys were fixed here")
            );
        }
        let (mut resolved, mut key_types) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        for (index, key) in keys.iter().enumerate() {
            if self.is_dynamic(key) {
                return Err(super::aggregations::dynamic_key(name, index, key.span));
            }
            let wanted = prototype.and_then(|(types, first)| Some((types.get(index)?, first)));
            let (mut elements, of) = match self.key_element(key)? {
                KeyElement::Words(words, _, of) => (words, of),
                KeyElement::Value(value) => {
                    let value = self.key_value(name, index, value)?;
                    let of = value.value_type.clone();
                    (vec![value], of)
                }
            };
            if let Some((wanted, first)) = wanted {
                // An integer key has 64 bits, whatever its type. So a key is never cut to the width of the first use.
                let is_right = match (&of, wanted) {
                    (Type::Integer(_), Type::Integer(_) | Type::Pointer(_)) => true,
                    (of, wanted) => of == wanted,
                };
                if !is_right {
                    return Err(key_mismatch(name, index, wanted, &of, key.span)
                        .with_related(first, "its keys were fixed here"));
                }
            }
            resolved.append(&mut elements);
            key_types.push(of);
        }
        Ok((resolved, key_types))
    }

    fn key_value(&mut self, name: &str, index: usize, value: Expression) -> Checked<Expression> {
        let value = memory::readable(memory::decayed(value))?;
        match value.value_type {
            Type::Integer(_) | Type::String => Ok(value),
            Type::Pointer(_) => Ok(convert::to_address(value)),
            ref other => {
                let message = format!("{name}[ ] key #{} has no value: {}", index + 1, types::name(other));
                Err(Diagnostic::new("D_KEY_TYPE", value.span, message))
            }
        }
    }
}

/// The error of a wrong number of keys, for an array and for an aggregation.
pub(super) fn length_mismatch(name: &str, passed: usize, expected: usize, span: Span) -> Diagnostic {
    let plural = if passed == 1 { "" } else { "s" };
    Diagnostic::new(
        "D_PROTO_LEN",
        span,
        format!("{name}[ ] prototype mismatch: {passed} key{plural} passed, {expected} expected"),
    )
}

/// The error of a key whose type differs from the first use.
pub(super) fn key_mismatch(name: &str, index: usize, wanted: &Type, found: &Type, span: Span) -> Diagnostic {
    Diagnostic::new(
        "D_PROTO_ARG",
        span,
        format!(
            "{name}[ ] key #{} is incompatible with prototype: expected {}, found {}",
            index + 1,
            types::name(wanted),
            types::name(found)
        ),
    )
}
