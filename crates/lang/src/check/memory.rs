//! Members and elements, both in the target's memory and of variables.
//!
//! A structure or an array is not a value. While an expression is resolved, it is represented by
//! the place where it lies:
//!
//! ```text
//! *p, p->m, p[i]     ExpressionKind::Load(address), of the structure's or array's type
//! x, x.m, x[i]       ExpressionKind::Variable(Place::Field), likewise
//! ```
//!
//! A caller that wants a value asks for one of these: the member or element (an integer
//! or a pointer), the bytes ([`Checker::bytes`]), or, for an array, the address of its
//! first element ([`Checker::expression`]).

use super::{Checked, Checker, names};
use crate::diagnostic::Diagnostic;
use crate::lower::memory::{decayed, in_memory, readable};
use crate::lower::refusals::find_member;
use crate::lower::structures::value_of;
use crate::lower::{constant, convert};
use crate::program::{Bits, Expression, ExpressionKind, IntegerType, Scope, Type};
use crate::source::Span;
use crate::syntax::{Node, NodeKind};
use crate::types;

impl Checker {
    /// The value of an expression; for an array, the address of its first element.
    pub(super) fn expression(&mut self, node: &Node) -> Checked<Expression> {
        readable(decayed(self.placed_operand(node)?))
    }

    /// An operand that has a place. An array in an associative array has no place, so a copy is made.
    pub(super) fn placed_operand(&mut self, node: &Node) -> Checked<Expression> {
        let found = self.operand(node)?;
        self.variables.placed(found)
    }

    /// The value of an expression; a structure or an array is its bytes.
    pub(super) fn bytes(&mut self, node: &Node) -> Checked<Expression> {
        Ok(self.shown_bytes(node)?.0)
    }

    /// As [`Checker::bytes`], with the type of the expression before the conversion.
    pub(super) fn shown_bytes(&mut self, node: &Node) -> Checked<(Expression, Type)> {
        let found = self.operand(node)?;
        let shown = found.value_type.clone();
        Ok((self.variables.bytes(found)?, shown))
    }

    /// `base.member`, `base->member`.
    pub(super) fn member(&mut self, base: &Node, name: &str, arrow: bool, span: Span) -> Checked<Expression> {
        let (part, bits) = self.member_in_unit(base, name, arrow, span)?;
        Ok(value_of(part, bits, span))
    }

    /// A member. For a bit-field: its unit, and the position of the field in the unit.
    pub(super) fn member_in_unit(
        &mut self,
        base: &Node,
        name: &str,
        arrow: bool,
        span: Span,
    ) -> Checked<(Expression, Option<Bits>)> {
        if let Some(found) = self.special_member(base, name, arrow, span)? {
            return Ok((found, None));
        }
        let mark = if arrow { "->" } else { "." };
        let base = if arrow {
            self.expression(base)?
        } else {
            self.operand(base)?
        };
        let (whole, pointed) = match &base.value_type {
            Type::Pointer(Some(to)) if arrow => (to.as_ref().clone(), true),
            Type::Pointer(None) | Type::Bytes { .. } if arrow => {
                let message = format!(
                    "operator -> cannot be applied to pointer to type \"void\"; must be applied to a struct or union \
                     pointer: {name}"
                );
                return Err(Diagnostic::new("D_OP_SOU", span, message)
                    .with_help("cast it first: ((struct s *)pointer)->member"));
            }
            other if arrow => {
                return Err(Diagnostic::new(
                    "D_OP_PTR",
                    span,
                    format!(
                        "operator -> must be applied to a pointer, not to \"{}\"",
                        types::name(other)
                    ),
                ));
            }
            other => (other.clone(), false),
        };
        let Type::Structure(structure) = &whole else {
            return Err(Diagnostic::new(
                "D_OP_SOU",
                span,
                format!(
                    "operator {mark} cannot be applied to {}type \"{}\"; must be applied to a struct or union",
                    if pointed { "pointer to " } else { "" },
                    types::name(&whole)
                ),
            ));
        };
        let found = find_member(structure, name, span).map_err(|error| self.with_reason(error, structure))?;
        let base = if pointed {
            in_memory(convert::to_address(base), whole.clone(), span)
        } else {
            base
        };
        self.variables.member(base, name, &found, span)
    }

    /// A member of a translation, of one of DTrace's structures, or of `fds[n]`. `None`: the base is none of these.
    fn special_member(&mut self, base: &Node, name: &str, arrow: bool, span: Span) -> Checked<Option<Expression>> {
        if let Some(translation) = super::translators::is_translation(base) {
            return self.translated(translation, name, arrow, span).map(Some);
        }
        if arrow && let Some(value) = self.derived_member(base, name, span)? {
            return Ok(Some(value));
        }
        if arrow && let Some(value) = self.scheduled_member(base, name, span)? {
            return Ok(Some(value));
        }
        if let NodeKind::Identifier(inline) = &base.kind
            && let Some((to, operand)) = self.scope.inline_translations.get(inline).cloned()
        {
            return self.translated((&to, &operand), name, arrow, span).map(Some);
        }
        if let NodeKind::Identifier(variable) = &base.kind
            && (variable.as_str(), name, arrow) == ("curpsinfo", "pr_dmodel", true)
            && !self.is_declared(variable)
        {
            let of = IntegerType { bytes: 1, signed: true };
            return Ok(Some(constant::integer(names::LP64, of, span)));
        }
        if let NodeKind::Identifier(variable) = &base.kind
            && let Some(found) = names::information(variable, name).filter(|_| arrow && !self.is_declared(variable))
        {
            let Some((builtin, value_type)) = found else {
                let message = format!("translator does not define conversion for member: {name}");
                let help = names::missing_variable(variable).unwrap_or_default();
                return Err(Diagnostic::new("D_XLATE_NOCONV", span, message).with_help(help));
            };
            let kind = ExpressionKind::Builtin(builtin);
            return Ok(Some(Expression { kind, value_type, span }));
        }
        if let NodeKind::Index { base: files, indices } = &base.kind
            && matches!(&files.kind, NodeKind::Identifier(files) if files == "fds" && !self.is_declared(files))
            && !arrow
        {
            return self.file(indices, name, span).map(Some);
        }
        Ok(None)
    }

    /// Whether the text declares this name itself.
    pub(super) fn is_declared(&self, name: &str) -> bool {
        self.variables.known(Scope::Global, name).is_some()
            || self.scope.inlines.contains_key(name)
            || self.scope.externals.contains_key(name)
            || self.scope.bound.iter().any(|(bound, _)| bound == name)
    }

    /// `base[index]` of an array.
    pub(super) fn element(&mut self, base: Expression, indices: &[Node], span: Span) -> Checked<Expression> {
        let Type::Array { count, .. } = base.value_type else {
            return Err(Diagnostic::new("D_ARR_BADREF", span, "this operand has no elements"));
        };
        let [index] = indices else {
            return Err(Diagnostic::new(
                "D_ARR_BADREF",
                span,
                "an array has one index in each pair of brackets",
            ));
        };
        let at = index.span;
        let index = self.expression(index)?;
        if !matches!(index.value_type, Type::Integer(_)) {
            return Err(Diagnostic::new(
                "D_ARR_BADREF",
                at,
                format!(
                    "array index must be of integral type, found \"{}\"",
                    types::name(&index.value_type)
                ),
            ));
        }
        let in_variable = matches!(base.kind, ExpressionKind::Variable(_));
        if in_variable && constant::wide_value(&index).is_some_and(|index| !(0..i128::from(count)).contains(&index)) {
            return Err(Diagnostic::new(
                "D_ARR_BOUNDS",
                at,
                format!("index outside array bounds: there are {count} elements"),
            ));
        }
        self.variables.element(base, index, span)
    }
}
