//! Unions of what is held member by member ([`super::scalarize`]).
//!
//! The members of a union share their bytes, so they cannot be variables of their own. Its words are:
//!
//! ```text
//! union { int i; char c[12]; } x[int];        the variable   uint64_t x{}[int, int64_t];
//! x[k].c[3]          u = a copy of x{}[k, 0] and x{}[k, 1], u.c[3]          u: a variable of the clause's
//! x[k].c[3] = 'a'    the same, u.c[3] = 'a', and the words back
//! ```
//!
//! The copy is made where the place is evaluated, by the offset in it: behind the value that is assigned.

use super::{Resolve, Resolver};
use crate::diagnostic::Diagnostic;
use crate::lower::effects::has_effects;
use crate::lower::refusals::{twice, unsupported};
use crate::lower::sequence::{assigned_to as assign, behind, reading as read};
use crate::lower::{arithmetic, constant, convert, memory};
use crate::program::{
    BinaryOperator, Expression, ExpressionKind, Found, IntegerType, Place, Scope, Type, Variable, VariableId, size_of,
};
use crate::source::Span;
use crate::syntax::Node;

/// Words of a union that is held so, at most.
const WORDS_MAX: u64 = 16;

/// Whether the same bytes are part of it by several names.
pub(super) fn is_union(of: &Type) -> bool {
    match of {
        Type::Structure(structure) => {
            structure.name().starts_with("union") && structure.body().is_some_and(|body| body.members.len() > 1)
        }
        _ => false,
    }
}

/// How deep members without names are looked into.
const DEPTH_MAX: u32 = 32;

/// A name for a union that has none, by where it begins in the structure around it. No text can spell it.
pub(super) fn nameless_name(offset: u64) -> String {
    format!("%{offset}")
}

/// The union that has this name.
pub(super) fn nameless_at(of: &Type, name: &str) -> Option<Found> {
    let wanted: u64 = name.strip_prefix('%')?.parse().ok()?;
    let (offset, member_type) = nameless(of, 0, DEPTH_MAX, &|offset, _| offset == wanted)?;
    Some(Found {
        member_type,
        offset,
        bits: None,
        shown: None,
    })
}

/// The union without a name that a member of a structure is in, and where it begins.
pub(super) fn nameless_with(of: &Type, name: &str) -> Option<(u64, Type)> {
    nameless(of, 0, DEPTH_MAX, &|_, found| match found {
        Type::Structure(structure) => structure.member(name).is_some(),
        _ => false,
    })
}

fn nameless(of: &Type, start: u64, depth: u32, is_wanted: &dyn Fn(u64, &Type) -> bool) -> Option<(u64, Type)> {
    let Type::Structure(structure) = of else { return None };
    let members = structure.body()?.members.iter();
    let depth = depth.checked_sub(1)?;
    members.filter(|member| member.name.is_empty()).find_map(|member| {
        let start = start + member.offset;
        match is_union(&member.member_type) {
            true => is_wanted(start, &member.member_type).then(|| (start, member.member_type.clone())),
            false => nameless(&member.member_type, start, depth, is_wanted),
        }
    })
}

impl Resolver {
    /// A copy of a union that is held member by member, as one that lies in a variable of the clause's.
    pub(super) fn union_copy(&mut self, whole: &Place, of: &Type, span: Span) -> Resolve<Expression> {
        let mut copied = None;
        let whole = self.with_kept_effects(whole, &mut copied);
        let words = self.words_of(&whole, of, span)?;
        let variable = Variable {
            // No name that a program can spell.
            name: format!("%union{}", self.program.clause_locals.len()),
            value_type: Type::Bytes {
                size: u32::try_from(8 * words.len()).ok(),
            },
            keys: None,
        };
        let id = self.define(Scope::ClauseLocal, variable, span);
        for (word, place) in (0..).zip(&words) {
            let value = read(place.clone(), Type::U64, span);
            let assigned = assign(in_copy(id, number(8 * word, span), Type::U64), value, span);
            copied = Some(behind(copied, assigned, span));
        }
        self.union_copies.insert(id, words);
        let start = behind(copied, number(0, span), span);
        Ok(read(in_copy(id, start, of.clone()), of.clone(), span))
    }

    /// Whether a place is in such a copy: it has no address, and what is assigned to it must go back.
    pub(super) fn is_in_union_copy(&self, place: &Place) -> bool {
        matches!(place, Place::Field { scope: Scope::ClauseLocal, variable, .. } if self.union_copies.contains_key(variable))
    }

    /// What has assigned something in a copy; behind it the words go back. It has the value that it had.
    pub(super) fn put_back(&mut self, assigned: Expression, place: &Place, span: Span) -> Expression {
        let Place::Field {
            scope: Scope::ClauseLocal,
            variable,
            ..
        } = place
        else {
            return assigned;
        };
        let Some(words) = self.union_copies.get(variable).cloned() else {
            return assigned;
        };
        let value_type = assigned.value_type.clone();
        let name = format!("%assigned{}", self.program.clause_locals.len());
        let kept = self.unnamed(&name, value_type.clone(), span);
        let mut all = assign(kept.clone(), assigned, span);
        for (word, to) in (0..).zip(words) {
            let value = read(in_copy(*variable, number(8 * word, span), Type::U64), Type::U64, span);
            all = behind(Some(all), assign(to, value, span), span);
        }
        behind(Some(all), read(kept, value_type, span), span)
    }

    /// `left = right` of unions, of which any may be held member by member; without `right` it is all zeros.
    pub(super) fn assign_union(&mut self, left: &Node, right: Option<&Node>, span: Span) -> Resolve<Expression> {
        let to = self.operand(left)?;
        let of = to.value_type.clone();
        let from = right.map(|right| self.operand(right)).transpose()?;
        if has_effects(&to) || from.as_ref().is_some_and(has_effects) {
            return Err(twice(span));
        }
        let to_words = self.words_if_held(&to, &of, span)?;
        let from_words = match &from {
            Some(from) => self.words_if_held(from, &of, span)?,
            None => None,
        };
        let size = size_of(&of).unwrap_or(0);
        let mut all = None;
        for word in 0..size.div_ceil(8) {
            let index = usize::try_from(word).unwrap_or(usize::MAX);
            let bytes = (size - 8 * word).min(8);
            let value = match (&from, &from_words) {
                (None, _) => number(0, span),
                (_, Some(words)) => match words.get(index) {
                    Some(place) => read(place.clone(), Type::U64, span),
                    None => number(0, span),
                },
                (Some(from), None) => gathered_word(from, 8 * word, bytes, span)?,
            };
            if let Some(place) = to_words.as_ref().and_then(|words| words.get(index)) {
                all = Some(behind(all, assign(place.clone(), value, span), span));
                continue;
            }
            for (offset, piece) in pieces(bytes) {
                let part = memory::part(to.clone(), number(8 * word + offset, span), &Type::Integer(piece), span)?;
                let place = match part.kind {
                    ExpressionKind::Variable(place) => place,
                    ExpressionKind::Load(address) => Place::Memory {
                        address,
                        value_type: Type::Integer(piece),
                    },
                    _ => return Err(twice(span)),
                };
                let shifted = shift(BinaryOperator::ShiftRight, value.clone(), 8 * offset);
                let value = convert::to_integer(shifted, piece);
                all = Some(behind(all, assign(place, value, span), span));
            }
        }
        Ok(all.unwrap_or_else(|| number(0, span)))
    }

    fn words_if_held(&mut self, found: &Expression, of: &Type, span: Span) -> Resolve<Option<Vec<Place>>> {
        match &found.kind {
            ExpressionKind::Variable(place) if self.spread_type(place).is_some() => {
                let place = place.clone();
                self.words_of(&place, of, span).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Where the words of a union are kept.
    fn words_of(&mut self, whole: &Place, of: &Type, span: Span) -> Resolve<Vec<Place>> {
        let (scope, outer, keys) = match whole {
            Place::Scalar { scope, variable } => (*scope, *variable, Vec::new()),
            Place::Element { scope, variable, keys } => (*scope, *variable, keys.clone()),
            Place::Field { .. } | Place::Memory { .. } => return Err(twice(span)),
        };
        let count = size_of(of).unwrap_or(u64::MAX).div_ceil(8);
        if scope == Scope::ClauseLocal || count > WORDS_MAX {
            let what = "a union beside a string in a this-> variable, or one of more than 128 bytes,";
            return Err(unsupported("N_STRUCT", what, span));
        }
        if keys.iter().any(has_effects) {
            return Err(twice(span));
        }
        let Some(outer) = self.variable(scope, outer) else {
            return Err(Diagnostic::new(
                "D_OP_LVAL",
                span,
                "this has no members that can be named",
            ));
        };
        let name = format!("{}{{}}", outer.name);
        let mut types = outer.keys.clone().unwrap_or_default();
        types.push(Type::I64);
        let known = self.known(scope, &name).map(|known| known.id);
        let variable = known.unwrap_or_else(|| {
            let variable = Variable {
                name,
                value_type: Type::U64,
                keys: Some(types),
            };
            self.define(scope, variable, span)
        });
        let word = |index: u64| {
            let mut keys = keys.clone();
            keys.push(constant::integer(index as i64, constant::LONG, span));
            Place::Element { scope, variable, keys }
        };
        Ok((0..count).map(word).collect())
    }
}

/// The pieces of so many bytes, 8 at most, and where they begin.
fn pieces(bytes: u64) -> Vec<(u64, IntegerType)> {
    let mut found = Vec::new();
    let mut offset = 0;
    for size in [8_u8, 4, 2, 1] {
        if bytes - offset >= u64::from(size) {
            found.push((
                offset,
                IntegerType {
                    bytes: size,
                    signed: false,
                },
            ));
            offset += u64::from(size);
        }
    }
    found
}

/// So many bytes of something in memory, or in a variable, as a word.
pub(super) fn gathered_word(from: &Expression, start: u64, bytes: u64, span: Span) -> Resolve<Expression> {
    let mut word = None;
    for (offset, piece) in pieces(bytes) {
        let part = memory::part(from.clone(), number(start + offset, span), &Type::Integer(piece), span)?;
        let shifted = shift(BinaryOperator::ShiftLeft, convert::to_address(part), 8 * offset);
        word = Some(match word {
            None => shifted,
            Some(word) => binary(BinaryOperator::Or, word, shifted),
        });
    }
    Ok(word.unwrap_or_else(|| number(0, span)))
}

fn in_copy(variable: VariableId, offset: Expression, value_type: Type) -> Place {
    Place::Field {
        scope: Scope::ClauseLocal,
        variable,
        offset: Box::new(offset),
        value_type,
    }
}

fn number(value: u64, span: Span) -> Expression {
    constant::integer(value as i64, constant::UNSIGNED_LONG, span)
}

fn shift(operator: BinaryOperator, value: Expression, bits: u64) -> Expression {
    let span = value.span;
    match bits {
        0 => value,
        _ => binary(operator, value, constant::integer(bits as i64, constant::LONG, span)),
    }
}

fn binary(operator: BinaryOperator, left: Expression, right: Expression) -> Expression {
    let span = left.span;
    arithmetic::operation(operator, left, right, Type::U64, span)
}
