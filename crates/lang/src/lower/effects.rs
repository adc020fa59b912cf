//! Whether an expression may be computed more than once.

use crate::program::{Expression, ExpressionKind, Function, Place, UnaryOperator};

/// Whether computing an expression changes anything, or may yield another result the second time.
pub(crate) fn has_effects(of: &Expression) -> bool {
    match &of.kind {
        ExpressionKind::Integer(_) | ExpressionKind::String(_) | ExpressionKind::Builtin(_) => false,
        ExpressionKind::Assign { .. } | ExpressionKind::AssignOperator { .. } | ExpressionKind::Increment { .. } => {
            true
        }
        ExpressionKind::Register(inner)
        | ExpressionKind::Cast(inner)
        | ExpressionKind::Narrow(inner)
        | ExpressionKind::Load(inner) => has_effects(inner),
        ExpressionKind::Unary { operator, operand } => match operator {
            UnaryOperator::Negate | UnaryOperator::Complement | UnaryOperator::Not => has_effects(operand),
        },
        ExpressionKind::Binary { left, right, .. } | ExpressionKind::Logical { left, right, .. } => {
            has_effects(left) || has_effects(right)
        }
        ExpressionKind::Conditional {
            condition,
            then,
            otherwise,
        } => has_effects(condition) || has_effects(then) || has_effects(otherwise),
        ExpressionKind::Comma { first, second } => has_effects(first) || has_effects(second),
        ExpressionKind::Call { function, arguments } => {
            matches!(
                function,
                Function::Random | Function::StringToken | Function::Allocate | Function::CopyInTo | Function::CopyIn
            ) || arguments.iter().any(has_effects)
        }
        ExpressionKind::Variable(place) => match place {
            Place::Scalar { .. } => false,
            Place::Element { keys, .. } => keys.iter().any(has_effects),
            Place::Field { offset, .. } => has_effects(offset),
            Place::Memory { address, .. } => has_effects(address),
        },
    }
}
