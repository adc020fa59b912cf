//! Variables that no declaration names hold 64 bits, whatever type their first assignment gives them.
//!
//! `start = 0;` makes `start` an `int`. Scripts then assign `timestamp` to it, and subtract: in illumos, FreeBSD and macOS
//! a store into a variable casts nothing, and the type only says how a value is recorded. In DTrace for Linux, as in C, it is
//! cut; so it is here, too, where the text declares the variable and so asks for that width.

use super::Resolver;
use crate::lower::convert;
use crate::program::{Expression, IntegerType, Place, Scope, Type, Variable, VariableId};

/// The type in which a variable is held whose first assignment gives it another: of 64 bits, with the same sign.
pub(super) fn held(named: &Type) -> Option<(Type, IntegerType)> {
    match named {
        Type::Integer(of) if of.bytes < 8 => Some((Type::Integer(IntegerType { bytes: 8, ..*of }), *of)),
        _ => None,
    }
}

impl Resolver {
    /// The type that the text knows of what is held in 64 bits.
    pub(super) fn named_type(&self, place: &Place) -> Option<IntegerType> {
        match place {
            Place::Scalar { scope, variable } | Place::Element { scope, variable, .. } => {
                self.wide.get(&(*scope, *variable)).copied()
            }
            Place::Field { .. } | Place::Memory { .. } => None,
        }
    }

    /// A value of a place, or what was assigned to it, with the type that the text knows; operators take all of it.
    pub(super) fn as_named(&self, value: Expression, place: &Place) -> Expression {
        match self.named_type(place) {
            Some(named) => convert::narrow(value, named),
            None => value,
        }
    }

    /// A variable as the text knows it.
    pub(super) fn named_variable(&self, scope: Scope, id: VariableId) -> Option<Variable> {
        let mut variable = self.variable(scope, id)?.clone();
        if let Some(named) = self.wide.get(&(scope, id)) {
            variable.value_type = Type::Integer(*named);
        }
        Some(variable)
    }
}
