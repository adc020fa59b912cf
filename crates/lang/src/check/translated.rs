//! `left = xlate <to>(operand)`: a translation that is assigned, member by member.
//!
//! ```text
//! translator struct out < struct in *i > { a = i->x; name = i->text; };
//!
//! struct out { int a; int b[2]; char name[8]; } v;
//! v = xlate <struct out>(p)      this->k = p->x, this->t = p->text, v.b[0] = 0, v.b[1] = 0, v.a = this->k, v.name[0] = this->t[0], ...
//! ```

use super::access_path::{Step, members, step};
use super::{Resolve, Resolver, scalarize, unions};
use crate::lower::arithmetic::incompatible;
use crate::lower::effects::has_effects;
use crate::lower::sequence::behind;
use crate::lower::{constant, refusals};
use crate::program::{Expression, Structure, Type};
use crate::source::Span;
use crate::syntax::{IntegerLiteral, Node, NodeKind, TypeName};
use crate::types;

/// The name of a value that is assigned. No program can spell it.
const VALUE: &str = "%translated";

impl Resolver {
    /// `left = xlate <to>(operand)`.
    pub(super) fn assign_translated(
        &mut self,
        left: &Node,
        (to, operand): (&TypeName, &Node),
        span: Span,
    ) -> Resolve<Expression> {
        let held = self.operand(left)?;
        let mut all: Option<Expression> = None;
        let (left, operand) = &match has_effects(&held) || !scalarize::is_plain(left) {
            // As everywhere, the right side first.
            true => {
                let operand = self.kept(operand, &mut all)?;
                (self.with_kept_keys(left, &mut all)?, operand)
            }
            false => (left.clone(), operand.clone()),
        };
        let (output, values) = self.translated_members(to, operand, span)?;
        if held.value_type != Type::Structure(output.clone()) {
            return Err(incompatible(&types::name(&held.value_type), "=", output.name(), span));
        }
        if !self.may_be_repeated(left)? {
            return Err(refusals::twice(span));
        }
        // All is read before anything is assigned: the input may be the structure itself.
        let mut given = Vec::with_capacity(values.len());
        for (name, value) in values {
            given.push((name, self.kept_value_of(value, &mut all)?));
        }
        let is_given = |name: &str| given.iter().any(|(member, _)| member == name);
        if let Some(zeros) = self.assign_nothing_but(left, &output, &is_given, span)? {
            all = Some(behind(all, zeros, span));
        }
        for (name, value) in given {
            let of = output.member(&name).map(|found| found.member_type);
            let member = NodeKind::Member {
                base: Box::new(left.clone()),
                name,
                arrow: false,
            };
            self.bound.push((VALUE.to_owned(), value));
            let assigned = self.assign_value(&Node::new(member, span), of.as_ref(), span);
            self.bound.pop();
            all = Some(behind(all, assigned?, span));
        }
        // A structure without members.
        Ok(all.unwrap_or_else(|| constant::integer(0, constant::INT, span)))
    }

    /// A value as it is now; an array is read where it lies.
    fn kept_value_of(&mut self, value: Expression, before: &mut Option<Expression>) -> Resolve<Expression> {
        let node = Node::new(NodeKind::Identifier(VALUE.to_owned()), value.span);
        let keeps = matches!(
            value.value_type,
            Type::Integer(_) | Type::Pointer(_) | Type::String | Type::Structure(_)
        );
        if !keeps || constant::wide_value(&value).is_some() {
            return Ok(value);
        }
        self.bound.push((VALUE.to_owned(), value));
        let kept = self.kept(&node, before);
        self.bound.pop();
        self.operand(&kept?)
    }

    /// `member = value`, of the value that has the name for it.
    fn assign_value(&mut self, member: &Node, of: Option<&Type>, span: Span) -> Resolve<Expression> {
        let value = Node::new(NodeKind::Identifier(VALUE.to_owned()), span);
        let Some(of) = of.filter(|of| types::is_aggregate(of)) else {
            return self.assign(member, &value, span);
        };
        // Behind the end of a string for an array of characters is 0.
        self.assign_members(member, Some(&value), of, span)
    }

    /// Zeros for what is not given, and strings without a character.
    fn assign_nothing_but(
        &mut self,
        left: &Node,
        output: &Structure,
        is_given: &dyn Fn(&str) -> bool,
        span: Span,
    ) -> Resolve<Option<Expression>> {
        let mut paths = Vec::new();
        if !members(&Type::Structure(output.clone()), 0, &mut Vec::new(), &mut paths) {
            return Err(refusals::too_large(span));
        }
        let mut all = None;
        for path in paths {
            if let Some(Step::Member(name)) = path.first()
                && is_given(name)
            {
                continue;
            }
            let place = step(left, &path, span);
            let of = self.operand(&place)?.value_type;
            let nothing = match of {
                Type::String => NodeKind::String(Vec::new()),
                _ => NodeKind::Integer(IntegerLiteral::decimal(0)),
            };
            let assigned = match unions::is_union(&of) {
                true => self.assign_union(&place, None, span)?,
                false => self.assign(&place, &Node::new(nothing, span), span)?,
            };
            all = Some(behind(all, assigned, span));
        }
        Ok(all)
    }
}
