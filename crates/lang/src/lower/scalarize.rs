//! Variables whose structures are stored member by member: those in associative arrays, and those
//! with strings in them.
//!
//! ```text
//! struct { int n; string s; } a[int];      the variables   int a.n[int]; string a.s[int];
//! a[k].n = 1                               the element [k] of `a.n`
//! struct { int row[4]; } b[int];           b[k].row[i] is the element [k, i] of the variable b.row[]
//! ```
//!
//! The variable `a` itself holds nothing, and no operation uses its type. Its parts are found by their
//! path ([`Part`]), not by a name. Such a structure has no bytes as a whole. Where its bytes are
//! required (`print()`, `trace()`), they are gathered in a temporary.

use super::access_path::{Part, is_union};
use super::refusals::unsupported;
use super::sequence::{after, reading};
use super::variables::Variables;
use super::{Lowered, constant, convert, memory};
use crate::diagnostic::Diagnostic;
use crate::program::{
    BinaryOperator, Expression, ExpressionKind, Place, Scope, Type, Variable, VariableId, holds_strings,
};
use crate::source::Span;

/// The limit for the depth, and for the number of members, of the search for unions.
const NESTING_MAX: u32 = 32;
const STRUCTURES_MAX: u32 = 4096;

/// Whether a variable of this type is stored member by member.
pub(crate) fn is_by_member(of: &Type, element: bool, span: Span) -> Lowered<bool> {
    if !matches!(of, Type::Structure(_) | Type::Array { .. }) || !(element || holds_strings(of)) {
        return Ok(false);
    }
    if holds_unions_of_strings(of, NESTING_MAX, &mut STRUCTURES_MAX.clone()) {
        let what = "a union with strings in it";
        return Err(unsupported("N_STRUCT", what, span));
    }
    Ok(true)
}

impl Variables {
    /// Makes a variable that is stored member by member.
    pub(crate) fn define_by_member(
        &mut self,
        scope: Scope,
        name: &str,
        (of, keys): (&Type, Option<Vec<Type>>),
        span: Span,
    ) -> VariableId {
        let variable = Variable {
            name: name.to_owned(),
            value_type: Type::Bytes { size: None },
            keys,
        };
        let id = self.define(scope, variable, span);
        self.by_member.insert((scope, id), of.clone());
        id
    }

    /// Whether an operand is stored member by member.
    pub(crate) fn is_held_by_member(&self, found: &Expression) -> bool {
        matches!(&found.kind, ExpressionKind::Variable(place) if self.held_by_member(place).is_some())
    }

    /// An element of an array that is stored member by member.
    pub(super) fn element_by_member(
        &mut self,
        whole: &Place,
        index: Expression,
        (of, count): (&Type, u32),
        span: Span,
    ) -> Lowered<Expression> {
        let index = convert::to_integer(convert::uncut(index), constant::LONG);
        let index = self.within(index, count, span);
        self.part(whole, Part::Elements, Some(index), of, span)
    }

    /// The variable that holds a part of an operand that is stored member by member.
    pub(super) fn part(
        &mut self,
        whole: &Place,
        part: Part,
        index: Option<Expression>,
        of: &Type,
        span: Span,
    ) -> Lowered<Expression> {
        let (scope, outer, mut keys) = match whole {
            Place::Scalar { scope, variable } => (*scope, *variable, None),
            Place::Element { scope, variable, keys } => (*scope, *variable, Some(keys.clone())),
            Place::Field { .. } | Place::Memory { .. } => return Err(no_members(span)),
        };
        if let Some(index) = index {
            if scope == Scope::ClauseLocal {
                let what = "a this-> variable with an array and a string in one structure";
                return Err(unsupported("N_STRUCT", what, span));
            }
            keys.get_or_insert_default().push(index);
        }
        let Some(variable) = self.part_variable((scope, outer), part, of) else {
            return Err(no_members(span));
        };
        let place = match keys {
            None => Place::Scalar { scope, variable },
            Some(keys) => Place::Element { scope, variable, keys },
        };
        Ok(reading(place, of.clone(), span))
    }

    /// The variable that holds a part of another.
    pub(super) fn part_variable(&mut self, home: (Scope, VariableId), part: Part, of: &Type) -> Option<VariableId> {
        if let Some(known) = self.parts.get(&(home, part.clone())) {
            return Some(*known);
        }
        let outer = self.get(home)?;
        let name = part.name_in(&outer.name);
        let mut keys = outer.keys.clone();
        if matches!(part, Part::Elements | Part::Words) {
            keys.get_or_insert_default().push(Type::I64);
        }
        let is_structure = matches!(of, Type::Structure(_) | Type::Array { .. });
        let value_type = match is_structure {
            true => Type::Bytes { size: None },
            false => memory::held(of),
        };
        let variable = Variable { name, value_type, keys };
        let id = self.add(home.0, variable);
        if is_structure {
            self.by_member.insert((home.0, id), of.clone());
        }
        self.is_part.insert((home.0, id));
        self.parts.insert((home, part), id);
        Some(id)
    }

    /// An index. If the array has no such element, computing it faults as a bad address.
    fn within(&mut self, index: Expression, count: u32, span: Span) -> Expression {
        if constant::value(&index).is_some() {
            return index;
        }
        let mut before = None;
        let index = match is_simple(&index) {
            true => index,
            false => self.kept(index, &mut before),
        };
        let limit = constant::integer(i64::from(count), constant::UNSIGNED_LONG, span);
        let inside = Expression {
            kind: ExpressionKind::Binary {
                operator: BinaryOperator::Less,
                left: Box::new(convert::to_address(index.clone())),
                right: Box::new(limit),
            },
            value_type: Type::I32,
            span,
        };
        let nowhere = constant::integer(0, constant::UNSIGNED_LONG, span);
        let chosen = Expression {
            kind: ExpressionKind::Conditional {
                condition: Box::new(inside),
                then: Box::new(index),
                otherwise: Box::new(convert::load(nowhere, &Type::I64, span)),
            },
            value_type: Type::I64,
            span,
        };
        after(before, chosen, span)
    }

    /// The bytes of a structure or an array that is stored member by member, gathered in a temporary. `None`: it is not
    /// stored member by member.
    pub(crate) fn gathered(&mut self, found: &Expression) -> Lowered<Option<Expression>> {
        let (of, span) = (&found.value_type, found.span);
        if let ExpressionKind::Comma { first, second } = &found.kind {
            let gathered = self.gathered(second)?;
            return Ok(gathered.map(|gathered| after(Some((**first).clone()), gathered, span)));
        }
        if !self.is_held_by_member(found) || holds_strings(of) {
            return Ok(None);
        }
        let Some(bytes) = memory::bytes_for(of, span)? else {
            return Ok(None);
        };
        let mut before = None;
        let from = self.steady(found.clone(), &mut before);
        let scope = Scope::ClauseLocal;
        let variable = self.temporary_structure(of, bytes.clone());
        let to = memory::start_of((scope, variable), of.clone(), span);
        let filled = self.assign_members(&to, Some(&from), of, span)?;
        let whole = reading(Place::Scalar { scope, variable }, bytes, span);
        Ok(Some(after(Some(after(before, filled, span)), whole, span)))
    }

    /// The bytes of a structure or an array; otherwise the value.
    pub(crate) fn bytes(&mut self, found: Expression) -> Lowered<Expression> {
        match self.gathered(&found)? {
            Some(gathered) => Ok(gathered),
            None => Ok(memory::bytes_of(memory::placed(found)?)),
        }
    }

    /// The operand, in a form that has a place. An array that is stored member by member has no place, so it is copied.
    pub(crate) fn placed(&mut self, found: Expression) -> Lowered<Expression> {
        if matches!(found.value_type, Type::Array { .. })
            && let Some(gathered) = self.gathered(&found)?
        {
            let mut before = None;
            let span = found.span;
            let copy = self.copied(gathered, &found.value_type, &mut before);
            return Ok(after(before, copy, span));
        }
        memory::placed(found)
    }
}

/// Whether the expression is so simple that it may be computed twice.
fn is_simple(index: &Expression) -> bool {
    match &index.kind {
        ExpressionKind::Variable(Place::Scalar { .. }) | ExpressionKind::Builtin(_) => true,
        ExpressionKind::Cast(inner) | ExpressionKind::Narrow(inner) => is_simple(inner),
        _ => false,
    }
}

/// Whether a type holds unions that contain strings. The types of a damaged program may be circular.
fn holds_unions_of_strings(of: &Type, depth: u32, left: &mut u32) -> bool {
    match of {
        Type::Array { of, .. } => holds_unions_of_strings(of, depth, left),
        Type::Structure(structure) => {
            if is_union(of) {
                return holds_strings(of);
            }
            let members = structure.body().map(|body| body.members.as_slice()).unwrap_or_default();
            if depth == 0 || *left == 0 {
                return true;
            }
            *left -= 1;
            members
                .iter()
                .any(|member| holds_unions_of_strings(&member.member_type, depth - 1, left))
        }
        _ => false,
    }
}

pub(super) fn no_members(span: Span) -> Diagnostic {
    Diagnostic::new("D_OP_LVAL", span, "this operand has no members that can be named")
}
