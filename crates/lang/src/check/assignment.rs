//! Assignments: `=`, `+=` and the like, `++`, `--`.

use super::variables::{Designator, designator};
use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::arithmetic::{incompatible, operand_type, symbol};
use crate::lower::effects::has_effects;
use crate::lower::pointers::scaled;
use crate::lower::sequence::after;
use crate::lower::store::Assignable;
use crate::lower::structures::{Assigned, is_dynamic};
use crate::lower::{coerce, constant, convert, memory, operators};
use crate::program::{BinaryOperator, Bits, Expression, ExpressionKind, Place, Type};
use crate::source::Span;
use crate::syntax::{Node, NodeKind, PrefixOperator};
use crate::types;

impl Checker {
    /// `left = right`.
    pub(super) fn assign(&mut self, left: &Node, right: &Node, span: Span) -> Checked<Expression> {
        self.assignment(left, right, span).map(|(effect, _)| effect)
    }

    /// The assignment as an expression. For a structure also the place where the assigned structure lies.
    fn assignment(&mut self, left: &Node, right: &Node, span: Span) -> Checked<(Expression, Option<Expression>)> {
        if let Some(name) = super::aggregations::named(left) {
            return Err(Diagnostic::new(
                "D_AGG_FUNC",
                span,
                format!("the assignment to {name} must be a statement of its own"),
            ));
        }
        if let Some((to, operand)) = super::translators::is_translation(right) {
            let assigned = self.assign_translated(left, (to, operand), span)?;
            return Ok((assigned.effect, Some(assigned.whole)));
        }
        if let Some(assigned) = self.assign_character(left, right, span) {
            return Ok((assigned?, None));
        }
        let target = designator(left).filter(|target| !self.is_pointer_element(target));
        if let Some(target) = &target {
            self.check_assignable(target)?;
        }
        let mut before = None;
        let from = self.assigned_operand(right, &mut before)?;
        let (effect, whole) = match target {
            Some(target) => self.assign_variable(&target, from, span)?,
            None if matches!(from.value_type, Type::Structure(_)) => {
                let to = self.assigned_part("=", left)?.0;
                let assigned = self.variables.assign_structure(to, from, span)?;
                (assigned.effect, Some(assigned.whole))
            }
            None => {
                let value = memory::readable(memory::decayed(self.variables.placed(from)?))?;
                let (part, bits) = self.assigned_part("=", left)?;
                let assigned = match self.variables.assignable(part, bits, left.span)? {
                    Some(Assignable::Place(place, to)) => self.variables.assign_place(place, to, value, span)?,
                    Some(Assignable::Bits(field)) => self.variables.assign_bits(*field, value, span)?,
                    Some(Assignable::Text(address)) => self.variables.assign_text(address, value, span)?,
                    None => return Err(not_assignable("=", left)),
                };
                (assigned, None)
            }
        };
        Ok((after(before, effect, span), whole))
    }

    /// The value to assign. `a = b = c` of structures is `b = c, a = b`.
    fn assigned_operand(&mut self, right: &Node, before: &mut Option<Expression>) -> Checked<Expression> {
        let right = self.chosen(right)?;
        let NodeKind::Assign {
            operator: None,
            left: between,
            right: value,
        } = &right.kind
        else {
            return self.operand(right);
        };
        match self.assignment(between, value, right.span)? {
            (effect, Some(whole)) => {
                *before = Some(effect);
                Ok(whole)
            }
            (value, None) => Ok(value),
        }
    }

    /// `target = from` of a variable, or of an element of an associative array.
    fn assign_variable(
        &mut self,
        target: &Designator<'_>,
        from: Expression,
        span: Span,
    ) -> Checked<(Expression, Option<Expression>)> {
        let of = from.value_type.clone();
        let from = match of {
            Type::Structure(_) => from,
            _ => memory::readable(memory::decayed(self.variables.placed(from)?))?,
        };
        let is_new = self.variables.known(target.scope, target.name).is_none();
        let (place, to) = self.place_or_new(target, &from.value_type)?;
        if is_new && let Some(known) = self.variables.known(target.scope, target.name) {
            self.variables.names_values((target.scope, known.id), &of);
        }
        if matches!(to, Type::Bytes { .. }) {
            let assigned = self.assign_whole(place, to, from, span)?;
            return Ok((assigned.effect, Some(assigned.whole)));
        }
        let from = match of {
            // `placed` reports a structure as an operand without a value.
            Type::Structure(_) => memory::placed(from)?,
            _ => from,
        };
        Ok((self.variables.assign_place(place, to, from, span)?, None))
    }

    /// `x = from` where `x` is a structure, and `from` has the same type. `x = 0` frees the structure of
    /// a thread or of an element.
    fn assign_whole(&mut self, place: Place, to: Type, from: Expression, span: Span) -> Checked<Assigned> {
        let is_dynamic = is_dynamic(&place);
        let to = self.variables.operand(place, to, span);
        if convert::is_null(&from) && matches!(to.value_type, Type::Structure(_)) && is_dynamic {
            return self.variables.assign_nothing(to, span);
        }
        if to.value_type != from.value_type || !matches!(from.value_type, Type::Structure(_)) {
            let name = types::name(&to.value_type);
            if matches!(to.value_type, Type::Array { .. }) {
                let message = format!("operator = may not be applied to operand of type \"{name}\"");
                return Err(Diagnostic::new("D_OP_ARRFUN", span, message));
            }
            return Err(incompatible(&name, "=", &types::name(&from.value_type), span));
        }
        if self.variables.is_held_by_member(&to) || self.variables.is_held_by_member(&from) {
            return self.variables.assign_structure(to, from, span);
        }
        Ok(self.variables.assign_bytes(to, memory::placed(from)?, span))
    }

    /// `left operator= right`. The result has the type in which the operation is carried out: the
    /// common type of both sides, or for a shift the type of the left side.
    pub(super) fn assign_operator(
        &mut self,
        operator: BinaryOperator,
        left: &Node,
        right: &Node,
        span: Span,
    ) -> Checked<Expression> {
        let mark = format!("{}=", symbol(operator));
        let target = designator(left).filter(|target| !self.is_pointer_element(target));
        let (value, (place, to)) = match target {
            Some(target) => {
                self.check_assignable(&target)?;
                // The operator also reads the variable, so the variable must exist.
                if self.variables.known(target.scope, target.name).is_none() {
                    return Err(self.unassigned(&target));
                }
                let value = self.expression(right)?;
                let Some(place) = self.place(&target)? else {
                    return Err(self.unassigned(&target));
                };
                (value, place)
            }
            None => match self.memory(&mark, left)? {
                Assignable::Place(place, to) => (self.expression(right)?, (place, to)),
                Assignable::Bits(field) => {
                    let right = self.expression(right)?;
                    let value = operators::binary(operator, field.read(span), right, span)?;
                    return self.variables.store_bits(*field, value, &mark, span);
                }
                Assignable::Text(_) => return Err(not_assignable(&mark, left)),
            },
        };
        self.operate(operator, left, (place, to), value, span)
    }

    /// `place operator= value`, where `left` names the place of the type `to`.
    fn operate(
        &mut self,
        operator: BinaryOperator,
        left: &Node,
        (place, to): (Place, Type),
        value: Expression,
        span: Span,
    ) -> Checked<Expression> {
        let mark = format!("{}=", symbol(operator));
        let adds = matches!(operator, BinaryOperator::Add | BinaryOperator::Subtract);
        if adds
            && matches!(
                (&to, &value.value_type),
                (Type::Integer(_), Type::Pointer(None) | Type::Bytes { .. })
            )
        {
            let message = format!("operator {mark} requires operands of known size");
            return Err(Diagnostic::new("D_OP_VFPTR", span, message));
        }
        // `i += i++` reads the left side first. If nothing on the right can change the left side, no copy of it is
        // needed.
        let read = Expression {
            kind: ExpressionKind::Variable(place.clone()),
            value_type: to.clone(),
            span: left.span,
        };
        let read = self.variables.as_named(read, &place);
        let named = read.value_type.clone();
        if has_effects(&value) && !has_effects(&read) {
            let from = types::name(&value.value_type);
            let value = operators::binary(operator, read, value, span)?;
            let value =
                coerce::assign(value, &to).ok_or_else(|| incompatible(&types::name(&named), &mark, &from, span))?;
            let assigned = Expression {
                kind: ExpressionKind::Assign {
                    place: place.clone(),
                    value: Box::new(value),
                },
                value_type: to,
                span,
            };
            return Ok(self.variables.as_named(assigned, &place));
        }
        let value = operating(operator, &named, value, span)?;
        if matches!(operator, BinaryOperator::Divide | BinaryOperator::Remainder) && constant::value(&value) == Some(0)
        {
            return Err(Diagnostic::new(
                "D_DIV_ZERO",
                span,
                "expression contains division by zero",
            ));
        }
        let kind = ExpressionKind::AssignOperator {
            place: place.clone(),
            operator,
            value: Box::new(value),
        };
        let value_type = to;
        let assigned = self.variables.as_named(Expression { kind, value_type, span }, &place);
        Ok(self.variables.put_back(assigned, &place, span))
    }

    /// `++` and `--`. A variable that does not exist becomes an `int64_t`.
    pub(super) fn increment(&mut self, operand: &Node, delta: i64, post: bool, span: Span) -> Checked<Expression> {
        let mark = if delta > 0 { "++" } else { "--" };
        let target = designator(operand).filter(|target| !self.is_pointer_element(target));
        let (place, to) = match target {
            Some(target) => self.place_or_new(&target, &Type::I64)?,
            None => match self.memory(mark, operand)? {
                Assignable::Place(place, to) => (place, to),
                Assignable::Bits(field) => return self.variables.increment_bits(*field, delta, post, span),
                Assignable::Text(_) => return Err(not_assignable(mark, operand)),
            },
        };
        let step = match &to {
            Type::Integer(_) => 1,
            Type::Pointer(Some(pointee)) => match types::step_of(pointee) {
                Some(size) => i64::try_from(size).unwrap_or(1),
                None => return Err(operand_type("D_OP_VFPTR", mark, "known-size", &to, span)),
            },
            Type::Pointer(None) => {
                return Err(Diagnostic::new(
                    "D_OP_VFPTR",
                    span,
                    format!("operator {mark} requires an operand of known size"),
                ));
            }
            other => return Err(operand_type("D_OP_SCALAR", mark, "scalar", other, span)),
        };
        let kind = ExpressionKind::Increment {
            place: place.clone(),
            delta: delta * step,
            post,
        };
        let value_type = to;
        let assigned = self.variables.as_named(Expression { kind, value_type, span }, &place);
        Ok(self.variables.put_back(assigned, &place, span))
    }

    /// Whether `base[index]` is memory to which a pointer variable points, and not an element of an associative array.
    fn is_pointer_element(&self, target: &Designator<'_>) -> bool {
        target.keys.is_some()
            && self
                .variables
                .known(target.scope, target.name)
                .and_then(|known| self.variables.get((target.scope, known.id)))
                .is_some_and(|variable| {
                    variable.keys.is_none() && matches!(variable.value_type, Type::Pointer(_) | Type::Bytes { .. })
                })
    }

    /// `*p`, `p[i]`: an assignment is only allowed in scratch memory. The address is checked at run time.
    fn memory(&mut self, mark: &str, left: &Node) -> Checked<Assignable> {
        let (part, bits) = self.assigned_part(mark, left)?;
        let assignable = self.variables.assignable(part, bits, left.span)?;
        assignable.ok_or_else(|| not_assignable(mark, left))
    }

    /// A part of a structure or array, or the target of a pointer. For a bit-field: its unit, and the
    /// bits of the field in the unit.
    fn assigned_part(&mut self, mark: &str, left: &Node) -> Checked<(Expression, Option<Bits>)> {
        match &left.kind {
            _ if super::aggregations::named(left).is_some() => Err(not_assignable(mark, left)),
            NodeKind::Member { base, name, arrow } => self.member_in_unit(base, name, *arrow, left.span),
            NodeKind::Unary {
                operator: PrefixOperator::Dereference,
                ..
            }
            | NodeKind::Index { .. } => Ok((self.operand(left)?, None)),
            _ => Err(not_assignable(mark, left)),
        }
    }
}

/// The right side of `place operator= value`, converted for the operation on a place of the type `to`.
fn operating(operator: BinaryOperator, to: &Type, value: Expression, span: Span) -> Checked<Expression> {
    Ok(match (to, &value.value_type) {
        (Type::Integer(place_type), Type::Integer(value_type)) => {
            let shifts = matches!(operator, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight);
            let of = if shifts {
                *value_type
            } else {
                types::common(*place_type, *value_type)
            };
            convert::operand(value, of.signed)
        }
        (Type::Pointer(pointee), Type::Integer(_))
            if matches!(operator, BinaryOperator::Add | BinaryOperator::Subtract) =>
        {
            scaled(value, pointee.as_deref(), span)?
        }
        (to, from) => {
            let tag = match operator {
                BinaryOperator::Add | BinaryOperator::Subtract => "D_OP_INCOMPAT",
                BinaryOperator::Multiply | BinaryOperator::Divide => "D_OP_ARITH",
                _ => "D_OP_INT",
            };
            let mark = format!("{}=", symbol(operator));
            return Err(Diagnostic {
                tag,
                ..incompatible(&types::name(to), &mark, &types::name(from), span)
            });
        }
    })
}

fn not_assignable(mark: &str, left: &Node) -> Diagnostic {
    if super::aggregations::named(left).is_some() {
        return Diagnostic::new(
            "D_AGG_FUNC",
            left.span,
            format!("operator {mark} cannot be applied to an aggregation: assign an aggregating function"),
        )
        .with_help("@a = sum(x), not @a += x");
    }
    Diagnostic::new(
        "D_OP_LVAL",
        left.span,
        format!("operator {mark} requires modifiable lvalue as an operand"),
    )
}
