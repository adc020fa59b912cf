//! `left = xlate <to>(operand)`: assigns a translation, member by member.
//!
//! ```text
//! translator struct out < struct in *i > { a = i->x; name = i->text; };
//!
//! struct out { int a; int b[2]; char name[8]; } v;
//! v = xlate <struct out>(p)      k = p->x, t = p->text, v.b[0] = 0, v.b[1] = 0, v.a = k, v.name[0] = t[0], ...
//! ```

use super::{Checked, Checker};
use crate::lower::arithmetic::incompatible;
use crate::lower::constant;
use crate::lower::effects::has_effects;
use crate::lower::sequence::after;
use crate::lower::structures::Assigned;
use crate::lower::temporaries::Keep;
use crate::program::{Expression, Type};
use crate::source::Span;
use crate::syntax::{Node, TypeName};
use crate::types;

impl Checker {
    /// `left = xlate <to>(operand)`.
    pub(super) fn assign_translated(
        &mut self,
        left: &Node,
        (to, operand): (&TypeName, &Node),
        span: Span,
    ) -> Checked<Assigned> {
        let held = self.operand(left)?;
        let (known, mut input, pointed) = self.translation(to, operand, span)?;
        let mut before = None;
        let whole = match has_effects(&held) {
            // As in every assignment, the right side is evaluated first.
            true => {
                input = self.variables.kept_operand(input, &mut before)?;
                self.variables.repeatable(held, Keep::All, &mut before)
            }
            false => self.variables.steady(held, &mut before),
        };
        let (output, values) = self.translated_members(&known, &input, pointed, span)?;
        if whole.value_type != Type::Structure(output.clone()) {
            return Err(incompatible(&types::name(&whole.value_type), "=", output.name(), span));
        }
        // All members are read before the first is assigned: the input may be the structure itself.
        let mut given = Vec::with_capacity(values.len());
        for (name, value) in values {
            let is_kept = matches!(
                value.value_type,
                Type::Integer(_) | Type::Pointer(_) | Type::String | Type::Structure(_)
            );
            let value = match is_kept {
                true => self.variables.kept_operand(value, &mut before)?,
                // An array is read from its place when it is assigned.
                false => value,
            };
            given.push((name, value));
        }
        let is_given = |name: &str| given.iter().any(|(member, _)| member == name);
        if let Some(zeros) = self.variables.assign_nothing_but(&whole, &is_given, span)? {
            before = Some(after(before, zeros, span));
        }
        for (name, value) in given {
            let assigned = self.variables.assign_member(&whole, &name, value, span)?;
            before = Some(after(before, assigned, span));
        }
        // A structure without members needs no assignment.
        let effect: Expression = before.unwrap_or_else(|| constant::integer(0, constant::INT, span));
        Ok(Assigned { effect, whole })
    }
}
