//! Variables whose structures are held member by member: those of associative arrays, and those with strings in them.
//!
//! ```text
//! struct { int n; string s; } a[int];      the variables   int a.n[int]; string a.s[int];
//! a[k].n = 1                               the element [k] of `a.n`
//! struct { int row[4]; } b[int];           b[k].row[i] is the element [k, i] of the variable b.row[]
//! ```
//!
//! A text cannot spell these names. The variable `a` itself is of no type that anything computes with, and holds nothing. A
//! structure as a whole has no bytes then: it is assigned member by member, and where its bytes are wanted (`print()`, `trace()`)
//! they are gathered in a variable of the clause's.

use super::access_path::{members, step};
use super::unions::is_union;
use super::variables::designator;
use super::{Resolve, Resolver};
use crate::diagnostic::Diagnostic;
use crate::lower::effects::has_effects;
use crate::lower::refusals::{too_large, twice, unsupported};
use crate::lower::sequence::behind;
use crate::lower::{arithmetic, constant, convert, memory};
use crate::program::{
    BinaryOperator, Expression, ExpressionKind, Place, Scope, Type, Variable, VariableId, holds_strings,
};
use crate::source::Span;
use crate::syntax::{IntegerLiteral, LocalScope, Node, NodeKind};

/// How deep structures are looked into for unions, and how many of them.
const NESTING_MAX: u32 = 32;
/// How many assignments of structures may be nested in each other's keys.
const KEPT_LEVELS_MAX: u32 = 3;
const STRUCTURES_MAX: u32 = 4096;

impl Resolver {
    /// Whether a variable of this type is held member by member.
    pub(super) fn is_to_spread(&self, of: &Type, element: bool, span: Span) -> Resolve<bool> {
        if !matches!(of, Type::Structure(_) | Type::Array { .. }) || !(element || holds_strings(of)) {
            return Ok(false);
        }
        if holds_unions_of_strings(of, NESTING_MAX, &mut STRUCTURES_MAX.clone()) {
            let what = "a union with strings in it";
            return Err(unsupported("N_STRUCT", what, span));
        }
        Ok(true)
    }

    /// Makes a variable that is held member by member.
    pub(super) fn define_spread(
        &mut self,
        scope: Scope,
        name: &str,
        (of, keys): (&Type, Option<Vec<Type>>),
        span: Span,
    ) -> VariableId {
        let variable = Variable {
            name: name.to_owned(),
            value_type: Type::Bytes { size: None },
            keys,
        };
        let id = self.define(scope, variable, span);
        self.spread.insert((scope, id), of.clone());
        id
    }

    /// The type of a variable that is held member by member.
    pub(super) fn spread_type(&self, place: &Place) -> Option<&Type> {
        match place {
            Place::Scalar { scope, variable } | Place::Element { scope, variable, .. } => {
                self.spread.get(&(*scope, *variable))
            }
            Place::Field { .. } | Place::Memory { .. } => None,
        }
    }

    /// A member, `name`, of a structure that is held so: where that is kept.
    pub(super) fn spread_member(&mut self, whole: &Place, name: &str, of: &Type, span: Span) -> Resolve<Expression> {
        self.spread_part(whole, &format!(".{name}"), None, of, span)
    }

    /// An element of an array that is held so.
    pub(super) fn spread_element(
        &mut self,
        whole: &Place,
        index: Expression,
        (of, count): (&Type, u32),
        span: Span,
    ) -> Resolve<Expression> {
        let index = convert::to_integer(convert::uncut(index), constant::LONG);
        self.spread_part(whole, "[]", Some(within(index, count, span)?), of, span)
    }

    fn spread_part(
        &mut self,
        whole: &Place,
        suffix: &str,
        index: Option<Expression>,
        of: &Type,
        span: Span,
    ) -> Resolve<Expression> {
        let (scope, outer, mut keys) = match whole {
            Place::Scalar { scope, variable } => (*scope, *variable, None),
            Place::Element { scope, variable, keys } => (*scope, *variable, Some(keys.clone())),
            Place::Field { .. } | Place::Memory { .. } => return Err(nameless(span)),
        };
        let Some(outer) = self.variable(scope, outer) else {
            return Err(nameless(span));
        };
        let name = format!("{}{suffix}", outer.name);
        let mut types = outer.keys.clone();
        if let Some(index) = index {
            if scope == Scope::ClauseLocal {
                return Err(unsupported(
                    "N_STRUCT",
                    "an array beside a string, in a this-> variable,",
                    span,
                ));
            }
            types.get_or_insert_default().push(Type::I64);
            keys.get_or_insert_default().push(index);
        }
        let held = memory::held(of);
        let known = self.known(scope, &name).map(|known| known.id);
        let variable = known.unwrap_or_else(|| match of {
            Type::Structure(_) | Type::Array { .. } => self.define_spread(scope, &name, (of, types), span),
            _ => {
                let variable = Variable {
                    name,
                    value_type: held,
                    keys: types,
                };
                self.define(scope, variable, span)
            }
        });
        let place = match keys {
            None => Place::Scalar { scope, variable },
            Some(keys) => Place::Element { scope, variable, keys },
        };
        Ok(Expression {
            kind: ExpressionKind::Variable(place),
            value_type: of.clone(),
            span,
        })
    }

    /// `left = right` of structures, where one of them is held member by member, or `left` is a member of another: so is it
    /// assigned. `None`: that is not so.
    pub(super) fn assign_spread(&mut self, left: &Node, right: &Node, span: Span) -> Option<Resolve<Expression>> {
        if let Some(assigned) = self.assign_chain(left, right, span) {
            return Some(assigned);
        }
        let is_part = designator(left).is_none();
        let is_known = self.names_spread(left) || self.names_spread(right);
        if !(is_known || is_part && is_plain(left) && is_plain(right)) {
            return None;
        }
        if !is_plain(left) || !is_plain(right) {
            let is_structure = is_way(left) && is_way(right) && self.is_kept_structure(right);
            return is_structure.then(|| self.assign_kept(left, right, span));
        }
        let from = match self.operand(right) {
            Ok(from) => from,
            Err(error) => return Some(Err(error)),
        };
        let Type::Structure(structure) = from.value_type.clone() else {
            return None;
        };
        let target = designator(left);
        if let Some(target) = &target
            && self.known(target.scope, target.name).is_none()
            && let Err(error) = self.place_or_new(target, &from.value_type)
        {
            return Some(Err(error));
        }
        let to = match self.operand(left) {
            Ok(to) => to,
            Err(error) => return Some(Err(error)),
        };
        if to.value_type != from.value_type {
            let (to, from) = (crate::types::name(&to.value_type), crate::types::name(&from.value_type));
            return Some(Err(arithmetic::incompatible(&to, "=", &from, span)));
        }
        if has_effects(&to) || has_effects(&from) {
            return Some(self.assign_kept(left, right, span));
        }
        Some(self.assign_members(left, Some(right), &Type::Structure(structure), span))
    }

    /// Whether it is a structure, by way of keys that may have effects. It is resolved once more for that, and what is nested in its
    /// keys once more for each level: of a few levels, no more.
    fn is_kept_structure(&mut self, node: &Node) -> bool {
        if self.kept_levels == KEPT_LEVELS_MAX {
            return false;
        }
        self.kept_levels += 1;
        let found = self.operand(node);
        self.kept_levels -= 1;
        found.is_ok_and(|found| matches!(found.value_type, Type::Structure(_)))
    }

    /// `left = right` where keys have effects.
    fn assign_kept(&mut self, left: &Node, right: &Node, span: Span) -> Resolve<Expression> {
        let mut before = None;
        // As everywhere, the right side first.
        let right = self.with_kept_keys(right, &mut before)?;
        let left = self.with_kept_keys(left, &mut before)?;
        // What is not known yet is made by the assignment.
        let has_effects = |found: Resolve<Expression>| found.is_ok_and(|found| has_effects(&found));
        if !is_plain(&left) || has_effects(self.operand(&left)) || !self.may_be_repeated(&right)? {
            return Err(twice(span));
        }
        let assigned = self.assign(&left, &right, span)?;
        Ok(behind(before, assigned, span))
    }

    /// `a = b = c` of structures: `b = c, a = b`.
    fn assign_chain(&mut self, left: &Node, right: &Node, span: Span) -> Option<Resolve<Expression>> {
        let NodeKind::Assign {
            operator: None,
            left: between,
            right: value,
        } = &right.kind
        else {
            return None;
        };
        let last = last_assigned(value);
        if !is_plain(between) || !is_plain(last) {
            return None;
        }
        // Whatever is wrong with it will be told where it is assigned.
        let is_structure =
            |found: Resolve<Expression>| matches!(found, Ok(found) if matches!(found.value_type, Type::Structure(_)));
        if !is_structure(self.operand(last)) {
            return None;
        }
        let first = match self.assign(between, value, right.span) {
            Ok(first) => first,
            Err(error) => return Some(Err(error)),
        };
        Some(
            self.assign(left, between, span)
                .map(|second| behind(Some(first), second, span)),
        )
    }

    /// The bytes of a structure, or an array, that is held member by member: gathered in a variable of the clause's. `None`: it
    /// is not held so.
    pub(super) fn gathered(&mut self, node: &Node, found: &Expression) -> Resolve<Option<Expression>> {
        let of = &found.value_type;
        let is_held_so = match &found.kind {
            ExpressionKind::Variable(place) => self.spread_type(place).is_some(),
            _ => false,
        };
        if !is_held_so || holds_strings(of) {
            return Ok(None);
        }
        let mut before = None;
        let kept = match has_effects(found) || !is_plain(node) {
            true => self.with_kept_keys(node, &mut before)?,
            false => node.clone(),
        };
        if !self.may_be_repeated(&kept)? {
            return Err(twice(found.span));
        }
        let Some(bytes) = self.aggregate_of(of, found.span)? else {
            return Ok(None);
        };
        let name = format!("%whole{}", self.program.clause_locals.len());
        let scope = Scope::ClauseLocal;
        let variable = Variable {
            name: name.clone(),
            value_type: bytes.clone(),
            keys: None,
        };
        let id = self.define(scope, variable, found.span);
        self.aggregates.insert((scope, id), of.clone());
        let to = NodeKind::Local {
            scope: LocalScope::Clause,
            name,
        };
        let filled = self.assign_members(&Node::new(to, found.span), Some(&kept), of, found.span)?;
        let filled = behind(before, filled, found.span);
        let whole = Expression {
            kind: ExpressionKind::Variable(Place::Scalar { scope, variable: id }),
            value_type: bytes,
            span: found.span,
        };
        Ok(Some(behind(Some(filled), whole, found.span)))
    }

    /// `left = 0` of a structure.
    pub(super) fn assign_nothing(&mut self, left: &Node, span: Span) -> Resolve<Expression> {
        let mut before = None;
        let left = &self.with_kept_keys(left, &mut before)?;
        let found = self.operand(left)?;
        if !matches!(found.value_type, Type::Structure(_)) {
            return Err(nameless(span));
        }
        if !is_plain(left) || has_effects(&found) {
            return Err(twice(span));
        }
        let assigned = self.assign_members(left, None, &found.value_type, span)?;
        Ok(behind(before, assigned, span))
    }

    /// Assigns the members of `right`, or 0, to those of `left`.
    pub(super) fn assign_members(
        &mut self,
        left: &Node,
        right: Option<&Node>,
        of: &Type,
        span: Span,
    ) -> Resolve<Expression> {
        let mut paths = Vec::new();
        if !members(of, 0, &mut Vec::new(), &mut paths) {
            return Err(too_large(span));
        }
        let nothing = Node::new(NodeKind::Integer(IntegerLiteral::decimal(0)), span);
        let mut all: Option<Expression> = None;
        for path in paths {
            let value = right.map(|right| step(right, &path, span));
            let place = step(left, &path, span);
            let assigned = match is_union(&self.operand(&place)?.value_type) {
                true => self.assign_union(&place, value.as_ref(), span)?,
                false => self.assign(&place, value.as_ref().unwrap_or(&nothing), span)?,
            };
            all = Some(behind(all, assigned, span));
        }
        // A structure without members.
        Ok(all.unwrap_or_else(|| constant::integer(0, constant::INT, span)))
    }

    /// Whether a node is of the form of a part of a variable that is held so.
    fn names_spread(&self, node: &Node) -> bool {
        if let Some(found) = designator(node)
            && let Some(known) = self.known(found.scope, found.name)
        {
            return self.spread.contains_key(&(found.scope, known.id));
        }
        match &node.kind {
            NodeKind::Member { base, arrow: false, .. } | NodeKind::Index { base, .. } => self.names_spread(base),
            _ => false,
        }
    }
}

/// Whether nothing is assigned or chosen in it. Only such a node is resolved more than once: what is nested would be so again at
/// each level.
pub(super) fn is_plain(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Integer(_) | NodeKind::String(_) | NodeKind::Identifier(_) | NodeKind::Local { .. } => true,
        NodeKind::Member { base, .. } => is_plain(base),
        NodeKind::Index { base, indices } => is_plain(base) && indices.iter().all(is_plain),
        NodeKind::Unary { operand, .. } | NodeKind::Cast { operand, .. } => is_plain(operand),
        NodeKind::Binary { left, right, .. } => is_plain(left) && is_plain(right),
        NodeKind::Call { arguments, .. } => arguments.iter().all(is_plain),
        _ => false,
    }
}

/// Whether it names something: a variable, or a part of one.
fn is_way(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Identifier(_) | NodeKind::Local { .. } => true,
        NodeKind::Member { base, arrow: false, .. } | NodeKind::Index { base, .. } => is_way(base),
        _ => false,
    }
}

/// What `a = (b = ... = last)` begins with.
fn last_assigned(node: &Node) -> &Node {
    match &node.kind {
        NodeKind::Assign {
            operator: None, right, ..
        } => last_assigned(right),
        _ => node,
    }
}

/// An index that is a bad address where the array has no such element.
fn within(index: Expression, count: u32, span: Span) -> Resolve<Expression> {
    if constant::value(&index).is_some() {
        return Ok(index);
    }
    if has_effects(&index) {
        return Err(twice(span));
    }
    let limit = constant::integer(i64::from(count), constant::UNSIGNED_LONG, span);
    let inside = Expression {
        kind: ExpressionKind::Binary {
            operator: BinaryOperator::Less,
            left: Box::new(convert::to_address(index.clone())),
            right: Box::new(limit),
        },
        value_type: Type::I32,
        span,
    };
    let nowhere = constant::integer(0, constant::UNSIGNED_LONG, span);
    Ok(Expression {
        kind: ExpressionKind::Conditional {
            condition: Box::new(inside),
            then: Box::new(index),
            otherwise: Box::new(convert::load(nowhere, &Type::I64, span)),
        },
        value_type: Type::I64,
        span,
    })
}

/// Whether it holds unions that have no words. The types of a damaged program may go in circles.
fn holds_unions_of_strings(of: &Type, depth: u32, left: &mut u32) -> bool {
    match of {
        Type::Array { of, .. } => holds_unions_of_strings(of, depth, left),
        Type::Structure(structure) => {
            if is_union(of) {
                return holds_strings(of);
            }
            let members = structure.body().map(|body| body.members.as_slice()).unwrap_or_default();
            if depth == 0 || *left == 0 {
                return true;
            }
            *left -= 1;
            members
                .iter()
                .any(|member| holds_unions_of_strings(&member.member_type, depth - 1, left))
        }
        _ => false,
    }
}

fn nameless(span: Span) -> Diagnostic {
    Diagnostic::new("D_OP_LVAL", span, "this has no members that can be named")
}
