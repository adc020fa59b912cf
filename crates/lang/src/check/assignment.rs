//! Assignments: `=`, `+=` and its kin, `++`, `--`.

use super::bit_fields::BitField;
use super::variables::{Designator, designator};
use super::{Resolve, Resolver};
use crate::diagnostic::Diagnostic;
use crate::lower::arithmetic::{incompatible, operand_type, symbol};
use crate::lower::effects::has_effects;
use crate::lower::pointers::scaled;
use crate::lower::{characters, coerce, constant, convert, memory, operators, refusals};
use crate::program::{BinaryOperator, Expression, ExpressionKind, Function, Place, Scope, Type, VariableId};
use crate::source::Span;
use crate::syntax::{Node, NodeKind, PrefixOperator};
use crate::types;

impl Resolver {
    /// `left = right`.
    pub(super) fn assign(&mut self, left: &Node, right: &Node, span: Span) -> Resolve<Expression> {
        if let Some(name) = super::aggregations::named(left) {
            return Err(Diagnostic::new(
                "D_AGG_FUNC",
                span,
                format!("the assignment to {name} must be a statement of its own"),
            ));
        }
        if let Some((to, operand)) = super::translators::is_translation(right) {
            return self.assign_translated(left, (to, operand), span);
        }
        if let Some(assigned) = self.assign_spread(left, right, span) {
            return assigned;
        }
        if let Some(assigned) = self.assign_character(left, right, span) {
            return assigned;
        }
        let target = designator(left).filter(|target| !self.is_pointer_element(target));
        let (value, (place, to)) = match target {
            Some(target) => {
                self.check_assignable(&target)?;
                let found = self.placed_operand(right)?;
                let of = found.value_type.clone();
                let value = memory::readable(memory::decayed(found))?;
                let is_new = self.known(target.scope, target.name).is_none();
                let place = self.place_or_new(&target, &value.value_type)?;
                if is_new
                    && self.spread_type(&place.0).is_some()
                    && let Some(assigned) = self.assign_spread(left, right, span)
                {
                    return assigned;
                }
                if is_new && let Some(known) = self.known(target.scope, target.name) {
                    self.names_values(target.scope, known.id, &of);
                }
                if matches!(place.1, Type::Bytes { .. }) {
                    return self.assign_whole(left, place.0, value, span);
                }
                (value, place)
            }
            None => match self.memory("=", left)? {
                Assignable::Place(place, to) => (self.expression(right)?, (place, to)),
                Assignable::Bits(field) => {
                    let value = self.expression(right)?;
                    return self.assign_bits(*field, value, span);
                }
                Assignable::Text(address) => return self.assign_text(address, right, span),
            },
        };
        let from = types::name(&value.value_type);
        let Some(value) = coerce::assign(value, &to) else {
            let to = self.named_type(&place).map_or(to, Type::Integer);
            return Err(incompatible(&types::name(&to), "=", &from, span));
        };
        let kind = ExpressionKind::Assign {
            place: place.clone(),
            value: Box::new(value),
        };
        let value_type = to;
        let assigned = self.as_named(Expression { kind, value_type, span }, &place);
        Ok(self.put_back(assigned, &place, span))
    }

    /// `*pointer = right` of strings: into scratch memory, with the NUL.
    pub(super) fn assign_text(&mut self, address: Expression, right: &Node, span: Span) -> Resolve<Expression> {
        let value = self.expression(right)?;
        let from = types::name(&value.value_type);
        let value = coerce::assign(value, &Type::String).ok_or_else(|| incompatible("string", "=", &from, span))?;
        let place = self.unnamed("%text", Type::String, span);
        let of = |kind, value_type| Expression { kind, value_type, span };
        let text = of(ExpressionKind::Variable(place.clone()), Type::String);
        let length = ExpressionKind::Call {
            function: Function::StringLength,
            arguments: vec![text.clone()],
        };
        let bytes = ExpressionKind::Binary {
            operator: BinaryOperator::Add,
            left: Box::new(of(length, Type::U64)),
            right: Box::new(constant::integer(1, constant::UNSIGNED_LONG, span)),
        };
        let copy = ExpressionKind::Call {
            function: Function::CopyInTo,
            arguments: vec![characters::address(text.clone()), of(bytes, Type::U64), address],
        };
        let keep = ExpressionKind::Assign {
            place,
            value: Box::new(value),
        };
        let copied = ExpressionKind::Comma {
            first: Box::new(of(copy, Type::Void)),
            second: Box::new(text),
        };
        let all = ExpressionKind::Comma {
            first: Box::new(of(keep, Type::String)),
            second: Box::new(of(copied, Type::String)),
        };
        Ok(of(all, Type::String))
    }

    /// `x = value` where `x` is a structure: of the same type; 0 frees one of a thread, and one of an associative array.
    fn assign_whole(&mut self, left: &Node, place: Place, value: Expression, span: Span) -> Resolve<Expression> {
        let held = match &place {
            Place::Scalar { scope, variable } => self.aggregates.get(&(*scope, *variable)),
            _ => None,
        };
        let held = held.or_else(|| self.spread_type(&place));
        if convert::is_null(&value) && matches!(held, Some(Type::Structure(_))) && is_dynamic(&place) {
            return self.assign_nothing(left, span);
        }
        if held != Some(&value.value_type) || !matches!(value.value_type, Type::Structure(_)) {
            let to = held.map(types::name).unwrap_or_default();
            if matches!(held, Some(Type::Array { .. })) {
                let message = format!("operator = may not be applied to operand of type \"{to}\"");
                return Err(Diagnostic::new("D_OP_ARRFUN", span, message));
            }
            return Err(incompatible(&to, "=", &types::name(&value.value_type), span));
        }
        // Member by member it would have been assigned already.
        if self.spread_type(&place).is_some() {
            return Err(refusals::twice(span));
        }
        let value = memory::bytes_of(value);
        let value_type = value.value_type.clone();
        Ok(Expression {
            kind: ExpressionKind::Assign {
                place,
                value: Box::new(value),
            },
            value_type,
            span,
        })
    }

    /// `left operator= right`. The value handed on has the type in which the operation is carried out: the common type
    /// of both sides; that of a shift has its own type.
    pub(super) fn assign_operator(
        &mut self,
        operator: BinaryOperator,
        left: &Node,
        right: &Node,
        span: Span,
    ) -> Resolve<Expression> {
        let mark = format!("{}=", symbol(operator));
        let target = designator(left).filter(|target| !self.is_pointer_element(target));
        let (value, (place, to)) = match target {
            Some(target) => {
                self.check_assignable(&target)?;
                // It is read, too: so it must exist.
                if self.known(target.scope, target.name).is_none() {
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
                    return self.store_bits(*field, value, &mark, span);
                }
                Assignable::Text(_) => return Err(not_assignable(&mark, left)),
            },
        };
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
        // `i += i++`: the left side is read first. It is where nothing on the right can change it that it need not be.
        let read = Expression {
            kind: ExpressionKind::Variable(place.clone()),
            value_type: to.clone(),
            span: left.span,
        };
        let read = self.as_named(read, &place);
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
            return Ok(self.as_named(assigned, &place));
        }
        let value = match (&named, &value.value_type) {
            (Type::Integer(place_type), Type::Integer(value_type)) => {
                let shifts = matches!(operator, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight);
                let of = if shifts {
                    *value_type
                } else {
                    types::common(*place_type, *value_type)
                };
                convert::operand(value, of.signed)
            }
            (Type::Pointer(pointee), Type::Integer(_)) if adds => scaled(value, pointee.as_deref(), span)?,
            (to, from) => {
                let tag = match operator {
                    BinaryOperator::Add | BinaryOperator::Subtract => "D_OP_INCOMPAT",
                    BinaryOperator::Multiply | BinaryOperator::Divide => "D_OP_ARITH",
                    _ => "D_OP_INT",
                };
                return Err(Diagnostic {
                    tag,
                    ..incompatible(&types::name(to), &mark, &types::name(from), span)
                });
            }
        };
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
        let assigned = self.as_named(Expression { kind, value_type, span }, &place);
        Ok(self.put_back(assigned, &place, span))
    }

    /// `++` and `--`. A variable that does not exist becomes an `int64_t`.
    pub(super) fn increment(&mut self, operand: &Node, delta: i64, post: bool, span: Span) -> Resolve<Expression> {
        let mark = if delta > 0 { "++" } else { "--" };
        let target = designator(operand).filter(|target| !self.is_pointer_element(target));
        let (place, to) = match target {
            Some(target) => self.place_or_new(&target, &Type::I64)?,
            None => match self.memory(mark, operand)? {
                Assignable::Place(place, to) => (place, to),
                Assignable::Bits(field) => return self.increment_bits(*field, delta, post, span),
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
        let assigned = self.as_named(Expression { kind, value_type, span }, &place);
        Ok(self.put_back(assigned, &place, span))
    }

    /// Whether `base[index]` goes through a pointer variable rather than into an associative array.
    fn is_pointer_element(&self, target: &Designator<'_>) -> bool {
        target.keys.is_some()
            && self
                .known(target.scope, target.name)
                .and_then(|known| self.variable(target.scope, known.id))
                .is_some_and(|variable| {
                    variable.keys.is_none() && matches!(variable.value_type, Type::Pointer(_) | Type::Bytes { .. })
                })
    }

    /// `*p`, `p[i]`: what can be assigned in scratch memory. That it lies there shows at run time.
    fn memory(&mut self, mark: &str, left: &Node) -> Resolve<Assignable> {
        let memory = matches!(
            left.kind,
            NodeKind::Unary {
                operator: PrefixOperator::Dereference,
                ..
            } | NodeKind::Index { .. }
                | NodeKind::Member { .. }
        );
        if !memory || super::aggregations::named(left).is_some() {
            return Err(not_assignable(mark, left));
        }
        let found = match &left.kind {
            NodeKind::Member { base, name, arrow } => match self.member_in_unit(base, name, *arrow, left.span)? {
                (unit, Some(bits)) => {
                    let unit = memory::decayed(unit);
                    return Ok(Assignable::Bits(Box::new(self.bit_field(unit, bits, left.span)?)));
                }
                (part, None) => memory::decayed(part),
            },
            _ => self.expression(left)?,
        };
        let value_type = found.value_type.clone();
        if value_type == Type::String
            && let ExpressionKind::Cast(pointer) = &found.kind
            && matches!(pointer.value_type, Type::Pointer(_))
        {
            return Ok(Assignable::Text(convert::to_address((**pointer).clone())));
        }
        let loaded = match found.kind {
            // A pointer is loaded as a number, then made a pointer.
            ExpressionKind::Cast(inner) if matches!(inner.kind, ExpressionKind::Load(_)) => inner.kind,
            kind => kind,
        };
        let address = match loaded {
            ExpressionKind::Load(address) if self.is_of_copy(&address) => return Err(not_assignable(mark, left)),
            ExpressionKind::Load(address) if types::is_scalar(&value_type) => match own(&address) {
                // `*(array + 1)` is `array[1]`.
                Some((scope, variable, offset)) => {
                    let place = Place::Field {
                        scope,
                        variable,
                        offset: Box::new(offset),
                        value_type: value_type.clone(),
                    };
                    return Ok(Assignable::Place(place, value_type));
                }
                None => address,
            },
            ExpressionKind::Variable(place @ Place::Field { .. }) if types::is_scalar(&value_type) => {
                return Ok(Assignable::Place(place, value_type));
            }
            // A part of a structure that is held member by member.
            ExpressionKind::Variable(place @ (Place::Element { .. } | Place::Scalar { .. }))
                if types::is_scalar(&value_type) || value_type == Type::String =>
            {
                return Ok(Assignable::Place(place, value_type));
            }
            _ => return Err(not_assignable(mark, left)),
        };
        let address = Box::new(convert::to_address(*address));
        let place = Place::Memory {
            address,
            value_type: value_type.clone(),
        };
        Ok(Assignable::Place(place, value_type))
    }
}

/// Whether it has room of its own, which 0 frees.
fn is_dynamic(place: &Place) -> bool {
    match place {
        Place::Scalar { scope, .. } => *scope == Scope::ThreadLocal,
        Place::Element { .. } => true,
        Place::Field { .. } | Place::Memory { .. } => false,
    }
}

/// What can be assigned through a pointer, or within a variable.
enum Assignable {
    Place(Place, Type),
    Bits(Box<BitField>),
    /// A string at this address.
    Text(Expression),
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

/// The variable of D's whose bytes an address lies in, and where in it.
fn own(address: &Expression) -> Option<(Scope, VariableId, Expression)> {
    match &address.kind {
        ExpressionKind::Cast(inner) => match (&inner.kind, &inner.value_type) {
            (ExpressionKind::Variable(Place::Scalar { scope, variable }), Type::Bytes { .. }) => {
                let start = constant::integer(0, constant::UNSIGNED_LONG, address.span);
                Some((*scope, *variable, start))
            }
            _ => own(inner),
        },
        ExpressionKind::Binary {
            operator: BinaryOperator::Add,
            left,
            right,
        } => {
            let (scope, variable, offset) = own(left)?;
            let right = convert::to_address((**right).clone());
            Some((scope, variable, memory::add(offset, right, address.span)))
        }
        _ => None,
    }
}
