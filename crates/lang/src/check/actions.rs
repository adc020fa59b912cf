//! Actions: the statements that record data, or ask the consumer to do something.

use super::names::{self, Callable};
use super::subroutines::{check_count, incompatible_argument};
use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::format::{Format, FormatError, check_joined};
use crate::lower::{constant, convert};
use crate::program::{
    Expression, ExpressionKind, Foreign, Function, RecordAction, RecordKind, Statement, SymbolKind, Type,
};
use crate::source::Span;
use crate::syntax::{Node, NodeKind};
use crate::types;

impl Checker {
    /// A call of an action.
    pub(super) fn action(&mut self, name: &str, arguments: &[Node], span: Span) -> Checked<Statement> {
        let kind = match name {
            "trace" => self.trace(arguments, span)?,
            "tracemem" => self.tracemem(arguments, span)?,
            "printf" => self.printf(arguments, span)?,
            "printa" => self.printa(arguments, span)?,
            "ustack" | "jstack" | "stack" => RecordKind::Stack(self.stack(name, arguments, span)?),
            "exit" => {
                check_count(name, arguments, 1..=1, span)?;
                RecordKind::Exit(self.integer_argument(name, arguments, 0, constant::INT, span)?)
            }
            _ if let Some(symbol) = symbol_kind(name) => {
                check_count(name, arguments, 1..=1, span)?;
                RecordKind::Symbol {
                    kind: symbol,
                    address: self.address(name, arguments, 0)?,
                }
            }
            "print" => self.print(arguments, span)?,
            "system" | "freopen" | "ftruncate" | "setopt" | "stop" | "raise" => self.effect(name, arguments, span)?,
            "speculate" | "commit" | "discard" => self.speculative(name, arguments, span)?,
            "clear" => RecordKind::Clear(self.aggregation_argument(name, arguments, 1..=1, span)?),
            "denormalize" => RecordKind::Denormalize(self.aggregation_argument(name, arguments, 1..=1, span)?),
            "normalize" => {
                let aggregation = self.aggregation_argument(name, arguments, 2..=2, span)?;
                let factor = self.scalar_argument(name, "D_NORMALIZE_SCALAR", arguments, span)?;
                RecordKind::Normalize { aggregation, factor }
            }
            _ => {
                let aggregation = self.aggregation_argument("trunc", arguments, 1..=2, span)?;
                let count = match arguments.len() {
                    2 => Some(self.scalar_argument("trunc", "D_TRUNC_SCALAR", arguments, span)?),
                    _ => None,
                };
                RecordKind::Truncate { aggregation, count }
            }
        };
        Ok(Statement::Record(RecordAction { kind, span }))
    }

    fn trace(&mut self, arguments: &[Node], span: Span) -> Checked<RecordKind> {
        check_count("trace", arguments, 1..=1, span)?;
        let [node] = arguments else {
            return Err(Diagnostic::new("D_PROTO_LEN", span, "trace( ) takes one argument"));
        };
        if self.is_dynamic(node) {
            return Err(Diagnostic::new(
                "D_TRACE_DYN",
                node.span,
                "trace( ) may not be applied to a dynamic expression",
            )
            .with_help("printa() prints aggregations"));
        }
        if super::translators::is_translation(node).is_some() {
            let message = "trace( ) may not be applied to a translated pointer or structure";
            return Err(Diagnostic::new("D_TRACE_DYN", node.span, message));
        }
        if is_action(node) {
            let message = "trace( ) may not be applied to a void expression";
            return Err(Diagnostic::new("D_TRACE_VOID", node.span, message));
        }
        let (value, shown) = self.shown_bytes(node)?;
        if let Some(of) = names_of(&shown) {
            return Ok(RecordKind::TraceName { value, of });
        }
        match value.value_type {
            Type::Void => Err(Diagnostic::new(
                "D_TRACE_VOID",
                node.span,
                "trace( ) may not be applied to a void expression",
            )),
            Type::Bytes { size: None } => Err(Diagnostic::new(
                "D_TRACE_DYN",
                node.span,
                "trace( ) may not be applied to bytes whose number is not constant",
            )),
            _ => Ok(RecordKind::Trace(value)),
        }
    }

    /// `tracemem(address, size[, shown])`: a copy of constant size, of which the first `shown`
    /// bytes are printed.
    fn tracemem(&mut self, arguments: &[Node], span: Span) -> Checked<RecordKind> {
        let (address, size, shown) = match arguments {
            [address, size] => (address, size, None),
            [address, size, shown] => (address, size, Some(shown)),
            _ => {
                return Err(super::subroutines::count_mismatch(
                    "tracemem",
                    arguments.len(),
                    "2 or 3",
                    span,
                ));
            }
        };
        let from = self.expression(address)?;
        if !matches!(
            from.value_type,
            Type::Integer(_) | Type::Pointer(_) | Type::Bytes { .. }
        ) {
            return Err(Diagnostic::new(
                "D_TRACEMEM_ADDR",
                address.span,
                format!(
                    "tracemem( ) argument #1 is incompatible with prototype: expected pointer or integer, found {}",
                    types::name(&from.value_type)
                ),
            ));
        }
        let number = self.expression(size)?;
        if !matches!(number.value_type, Type::Integer(_)) {
            return Err(incompatible_argument(
                "tracemem",
                1,
                "size_t",
                &number.value_type,
                size.span,
            ));
        }
        let known = constant::wide_value(&number);
        let Some(bytes) = known
            .and_then(|bytes| u32::try_from(bytes).ok())
            .filter(|bytes| (1..=1 << 20).contains(bytes))
        else {
            return Err(Diagnostic::new(
                "D_TRACEMEM_SIZE",
                size.span,
                "tracemem( ) argument #2 must be a non-zero positive integral constant expression",
            )
            .with_help("at most 1 MiB"));
        };
        let count = constant::integer(i64::from(bytes), constant::UNSIGNED_LONG, size.span);
        let mut values = vec![Expression {
            kind: ExpressionKind::Call {
                function: Function::CopyIn,
                arguments: vec![convert::to_address(from), count],
            },
            value_type: Type::Bytes { size: Some(bytes) },
            span,
        }];
        if shown.is_some() {
            values.push(self.integer_argument("tracemem", arguments, 2, constant::LONG, span)?);
        }
        Ok(RecordKind::TraceMemory(values))
    }

    fn printf(&mut self, arguments: &[Node], span: Span) -> Checked<RecordKind> {
        let (format, arguments) = self.formatted("printf", arguments, span)?;
        Ok(RecordKind::Printf { format, arguments })
    }

    /// `print(value)`: the value or its bytes are recorded; the type says how to show them.
    fn print(&mut self, arguments: &[Node], span: Span) -> Checked<RecordKind> {
        check_count("print", arguments, 1..=1, span)?;
        let [node] = arguments else {
            return Err(super::subroutines::count_mismatch("print", arguments.len(), "1", span));
        };
        if self.is_dynamic(node) {
            let message = "print( ) may not be applied to a dynamic expression";
            return Err(Diagnostic::new("D_PRINT_DYN", node.span, message).with_help("printa() prints aggregations"));
        }
        if is_action(node) {
            let message = "print( ) may not be applied to a void expression";
            return Err(Diagnostic::new("D_PRINT_VOID", node.span, message));
        }
        let (value, found) = self.shown_bytes(node)?;
        if let Some((there, of)) = self.pointed_value(node, &value)? {
            let shown = self.shown_pointed(node, &of);
            let values = vec![value, there];
            return Ok(RecordKind::PrintAt { values, shown });
        }
        let shown = self.shown_type(node, &found);
        match value.value_type {
            Type::Void => Err(Diagnostic::new(
                "D_PRINT_VOID",
                node.span,
                "print( ) may not be applied to a void expression",
            )),
            Type::Bytes { size: None } | Type::Structure(_) | Type::Array { .. } => Err(Diagnostic::new(
                "D_PRINT_DYN",
                node.span,
                "print( ) may not be applied to a value without a size",
            )),
            _ => Ok(RecordKind::Print { value, shown }),
        }
    }

    fn printa(&mut self, arguments: &[Node], span: Span) -> Checked<RecordKind> {
        if arguments.is_empty() {
            return Err(super::subroutines::count_mismatch("printa", 0, "at least 1", span)
                .with_help("printa([\"format\",] @aggregation, ...)"));
        }
        let (format, rest) = match arguments {
            [first, rest @ ..] if matches!(first.kind, NodeKind::String(_)) => {
                (Some(constant_format("printa", first)?), rest)
            }
            _ => (None, arguments),
        };
        if rest.is_empty() {
            return Err(Diagnostic::new(
                "D_PRINTA_PROTO",
                span,
                format!(
                    "printa( ) prototype mismatch: {} args passed, {} expected",
                    arguments.len(),
                    arguments.len() + 1
                ),
            )
            .with_help("printa([\"format\",] @aggregation, ...)"));
        }
        let mut aggregations = Vec::with_capacity(rest.len());
        for (index, node) in rest.iter().enumerate() {
            let at = index + usize::from(format.is_some());
            aggregations.push(self.aggregation("printa", node, at)?);
        }
        let known: Vec<_> = aggregations
            .iter()
            .filter_map(|id| self.program.aggregations.get(id.0 as usize))
            .collect();
        match &format {
            Some(format) => format.check_aggregations(&known),
            None => check_joined(&known),
        }
        .map_err(|error| format_error(error, span))?;
        Ok(RecordKind::Printa { format, aggregations })
    }
}

pub(super) fn constant_format(name: &str, node: &Node) -> Checked<Format> {
    let NodeKind::String(text) = &node.kind else {
        return Err(Diagnostic::new(
            "D_PRINTF_ARG_FMT",
            node.span,
            format!("{name}( ) argument #1 is incompatible with prototype: expected string constant"),
        ));
    };
    if text.is_empty() {
        return Err(Diagnostic::new(
            "D_PRINTF_FMT_EMPTY",
            node.span,
            "format string is empty",
        ));
    }
    Format::parse(&crate::bytes::text_of(text)).map_err(|error| format_error(error, node.span))
}

pub(super) fn format_error(error: FormatError, span: Span) -> Diagnostic {
    Diagnostic::new(error.tag, span, error.message)
}

/// The form in which an action prints an address, if it is one of these actions. In DTrace `sym`, `func` and `mod` take
/// addresses of the kernel; here every address is one of the program.
fn symbol_kind(name: &str) -> Option<SymbolKind> {
    Some(match name {
        "uaddr" => SymbolKind::Address,
        "umod" | "mod" => SymbolKind::Module,
        "usym" | "ufunc" | "sym" | "func" => SymbolKind::Function,
        _ => return None,
    })
}

/// The name and the arguments of a node that calls `uaddr` or an action like it. Such a call in a key
/// is an address that is printed as a name.
pub(super) fn symbol_arguments(node: &Node) -> Option<(&str, SymbolKind, &[Node])> {
    match &node.kind {
        NodeKind::Call { function, arguments } => match &function.kind {
            NodeKind::Identifier(name) => Some((name, symbol_kind(name)?, arguments)),
            _ => None,
        },
        _ => None,
    }
}

/// The type of a value, if it is one of the program's enumerations.
pub(super) fn names_of(of: &Type) -> Option<Foreign> {
    match of {
        Type::Foreign(foreign) => foreign.integer().map(|_| foreign.clone()),
        _ => None,
    }
}

/// Whether a node is a call of an action, which has no value.
pub(super) fn is_action(node: &Node) -> bool {
    action_call(node).is_some()
}

/// The name and the arguments of an action that a node calls.
pub(super) fn action_call(node: &Node) -> Option<(&str, &[Node])> {
    let NodeKind::Call { function, arguments } = &node.kind else {
        return None;
    };
    match &function.kind {
        NodeKind::Identifier(name) if names::callable(name) == Some(Callable::Action) => Some((name, arguments)),
        _ => None,
    }
}
