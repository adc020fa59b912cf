//! Calls in expressions: the subroutines that yield a value.

use super::names::{self, Callable};
use super::{Resolve, Resolver, constant, convert};
use crate::diagnostic::Diagnostic;
use crate::program::{Expression, ExpressionKind, Function, Scope, Type};
use crate::source::Span;
use crate::syntax::{Node, NodeKind};
use crate::types;

impl Resolver {
    /// The name that a call calls, and how it may be called.
    pub(super) fn callee<'n>(&self, function: &'n Node) -> Resolve<(&'n str, Callable)> {
        let NodeKind::Identifier(name) = &function.kind else {
            return Err(Diagnostic::new(
                "D_FUNC_IDENT",
                function.span,
                "function designator is not of function type",
            ));
        };
        if let Some(callable) = names::callable(name) {
            return Ok((name, callable));
        }
        let is_variable = self.known(Scope::Global, name).is_some()
            || names::builtin(name).is_some()
            || names::missing_variable(name).is_some();
        Err(if is_variable {
            Diagnostic::new(
                "D_FUNC_IDKIND",
                function.span,
                format!("scalar '{name}' may not be referenced as function"),
            )
        } else {
            Diagnostic::new(
                "D_FUNC_UNDEF",
                function.span,
                format!("undefined function name: {name}"),
            )
        })
    }

    /// A call as a value.
    pub(super) fn call(&mut self, function: &Node, arguments: &[Node], span: Span) -> Resolve<Expression> {
        let (name, callable) = self.callee(function)?;
        match callable {
            Callable::Subroutine => {}
            Callable::Missing(what) => return Err(missing(name, what, span)),
            Callable::Aggregating => {
                return Err(Diagnostic::new(
                    "D_FUNC_IDKIND",
                    span,
                    format!("aggregating function '{name}' may only be assigned to an aggregation"),
                )
                .with_help(format!("@ = {name}(...);")));
            }
            Callable::Action => {
                return Err(Diagnostic::new(
                    "D_CG_EXPR",
                    span,
                    format!("{name}( ) may not be called from a D expression: it is a statement"),
                ));
            }
        }
        match name {
            "copyin" => {
                check_count(name, arguments, 2..=2, span)?;
                let address = self.address(name, arguments, 0)?;
                let size = self.size(name, arguments, 1)?;
                let known = constant::value(&size).and_then(|size| u32::try_from(size).ok());
                Ok(Expression {
                    kind: ExpressionKind::Call {
                        function: Function::CopyIn,
                        arguments: vec![address, size],
                    },
                    value_type: Type::Bytes { size: known },
                    span,
                })
            }
            "copyinstr" => {
                check_count(name, arguments, 1..=2, span)?;
                let mut resolved = vec![self.address(name, arguments, 0)?];
                if arguments.len() == 2 {
                    resolved.push(self.size(name, arguments, 1)?);
                }
                Ok(Expression {
                    kind: ExpressionKind::Call {
                        function: Function::CopyInString,
                        arguments: resolved,
                    },
                    value_type: Type::String,
                    span,
                })
            }
            _ => {
                check_count(name, arguments, 1..=1, span)?;
                let Some(argument) = arguments.first() else {
                    return Err(count_mismatch(name, 0, "1", span));
                };
                let resolved = self.expression(argument)?;
                let found = resolved.value_type.clone();
                let Some(string) = convert::assign(resolved, &Type::String) else {
                    return Err(incompatible_argument(name, 0, "string", &found, argument.span));
                };
                Ok(Expression {
                    kind: ExpressionKind::Call {
                        function: Function::StringLength,
                        arguments: vec![string],
                    },
                    value_type: Type::U64,
                    span,
                })
            }
        }
    }

    /// An argument that is an address: an integer or a pointer.
    fn address(&mut self, name: &str, arguments: &[Node], index: usize) -> Resolve<Expression> {
        let Some(node) = arguments.get(index) else {
            return Err(count_mismatch(name, arguments.len(), "more", Span::default()));
        };
        let argument = self.expression(node)?;
        match argument.value_type {
            Type::Integer(_) | Type::Pointer(_) => Ok(convert::to_address(argument)),
            ref other => {
                let mut diagnostic = incompatible_argument(name, index, "uintptr_t", other, node.span);
                if *other == Type::String {
                    diagnostic = diagnostic.with_help("it is a string already");
                }
                Err(diagnostic)
            }
        }
    }

    /// An argument that is a number of bytes.
    fn size(&mut self, name: &str, arguments: &[Node], index: usize) -> Resolve<Expression> {
        let Some(node) = arguments.get(index) else {
            return Err(count_mismatch(name, arguments.len(), "more", Span::default()));
        };
        let argument = self.expression(node)?;
        match argument.value_type {
            Type::Integer(_) => Ok(convert::to_address(argument)),
            ref other => Err(incompatible_argument(name, index, "size_t", other, node.span)),
        }
    }
}

/// Checks the number of arguments.
pub(super) fn check_count(
    name: &str,
    arguments: &[Node],
    expected: std::ops::RangeInclusive<usize>,
    span: Span,
) -> Resolve<()> {
    let passed = arguments.len();
    if expected.contains(&passed) {
        return Ok(());
    }
    let text = if expected.start() == expected.end() {
        expected.start().to_string()
    } else if passed < *expected.start() {
        format!("at least {}", expected.start())
    } else {
        format!("at most {}", expected.end())
    };
    Err(count_mismatch(name, passed, &text, span))
}

pub(super) fn count_mismatch(name: &str, passed: usize, expected: &str, span: Span) -> Diagnostic {
    let plural = if passed == 1 { "" } else { "s" };
    Diagnostic::new(
        "D_PROTO_LEN",
        span,
        format!("{name}( ) prototype mismatch: {passed} arg{plural} passed, {expected} expected"),
    )
}

pub(super) fn incompatible_argument(name: &str, index: usize, wanted: &str, found: &Type, span: Span) -> Diagnostic {
    Diagnostic::new(
        "D_PROTO_ARG",
        span,
        format!(
            "{name}( ) argument #{} is incompatible with prototype: expected {wanted}, found {}",
            index + 1,
            types::name(found)
        ),
    )
}

/// A function of D that is not there yet.
pub(super) fn missing(name: &str, what: &str, span: Span) -> Diagnostic {
    let tag = if what == "action" { "N_ACTION" } else { "N_SUBROUTINE" };
    Diagnostic::new(tag, span, format!("the {what} {name}( ) is not supported yet"))
}
