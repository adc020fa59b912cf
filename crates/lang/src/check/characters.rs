//! Strings indexed like arrays of characters, as in DTrace: `s[i]`, `*s`, `s + i`.
//!
//! A string is a value here, not memory. So these expressions are parts of it, as `substr( )` gives
//! them, and nothing after its end can be read:
//!
//! ```text
//! s + i       substr(s, i)                      a string; "" after the end
//! s[i], *s    the byte at substr(s, i, 1)       a char; 0 after the end
//! s[i] = c    p = alloca(strsize), *(string *)p = s, p[i] = c, s = stringof(p)
//! ```

use super::variables::{Designator, designator};
use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::effects::has_effects;
use crate::lower::sequence::{after, assigned_to, reading};
use crate::lower::temporaries::Keep;
use crate::lower::variables::Purpose;
use crate::lower::{characters, constant, convert, operators, pointers};
use crate::program::{BinaryOperator, Expression, ExpressionKind, Function, Type};
use crate::source::Span;
use crate::syntax::{Node, NodeKind};
use crate::types;

impl Checker {
    /// `string[index]`.
    pub(super) fn character(&mut self, string: Expression, indices: &[Node], span: Span) -> Checked<Expression> {
        let [index] = indices else {
            let message = "a string has one index, not several keys";
            return Err(Diagnostic::new("D_ARR_BADREF", span, message));
        };
        let at = index.span;
        let index = self.expression(index)?;
        if !matches!(index.value_type, Type::Integer(_)) {
            let message = format!(
                "array index must be of integral type, found \"{}\"",
                types::name(&index.value_type)
            );
            return Err(Diagnostic::new("D_ARR_BADREF", at, message));
        }
        Ok(characters::character_at(string, index, span))
    }

    /// `string[index] = right` of a variable: the string is copied to scratch memory, changed there, and
    /// copied back. `None`: the assignment has another form.
    pub(super) fn assign_character(&mut self, left: &Node, right: &Node, span: Span) -> Option<Checked<Expression>> {
        let NodeKind::Index { base, indices } = &left.kind else {
            return None;
        };
        let target = designator(base)?;
        let known = self.variables.known(target.scope, target.name)?;
        let variable = self.variables.get((target.scope, known.id))?;
        if variable.value_type != Type::String || variable.keys.is_some() != target.keys.is_some() {
            return None;
        }
        Some(self.changed_string(&target, indices, right, span))
    }

    fn changed_string(
        &mut self,
        target: &Designator<'_>,
        indices: &[Node],
        right: &Node,
        span: Span,
    ) -> Checked<Expression> {
        let [index] = indices else {
            let message = "a string has one index, not several keys";
            return Err(Diagnostic::new("D_ARR_BADREF", span, message));
        };
        let value = self.expression(right)?;
        let Some((place, _)) = self.place(target)? else {
            return Err(self.unassigned(target));
        };
        let index = self.expression(index)?;
        let string = reading(place.clone(), Type::String, span);
        let mut before = None;
        // As in every assignment, the right side is evaluated first.
        let (value, string, index) = match has_effects(&value) || has_effects(&string) || has_effects(&index) {
            true => {
                let value = self.variables.kept_operand(value, &mut before)?;
                let string = self.variables.repeatable(string, Keep::All, &mut before);
                (value, string, self.variables.kept(index, &mut before))
            }
            false => (value, string, index),
        };
        let characters = Type::Pointer(Some(Box::new(Type::Integer(constant::CHARACTER))));
        let buffer = self.variables.shared(Purpose::Characters, characters.clone());
        let start = reading(buffer.clone(), characters.clone(), span);
        let taken = self.scratch_for_a_string(span)?;
        let taken = assigned_to(buffer, convert::cast(taken, characters), span);
        let address = convert::to_address(start.clone());
        let copied = self.variables.assign_text(address, string.clone(), span)?;
        let address = operators::binary(BinaryOperator::Add, start.clone(), index, span)?;
        let character = pointers::dereference(address, span)?;
        let stored = self.variables.assign_part((character.clone(), None), value, span)?;
        let changed = convert::to_string(start);
        let kept = self.variables.assign_part((string, None), changed, span)?;
        let all = [taken, copied, stored, kept].into_iter();
        let all = all.fold(before, |before, next| Some(after(before, next, span)));
        Ok(after(all, character, span))
    }

    /// `alloca(strsize)`.
    fn scratch_for_a_string(&mut self, span: Span) -> Checked<Expression> {
        let size = constant::integer(i64::from(self.settings.string_bytes), constant::UNSIGNED_LONG, span);
        let size = match self.settings.scratch_bytes {
            Some(limit) => self.within_scratch("alloca", size, limit)?,
            None => size,
        };
        Ok(Expression {
            kind: ExpressionKind::Call {
                function: Function::Allocate,
                arguments: vec![size],
            },
            value_type: Type::Pointer(None),
            span,
        })
    }
}
