//! Keys and indices that are computed once, where what they lead to is named several times.
//!
//! ```text
//! x[i++] = y      of structures member by member:    this->k = i++, x[this->k].a = y.a, x[this->k].b = y.b
//! s[i++] = f(i)   of a character:                    this->v = f(i), this->k = i++, s[this->k] = this->v
//! ```

use super::{Resolve, Resolver, scalarize};
use crate::lower::effects::has_effects;
use crate::lower::sequence::{assigned_to, behind, reading};
use crate::lower::{constant, memory};
use crate::program::{Expression, ExpressionKind, Place, Type};
use crate::source::Span;
use crate::syntax::{LocalScope, Node, NodeKind};

impl Resolver {
    /// Whether a node may be resolved, and what it yields be computed, more than once.
    pub(super) fn may_be_repeated(&mut self, node: &Node) -> Resolve<bool> {
        Ok(scalarize::is_plain(node) && !has_effects(&self.operand(node)?))
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
        let (found, span) = (self.operand(node)?, node.span);
        if matches!(found.value_type, Type::Structure(_)) {
            let of = found.value_type.clone();
            let bytes = match self.gathered(node, &found)? {
                Some(gathered) => gathered,
                None => memory::bytes_of(memory::placed(found)?),
            };
            return Ok(self.structure_copy(bytes, &of, before)?.0);
        }
        let value = memory::readable(memory::decayed(memory::placed(found)?))?;
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

    /// A place, to be named more than once: what has effects on the way to it is kept, and assigned behind `before`.
    pub(super) fn with_kept_effects(&mut self, place: &Place, before: &mut Option<Expression>) -> Place {
        let mut place = place.clone();
        match &mut place {
            Place::Scalar { .. } => {}
            Place::Element { keys, .. } => {
                // In their order: one that has no effects may be changed by one behind it.
                let any = keys.iter().any(has_effects);
                for key in keys.iter_mut().filter(|key| any && constant::value(key).is_none()) {
                    *key = self.kept_in_variable(key.clone(), before);
                }
            }
            Place::Field { offset, .. } => **offset = self.kept_value((**offset).clone(), before),
            Place::Memory { address, .. } => **address = self.kept_value((**address).clone(), before),
        }
        place
    }

    /// A value, kept where computing it has effects.
    pub(super) fn kept_value(&mut self, value: Expression, before: &mut Option<Expression>) -> Expression {
        match has_effects(&value) {
            true => self.kept_in_variable(value, before),
            false => value,
        }
    }

    fn kept_in_variable(&mut self, value: Expression, before: &mut Option<Expression>) -> Expression {
        let (value_type, span) = (value.value_type.clone(), value.span);
        let kept = self.unnamed_for("%key", &value_type, span);
        *before = Some(behind(before.take(), assigned_to(kept.clone(), value, span), span));
        reading(kept, value_type, span)
    }

    /// A new variable of the clause's, of a name that no program can spell.
    pub(super) fn unnamed_for(&mut self, what: &str, value_type: &Type, span: Span) -> Place {
        let name = format!("{what}{}", self.program.clause_locals.len());
        self.unnamed(&name, value_type.clone(), span)
    }
}
