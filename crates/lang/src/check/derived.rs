//! Clauses on derived probes ([`crate::derived`]): their arguments, and the functions that only built-in texts call.

use super::{Checked, Checker};
use crate::derived::BUILT_IN;
use crate::diagnostic::Diagnostic;
use crate::lower::{constant, convert};
use crate::program::{Builtin, Expression, ExpressionKind, Function, PATH_OF_DEVICE, PATH_OF_PROGRAM, Type};
use crate::source::Span;
use crate::syntax::{DerivedArgument, Node, NodeKind};
use crate::types;

impl Checker {
    /// A variable or a member of a variable, if it belongs to a derived probe. The expressions of a built-in text are
    /// about the place where the probe fires, and not about the probe.
    fn derived_argument(&mut self, wanted: &DerivedArgument, span: Span) -> Checked<Option<Expression>> {
        let Some(derived) = self.clause_at_hand.derived.clone().filter(|_| span.source != BUILT_IN) else {
            return Ok(None);
        };
        let found = derived.arguments.iter().find(|(argument, _)| argument == wanted);
        match found {
            Some((_, value)) => {
                let value = self.expression(value)?;
                Ok(Some(Expression { span, ..value }))
            }
            None => Ok(None),
        }
    }

    /// Whether the clause at hand belongs to a derived probe, in the text of a user.
    fn is_derived(&self, span: Span) -> bool {
        span.source != BUILT_IN && self.clause_at_hand.derived.is_some()
    }

    /// `arg0`, in a clause on a derived probe.
    pub(super) fn derived_word(&mut self, builtin: Builtin, span: Span) -> Checked<Option<Expression>> {
        let Builtin::Argument(number) = builtin else {
            return Ok(None);
        };
        if !self.is_derived(span) {
            return Ok(None);
        }
        let value = self.derived_argument(&DerivedArgument::Word(number), span)?;
        let value = value.unwrap_or_else(|| constant::integer(0, constant::LONG, span));
        Ok(Some(convert::to_integer(value, constant::LONG)))
    }

    /// `args[0]`, in a clause on a derived probe.
    pub(super) fn derived_whole(&mut self, number: i128, span: Span) -> Checked<Option<Expression>> {
        if !self.is_derived(span) {
            return Ok(None);
        }
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        if let Some(value) = self.derived_argument(&DerivedArgument::Whole(number), span)? {
            return Ok(Some(value));
        }
        let members = self.derived_members(number);
        Err(match members.is_empty() {
            true => Diagnostic::new(
                "D_ARGS_IDX",
                span,
                format!("index {number} is out of range for args[ ]: the probe has no such argument"),
            ),
            false => Diagnostic::new(
                "D_CG_DYN",
                span,
                "expression cannot evaluate to result of a translated type",
            )
            .with_help(format!("take a member, args[{number}]->{}", members.join(", "))),
        })
    }

    /// `args[0]->member`, in a clause on a derived probe.
    pub(super) fn derived_member(&mut self, base: &Node, member: &str, span: Span) -> Checked<Option<Expression>> {
        let Some(number) = crate::derived::typed(base).filter(|_| self.is_derived(span)) else {
            return Ok(None);
        };
        let members = self.derived_members(number);
        if members.is_empty() {
            return Ok(None);
        }
        let wanted = DerivedArgument::Member(number, member.to_owned());
        if let Some(value) = self.derived_argument(&wanted, span)? {
            return Ok(Some(value));
        }
        let message = format!("translator does not define conversion for member: {member}");
        let help = format!("args[{number}] has {}", members.join(", "));
        Err(Diagnostic::new("D_XLATE_NOCONV", span, message).with_help(help))
    }

    /// Refuses an inline with `arg0` in it: it was checked where it stands, and would be the place's `arg0`.
    pub(super) fn inline_without_words(&self, name: &str, inline: &Expression, span: Span) -> Checked<()> {
        let mut parts = vec![inline];
        while let Some(part) = parts.pop().filter(|_| self.is_derived(span)) {
            if let ExpressionKind::Builtin(Builtin::Argument(number)) = part.kind {
                let message = format!("the inline {name} uses arg{number}, which a clause on this probe has otherwise");
                return Err(
                    Diagnostic::new("D_ARGS_NONE", span, message).with_help(format!("write arg{number} in the clause"))
                );
            }
            parts.extend(part.operands());
        }
        Ok(())
    }

    fn derived_members(&self, number: u8) -> Vec<String> {
        let derived = self.clause_at_hand.derived.iter();
        let mut members = Vec::new();
        for (argument, _) in derived.flat_map(|derived| &derived.arguments) {
            match argument {
                DerivedArgument::Member(of, name) if *of == number && !members.contains(name) => {
                    members.push(name.clone());
                }
                _ => {}
            }
        }
        members
    }

    /// A call of a function that only built-in texts can call.
    pub(super) fn built_in_call(
        &mut self,
        function: &Node,
        arguments: &[Node],
        span: Span,
    ) -> Checked<Option<Expression>> {
        let NodeKind::Identifier(name) = &function.kind else {
            return Ok(None);
        };
        if function.span.source != BUILT_IN {
            return Ok(None);
        }
        let (called, bits) = match name.as_str() {
            "__file_status" => (Function::FileStatus, 0),
            "__vector_bytes" => (Function::VectorBytes, 0),
            "__socket" => (Function::Socket, 0),
            "__socket_address" => (Function::SocketAddress, 0),
            "__message_bytes" => (Function::MessageBytes, 0),
            "__signal_frame" => (Function::SignalFrame, 0),
            "__device_name" => (Function::Path, PATH_OF_DEVICE),
            "__program_name" => (Function::Path, PATH_OF_PROGRAM),
            _ => return Ok(None),
        };
        let mut resolved = Vec::new();
        for argument in arguments {
            resolved.push(convert::to_integer(self.expression(argument)?, constant::LONG));
        }
        let Some(first) = resolved.first_mut().filter(|_| bits != 0) else {
            return Ok(Some(call(called, resolved, span)));
        };
        let bits = constant::integer(bits, constant::LONG, span);
        *first = crate::lower::operators::binary(crate::program::BinaryOperator::Or, first.clone(), bits, span)?;
        let path = call(Function::Path, resolved, span);
        Ok(Some(call(Function::BaseName, vec![path], span)))
    }
}

fn call(function: Function, arguments: Vec<Expression>, span: Span) -> Expression {
    let value_type = match function.yields_string() {
        true => Type::String,
        false => Type::I64,
    };
    debug_assert!(!types::is_aggregate(&value_type));
    Expression {
        kind: ExpressionKind::Call { function, arguments },
        value_type,
        span,
    }
}
