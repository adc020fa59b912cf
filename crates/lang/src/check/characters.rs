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

use super::variables::designator;
use super::{Resolve, Resolver, scalarize};
use crate::diagnostic::Diagnostic;
use crate::lower::characters::character_at;
use crate::lower::sequence::behind;
use crate::lower::{constant, convert, refusals};
use crate::program::{Expression, Type};
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
                    return Err(refusals::twice(span));
                };
                if !self.may_be_repeated(base)? || !indices.iter().all(scalarize::is_plain) {
                    return Err(refusals::twice(span));
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
            all.ok_or_else(|| refusals::twice(span))
        })())
    }
}
