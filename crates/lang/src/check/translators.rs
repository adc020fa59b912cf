//! Translators: `translator output < input name > { member = expression; ... };` and `xlate <output>(value)`.
//!
//! A translator makes no structure. `xlate <T *>(e)->m` is the translator's expression for `m`,
//! with `e` in the place of its input. `v = xlate <T>(e)` assigns these expressions to the members
//! of `v` one by one:
//!
//! ```text
//! translator struct out < struct in *i > { a = i->x + 1; };
//!
//! xlate <struct out *>(p)->a      p->x + 1
//! v = xlate <struct out>(p)       v.a = p->x + 1, and every other member 0
//! ```
//!
//! So the input is evaluated once for each use in the chosen members, like the parameter of an
//! inline.

use super::inlines::{MAXIMUM_INLINE, nodes};
use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::{coerce, memory, refusals};
use crate::program::{Builtin, Expression, ExpressionKind, Structure, Type};
use crate::source::Span;
use crate::syntax::{Node, NodeKind, Translator, TypeName};
use crate::types;

/// A translator that was declared.
#[derive(Clone, Debug)]
pub(super) struct Known {
    output: Structure,
    input: Type,
    /// The name of the input.
    name: String,
    members: Vec<(String, Node)>,
    span: Span,
}

impl Checker {
    pub(super) fn translator(&mut self, translator: &Translator) -> Checked<()> {
        let span = translator.span;
        let output = self.type_of(&translator.output)?;
        let input = self.base(&translator.input.base, translator.input.span)?;
        let input = self.derive(input, &translator.input.derived, translator.input.span)?;
        let Type::Structure(output) = output else {
            return Err(not_a_structure(&types::name(&output), translator.output.span));
        };
        if output.body().is_none() {
            return Err(not_a_structure(output.name(), translator.output.span));
        }
        let same = |known: &&Known| known.output == output && known.input == input;
        if let Some(known) = self.scope.translators.iter().find(same) {
            let message = format!(
                "translator from {} to {} has already been declared",
                types::name(&input),
                output.name()
            );
            return Err(
                Diagnostic::new("D_XLATE_REDECL", span, message).with_related(known.span, "it was first declared here")
            );
        }
        let known = Known {
            output,
            input,
            name: translator.input.name.clone(),
            members: translator
                .members
                .iter()
                .map(|(name, value, _)| (name.clone(), value.clone()))
                .collect(),
            span,
        };
        // Errors are reported where the translator is declared, not only where it is used.
        for (name, value, at) in &translator.members {
            let stand_in = stand_in(&known.input, span);
            self.conversion(&known, name, value, stand_in, *at)?;
        }
        self.scope.translators.push(known);
        Ok(())
    }

    /// The expression of one member, of the member's type.
    fn conversion(
        &mut self,
        known: &Known,
        member: &str,
        value: &Node,
        input: Expression,
        span: Span,
    ) -> Checked<Expression> {
        let Some(found) = known.output.member(member) else {
            let message = format!(
                "translator member {member} definition: not a member of {}",
                known.output.name()
            );
            return Err(Diagnostic::new("D_XLATE_MEMB", span, message));
        };
        let outer = std::mem::replace(&mut self.scope.bound, vec![(known.name.clone(), input)]);
        let value = self.operand(value);
        self.scope.bound = outer;
        let value = value?;
        if nodes(&value) > MAXIMUM_INLINE {
            let message = format!("the translation of {member} expands to more than {MAXIMUM_INLINE} operations");
            return Err(Diagnostic::new("N_NESTING", span, message));
        }
        let from = types::name(&value.value_type);
        let incompatible = || {
            let message = format!(
                "translator member {member} definition uses incompatible types: \"{}\" = \"{from}\"",
                types::name(&found.member_type)
            );
            Diagnostic::new("D_XLATE_INCOMPAT", span, message)
        };
        if types::is_aggregate(&found.member_type) || types::is_aggregate(&value.value_type) {
            let is_text = matches!(&found.member_type, Type::Array { of, .. } if types::size_of(of) == Some(1))
                && matches!(value.value_type, Type::String);
            return if value.value_type == found.member_type || is_text {
                Ok(value)
            } else {
                Err(incompatible())
            };
        }
        // As in DTrace, a string is accepted for an array of characters. No other value is accepted
        // for an array or a structure.
        coerce::assign(value, &found.member_type).ok_or_else(incompatible)
    }

    /// `xlate <to>(operand)->member`, or `xlate <to>(operand).member`.
    pub(super) fn translated(
        &mut self,
        (to, operand): (&TypeName, &Node),
        member: &str,
        arrow: bool,
        span: Span,
    ) -> Checked<Expression> {
        let (known, input, pointed) = self.translation(to, operand, span)?;
        if pointed != arrow {
            let (tag, mark, what) = if arrow {
                ("D_OP_PTR", "->", "a pointer")
            } else {
                ("D_OP_SOU", ".", "a struct or union")
            };
            let message = format!("operator {mark} must be applied to {what}");
            return Err(Diagnostic::new(tag, span, message));
        }
        let Some((_, value)) = known.members.iter().find(|(name, _)| name == member) else {
            refusals::find_member(&known.output, member, span)?;
            let message = format!("translator does not define conversion for member: {member}");
            return Err(Diagnostic::new("D_XLATE_NOCONV", span, message));
        };
        let value = self.conversion(&known, member, value, input, span)?;
        Ok(Expression { span, ..value })
    }

    /// The members of `left = xlate <to>(operand)`, and the values that the translator gives to
    /// some of them.
    pub(super) fn translated_members(
        &mut self,
        known: &Known,
        input: &Expression,
        pointed: bool,
        span: Span,
    ) -> Checked<(Structure, Vec<(String, Expression)>)> {
        if pointed {
            return Err(whole(span));
        }
        let mut values: Vec<(String, Expression)> = Vec::new();
        for (name, value) in &known.members {
            // If a translator gives a member twice, the first value counts.
            if values.iter().all(|(given, _)| given != name) {
                values.push((name.clone(), self.conversion(known, name, value, input.clone(), span)?));
            }
        }
        Ok((known.output.clone(), values))
    }

    /// Whether there is a translator for `xlate <to>(operand)`.
    pub(super) fn check_translation(&mut self, to: &TypeName, operand: &Node, span: Span) -> Checked<()> {
        self.translation(to, operand, span).map(|_| ())
    }

    /// The error of an `xlate <to>(operand)` of which no member is taken and which is not assigned to a structure.
    pub(super) fn untaken(&mut self, to: &TypeName, operand: &Node, span: Span) -> Diagnostic {
        self.translation(to, operand, span).err().unwrap_or_else(|| whole(span))
    }

    /// The translator that `xlate <to>(operand)` asks for, its input, and whether the result is a pointer.
    pub(super) fn translation(
        &mut self,
        to: &TypeName,
        operand: &Node,
        span: Span,
    ) -> Checked<(Known, Expression, bool)> {
        let output = self.type_of(to)?;
        let input = self.operand(operand)?;
        let none = || {
            let message = format!(
                "cannot translate from \"{}\" to \"{}\"",
                types::name(&input.value_type),
                types::name(&output)
            );
            Diagnostic::new("D_XLATE_NONE", span, message)
        };
        let (wanted, pointed) = match &output {
            Type::Structure(structure) => (structure, false),
            Type::Pointer(Some(to)) => match to.as_ref() {
                Type::Structure(structure) => (structure, true),
                _ => return Err(none()),
            },
            _ => return Err(none()),
        };
        let candidates = || self.scope.translators.iter().filter(|known| known.output == *wanted);
        if let Some(known) = candidates().find(|known| known.input == input.value_type) {
            return Ok((known.clone(), input.clone(), pointed));
        }
        let converted = candidates().find_map(|known| {
            let plain = !types::is_aggregate(&known.input) && !types::is_aggregate(&input.value_type);
            let value = coerce::assign(input.clone(), &known.input).filter(|_| plain)?;
            Some((known.clone(), value, pointed))
        });
        converted.ok_or_else(none)
    }
}

/// The error of an `xlate` of which no member is taken and which is not assigned to a structure.
fn whole(span: Span) -> Diagnostic {
    Diagnostic::new(
        "D_CG_DYN",
        span,
        "expression cannot evaluate to result of a translated type",
    )
    .with_help("take a member, xlate <T *>(e)->member, or assign it to a structure: s = xlate <struct s>(e)")
}

/// Whether a node is `xlate <to>(operand)`.
pub(super) fn is_translation(node: &Node) -> Option<(&TypeName, &Node)> {
    match &node.kind {
        NodeKind::Translate { to, operand } => Some((to, operand)),
        _ => None,
    }
}

fn not_a_structure(name: &str, span: Span) -> Diagnostic {
    let message = format!("translator output type must be a struct or union: {name}");
    Diagnostic::new("D_XLATE_SOU", span, message)
}

/// Stands for the input while only the translator is checked. It has the input's type, and is not constant.
fn stand_in(of: &Type, span: Span) -> Expression {
    let argument = |value_type: Type| Expression {
        kind: ExpressionKind::Builtin(if value_type == Type::String {
            Builtin::ExecName
        } else {
            Builtin::Argument(0)
        }),
        value_type,
        span,
    };
    if types::is_aggregate(of) {
        memory::in_memory(argument(Type::U64), of.clone(), span)
    } else {
        argument(of.clone())
    }
}
