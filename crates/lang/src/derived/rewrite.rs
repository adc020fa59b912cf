//! Replaces parts of an expression.

use crate::syntax::{Node, NodeKind};

/// The expression with some of its parts replaced: those for which `replacement` has another. A replacement is not
/// searched again.
pub(super) fn replaced(node: &Node, replacement: &dyn Fn(&Node) -> Option<Node>) -> Node {
    if let Some(other) = replacement(node) {
        return other;
    }
    let one = |inner: &Node| Box::new(replaced(inner, replacement));
    let many = |inner: &[Node]| inner.iter().map(|node| replaced(node, replacement)).collect();
    let kind = match &node.kind {
        NodeKind::Identifier(_)
        | NodeKind::Local { .. }
        | NodeKind::Aggregation(_)
        | NodeKind::Integer(_)
        | NodeKind::String(_)
        | NodeKind::SizeofType(_)
        | NodeKind::Alignof(_)
        | NodeKind::Offsetof(..) => node.kind.clone(),
        NodeKind::Call { function, arguments } => NodeKind::Call {
            function: one(function),
            arguments: many(arguments),
        },
        NodeKind::Index { base, indices } => NodeKind::Index {
            base: one(base),
            indices: many(indices),
        },
        NodeKind::Member { base, name, arrow } => NodeKind::Member {
            base: one(base),
            name: name.clone(),
            arrow: *arrow,
        },
        NodeKind::Unary { operator, operand } => NodeKind::Unary {
            operator: *operator,
            operand: one(operand),
        },
        NodeKind::Increment { operand, delta, post } => NodeKind::Increment {
            operand: one(operand),
            delta: *delta,
            post: *post,
        },
        NodeKind::Binary { operator, left, right } => NodeKind::Binary {
            operator: *operator,
            left: one(left),
            right: one(right),
        },
        NodeKind::Logical { operator, left, right } => NodeKind::Logical {
            operator: *operator,
            left: one(left),
            right: one(right),
        },
        NodeKind::Conditional {
            condition,
            then,
            otherwise,
        } => NodeKind::Conditional {
            condition: one(condition),
            then: one(then),
            otherwise: one(otherwise),
        },
        NodeKind::Assign { operator, left, right } => NodeKind::Assign {
            operator: *operator,
            left: one(left),
            right: one(right),
        },
        NodeKind::Comma { first, second } => NodeKind::Comma {
            first: one(first),
            second: one(second),
        },
        NodeKind::Cast { to, operand } => NodeKind::Cast {
            to: to.clone(),
            operand: one(operand),
        },
        NodeKind::Sizeof(operand) => NodeKind::Sizeof(one(operand)),
        NodeKind::Stringof(operand) => NodeKind::Stringof(one(operand)),
        NodeKind::Translate { to, operand } => NodeKind::Translate {
            to: to.clone(),
            operand: one(operand),
        },
    };
    Node::new(kind, node.span)
}
