//! The formats of `printf` and the actions like it, with their arguments.

use super::actions::{constant_format, format_error, is_action, names_of};
use super::stacks::stack_arguments;
use super::subroutines::{count_mismatch, incompatible_argument};
use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::format::{Conversion, Format};
use crate::lower::{constant, memory};
use crate::program::{Builtin, Expression, ExpressionKind, Foreign, Type};
use crate::source::Span;
use crate::syntax::{Node, NodeKind};

/// A value to print, the type that its conversion must accept, and the enumeration that has the value's names.
type Argument = (Expression, Type, Option<Foreign>);

impl Checker {
    /// The format and its arguments, of `printf` and the actions like it.
    pub(super) fn formatted(
        &mut self,
        name: &'static str,
        arguments: &[Node],
        span: Span,
    ) -> Checked<(Format, Vec<Expression>)> {
        let [first, rest @ ..] = arguments else {
            return Err(count_mismatch(name, 0, "at least 1", span));
        };
        let mut format = self.format_of(name, first)?;
        let mut resolved = Vec::with_capacity(rest.len());
        let mut types: Vec<Type> = Vec::with_capacity(rest.len());
        for node in rest {
            let conversion = format.conversions().nth(resolved.len()).flatten();
            let argument = match (name, stack_arguments(node)) {
                ("printf", Some((stack, frames))) => self.stack_argument(stack, frames, node.span)?,
                _ => self.value_argument(node, conversion)?,
            };
            let (value, of, names) = argument;
            format.names.push(names);
            types.push(of);
            resolved.push(value);
        }
        format.check(name, &types).map_err(|error| format_error(error, span))?;
        Ok((format, resolved))
    }

    fn format_of(&mut self, name: &'static str, node: &Node) -> Checked<Format> {
        match &node.kind {
            // The one empty format that has a meaning: output goes back to standard output.
            NodeKind::String(text) if text.is_empty() && name == "freopen" => Ok(Format {
                text: String::new(),
                pieces: Vec::new(),
                names: Vec::new(),
            }),
            NodeKind::String(_) => constant_format(name, node),
            _ => {
                let found = self.expression(node)?.value_type;
                if found != Type::String {
                    return Err(incompatible_argument(name, 0, "string", &found, node.span));
                }
                constant_format(name, node)
            }
        }
    }

    fn stack_argument(&mut self, stack: &str, frames: &[Node], span: Span) -> Checked<Argument> {
        let stack = self.stack(stack, frames, span)?;
        let value = Expression {
            kind: ExpressionKind::Builtin(Builtin::Stack(stack)),
            value_type: Type::Void,
            span,
        };
        Ok((value, Type::Void, None))
    }

    fn value_argument(&mut self, node: &Node, conversion: Option<Conversion>) -> Checked<Argument> {
        let refused = |what: &str| Err(Diagnostic::new("D_PRINTF_ARG_TYPE", node.span, what));
        if is_action(node) {
            return refused("a void expression has no value to print");
        }
        if self.is_dynamic(node) {
            return refused("an aggregation has no value to print: printa( ) prints aggregations");
        }
        if let NodeKind::Identifier(variable) = &node.kind
            && let Some(of) = self.scope.floats.get(variable)
        {
            // Nothing can be assigned to a variable of floating point, so its value is 0.
            let value = constant::integer(0, constant::UNSIGNED_LONG, node.span);
            return Ok((value, Type::Foreign(of.clone()), None));
        }
        // As in DTrace, NULL is accepted where a number is expected.
        if matches!(&node.kind, NodeKind::Identifier(variable) if variable == "NULL")
            && conversion.is_some_and(Conversion::is_of_integers)
        {
            let value = constant::integer(0, constant::LONG, node.span);
            return Ok((value, Type::Integer(constant::LONG), None));
        }
        let found = self.operand(node)?;
        let gathered = match found.value_type {
            Type::Array { .. } => self.variables.gathered(&found)?,
            _ => None,
        };
        let value = match gathered {
            Some(bytes) => bytes,
            None => memory::placed(found)?,
        };
        if let Some((bits, of)) = memory::floating_bits(&value) {
            return Ok((bits, Type::Foreign(of), None));
        }
        match value.value_type {
            Type::Void => refused("a void expression has no value to print"),
            Type::Structure(_) => refused("a structure has no conversion: print( ) prints structures"),
            _ => {
                let names = names_of(&value.value_type);
                let converted = memory::bytes_of(value.clone());
                let of = match names {
                    Some(_) => value.value_type,
                    None => converted.value_type.clone(),
                };
                Ok((converted, of, names))
            }
        }
    }
}
