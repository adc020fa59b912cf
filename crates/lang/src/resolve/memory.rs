//! Members and elements: of what lies in the target's memory, and of variables.
//!
//! A structure or an array is no value. While an expression is resolved it is known by where it lies:
//!
//! ```text
//! *p, p->m, p[i]     ExpressionKind::Load(address), of the structure's or array's type
//! x, x.m, x[i]       ExpressionKind::Variable(Place::Field), likewise
//! ```
//!
//! Whoever wants a value gets one of these: the member or element (an integer or a pointer), the bytes ([`Resolver::bytes`]),
//! or, of an array, the address of its first element ([`Resolver::expression`]).

use super::assignment::behind;
use super::structures::find_member;
use super::{Resolve, Resolver, constant, convert, names, unions};
use crate::diagnostic::Diagnostic;
use crate::program::{
    BinaryOperator, Bits, Builtin, Expression, ExpressionKind, Foreign, ForeignKind, Function, IntegerType, Place,
    Scope, Type, size_of,
};
use crate::source::Span;
use crate::syntax::{Node, NodeKind};
use crate::types;

/// Whether a type is that of something in memory.
pub(super) fn is_aggregate(of: &Type) -> bool {
    match of {
        Type::Structure(_) | Type::Array { .. } => true,
        Type::Foreign(foreign) => foreign.integer().is_none(),
        _ => false,
    }
}

impl Resolver {
    /// The value of an expression; an array becomes the address of its first element.
    pub(super) fn expression(&mut self, node: &Node) -> Resolve<Expression> {
        readable(decayed(self.placed_operand(node)?))
    }

    /// What a node is, with a place of its own. An array of an associative array has none: a copy of it.
    pub(super) fn placed_operand(&mut self, node: &Node) -> Resolve<Expression> {
        let found = self.operand(node)?;
        if matches!(found.value_type, Type::Array { .. })
            && let Some(gathered) = self.gathered(node, &found)?
        {
            let mut before = None;
            let (_, copy) = self.structure_copy(gathered, &found.value_type, &mut before)?;
            return Ok(behind(before, copy, node.span));
        }
        placed(found)
    }

    /// The value of an expression; a structure or an array becomes its bytes.
    pub(super) fn bytes(&mut self, node: &Node) -> Resolve<Expression> {
        Ok(self.shown_bytes(node)?.0)
    }

    /// Likewise, with the type that it had.
    pub(super) fn shown_bytes(&mut self, node: &Node) -> Resolve<(Expression, Type)> {
        let found = self.operand(node)?;
        let shown = found.value_type.clone();
        let value = match self.gathered(node, &found)? {
            Some(gathered) => gathered,
            None => bytes_of(placed(found)?),
        };
        Ok((value, shown))
    }

    /// `base.member`, `base->member`.
    pub(super) fn member(&mut self, base: &Node, name: &str, arrow: bool, span: Span) -> Resolve<Expression> {
        Ok(match self.member_in_unit(base, name, arrow, span)? {
            (part, None) => part,
            (unit, Some(bits)) => {
                let names = unit.value_type.clone();
                let value = extract(decayed(unit), bits, span);
                match &names {
                    Type::Foreign(foreign) => super::foreign::of_enumeration(value, foreign),
                    _ => value,
                }
            }
        })
    }

    /// A member; of a bit-field, its unit and where in it the field lies.
    pub(super) fn member_in_unit(
        &mut self,
        base: &Node,
        name: &str,
        arrow: bool,
        span: Span,
    ) -> Resolve<(Expression, Option<Bits>)> {
        if let Some(translation) = super::translators::is_translation(base) {
            return Ok((self.translated(translation, name, arrow, span)?, None));
        }
        if let NodeKind::Identifier(inline) = &base.kind
            && let Some((to, operand)) = self.inline_translations.get(inline).cloned()
        {
            return Ok((self.translated((&to, &operand), name, arrow, span)?, None));
        }
        if let NodeKind::Identifier(variable) = &base.kind
            && (variable.as_str(), name, arrow) == ("curpsinfo", "pr_dmodel", true)
            && !self.is_declared(variable)
        {
            let of = IntegerType { bytes: 1, signed: true };
            return Ok((constant::integer(names::LP64, of, span), None));
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
            return Ok((Expression { kind, value_type, span }, None));
        }
        if let NodeKind::Index { base: files, indices } = &base.kind
            && matches!(&files.kind, NodeKind::Identifier(files) if files == "fds" && !self.is_declared(files))
            && !arrow
        {
            return Ok((self.file(indices, name, span)?, None));
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
        let nameless = unions::nameless_at(&whole, name);
        let found = match &nameless {
            Some(found) => found.clone(),
            None => find_member(structure, name, span).map_err(|error| self.with_reason(error, structure))?,
        };
        let base = if pointed {
            in_memory(convert::to_address(base), whole.clone(), span)
        } else {
            base
        };
        let (mut base, mut offset) = (base, found.offset);
        if let ExpressionKind::Variable(place) = &base.kind
            && self.spread_type(place).is_some()
        {
            let place = place.clone();
            match unions::nameless_with(&whole, name) {
                _ if unions::is_union(&whole) => base = self.union_copy(&place, &whole, span)?,
                // A member of a union without a name.
                Some((at, nameless)) => {
                    let held = self.spread_member(&place, &unions::nameless_name(at), &nameless, span)?;
                    if let ExpressionKind::Variable(place) = held.kind {
                        base = self.union_copy(&place, &nameless, span)?;
                    }
                    offset -= at;
                }
                None => return Ok((self.spread_member(&place, name, &found.member_type, span)?, found.bits)),
            }
        }
        let offset = constant::integer(offset as i64, constant::UNSIGNED_LONG, span);
        Ok((part(base, offset, &found.member_type, span)?, found.bits))
    }

    /// Whether the text has given a name a meaning of its own.
    pub(super) fn is_declared(&self, name: &str) -> bool {
        self.known(Scope::Global, name).is_some()
            || self.inlines.contains_key(name)
            || self.externals.contains_key(name)
            || self.bound.iter().any(|(bound, _)| bound == name)
    }

    /// `base[index]` of an array.
    pub(super) fn element(&mut self, base: Expression, indices: &[Node], span: Span) -> Resolve<Expression> {
        let Type::Array { of, count } = base.value_type.clone() else {
            return Err(Diagnostic::new("D_ARR_BADREF", span, "this has no elements"));
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
        if let ExpressionKind::Variable(place) = &base.kind
            && self.spread_type(place).is_some()
        {
            return self.spread_element(place, index, (&of, count), span);
        }
        let offset = super::pointers::scaled(index, Some(&of), span)?;
        part(base, offset, &of, span)
    }
}

/// An array as the address of its first element; anything else as it is.
pub(super) fn decayed(found: Expression) -> Expression {
    match &found.value_type {
        Type::Array { of, .. } => {
            let to = Type::Pointer(Some(of.clone()));
            convert::cast(address_of(found), to)
        }
        Type::Foreign(foreign) => match foreign.integer() {
            Some(integer) => Expression {
                value_type: Type::Integer(integer),
                ..found
            },
            None => found,
        },
        _ => found,
    }
}

/// Refuses what has no place as a whole: a structure in registers, or held member by member.
pub(super) fn placed(found: Expression) -> Resolve<Expression> {
    if matches!(found.kind, ExpressionKind::Builtin(_)) && is_aggregate(&found.value_type) {
        let message = format!(
            "this {} lies in registers: name its members",
            types::name(&found.value_type)
        );
        return Err(Diagnostic::new("D_ARGS_TYPE", found.span, message));
    }
    super::spread::refuse_whole(&found)?;
    Ok(found)
}

/// Refuses what is no value: floating point, and what is known by its size only.
pub(super) fn readable(found: Expression) -> Resolve<Expression> {
    match &found.value_type {
        Type::Foreign(_) => Err(super::expressions::unsupported(
            "N_FLOAT",
            &format!("computing with a {}", types::name(&found.value_type)),
            found.span,
        )
        .with_help("print() shows it")),
        _ => Ok(found),
    }
}

/// A float or double in memory, as the integer of its bits, which `%f` and its kin print.
pub(super) fn floating_bits(found: &Expression) -> Option<(Expression, Foreign)> {
    let Type::Foreign(of) = &found.value_type else {
        return None;
    };
    let value_type = match of.kind() {
        ForeignKind::Floating(4) => Type::U32,
        ForeignKind::Floating(8) => Type::U64,
        _ => return None,
    };
    let kind = match &found.kind {
        ExpressionKind::Load(address) => ExpressionKind::Load(address.clone()),
        ExpressionKind::Variable(Place::Field {
            scope,
            variable,
            offset,
            ..
        }) => ExpressionKind::Variable(Place::Field {
            scope: *scope,
            variable: *variable,
            offset: offset.clone(),
            value_type: value_type.clone(),
        }),
        _ => return None,
    };
    let span = found.span;
    Some((Expression { kind, value_type, span }, of.clone()))
}

/// Something in the target's memory.
pub(super) fn in_memory(address: Expression, of: Type, span: Span) -> Expression {
    Expression {
        kind: ExpressionKind::Load(Box::new(address)),
        value_type: of,
        span,
    }
}

/// What lies `offset` bytes behind the start of a structure or array.
pub(super) fn part(whole: Expression, offset: Expression, of: &Type, span: Span) -> Resolve<Expression> {
    match whole.kind {
        ExpressionKind::Load(address) => {
            let address = add(convert::to_address(*address), offset, span);
            Ok(if is_aggregate(of) {
                in_memory(address, of.clone(), span)
            } else {
                super::foreign::at_address(address, of, span)?
            })
        }
        ExpressionKind::Builtin(Builtin::Argument(first)) => match constant::value(&offset) {
            Some(offset) => super::foreign::in_words(first, offset as u64, of, span),
            None => Err(Diagnostic::new(
                "D_ARR_BADREF",
                span,
                "an array in registers has constant indices only",
            )),
        },
        ExpressionKind::Variable(Place::Field {
            scope,
            variable,
            offset: before,
            ..
        }) => {
            let offset = Box::new(add(*before, offset, span));
            let place = Place::Field {
                scope,
                variable,
                offset,
                value_type: held(of),
            };
            Ok(Expression {
                kind: ExpressionKind::Variable(place),
                value_type: of.clone(),
                span,
            })
        }
        _ => Err(Diagnostic::new(
            "D_OP_LVAL",
            span,
            "this has no members that can be named",
        )),
    }
}

/// The type in which a variable of D's holds a value.
pub(super) fn held(of: &Type) -> Type {
    match of {
        Type::Foreign(foreign) => foreign.integer().map_or_else(|| of.clone(), Type::Integer),
        _ => of.clone(),
    }
}

/// The sum of an address, or an offset, and an offset, all `uint64_t`.
pub(super) fn add(left: Expression, right: Expression, span: Span) -> Expression {
    match (constant::value(&left), constant::value(&right)) {
        (_, Some(0)) => left,
        (Some(0), _) => right,
        (Some(left), Some(right)) => constant::integer(left.wrapping_add(right), constant::UNSIGNED_LONG, span),
        _ => Expression {
            kind: ExpressionKind::Binary {
                operator: BinaryOperator::Add,
                left: Box::new(left),
                right: Box::new(right),
            },
            value_type: Type::U64,
            span,
        },
    }
}

/// Where a structure or array lies: an `uint64_t`. A variable's own memory has an address, too.
pub(super) fn address_of(whole: Expression) -> Expression {
    let span = whole.span;
    match whole.kind {
        ExpressionKind::Load(address) => convert::to_address(*address),
        ExpressionKind::Variable(Place::Field {
            scope,
            variable,
            offset,
            ..
        }) => {
            let start = Expression {
                kind: ExpressionKind::Variable(Place::Scalar { scope, variable }),
                value_type: Type::Bytes { size: None },
                span,
            };
            add(convert::cast(start, Type::U64), *offset, span)
        }
        // A copy, behind what makes it.
        ExpressionKind::Comma { first, second } if is_aggregate(&second.value_type) => {
            behind(Some(*first), address_of(*second), span)
        }
        kind => convert::cast(Expression { kind, ..whole }, Type::U64),
    }
}

/// A structure or an array as bytes; anything else as it is.
pub(super) fn bytes_of(whole: Expression) -> Expression {
    let span = whole.span;
    let size = match &whole.value_type {
        Type::Foreign(foreign) if foreign.integer().is_some() => return decayed(whole),
        of if is_aggregate(of) => size_of(of).and_then(|size| u32::try_from(size).ok()),
        _ => return whole,
    };
    let (Some(size), value_type) = (size, Type::Bytes { size }) else {
        return whole;
    };
    if let ExpressionKind::Variable(Place::Field {
        scope,
        variable,
        offset,
        ..
    }) = &whole.kind
        && constant::value(offset) == Some(0)
    {
        let place = Place::Scalar {
            scope: *scope,
            variable: *variable,
        };
        return Expression {
            kind: ExpressionKind::Variable(place),
            value_type,
            span,
        };
    }
    let size = constant::integer(i64::from(size), constant::UNSIGNED_LONG, span);
    Expression {
        kind: ExpressionKind::Call {
            function: Function::CopyIn,
            arguments: vec![address_of(whole), size],
        },
        value_type,
        span,
    }
}

/// The value of a bit-field in its unit: shifted up so that its highest bit is the register's, and down again.
pub(super) fn extract(unit: Expression, bits: Bits, span: Span) -> Expression {
    let Type::Integer(of) = unit.value_type else {
        return unit;
    };
    let wide = IntegerType { bytes: 8, ..of };
    let shift = |operator, value: Expression, count: u32| Expression {
        kind: ExpressionKind::Binary {
            operator,
            left: Box::new(value),
            right: Box::new(constant::integer(i64::from(count), constant::LONG, span)),
        },
        value_type: Type::Integer(wide),
        span,
    };
    let value = convert::to_integer(unit, wide);
    let value = shift(BinaryOperator::ShiftLeft, value, 64 - bits.width - bits.shift);
    convert::narrow(shift(BinaryOperator::ShiftRight, value, 64 - bits.width), of)
}
