//! Types of the traced program that D's own types cannot express: enumerations with their names,
//! floating point, and types known only by their size.
//!
//! An operation on a value of an enumeration takes the value as an integer. Actions that print use the
//! names: `trace()`, `print()`, `%s`, keys of aggregations. The other foreign types have no values,
//! only a place in structures, and bytes that can be printed.
//!
//! [`ForeignKind::Named`] is only for `print()`: a type under its name in the source. No value has this type.

use std::sync::Arc;

use super::{IntegerType, Type, size_of};

/// A foreign type. See the module's description.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Foreign(Arc<Definition>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Definition {
    name: String,
    kind: ForeignKind,
}

/// The kinds of foreign types.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ForeignKind {
    Enumeration {
        /// The integer type of the enumeration's values.
        integer: IntegerType,
        /// The enumerators, in the order of the source.
        names: Vec<(String, i64)>,
    },
    /// `float`, `double`, `long double`: the size in bytes.
    Floating(u32),
    /// Another type, with its size in bytes.
    Opaque(u32),
    /// A type under another name: a typedef, `unsigned long`.
    Named(Box<Type>),
}

impl Foreign {
    /// A type with its name as the source has it: `enum color`, `double`.
    #[must_use]
    pub fn new(name: String, kind: ForeignKind) -> Foreign {
        Foreign(Arc::new(Definition { name, kind }))
    }

    /// The type's name: `enum color`, `double`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    #[must_use]
    pub fn kind(&self) -> &ForeignKind {
        &self.0.kind
    }

    /// A type under another name, for printing.
    #[must_use]
    pub fn named(name: impl Into<String>, of: Type) -> Type {
        Type::Foreign(Foreign::new(name.into(), ForeignKind::Named(Box::new(of))))
    }

    /// The type of the values, if this is an enumeration.
    #[must_use]
    pub fn integer(&self) -> Option<IntegerType> {
        match self.0.kind {
            ForeignKind::Enumeration { integer, .. } => Some(integer),
            _ => None,
        }
    }

    /// This enumeration, with values of another size (those of a bit-field).
    #[must_use]
    pub fn held_in(&self, integer: IntegerType) -> Option<Foreign> {
        match &self.0.kind {
            ForeignKind::Enumeration { integer: own, .. } if *own == integer => Some(self.clone()),
            ForeignKind::Enumeration { names, .. } => {
                let names = names.clone();
                Some(Foreign::new(
                    self.0.name.clone(),
                    ForeignKind::Enumeration { integer, names },
                ))
            }
            _ => None,
        }
    }

    /// A value of the type as its 64 bits.
    #[must_use]
    pub fn normalised(&self, value: i64) -> i64 {
        self.integer()
            .map_or(value, |integer| crate::types::normalise(value, integer))
    }

    /// The first enumerator with this value.
    #[must_use]
    pub fn enumerator(&self, value: i64) -> Option<&str> {
        let ForeignKind::Enumeration { names, .. } = &self.0.kind else {
            return None;
        };
        names.iter().find(|(_, of)| *of == value).map(|(name, _)| name.as_str())
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.0.kind {
            ForeignKind::Enumeration { integer, .. } => u64::from(integer.bytes),
            ForeignKind::Floating(bytes) | ForeignKind::Opaque(bytes) => u64::from(*bytes),
            ForeignKind::Named(of) => size_of(of).unwrap_or(0),
        }
    }
}
