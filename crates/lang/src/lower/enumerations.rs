//! Values of enumerations of the traced program.

use crate::program::{Expression, Foreign, Type};

/// An integer as a value of an enumeration, for `print()`. Operators take it as an
/// integer again ([`decayed`]).
pub(crate) fn of_enumeration(value: Expression, foreign: &Foreign) -> Expression {
    Expression {
        value_type: Type::Foreign(foreign.clone()),
        ..value
    }
}
