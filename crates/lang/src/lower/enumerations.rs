//! Values of enumerations of the traced program.

use crate::program::{Expression, Foreign, Type};

/// Turns an integer into a value of an enumeration, for `print()`. [`decayed`] turns it back into an
/// integer for operators.
pub(crate) fn of_enumeration(value: Expression, foreign: &Foreign) -> Expression {
    Expression {
        value_type: Type::Foreign(foreign.clone()),
        ..value
    }
}
