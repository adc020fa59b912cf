//! Operators on pointers: `*p`, `&p[i]`, `p + i`, `p - q`.

use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::pointers::pointer_arithmetic;
use crate::lower::{constant, convert, memory};
use crate::program::{BinaryOperator, Expression, ExpressionKind, Place, Type};
use crate::source::Span;
use crate::syntax::{Node, NodeKind};
use crate::types;

impl Checker {
    /// `&a[n]` of an array of n elements: the address of the array's end, as in C. Nothing can be read at this address.
    fn end_of_array(&mut self, element: &Node, span: Span) -> Checked<Option<Expression>> {
        let NodeKind::Index { base, indices } = &element.kind else {
            return Ok(None);
        };
        let [index] = indices.as_slice() else {
            return Ok(None);
        };
        let (array, index) = (self.operand(base)?, self.expression(index)?);
        let Type::Array { count, .. } = array.value_type else {
            return Ok(None);
        };
        if self.variables.is_held_by_member(&array) || constant::wide_value(&index) != Some(i128::from(count)) {
            return Ok(None);
        }
        let first = memory::decayed(self.variables.placed(array)?);
        pointer_arithmetic(BinaryOperator::Add, first, index, span).map(Some)
    }

    /// `&*pointer`, `&pointer[index]`, and the address of an element or a member of D's own arrays and
    /// structures. Nothing else in D has an address.
    pub(super) fn address_of(&mut self, operand: &Node, span: Span) -> Checked<Expression> {
        if super::aggregations::named(operand).is_some() {
            return Err(Diagnostic::new(
                "D_ADDROF_VAR",
                span,
                "cannot take address of dynamic variable",
            ));
        }
        if let NodeKind::Identifier(name) = &operand.kind
            && name.contains('`')
            && let Some(address) = self.address_of_symbol(name, span)
        {
            return Ok(address);
        }
        let is_part = matches!(operand.kind, NodeKind::Index { .. } | NodeKind::Member { .. });
        let operand = match self.addressed(operand, span) {
            Err(error) if error.tag == "D_ARR_BOUNDS" => return self.end_of_array(operand, span)?.ok_or(error),
            operand => operand?,
        };
        let to = operand.value_type.clone();
        if matches!(&operand.kind, ExpressionKind::Variable(place) if self.variables.is_in_union_copy(place)) {
            let message = "cannot take address of dynamic variable";
            return Err(Diagnostic::new("D_ADDROF_VAR", span, message));
        }
        if is_part && matches!(operand.kind, ExpressionKind::Variable(Place::Field { .. })) {
            let address = memory::address_of(operand);
            return Ok(convert::cast(address, Type::Pointer(Some(Box::new(to)))));
        }
        if matches!(operand.kind, ExpressionKind::Builtin(_)) && types::is_aggregate(&to) {
            let message = "this operand lies in registers and has no address";
            return Err(Diagnostic::new("D_ADDROF_VAR", span, message));
        }
        if types::is_aggregate(&to) && matches!(operand.kind, ExpressionKind::Load(_)) {
            let address = memory::address_of(operand);
            return Ok(convert::cast(address, Type::Pointer(Some(Box::new(to)))));
        }
        let inner = match convert::uncut(operand).kind {
            // A pointer is loaded as a number and then cast to a pointer; the address is under that cast.
            ExpressionKind::Cast(inner) if matches!(inner.kind, ExpressionKind::Load(_)) => inner.kind,
            kind => kind,
        };
        match inner {
            ExpressionKind::Load(address) => Ok(Expression {
                span,
                ..convert::cast(*address, Type::Pointer(Some(Box::new(to))))
            }),
            ExpressionKind::Variable(_) | ExpressionKind::Builtin(_) => Err(Diagnostic::new(
                "D_ADDROF_VAR",
                span,
                "cannot take address of dynamic variable",
            )),
            _ => Err(Diagnostic::new(
                "D_ADDROF_LVAL",
                span,
                "unacceptable operand for unary & operator",
            )),
        }
    }

    /// The operand of `&`, which is not a bit-field.
    fn addressed(&mut self, operand: &Node, span: Span) -> Checked<Expression> {
        let NodeKind::Member { base, name, arrow } = &operand.kind else {
            return self.operand(operand);
        };
        match self.member_in_unit(base, name, *arrow, operand.span)? {
            (part, None) => Ok(part),
            (_, Some(_)) => {
                let message = format!("cannot take address of a bit-field: {name}");
                Err(Diagnostic::new("D_ADDROF_BITFIELD", span, message))
            }
        }
    }
}
