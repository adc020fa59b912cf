//! Structures and arrays: their parts, and the assignment of a whole structure.
//!
//! Where both sides have bytes, these are copied. Otherwise, and where the left side is a part of
//! another structure, the members are assigned one by one:
//!
//! ```text
//! a[k] = s        a.n[k] = s.n, a.row[][k, 0] = s.row[0], ...
//! a[i++] = s      t = i++, and then as above, for a[t]
//! ```

use super::access_path::{Part, Step, is_union, nameless_at, nameless_with, paths};
use super::arithmetic::incompatible;
use super::effects::has_effects;
use super::refusals::{find_member, too_large};
use super::scalarize::no_members;
use super::sequence::{after, assigned_to};
use super::temporaries::Keep;
use super::variables::Variables;
use super::{Lowered, characters, constant, memory, pointers};
use crate::diagnostic::Diagnostic;
use crate::program::{Bits, Expression, ExpressionKind, Found, Place, Scope, Type};
use crate::source::Span;
use crate::types;

/// A structure that was assigned.
pub(crate) struct Assigned {
    /// The expression that assigns it. Its value is not used.
    pub(crate) effect: Expression,
    /// The structure, where it now lies.
    pub(crate) whole: Expression,
}

impl Variables {
    /// A member of a structure. For a bit-field: its unit, and the position of the field in the unit.
    pub(crate) fn member(
        &mut self,
        whole: Expression,
        name: &str,
        found: &Found,
        span: Span,
    ) -> Lowered<(Expression, Option<Bits>)> {
        let of = whole.value_type.clone();
        let (mut whole, mut offset) = (whole, found.offset);
        if let ExpressionKind::Variable(place) = &whole.kind
            && self.held_by_member(place).is_some()
        {
            let place = place.clone();
            match nameless_with(&of, name) {
                _ if is_union(&of) => whole = self.union_copy(&place, &of, span)?,
                Some((at, nameless)) => {
                    let held = self.part(&place, Part::Nameless(at), None, &nameless, span)?;
                    if let ExpressionKind::Variable(place) = held.kind {
                        whole = self.union_copy(&place, &nameless, span)?;
                    }
                    offset -= at;
                }
                None => {
                    let part = Part::Member(name.to_owned());
                    return Ok((self.part(&place, part, None, &found.member_type, span)?, found.bits));
                }
            }
        }
        let offset = constant::integer(offset as i64, constant::UNSIGNED_LONG, span);
        Ok((memory::part(whole, offset, &found.member_type, span)?, found.bits))
    }

    /// A union without a name, found by its offset in a structure.
    fn nameless(&mut self, whole: Expression, at: u64, span: Span) -> Lowered<Expression> {
        let Some(of) = nameless_at(&whole.value_type, at) else {
            return Err(no_members(span));
        };
        if let ExpressionKind::Variable(place) = &whole.kind
            && self.held_by_member(place).is_some()
        {
            return self.part(&place.clone(), Part::Nameless(at), None, &of, span);
        }
        memory::part(
            whole,
            constant::integer(at as i64, constant::UNSIGNED_LONG, span),
            &of,
            span,
        )
    }

    /// An element of an array.
    pub(crate) fn element(&mut self, array: Expression, index: Expression, span: Span) -> Lowered<Expression> {
        let Type::Array { of, count } = array.value_type.clone() else {
            return Err(Diagnostic::new("D_ARR_BADREF", span, "this operand has no elements"));
        };
        if let ExpressionKind::Variable(place) = &array.kind
            && self.held_by_member(place).is_some()
        {
            return self.element_by_member(&place.clone(), index, (&of, count), span);
        }
        let offset = pointers::scaled(index, Some(&of), span)?;
        memory::part(array, offset, &of, span)
    }

    /// The part of a structure that a path leads to. If the structure has a string where the path expects an array,
    /// the part is a character of the string.
    fn along(&mut self, whole: &Expression, way: &[Step], span: Span) -> Lowered<(Expression, Option<Bits>)> {
        let mut found = (whole.clone(), None);
        for step in way {
            let whole = found.0;
            let index = |index: u32| constant::integer(i64::from(index), constant::INT, span);
            found = match (step, &whole.value_type) {
                (Step::Member(name), Type::Structure(structure)) => {
                    let member = find_member(structure, name, span)?;
                    self.member(whole, name, &member, span)?
                }
                (Step::Member(_), _) => return Err(no_members(span)),
                (Step::Nameless(at), _) => (self.nameless(whole, *at, span)?, None),
                (Step::Element(at), Type::String) => (characters::character_at(whole, index(*at), span), None),
                (Step::Element(at), _) => (self.element(whole, index(*at), span)?, None),
            };
        }
        Ok(found)
    }

    /// The operand by another path, which leads to the same place even after members were assigned.
    pub(crate) fn steady(&mut self, found: Expression, before: &mut Option<Expression>) -> Expression {
        let keep = match self.is_steady(&found) {
            true => Keep::Effects,
            false => Keep::All,
        };
        self.repeatable(found, keep, before)
    }

    /// `to = from` of structures of the same type, or `to = 0`, member by member. Neither path has effects.
    pub(crate) fn assign_members(
        &mut self,
        to: &Expression,
        from: Option<&Expression>,
        of: &Type,
        span: Span,
    ) -> Lowered<Expression> {
        let Some(ways) = paths(of) else {
            return Err(too_large(span));
        };
        let mut all = None;
        for way in ways {
            let assigned = self.assign_along(to, from, &way, span)?;
            all = Some(after(all, assigned, span));
        }
        // A structure without members needs no assignment.
        Ok(all.unwrap_or_else(|| constant::integer(0, constant::INT, span)))
    }

    /// `to = from`, or `to = 0`, for the part at the end of a path.
    fn assign_along(
        &mut self,
        to: &Expression,
        from: Option<&Expression>,
        way: &[Step],
        span: Span,
    ) -> Lowered<Expression> {
        let part = self.along(to, way, span)?;
        let value = from.map(|from| self.along(from, way, span)).transpose()?;
        if is_union(&part.0.value_type) {
            return self.assign_union(part.0, value.map(|(value, _)| value), span);
        }
        let value = match value {
            Some((value, bits)) => memory::readable(memory::decayed(memory::placed(value_of(value, bits, span))?))?,
            None => constant::integer(0, constant::INT, span),
        };
        self.assign_part(part, value, span)
    }

    /// Zeros for a whole structure, except for some of its members. Strings become empty.
    pub(crate) fn assign_nothing_but(
        &mut self,
        to: &Expression,
        is_given: &dyn Fn(&str) -> bool,
        span: Span,
    ) -> Lowered<Option<Expression>> {
        let Some(ways) = paths(&to.value_type) else {
            return Err(too_large(span));
        };
        let mut all = None;
        for way in ways {
            if matches!(way.first(), Some(Step::Member(name)) if is_given(name)) {
                continue;
            }
            let (part, bits) = self.along(to, &way, span)?;
            let assigned = match &part.value_type {
                of if is_union(of) => self.assign_union(part, None, span)?,
                Type::String => {
                    let nothing = Expression {
                        kind: ExpressionKind::String(Vec::new()),
                        value_type: Type::String,
                        span,
                    };
                    self.assign_part((part, bits), nothing, span)?
                }
                _ => self.assign_part((part, bits), constant::integer(0, constant::INT, span), span)?,
            };
            all = Some(after(all, assigned, span));
        }
        Ok(all)
    }

    /// `to.name = value`; a structure or an array is assigned member by member.
    pub(crate) fn assign_member(
        &mut self,
        to: &Expression,
        name: &str,
        value: Expression,
        span: Span,
    ) -> Lowered<Expression> {
        let part = self.along(to, &[Step::Member(name.to_owned())], span)?;
        let of = part.0.value_type.clone();
        match types::is_aggregate(&of) {
            // Where a string is assigned to an array of characters, zeros follow the string's end.
            true => self.assign_members(&part.0, Some(&value), &of, span),
            false => {
                let value = memory::readable(memory::decayed(self.placed(value)?))?;
                self.assign_part(part, value, span)
            }
        }
    }

    /// `to = from` of structures. Both paths are evaluated before anything is assigned; the right side comes first.
    pub(crate) fn assign_structure(&mut self, to: Expression, from: Expression, span: Span) -> Lowered<Assigned> {
        if to.value_type != from.value_type {
            let (to, from) = (types::name(&to.value_type), types::name(&from.value_type));
            return Err(incompatible(&to, "=", &from, span));
        }
        let of = to.value_type.clone();
        let mut before = None;
        let (to, from) = match has_effects(&to) || has_effects(&from) {
            true => {
                let from = self.repeatable(from, Keep::All, &mut before);
                (self.repeatable(to, Keep::All, &mut before), from)
            }
            false => {
                let from = self.steady(from, &mut before);
                (self.steady(to, &mut before), from)
            }
        };
        let effect = after(before, self.assign_members(&to, Some(&from), &of, span)?, span);
        Ok(Assigned { effect, whole: to })
    }

    /// `to = 0` of a structure that has its own memory: the assignment frees this memory.
    pub(crate) fn assign_nothing(&mut self, to: Expression, span: Span) -> Lowered<Assigned> {
        let mut before = None;
        let to = self.steady(to, &mut before);
        let of = to.value_type.clone();
        let effect = after(before, self.assign_members(&to, None, &of, span)?, span);
        Ok(Assigned { effect, whole: to })
    }

    /// `variable = from`, where the variable holds the bytes of a structure of the same type.
    pub(crate) fn assign_bytes(&mut self, to: Expression, from: Expression, span: Span) -> Assigned {
        let bytes = memory::bytes_of(from);
        let effect = match &to.kind {
            ExpressionKind::Variable(Place::Field { scope, variable, .. }) => {
                let (scope, variable) = (*scope, *variable);
                assigned_to(Place::Scalar { scope, variable }, bytes, span)
            }
            _ => bytes,
        };
        Assigned { effect, whole: to }
    }
}

/// Whether assigning 0 frees the memory of a variable or an element.
pub(crate) fn is_dynamic(place: &Place) -> bool {
    match place {
        Place::Scalar { scope, .. } => *scope == Scope::ThreadLocal,
        Place::Element { .. } => true,
        Place::Field { .. } | Place::Memory { .. } => false,
    }
}

/// The value of an operand, or of a bit-field in it.
pub(crate) fn value_of(unit: Expression, bits: Option<Bits>, span: Span) -> Expression {
    let Some(bits) = bits else { return unit };
    let names = unit.value_type.clone();
    let value = memory::extract(memory::decayed(unit), bits, span);
    match &names {
        Type::Foreign(foreign) => super::enumerations::of_enumeration(value, foreign),
        _ => value,
    }
}
