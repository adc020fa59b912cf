//! `@name[keys] = function(value, parameters)`.

use super::actions::symbol_arguments;
use super::context::KnownAggregation;
use super::keys::{KeyElement, key_mismatch, length_mismatch};
use super::names::Callable;
use super::stacks::stack_arguments;
use super::subroutines::check_count;
use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::{constant, convert, memory};
use crate::program::{
    AggregatingFunction, Aggregation, AggregationId, Expression, IntegerType, KeyExpression, KeyType, Statement, Type,
};
use crate::source::Span;
use crate::syntax::{Node, NodeKind};
use crate::types;

/// The name of the aggregation that a node names, with or without keys.
pub(super) fn named(node: &Node) -> Option<&str> {
    match &node.kind {
        NodeKind::Aggregation(name) => Some(name),
        NodeKind::Index { base, .. } => named(base),
        _ => None,
    }
}

/// The name, its place and the keys of `@name[keys]`; `None` for any other node.
pub(super) fn target(node: &Node) -> Checked<Option<(&str, Span, &[Node])>> {
    match &node.kind {
        NodeKind::Aggregation(name) => Ok(Some((name, node.span, &[]))),
        NodeKind::Index { base, indices } => match &base.kind {
            NodeKind::Aggregation(name) => Ok(Some((name, base.span, indices))),
            NodeKind::Index { base: inner, .. } if matches!(inner.kind, NodeKind::Aggregation(_)) => {
                Err(super::expressions::multi_dimensional(inner, node.span))
            }
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

impl Checker {
    /// `@name[keys] = right`.
    pub(super) fn aggregate(
        &mut self,
        name: &str,
        name_span: Span,
        keys: &[Node],
        right: &Node,
        span: Span,
    ) -> Checked<Statement> {
        let no_function = || {
            Diagnostic::new(
                "D_AGG_FUNC",
                right.span,
                format!("{name} must be assigned the result of an aggregating function"),
            )
            .with_help(
                "count(), sum(x), avg(x), min(x), max(x), stddev(x), quantize(x), lquantize(...), llquantize(...)",
            )
        };
        let NodeKind::Call { function, arguments } = &right.kind else {
            // An error in the value itself is reported first: `@a = nothing` is an unknown name.
            self.operand(right)?;
            return Err(no_function());
        };
        let (called, callable) = self.callee(function)?;
        if callable != Callable::Aggregating {
            return Err(no_function());
        }
        let (aggregating, value, weight) = self.aggregating_function(called, arguments, right.span)?;
        let keys = keys
            .iter()
            .enumerate()
            .map(|(index, key)| self.key(name, index, key))
            .collect::<Checked<Vec<_>>>()?;
        let aggregation = self.same_aggregation(name, name_span, aggregating, right.span, &keys, span)?;
        let keys = keys.into_iter().flat_map(|(key, ..)| key).collect();
        Ok(Statement::Aggregate {
            aggregation,
            keys,
            value,
            weight,
            span,
        })
    }

    /// One element of an aggregation's key, with its type and its place in the text.
    fn key(&mut self, name: &str, index: usize, node: &Node) -> Checked<(Vec<KeyExpression>, KeyType, Span)> {
        if let Some((name, arguments)) = stack_arguments(node) {
            let stack = self.stack(name, arguments, node.span)?;
            return Ok((vec![KeyExpression::Stack(stack)], KeyType::Stack(stack), node.span));
        }
        if let Some((name, kind, arguments)) = symbol_arguments(node) {
            check_count(name, arguments, 1..=1, node.span)?;
            let address = self.address(name, arguments, 0)?;
            return Ok((vec![KeyExpression::Value(address)], KeyType::Symbol(kind), node.span));
        }
        if self.is_dynamic(node) {
            return Err(dynamic_key(name, index, node.span));
        }
        let found = match self.key_element(node)? {
            KeyElement::Value(found) => found,
            KeyElement::Words(words, size, _) => {
                let words = words.into_iter().map(KeyExpression::Value).collect();
                return Ok((words, KeyType::of_bytes(size), node.span));
            }
        };
        if let Type::Foreign(of) = &found.value_type
            && of.integer().is_some()
        {
            let key_type = KeyType::Enumeration(of.clone());
            let value = KeyExpression::Value(memory::decayed(found));
            return Ok((vec![value], key_type, node.span));
        }
        let value = memory::readable(memory::decayed(found))?;
        let (value, key_type) = match value.value_type {
            Type::Integer(integer) => (value, KeyType::Integer(integer)),
            Type::String if value.is_function_name() => (value, KeyType::Function),
            Type::String => (value, KeyType::String),
            Type::Pointer(_) => (convert::to_address(value), KeyType::Integer(constant::UNSIGNED_LONG)),
            ref other => {
                return Err(Diagnostic::new(
                    "D_KEY_TYPE",
                    node.span,
                    format!(
                        "{} expression may not be used as {name} index: key #{}",
                        types::name(other),
                        index + 1
                    ),
                ));
            }
        };
        Ok((vec![KeyExpression::Value(value)], key_type, node.span))
    }

    /// The aggregation of this name: a new one, or one that has the same function, parameters and kinds
    /// of keys.
    fn same_aggregation(
        &mut self,
        name: &str,
        name_span: Span,
        function: AggregatingFunction,
        function_span: Span,
        keys: &[(Vec<KeyExpression>, KeyType, Span)],
        span: Span,
    ) -> Checked<AggregationId> {
        let Some(known) = self.scope.aggregations.get(name).copied() else {
            let id = AggregationId(u32::try_from(self.program.aggregations.len()).unwrap_or(u32::MAX));
            let keys = keys.iter().map(|(_, key_type, _)| key_type.clone()).collect();
            self.program.aggregations.push(Aggregation {
                name: name.to_owned(),
                function,
                keys,
                by_processor: false,
            });
            self.scope
                .aggregations
                .insert(name.to_owned(), KnownAggregation { id, span: name_span });
            return Ok(id);
        };
        let first = known.span;
        let Some(aggregation) = self.program.aggregations.get_mut(known.id.0 as usize) else {
            return Ok(known.id);
        };
        let here = "it was first assigned here";
        if aggregation.function != function {
            return Err(redefined(name, aggregation.function, function, function_span).with_related(first, here));
        }
        if aggregation.keys.len() != keys.len() {
            return Err(length_mismatch(name, keys.len(), aggregation.keys.len(), span).with_related(first, here));
        }
        for (index, (known_key, (_, key, key_span))) in aggregation.keys.iter_mut().zip(keys).enumerate() {
            match (known_key, key) {
                (known, key) if *known == *key => {}
                (known @ (KeyType::String | KeyType::Function), KeyType::String | KeyType::Function) => {
                    *known = KeyType::String;
                }
                // A recorded stack contains its number of frames, so stacks of several depths can be keys of one
                // aggregation.
                (KeyType::Stack(known), KeyType::Stack(stack)) if known.side == stack.side => {}
                (known, key) => {
                    // The key holds 64 bits. The type only says how they are printed, and must be
                    // able to print all values. An enumeration prints names only where all
                    // assignments have the same names.
                    if let Some((left, right)) = integer_of(known).zip(integer_of(key)) {
                        *known = KeyType::Integer(types::union_of_keys(left, right));
                        continue;
                    }
                    let what = match (&*known, key) {
                        (KeyType::Stack(_), KeyType::Stack(_)) => "a stack of the program and one of the kernel",
                        (KeyType::Stack(_), _) => "expected a stack",
                        (_, KeyType::Stack(_)) => "expected no stack",
                        (KeyType::Bytes { .. }, _) | (_, KeyType::Bytes { .. }) => "another structure, or no structure",
                        _ => "another symbol, or no symbol",
                    };
                    let diagnostic = match (type_of_key(known), type_of_key(key)) {
                        (Some(wanted), Some(found)) => key_mismatch(name, index, &wanted, &found, *key_span),
                        _ => Diagnostic::new(
                            "D_PROTO_ARG",
                            *key_span,
                            format!("{name}[ ] key #{} is incompatible with prototype: {what}", index + 1),
                        ),
                    };
                    return Err(diagnostic.with_related(first, here));
                }
            }
        }
        Ok(known.id)
    }

    /// An aggregating function, with its parameters, its value and its weight.
    fn aggregating_function(
        &mut self,
        name: &str,
        arguments: &[Node],
        span: Span,
    ) -> Checked<(AggregatingFunction, Option<Expression>, Option<Expression>)> {
        use AggregatingFunction as F;
        let (counts, weight_at) = match name {
            "count" => (0..=0, None),
            "quantize" => (1..=2, Some(1)),
            "lquantize" => (3..=5, Some(4)),
            "llquantize" => (5..=6, Some(5)),
            _ => (1..=1, None),
        };
        check_count(name, arguments, counts, span)?;
        let fixed = match name {
            "lquantize" => 2,
            "llquantize" => 4,
            _ => 0,
        };
        for index in 1..=fixed {
            self.integer_parameter(name, arguments, index)?;
        }
        let value = match arguments.first() {
            Some(node) => Some(self.aggregated(name, node)?),
            None => None,
        };
        let function = match name {
            "count" => F::Count,
            "sum" => F::Sum,
            "avg" => F::Average,
            "min" => F::Minimum,
            "max" => F::Maximum,
            "stddev" => F::StandardDeviation,
            "quantize" => F::Quantize,
            "lquantize" => self.linear(arguments, span)?,
            _ => self.log_linear(arguments, span)?,
        };
        let weight = match weight_at.and_then(|index| arguments.get(index).map(|node| (index, node))) {
            Some((index, node)) => Some(self.weight(name, index, node)?),
            None => None,
        };
        Ok((function, value, weight))
    }

    /// The value to aggregate: an integer, or an address.
    fn aggregated(&mut self, name: &str, node: &Node) -> Checked<Expression> {
        if self.is_dynamic(node) {
            return Err(Diagnostic::new(
                "D_AGG_SCALAR",
                node.span,
                format!("{name}( ) argument #1 must be of scalar type"),
            ));
        }
        let value = self.expression(node)?;
        match value.value_type {
            Type::Integer(_) => Ok(convert::uncut(value)),
            Type::Pointer(_) => Ok(convert::to_address(value)),
            ref other => Err(Diagnostic::new(
                "D_AGG_SCALAR",
                node.span,
                format!(
                    "{name}( ) argument #1 must be of scalar type, found {}",
                    types::name(other)
                ),
            )),
        }
    }

    fn weight(&mut self, name: &str, index: usize, node: &Node) -> Checked<Expression> {
        let weight = self.expression(node)?;
        match weight.value_type {
            Type::Integer(_) => Ok(convert::received(weight, constant::LONG)),
            _ => Err(Diagnostic::new(
                "D_PROTO_ARG",
                node.span,
                format!(
                    "{name}( ) increment value (argument #{}) must be of scalar type",
                    index + 1
                ),
            )),
        }
    }
}

pub(super) fn dynamic_key(name: &str, index: usize, span: Span) -> Diagnostic {
    let message = format!(
        "a dynamic expression may not be used as {name} index: key #{}",
        index + 1
    );
    Diagnostic::new("D_KEY_TYPE", span, message)
}

/// The integers that make up a key.
fn integer_of(of: &KeyType) -> Option<IntegerType> {
    match of {
        KeyType::Integer(integer) => Some(*integer),
        KeyType::Enumeration(of) => of.integer(),
        KeyType::String | KeyType::Function | KeyType::Bytes { .. } | KeyType::Stack(_) | KeyType::Symbol(_) => None,
    }
}

fn type_of_key(of: &KeyType) -> Option<Type> {
    match of {
        KeyType::Integer(integer) => Some(Type::Integer(*integer)),
        KeyType::Enumeration(of) => Some(Type::Foreign(of.clone())),
        KeyType::String | KeyType::Function => Some(Type::String),
        KeyType::Bytes { .. } | KeyType::Stack(_) | KeyType::Symbol(_) => None,
    }
}

/// The D name of a function.
pub(crate) fn function_name(of: AggregatingFunction) -> &'static str {
    use AggregatingFunction as F;
    match of {
        F::Count => "count",
        F::Sum => "sum",
        F::Average => "avg",
        F::Minimum => "min",
        F::Maximum => "max",
        F::StandardDeviation => "stddev",
        F::Quantize => "quantize",
        F::LinearQuantize { .. } => "lquantize",
        F::LogLinearQuantize { .. } => "llquantize",
    }
}

/// The error of an assignment with another function, or with other parameters.
fn redefined(name: &str, before: AggregatingFunction, now: AggregatingFunction, span: Span) -> Diagnostic {
    let parameters = changed_parameters(before, now);
    let changed = parameters.iter().find(|(_, _, expected, found)| expected != found);
    match changed.or(parameters.last()) {
        Some(&(tag, text, expected, found)) => {
            let message = format!("{text} doesn't match previous declaration: expected {expected}, found {found}");
            Diagnostic::new(tag, span, message)
        }
        None => Diagnostic::new(
            "D_AGG_REDEF",
            span,
            format!(
                "aggregation redefined: {name} = {}( ), previously {name} = {}( )",
                function_name(now),
                function_name(before)
            ),
        ),
    }
}

/// The parameters of two aggregations by the same function, in the order in which they are compared: the tag
/// and the name of each, its previous and its new value. Empty if the functions differ.
fn changed_parameters(
    before: AggregatingFunction,
    now: AggregatingFunction,
) -> Vec<(&'static str, &'static str, i64, i64)> {
    use AggregatingFunction as F;
    let row = |tag, text, before: i64, now: i64| (tag, text, before, now);
    match (before, now) {
        (
            F::LinearQuantize { base, limit, step },
            F::LinearQuantize {
                base: new_base,
                limit: new_limit,
                step: new_step,
            },
        ) => vec![
            row(
                "D_LQUANT_MATCHBASE",
                "lquantize( ) base (argument #1)",
                base.into(),
                new_base.into(),
            ),
            row(
                "D_LQUANT_MATCHLIM",
                "lquantize( ) limit (argument #2)",
                limit.into(),
                new_limit.into(),
            ),
            row(
                "D_LQUANT_MATCHSTEP",
                "lquantize( ) step (argument #3)",
                step.into(),
                new_step.into(),
            ),
        ],
        (
            F::LogLinearQuantize {
                factor,
                low,
                high,
                steps,
            },
            F::LogLinearQuantize {
                factor: new_factor,
                low: new_low,
                high: new_high,
                steps: new_steps,
            },
        ) => vec![
            row(
                "D_LLQUANT_FACTORMATCH",
                "llquantize( ) factor (argument #1)",
                factor.into(),
                new_factor.into(),
            ),
            row(
                "D_LLQUANT_LOWMATCH",
                "llquantize( ) low magnitude (argument #2)",
                low.into(),
                new_low.into(),
            ),
            row(
                "D_LLQUANT_HIGHMATCH",
                "llquantize( ) high magnitude (argument #3)",
                high.into(),
                new_high.into(),
            ),
            row(
                "D_LLQUANT_NSTEPMATCH",
                "llquantize( ) linear steps per magnitude (argument #4)",
                steps.into(),
                new_steps.into(),
            ),
        ],
        _ => Vec::new(),
    }
}
