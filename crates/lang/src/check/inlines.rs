//! `inline`: names for expressions, with and without parameters.

use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::{arithmetic, coerce};
use crate::program::{Builtin, Expression, ExpressionKind, Type};
use crate::source::Span;
use crate::syntax::{Derived, Inline, Node};
use crate::types;

/// The most nodes that an inline may expand to. Without a limit, inlines of inlines could double the
/// size with every line.
pub(super) const MAXIMUM_INLINE: usize = 256;

impl Checker {
    pub(super) fn inline(&mut self, inline: &Inline) -> Checked<()> {
        let declarator = &inline.declarator;
        let base = self.base(&inline.base, inline.span)?;
        if let Some((Derived::Keys(keys), rest)) = declarator.derived.split_last() {
            let result = self.derive(base, rest, declarator.span)?;
            let mut parameters = Vec::with_capacity(keys.len());
            for key in keys {
                parameters.push((key.name.clone(), self.type_of(key)?));
            }
            self.check_new_name(&declarator.name, declarator.span)?;
            let function = InlineFunction {
                parameters,
                result,
                value: inline.value.clone(),
            };
            // Errors are reported where the inline is declared, not only where it is used.
            let stand_ins = function.parameters.iter();
            let stand_ins = stand_ins.map(|(_, of)| placeholder(of, inline.span)).collect();
            self.expand(&declarator.name, &function, stand_ins, inline.span)?;
            self.scope.inline_functions.insert(declarator.name.clone(), function);
            return Ok(());
        }
        let to = self.derive(base, &declarator.derived, declarator.span)?;
        if to == Type::Void {
            let message = format!("cannot declare void inline: {}", declarator.name);
            return Err(Diagnostic::new("D_DECL_VOIDOBJ", declarator.span, message));
        }
        if let Some((wanted, operand)) = super::translators::is_translation(&inline.value) {
            self.check_new_name(&declarator.name, declarator.span)?;
            let made = self.type_of(wanted)?;
            if made != to {
                let (to, made) = (types::name(&to), types::name(&made));
                return Err(arithmetic::incompatible(&to, "=", &made, inline.span));
            }
            self.check_translation(wanted, operand, inline.span)?;
            let translation = (wanted.clone(), operand.clone());
            self.scope
                .inline_translations
                .insert(declarator.name.clone(), translation);
            return Ok(());
        }
        let value = if types::is_aggregate(&to) {
            // A structure or an array is not copied: the operand stays where it lies.
            let value = self.operand(&inline.value)?;
            if value.value_type != to {
                let from = types::name(&value.value_type);
                return Err(arithmetic::incompatible(&types::name(&to), "=", &from, inline.span));
            }
            value
        } else {
            self.inline_value(&declarator.name, &inline.value, &to, inline.span)?
        };
        self.check_new_name(&declarator.name, declarator.span)?;
        self.scope.inlines.insert(declarator.name.clone(), value);
        Ok(())
    }

    fn inline_value(&mut self, name: &str, node: &Node, to: &Type, span: Span) -> Checked<Expression> {
        let value = self.expression(node)?;
        let from = types::name(&value.value_type);
        let Some(value) = coerce::assign(value, to) else {
            return Err(arithmetic::incompatible(&types::name(to), "=", &from, span));
        };
        if nodes(&value) > MAXIMUM_INLINE {
            let message = format!("the inline {name} expands to more than {MAXIMUM_INLINE} operations");
            return Err(Diagnostic::new("N_NESTING", node.span, message));
        }
        Ok(value)
    }

    /// The value of an inline, with these typed expressions in place of its parameters.
    fn expand(
        &mut self,
        name: &str,
        function: &InlineFunction,
        arguments: Vec<Expression>,
        span: Span,
    ) -> Checked<Expression> {
        let names = function.parameters.iter().map(|(name, _)| name.clone());
        let outer = std::mem::replace(&mut self.scope.bound, names.zip(arguments).collect());
        let value = self.inline_value(name, &function.value, &function.result, span);
        self.scope.bound = outer;
        value.map(|value| Expression { span, ..value })
    }

    /// `f[argument, ...]` of an inline with parameters; `None`: the name is not that of
    /// such an inline.
    pub(super) fn inline_call(&mut self, name: &str, arguments: &[Node], span: Span) -> Option<Checked<Expression>> {
        let function = self.scope.inline_functions.get(name)?.clone();
        Some(self.expanded(name, &function, arguments, span))
    }

    fn expanded(
        &mut self,
        name: &str,
        function: &InlineFunction,
        arguments: &[Node],
        span: Span,
    ) -> Checked<Expression> {
        let (passed, expected) = (arguments.len(), function.parameters.len());
        if passed != expected {
            let plural = if passed == 1 { "" } else { "s" };
            let message = format!("{name}[ ] prototype mismatch: {passed} arg{plural} passed, {expected} expected");
            return Err(Diagnostic::new("D_PROTO_LEN", span, message));
        }
        let mut values = Vec::with_capacity(expected);
        for (index, (node, (_, to))) in arguments.iter().zip(&function.parameters).enumerate() {
            let value = self.expression(node)?;
            let found = types::name(&value.value_type);
            let Some(value) = coerce::assign(value, to) else {
                let message = format!(
                    "{name}[ ] argument #{} is incompatible with prototype: expected {}, found {found}",
                    index + 1,
                    types::name(to)
                );
                return Err(Diagnostic::new("D_PROTO_ARG", node.span, message));
            };
            values.push(value);
        }
        self.expand(name, function, values, span)
    }
}

/// The number of nodes of an expression.
pub(super) fn nodes(of: &Expression) -> usize {
    1 + of.operands().into_iter().map(nodes).sum::<usize>()
}

/// An inline with parameters.
#[derive(Clone, Debug)]
pub(super) struct InlineFunction {
    parameters: Vec<(String, Type)>,
    result: Type,
    value: Node,
}

/// The value of a parameter while only the inline is checked: it has the parameter's type, and is
/// not constant.
fn placeholder(of: &Type, span: Span) -> Expression {
    let builtin = match of {
        Type::String => Builtin::ExecName,
        _ => Builtin::Argument(0),
    };
    Expression {
        kind: ExpressionKind::Builtin(builtin),
        value_type: of.clone(),
        span,
    }
}
