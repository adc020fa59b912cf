//! Unions in structures that are stored member by member ([`super::scalarize`]).
//!
//! The members of a union share their bytes, so they cannot be separate variables. The words of the
//! union are variables:
//!
//! ```text
//! union { int i; char c[12]; } x[int];        the variable   uint64_t x{}[int, int64_t];
//! x[k].c[3]          u = a copy of x{}[k, 0] and x{}[k, 1], u.c[3]          u: a temporary
//! x[k].c[3] = 'a'    the same, u.c[3] = 'a', and the words back
//! ```
//!
//! The copy is made where the place is evaluated: after the assigned value, and just before the offset in the copy.

use super::access_path::Part;
use super::arithmetic::operation;
use super::refusals::{twice, unsupported};
use super::sequence::{after, assigned_to as assign, reading as read};
use super::temporaries::Keep;
use super::variables::Variables;
use super::{Lowered, constant, convert, memory};
use crate::program::{
    BinaryOperator, Expression, ExpressionKind, IntegerType, Place, Scope, Type, VariableId, size_of,
};
use crate::source::Span;

/// The most words of a union that is stored member by member.
const WORDS_MAX: u64 = 16;

impl Variables {
    /// A copy, in a temporary, of a union that is stored member by member.
    pub(crate) fn union_copy(&mut self, whole: &Place, of: &Type, span: Span) -> Lowered<Expression> {
        let mut copied = None;
        let whole = self.repeatable_place(whole, Keep::Effects, &mut copied);
        let words = self.words_of(&whole, of, span)?;
        let size = u32::try_from(8 * words.len()).ok();
        let id = self.temporary(Type::Bytes { size });
        for (word, place) in (0..).zip(&words) {
            let value = read(place.clone(), Type::U64, span);
            let assigned = assign(in_copy(id, number(8 * word, span), Type::U64), value, span);
            copied = Some(after(copied, assigned, span));
        }
        self.union_copies.insert(id, words);
        let start = after(copied, number(0, span), span);
        Ok(read(in_copy(id, start, of.clone()), of.clone(), span))
    }

    /// Whether a place is in a copy of a union. A copy has no address, and its words must be stored back
    /// after an assignment.
    pub(crate) fn is_in_union_copy(&self, place: &Place) -> bool {
        match place {
            Place::Field { scope, variable, .. } => {
                *scope == Scope::ClauseLocal && self.union_copies.contains_key(variable)
            }
            _ => false,
        }
    }

    /// An expression that carries out an assignment in a copy, and then stores the copy's words back. Its value is that
    /// of the assignment.
    pub(crate) fn put_back(&mut self, assigned: Expression, place: &Place, span: Span) -> Expression {
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
        let (scope, kept) = (Scope::ClauseLocal, self.temporary(value_type.clone()));
        let kept = Place::Scalar { scope, variable: kept };
        let mut all = assign(kept.clone(), assigned, span);
        for (word, to) in (0..).zip(words) {
            let value = read(in_copy(*variable, number(8 * word, span), Type::U64), Type::U64, span);
            all = after(Some(all), assign(to, value, span), span);
        }
        after(Some(all), read(kept, value_type, span), span)
    }

    /// `to = from` of unions, each of which may be stored member by member. Without `from`, `to` becomes
    /// zero. Neither path has effects.
    pub(super) fn assign_union(&mut self, to: Expression, from: Option<Expression>, span: Span) -> Lowered<Expression> {
        let of = to.value_type.clone();
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
                all = Some(after(all, assign(place.clone(), value, span), span));
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
                all = Some(after(all, assign(place, value, span), span));
            }
        }
        Ok(all.unwrap_or_else(|| number(0, span)))
    }

    fn words_if_held(&mut self, found: &Expression, of: &Type, span: Span) -> Lowered<Option<Vec<Place>>> {
        match &found.kind {
            ExpressionKind::Variable(place) if self.held_by_member(place).is_some() => {
                let place = place.clone();
                self.words_of(&place, of, span).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The variables that hold the words of a union.
    fn words_of(&mut self, whole: &Place, of: &Type, span: Span) -> Lowered<Vec<Place>> {
        let (scope, outer, keys) = match whole {
            Place::Scalar { scope, variable } => (*scope, *variable, Vec::new()),
            Place::Element { scope, variable, keys } => (*scope, *variable, keys.clone()),
            Place::Field { .. } | Place::Memory { .. } => return Err(twice(span)),
        };
        let count = size_of(of).unwrap_or(u64::MAX).div_ceil(8);
        if scope == Scope::ClauseLocal || count > WORDS_MAX {
            let what = "a union in a this-> variable that holds a string, or a union of more than 128 bytes,";
            return Err(unsupported("N_STRUCT", what, span));
        }
        let Some(variable) = self.part_variable((scope, outer), Part::Words, &Type::U64) else {
            return Err(twice(span));
        };
        let word = |index: u64| {
            let mut keys = keys.clone();
            keys.push(constant::integer(index as i64, constant::LONG, span));
            Place::Element { scope, variable, keys }
        };
        Ok((0..count).map(word).collect())
    }
}

/// Splits a number of bytes into pieces of at most 8. Yields the offset and the type of each.
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

/// Up to 8 bytes in memory, or in a variable, as a word.
pub(crate) fn gathered_word(from: &Expression, start: u64, bytes: u64, span: Span) -> Lowered<Expression> {
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
    operation(operator, left, right, Type::U64, span)
}
