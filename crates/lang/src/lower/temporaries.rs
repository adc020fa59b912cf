//! Temporaries: values that are computed once and named several times.
//!
//! ```text
//! x[i++] = y      for structures member by member:    t = i++, x[t].a = y.a, x[t].b = y.b
//! s[i++] = f(i)   for a character:                    u = f(i), t = i++, s[t] = u
//! ```
//!
//! In the program they are variables of the clause. No text can name them, and nothing looks them up
//! by name.

use super::effects::has_effects;
use super::sequence::{after, assigned_to, reading};
use super::variables::{Purpose, Variables};
use super::{Lowered, constant, memory};
use crate::program::{Expression, ExpressionKind, Place, Scope, Type, Variable, VariableId};

impl Purpose {
    /// A name in the printed program. No text can spell it.
    fn name(self) -> String {
        match self {
            Purpose::Error => "%error".to_owned(),
            Purpose::Condition(number) => format!("%condition_{number}"),
            Purpose::Text => "%text".to_owned(),
            Purpose::Size => "%size".to_owned(),
            Purpose::Token => "%strtok".to_owned(),
            Purpose::TokenGiven => "%strtok given".to_owned(),
            Purpose::Characters => "%characters".to_owned(),
            Purpose::CopyText => "%bcopy text".to_owned(),
            Purpose::CopySource => "%bcopy source".to_owned(),
            Purpose::CopyDestination => "%bcopy destination".to_owned(),
            Purpose::CopySize => "%bcopy size".to_owned(),
        }
    }
}

/// Which parts of a path temporaries keep.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Parts that have effects.
    Effects,
    /// All parts that are not constant: they may change while the path is followed several times.
    All,
}

impl Variables {
    /// The temporary that all uses with this purpose share.
    pub(crate) fn shared(&mut self, purpose: Purpose, value_type: Type) -> Place {
        let variable = match self.shared.get(&purpose) {
            Some(known) => *known,
            None => {
                let id = self.unnamed(purpose.name(), value_type);
                self.shared.insert(purpose, id);
                id
            }
        };
        let scope = Scope::ClauseLocal;
        Place::Scalar { scope, variable }
    }

    /// A new temporary.
    pub(super) fn temporary(&mut self, value_type: Type) -> VariableId {
        let name = format!("%{}", self.count(Scope::ClauseLocal));
        self.unnamed(name, value_type)
    }

    fn unnamed(&mut self, name: String, value_type: Type) -> VariableId {
        let variable = Variable {
            name,
            value_type,
            keys: None,
        };
        self.add(Scope::ClauseLocal, variable)
    }

    /// A new temporary that holds a structure or an array, in this many bytes.
    pub(super) fn temporary_structure(&mut self, of: &Type, bytes: Type) -> VariableId {
        let id = self.temporary(bytes);
        self.hold((Scope::ClauseLocal, id), of.clone());
        id
    }

    /// A value that is computed once, after `before`, so that it can be read several times. A constant
    /// stays a constant.
    pub(crate) fn kept(&mut self, value: Expression, before: &mut Option<Expression>) -> Expression {
        if constant::value(&value).is_some() || matches!(value.kind, ExpressionKind::String(_)) {
            return value;
        }
        let (value_type, span) = (value.value_type.clone(), value.span);
        let (scope, variable) = (Scope::ClauseLocal, self.temporary(value_type.clone()));
        let place = Place::Scalar { scope, variable };
        *before = Some(after(before.take(), assigned_to(place.clone(), value, span), span));
        reading(place, value_type, span)
    }

    /// As [`Variables::kept`], but only if computing the value has effects.
    pub(super) fn kept_if_effects(&mut self, value: Expression, before: &mut Option<Expression>) -> Expression {
        match has_effects(&value) {
            true => self.kept(value, before),
            false => value,
        }
    }

    /// An operand with its present value: a value, or a copy of a structure. An array stays where it lies.
    pub(crate) fn kept_operand(&mut self, found: Expression, before: &mut Option<Expression>) -> Lowered<Expression> {
        if matches!(found.value_type, Type::Structure(_)) {
            let of = found.value_type.clone();
            let bytes = self.bytes(found)?;
            return Ok(self.copied(bytes, &of, before));
        }
        let value = memory::readable(memory::decayed(memory::placed(found)?))?;
        let is_value = matches!(value.value_type, Type::Integer(_) | Type::Pointer(_) | Type::String);
        Ok(match is_value {
            true => self.kept(value, before),
            false => value,
        })
    }

    /// A copy of a structure, which is made after `before`.
    pub(crate) fn copied(&mut self, bytes: Expression, of: &Type, before: &mut Option<Expression>) -> Expression {
        let (scope, span) = (Scope::ClauseLocal, bytes.span);
        let variable = self.temporary_structure(of, bytes.value_type.clone());
        self.copies.insert(variable);
        let copied = assigned_to(Place::Scalar { scope, variable }, bytes, span);
        *before = Some(after(before.take(), copied, span));
        memory::start_of((scope, variable), of.clone(), span)
    }

    /// Whether an address lies in a copy of a structure.
    pub(super) fn is_of_copy(&self, address: &Expression) -> bool {
        match &address.kind {
            ExpressionKind::Cast(inner) | ExpressionKind::Comma { second: inner, .. } => self.is_of_copy(inner),
            ExpressionKind::Binary { left, right, .. } => self.is_of_copy(left) || self.is_of_copy(right),
            ExpressionKind::Variable(Place::Scalar { scope, variable }) => {
                *scope == Scope::ClauseLocal && self.copies.contains(variable)
            }
            _ => false,
        }
    }

    /// The same operand, by a path that can be followed several times. The kept parts of the path are
    /// computed after `before`.
    pub(crate) fn repeatable(&mut self, found: Expression, keep: Keep, before: &mut Option<Expression>) -> Expression {
        let kind = match found.kind {
            ExpressionKind::Variable(place) => ExpressionKind::Variable(self.repeatable_place(&place, keep, before)),
            ExpressionKind::Load(address) => ExpressionKind::Load(Box::new(self.kept_way(*address, keep, before))),
            ExpressionKind::Comma { first, second } => {
                *before = Some(after(before.take(), *first, found.span));
                return self.repeatable(*second, keep, before);
            }
            other => other,
        };
        Expression { kind, ..found }
    }

    /// As [`Variables::repeatable`], for a place.
    pub(crate) fn repeatable_place(&mut self, place: &Place, keep: Keep, before: &mut Option<Expression>) -> Place {
        let mut place = place.clone();
        match &mut place {
            Place::Scalar { .. } => {}
            Place::Element { keys, .. } => {
                // Either all keys are kept or none: a later key may change an earlier one.
                let any = keep == Keep::All || keys.iter().any(has_effects);
                for key in keys.iter_mut().filter(|_| any) {
                    *key = self.kept(key.clone(), before);
                }
            }
            Place::Field { offset: way, .. } | Place::Memory { address: way, .. } => {
                **way = self.kept_way((**way).clone(), keep, before);
            }
        }
        place
    }

    fn kept_way(&mut self, value: Expression, keep: Keep, before: &mut Option<Expression>) -> Expression {
        match keep {
            Keep::All => self.kept(value, before),
            Keep::Effects => self.kept_if_effects(value, before),
        }
    }

    /// Whether following a path twice leads to the same place, whatever is stored in members and
    /// memory in between.
    pub(super) fn is_steady(&self, found: &Expression) -> bool {
        let is_fixed = |value: &Expression| self.is_fixed(value);
        match &found.kind {
            ExpressionKind::Variable(Place::Scalar { .. }) => true,
            ExpressionKind::Variable(Place::Element { keys, .. }) => keys.iter().all(is_fixed),
            ExpressionKind::Variable(Place::Field { offset: way, .. } | Place::Memory { address: way, .. })
            | ExpressionKind::Load(way) => is_fixed(way),
            _ => true,
        }
    }

    /// Whether no store to a member or to memory changes a value.
    fn is_fixed(&self, value: &Expression) -> bool {
        match &value.kind {
            ExpressionKind::Variable(Place::Scalar { scope, variable }) => !self.is_part.contains(&(*scope, *variable)),
            ExpressionKind::Variable(_) | ExpressionKind::Load(_) => false,
            _ => value.operands().into_iter().all(|operand| self.is_fixed(operand)),
        }
    }
}
