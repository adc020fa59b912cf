//! Strings as the arrays of characters that DTrace takes them for: `s[i]`, `*s`, `s + i`.
//!
//! A string is a value here, not memory, so both are parts of it, as `substr( )` gives them, and nothing behind its end
//! can be read:
//!
//! ```text
//! s + i       substr(s, i)                      a string; "" behind the end
//! s[i], *s    the byte at substr(s, i, 1)       a char; 0 behind the end
//! s[i] = c    p = alloca(strsize), *(string *)p = s, p[i] = c, s = stringof(p)
//! ```

use super::assignment::behind;
use super::variables::designator;
use super::{Resolve, Resolver, constant, convert, spread};
use crate::diagnostic::Diagnostic;
use crate::interpret::text;
use crate::program::{Expression, ExpressionKind, Function, Type};
use crate::source::Span;
use crate::syntax::{IntegerLiteral, LocalScope, Node, NodeKind};
use crate::types;

impl Resolver {
    /// `string[index]`.
    pub(super) fn character(&mut self, string: Expression, indices: &[Node], span: Span) -> Resolve<Expression> {
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
        Ok(character_at(string, index, span))
    }

    /// `string[index] = right` of a variable. `None`: that is something else.
    pub(super) fn assign_character(&mut self, left: &Node, right: &Node, span: Span) -> Option<Resolve<Expression>> {
        /// No name that a program can spell.
        const BUFFER: &str = "%characters";
        let NodeKind::Index { base, indices } = &left.kind else {
            return None;
        };
        let target = designator(base)?;
        let known = self.known(target.scope, target.name)?;
        let variable = self.variable(target.scope, known.id)?;
        if variable.value_type != Type::String || variable.keys.is_some() != target.keys.is_some() {
            return None;
        }
        let of = |kind| Node::new(kind, span);
        let set = |left: &Node, right: NodeKind| {
            of(NodeKind::Assign {
                operator: None,
                left: Box::new(left.clone()),
                right: Box::new(of(right)),
            })
        };
        let buffer = of(NodeKind::Local {
            scope: LocalScope::Clause,
            name: BUFFER.to_owned(),
        });
        let characters = Type::Pointer(Some(Box::new(Type::Integer(constant::CHARACTER))));
        self.unnamed(BUFFER, characters, span);
        let character = of(NodeKind::Index {
            base: Box::new(buffer.clone()),
            indices: indices.clone(),
        });
        let bytes = NodeKind::Integer(IntegerLiteral::decimal(i64::from(self.string_bytes)));
        let taken = NodeKind::Call {
            function: Box::new(of(NodeKind::Identifier("alloca".to_owned()))),
            arguments: vec![of(bytes)],
        };
        let text = NodeKind::Stringof(Box::new(buffer.clone()));
        Some((|| {
            if !self.may_be_repeated(base)? || !self.may_be_repeated(&character)? {
                let mut before = None;
                let right = self.kept(right, &mut before)?;
                let left = self.with_kept_keys(left, &mut before)?;
                let NodeKind::Index { base, indices } = &left.kind else {
                    return Err(spread::twice(span));
                };
                if !self.may_be_repeated(base)? || !indices.iter().all(spread::is_plain) {
                    return Err(spread::twice(span));
                }
                return Ok(behind(before, self.assign(&left, &right, span)?, span));
            }
            let index = self.expression(&character)?;
            let taken = self.operand(&set(&buffer, taken))?;
            let address = convert::to_address(self.expression(&buffer)?);
            let copied = self.assign_text(address, base, span)?;
            let stored = self.assign(&character, right, span)?;
            let kept = self.operand(&set(base, text))?;
            let all = [taken, copied, stored, kept, index].into_iter();
            let all = all.reduce(|before, next| behind(Some(before), next, span));
            all.ok_or_else(|| spread::twice(span))
        })())
    }
}

/// `*string`.
pub(super) fn first_character(string: Expression, span: Span) -> Expression {
    character_at(string, constant::integer(0, constant::LONG, span), span)
}

/// `string + index`.
pub(super) fn from(string: Expression, index: Expression, span: Span) -> Expression {
    let all = constant::integer(text::ALL, constant::LONG, span);
    part(string, index, all, span)
}

/// The address of a string's bytes, valid for the clause.
pub(super) fn address(string: Expression) -> Expression {
    convert::cast(string, Type::U64)
}

/// A copy of a string in scratch memory, all of it.
pub(super) fn copied(string: Expression) -> Expression {
    let span = string.span;
    let all = constant::integer(text::ALL, constant::LONG, span);
    part(string, constant::integer(0, constant::LONG, span), all, span)
}

fn character_at(string: Expression, index: Expression, span: Span) -> Expression {
    let one = constant::integer(1, constant::LONG, span);
    let found = address(part(string, index, one, span));
    Expression {
        kind: ExpressionKind::Load(Box::new(found)),
        value_type: Type::Integer(constant::CHARACTER),
        span,
    }
}

fn part(string: Expression, index: Expression, count: Expression, span: Span) -> Expression {
    // As substr( ) takes it: an int.
    let index = convert::to_integer(convert::to_integer(index, constant::INT), constant::LONG);
    Expression {
        kind: ExpressionKind::Call {
            function: Function::Substring,
            arguments: vec![string, index, count],
        },
        value_type: Type::String,
        span,
    }
}
