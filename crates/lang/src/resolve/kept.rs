//! Keys and indices that are computed once, where what they lead to is named several times.
//!
//! ```text
//! x[i++] = y      of structures member by member:    this->k = i++, x[this->k].a = y.a, x[this->k].b = y.b
//! s[i++] = f(i)   of a character:                    this->v = f(i), this->k = i++, s[this->k] = this->v
//! ```

use super::assignment::behind;
use super::bit_fields::has_effects;
use super::{Resolve, Resolver, constant, spread};
use crate::program::{Expression, ExpressionKind, Type};
use crate::syntax::{LocalScope, Node, NodeKind};

impl Resolver {
    /// Whether a node may be resolved, and what it yields be computed, more than once.
    pub(super) fn may_be_repeated(&mut self, node: &Node) -> Resolve<bool> {
        Ok(spread::is_plain(node) && !has_effects(&self.operand(node)?))
    }

    /// A way to a value whose keys and indices are kept in variables of the clause's; they are assigned behind `before`.
    pub(super) fn with_kept_keys(&mut self, node: &Node, before: &mut Option<Expression>) -> Resolve<Node> {
        let kind = match &node.kind {
            NodeKind::Member {
                base,
                name,
                arrow: false,
            } => NodeKind::Member {
                base: Box::new(self.with_kept_keys(base, before)?),
                name: name.clone(),
                arrow: false,
            },
            NodeKind::Index { base, indices } => {
                let base = Box::new(self.with_kept_keys(base, before)?);
                let mut kept = Vec::with_capacity(indices.len());
                for index in indices {
                    kept.push(self.kept(index, before)?);
                }
                NodeKind::Index { base, indices: kept }
            }
            _ => return Ok(node.clone()),
        };
        Ok(Node::new(kind, node.span))
    }

    /// A value that is kept in a variable of the clause's; a constant stays what it is.
    pub(super) fn kept(&mut self, node: &Node, before: &mut Option<Expression>) -> Resolve<Node> {
        let (value, span) = (self.expression(node)?, node.span);
        let is_value = matches!(value.value_type, Type::Integer(_) | Type::Pointer(_) | Type::String);
        if !is_value || constant::value(&value).is_some() {
            return Ok(node.clone());
        }
        // No name that a program can spell.
        let name = format!("%kept{}", self.program.clause_locals.len());
        let value_type = value.value_type.clone();
        let place = self.unnamed(&name, value_type.clone(), span);
        let kind = ExpressionKind::Assign {
            place,
            value: Box::new(value),
        };
        let assigned = Expression { kind, value_type, span };
        *before = Some(behind(before.take(), assigned, span));
        let scope = LocalScope::Clause;
        Ok(Node::new(NodeKind::Local { scope, name }, span))
    }
}
