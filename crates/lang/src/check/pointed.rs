//! `print()` of a pointer shows the value at the pointer.

use super::{Checked, Checker};
use crate::lower::effects::has_effects;
use crate::lower::pointers;
use crate::program::{Expression, Type, size_of};
use crate::syntax::{Node, NodeKind};

impl Checker {
    /// The value that a pointer points to, and its type. `None`: the type has no size, or
    /// the pointer has effects or is not a plain expression.
    pub(super) fn pointed_value(&mut self, node: &Node, pointer: &Expression) -> Checked<Option<(Expression, Type)>> {
        const BYTES_MAX: u64 = 64 << 10;
        let Type::Pointer(Some(to)) = &pointer.value_type else {
            return Ok(None);
        };
        let has_size = size_of(to).is_some_and(|size| (1..=BYTES_MAX).contains(&size));
        if !has_size || **to == Type::String || !is_plain(node) || has_effects(pointer) {
            return Ok(None);
        }
        let there = pointers::dereference(pointer.clone(), node.span)?;
        let of = there.value_type.clone();
        let value = self.variables.bytes(there)?;
        let is_value = matches!(
            value.value_type,
            Type::Integer(_) | Type::Pointer(_) | Type::Bytes { size: Some(_) }
        );
        Ok(is_value.then_some((value, of)))
    }
}

/// Whether the expression holds neither an assignment nor a conditional.
fn is_plain(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Integer(_) | NodeKind::String(_) | NodeKind::Identifier(_) | NodeKind::Local { .. } => true,
        NodeKind::Member { base, .. } => is_plain(base),
        NodeKind::Index { base, indices } => is_plain(base) && indices.iter().all(is_plain),
        NodeKind::Unary { operand, .. } | NodeKind::Cast { operand, .. } => is_plain(operand),
        NodeKind::Binary { left, right, .. } => is_plain(left) && is_plain(right),
        NodeKind::Call { arguments, .. } => arguments.iter().all(is_plain),
        _ => false,
    }
}
