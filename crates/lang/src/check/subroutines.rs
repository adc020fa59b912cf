//! Calls in expressions: the subroutines that yield a value.

use super::names::{self, Callable};
use super::subroutine_table::{Kind, Subroutine, subroutine};
use super::{Checked, Checker, bpftrace_hints};
use crate::diagnostic::Diagnostic;
use crate::lower::variables::Purpose;
use crate::lower::{characters, coerce, constant, convert};
use crate::program::{BinaryOperator, Expression, ExpressionKind, Function, Scope, Type};
use crate::source::Span;
use crate::spelling;
use crate::syntax::{Node, NodeKind};
use crate::types;

impl Checker {
    /// The function that a call names, and how it may be called.
    pub(super) fn callee<'n>(&self, function: &'n Node) -> Checked<(&'n str, Callable)> {
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
        let is_variable = self.variables.known(Scope::Global, name).is_some() || names::is_variable(name);
        Err(if is_variable {
            Diagnostic::new(
                "D_FUNC_IDKIND",
                function.span,
                format!("scalar '{name}' may not be referenced as function"),
            )
        } else {
            let undefined = Diagnostic::new(
                "D_FUNC_UNDEF",
                function.span,
                format!(
                    "undefined function name: {name}{}",
                    spelling::hint(name, names::callables())
                ),
            );
            match bpftrace_hints::function(name) {
                Some(help) => undefined.with_help(help),
                None => undefined,
            }
        })
    }

    /// A call as a value.
    pub(super) fn call(&mut self, function: &Node, arguments: &[Node], span: Span) -> Checked<Expression> {
        if let Some(called) = self.built_in_call(function, arguments, span)? {
            return Ok(called);
        }
        let (name, callable) = self.callee(function)?;
        match callable {
            Callable::Subroutine => {}
            Callable::Missing(what) => return Err(missing(name, what, span)),
            Callable::Aggregating => return Ok(self.aggregating_call(name, span)),
            Callable::Action => return Ok(self.action_call(name, span)),
        }
        let Some(signature) = subroutine(name) else {
            return Err(missing(name, "subroutine", span));
        };
        let (least, most) = (
            signature.parameters.len() - signature.optional,
            signature.parameters.len(),
        );
        check_count(name, arguments, least..=most, span)?;
        let mut resolved = Vec::with_capacity(most);
        for (index, parameter) in signature.parameters.iter().take(arguments.len()).enumerate() {
            self.no_action(name, arguments, index)?;
            resolved.push(self.argument(name, arguments, index, *parameter)?);
        }
        let size = match name {
            "alloca" => resolved.get_mut(0),
            "copyin" | "copyinstr" => resolved.get_mut(1),
            _ => None,
        };
        if let (Some(size), Some(limit)) = (size, self.settings.scratch_bytes) {
            *size = self.within_scratch(name, size.clone(), limit)?;
        }
        if let ("inet_ntoa6", Some(form)) = (name, resolved.get(1))
            && constant::value(form).is_none()
        {
            return Err(Diagnostic::new(
                "D_PROTO_ARG",
                form.span,
                "inet_ntoa6( ) argument #2 is incompatible with prototype: expected an integer constant",
            ));
        }
        Ok(self.finish_call(name, signature, resolved, span))
    }

    /// Refuses a call of an action where a value is required: in DTrace its type is void.
    fn no_action(&mut self, name: &str, arguments: &[Node], index: usize) -> Checked<()> {
        if let Some(node) = arguments.get(index)
            && let NodeKind::Call { function, arguments } = &node.kind
            && let Ok((action, Callable::Action)) = self.callee(function)
        {
            // The action's own errors are reported first.
            self.action(action, arguments, node.span)?;
            return Err(incompatible_argument(name, index, "a value", &Type::Void, node.span));
        }
        Ok(())
    }

    /// Checks a number of bytes of scratch memory, rounded up to a multiple of 8. The option
    /// `scratchsize` grants at most `limit` bytes. A constant above the limit is refused at once;
    /// otherwise the call fails at run time.
    pub(super) fn within_scratch(&mut self, name: &str, size: Expression, limit: u64) -> Checked<Expression> {
        let (span, limit) = (size.span, limit.next_multiple_of(8));
        if let Some(bytes) = constant::value(&size) {
            if bytes as u64 <= limit {
                return Ok(size);
            }
            let message = format!("{name}( ) size larger than scratchsize: {} bytes", bytes as u64);
            return Err(Diagnostic::new("D_ALLOCA_SIZE", span, message));
        }
        let of = |kind, value_type| Expression { kind, value_type, span };
        let unsigned = |value: u64| constant::integer(value as i64, constant::UNSIGNED_LONG, span);
        let place = self.variables.shared(Purpose::Size, Type::U64);
        let known = of(ExpressionKind::Variable(place.clone()), Type::U64);
        let value = Box::new(size);
        let granted = ExpressionKind::Conditional {
            condition: Box::new(of(
                ExpressionKind::Binary {
                    operator: BinaryOperator::LessOrEqual,
                    left: Box::new(known.clone()),
                    right: Box::new(unsigned(limit)),
                },
                Type::I32,
            )),
            then: Box::new(known),
            otherwise: Box::new(unsigned(u64::MAX)),
        };
        Ok(of(
            ExpressionKind::Comma {
                first: Box::new(of(ExpressionKind::Assign { place, value }, Type::U64)),
                second: Box::new(of(granted, Type::U64)),
            },
            Type::U64,
        ))
    }

    /// The operation of a call whose arguments have the right types.
    fn finish_call(
        &mut self,
        name: &str,
        signature: Subroutine,
        mut arguments: Vec<Expression>,
        span: Span,
    ) -> Expression {
        let mut function = signature.function;
        let number = |value: i64| constant::integer(value, constant::LONG, span);
        let mut value_type = signature.yields.value_type();
        match (name, arguments.len()) {
            ("lltostr" | "strtoll", 1) => arguments.push(number(10)),
            ("substr", 2) => arguments.push(number(crate::interpret::text::ALL)),
            ("rindex", 2) => arguments.push(number(i64::from(i32::MAX))),
            ("index", 2) => arguments.push(number(0)),
            ("inet_ntoa", _) => arguments.insert(0, number(2)),
            // If the second argument is not 0, an IPv4 address within an IPv6 address is written in the form of
            // inet_ntop( ).
            ("inet_ntoa6", 2) if arguments.pop().as_ref().and_then(constant::value) != Some(0) => {
                function = Function::AddressToString;
                arguments.insert(0, number(10));
            }
            ("bcopy", _) => return self.variables.block_copy(arguments, span),
            ("copyin", _) => {
                let size = arguments.get(1).and_then(constant::value);
                value_type = Type::Bytes {
                    size: size.and_then(|size| u32::try_from(size).ok()),
                };
            }
            ("strtok", _) => return self.token(arguments, span),
            ("argtext", _) => return self.argument_text(&arguments, span),
            ("returntext", _) => {
                let word = arguments.pop().unwrap_or_else(|| number(0));
                return self.result_text(&word, span);
            }
            _ => {}
        }
        Expression {
            kind: ExpressionKind::Call { function, arguments },
            value_type,
            span,
        }
    }

    /// `strtok(string, separators)`. A hidden variable holds the string. This call, and later calls with
    /// NULL, take their tokens off it. The variable lives as long as a clause-local one, like DTrace's
    /// position in the string.
    fn token(&mut self, arguments: Vec<Expression>, span: Span) -> Expression {
        let place = self.variables.shared(Purpose::Token, Type::String);
        // This variable says whether a string was passed: without a string there are no tokens.
        let given = self.variables.shared(Purpose::TokenGiven, Type::I64);
        let string = |kind| Expression {
            kind,
            value_type: Type::String,
            span,
        };
        let mut arguments = arguments.into_iter();
        let (text, separators) = (arguments.next(), arguments.next());
        let mut operands = vec![string(ExpressionKind::Variable(place.clone()))];
        operands.extend(separators);
        let call = string(ExpressionKind::Call {
            function: Function::StringToken,
            arguments: operands,
        });
        match text {
            Some(text) if !matches!(text.kind, ExpressionKind::Integer(_)) => {
                let value = Box::new(text);
                let keep = string(ExpressionKind::Assign { place, value });
                let mark = Expression {
                    kind: ExpressionKind::Assign {
                        place: given,
                        value: Box::new(constant::integer(1, constant::LONG, span)),
                    },
                    value_type: Type::I64,
                    span,
                };
                let then = |first, second| {
                    string(ExpressionKind::Comma {
                        first: Box::new(first),
                        second: Box::new(second),
                    })
                };
                then(keep, then(mark, call))
            }
            _ => string(ExpressionKind::Conditional {
                condition: Box::new(Expression {
                    kind: ExpressionKind::Variable(given),
                    value_type: Type::I64,
                    span,
                }),
                then: Box::new(call),
                otherwise: Box::new(convert::null_string(span)),
            }),
        }
    }

    /// An argument of a subroutine, converted to the parameter's type.
    fn argument(&mut self, name: &str, arguments: &[Node], index: usize, parameter: Kind) -> Checked<Expression> {
        let Some(node) = arguments.get(index) else {
            return Err(count_mismatch(name, arguments.len(), "more", Span::default()));
        };
        let wanted = match parameter {
            Kind::Address => return self.address(name, arguments, index),
            Kind::Size => return self.size(name, arguments, index),
            Kind::Text => "string",
            Kind::Integer(integer) => types::integer_name(integer),
            Kind::Pointer(None) => "void *",
            Kind::Pointer(Some(4)) => "ipaddr_t *",
            Kind::Pointer(Some(_)) => "in6_addr_t *",
        };
        let argument = self.expression(node)?;
        let found = argument.value_type.clone();
        let converted = match (parameter, &found) {
            // DTrace's prototype is `const char *`, which accepts any address.
            (Kind::Text, Type::Pointer(None) | Type::Bytes { .. }) if !convert::is_null(&argument) => {
                Some(convert::to_string(argument))
            }
            (Kind::Text, _) => coerce::assign(argument, &Type::String),
            (Kind::Integer(to), Type::Integer(_)) => {
                Some(convert::to_integer(convert::received(argument, to), constant::LONG))
            }
            // The constant 0 is accepted as a pointer to anything.
            (Kind::Pointer(_), Type::Integer(_)) if convert::is_null(&argument) => Some(convert::to_address(argument)),
            (Kind::Pointer(None), Type::Pointer(_) | Type::Bytes { .. }) => Some(convert::to_address(argument)),
            // A string is accepted only where the subroutine reads: a string must not be written.
            (Kind::Pointer(None), Type::String) if (name, index) == ("bcopy", 0) => Some(characters::address(argument)),
            (Kind::Pointer(None), Type::String) if (name, index) == ("copyout", 0) => {
                Some(characters::address(characters::copied(argument)))
            }
            (Kind::Pointer(Some(_)), Type::Pointer(None) | Type::Bytes { .. }) => Some(convert::to_address(argument)),
            (Kind::Pointer(Some(bytes)), Type::Pointer(Some(to))) if types::size_of(to) == Some(bytes) => {
                Some(convert::to_address(argument))
            }
            _ => None,
        };
        converted.ok_or_else(|| {
            let found = self.shown_type(node, &found);
            incompatible_argument(name, index, wanted, &found, node.span)
        })
    }

    /// An argument that is an address: an integer or a pointer.
    pub(super) fn address(&mut self, name: &str, arguments: &[Node], index: usize) -> Checked<Expression> {
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
    fn size(&mut self, name: &str, arguments: &[Node], index: usize) -> Checked<Expression> {
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
) -> Checked<()> {
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

/// The error of a function of D that nanoprobe does not have yet.
pub(super) fn missing(name: &str, what: &str, span: Span) -> Diagnostic {
    let tag = if what == "action" { "N_ACTION" } else { "N_SUBROUTINE" };
    let missing = Diagnostic::new(tag, span, format!("the {what} {name}( ) is not supported yet"));
    match names::instead_of(name) {
        Some(help) => missing.with_help(help),
        None => missing,
    }
}
