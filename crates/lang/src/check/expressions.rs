//! Operands: constants, names, elements, casts, `sizeof`, `stringof`.

use super::names::Callable;
use super::variables::designator;
use super::{Checked, Checker, internet, names};
use crate::diagnostic::Diagnostic;
use crate::lower::refusals::unsupported;
use crate::lower::{coerce, constant, convert, enumerations, memory, operators, pointers};
use crate::program::{BinaryOperator, Expression, ExpressionKind, IntegerType, Scope, Type};
use crate::source::Span;
use crate::syntax::{IntegerLiteral, Node, NodeKind, TypeName};
use crate::types;

impl Checker {
    /// An expression as an operand. A structure or an array stays where it lies
    /// ([`super::memory`]).
    pub(super) fn operand(&mut self, node: &Node) -> Checked<Expression> {
        let node = self.chosen(node)?;
        let span = node.span;
        match &node.kind {
            NodeKind::Integer(integer) => Ok(literal(*integer, span)),
            NodeKind::String(text) => Ok(Expression {
                kind: ExpressionKind::String(text.clone()),
                value_type: Type::String,
                span,
            }),
            NodeKind::Identifier(name) => self.identifier(name, node),
            NodeKind::Local { .. } => self.variable_of(node),
            NodeKind::Index { base, indices } => self.index(base, indices, node),
            NodeKind::Aggregation(name) => self.aggregation_as_value(name, span),
            NodeKind::Call { function, arguments } => self.call(function, arguments, span),
            NodeKind::Member { base, name, arrow } => self.member(base, name, *arrow, span),
            NodeKind::Unary { operator, operand } => self.unary(*operator, operand, span),
            NodeKind::Increment { operand, delta, post } => self.increment(operand, *delta, *post, span),
            NodeKind::Binary { operator, left, right } => {
                let (left, right) = (self.expression(left)?, self.expression(right)?);
                operators::binary(*operator, left, right, span)
            }
            NodeKind::Logical { operator, left, right } => self.logical(*operator, left, right, span),
            NodeKind::Conditional {
                condition,
                then,
                otherwise,
            } => self.conditional(condition, then, otherwise, span),
            NodeKind::Assign {
                operator: None,
                left,
                right,
            } => self.assign(left, right, span),
            NodeKind::Assign {
                operator: Some(operator),
                left,
                right,
            } => self.assign_operator(*operator, left, right, span),
            NodeKind::Comma { first, second } => self.comma(first, second, span),
            NodeKind::Cast { to, operand } => self.cast(to, operand, span),
            NodeKind::SizeofType(of) => {
                let of = self.type_of(of)?;
                self.sizeof(&of, span)
            }
            NodeKind::Alignof(of) => {
                let resolved = self.type_of(of)?;
                let bytes = self.alignment(&of.base, &of.derived, &resolved);
                Ok(constant::integer(bytes as i64, constant::UNSIGNED_LONG, span))
            }
            NodeKind::Sizeof(operand) => self.sizeof_operand(operand, span),
            NodeKind::Stringof(operand) => self.stringof(operand, span),
            NodeKind::Offsetof(of, member) => {
                let of = self.type_of(of)?;
                let offset = self.offset_of(&of, member, span)?;
                Ok(constant::integer(offset as i64, constant::UNSIGNED_LONG, span))
            }
            NodeKind::Translate { to, operand } => Err(self.untaken(to, operand, span)),
        }
    }

    /// `first, second`.
    fn comma(&mut self, first: &Node, second: &Node, span: Span) -> Checked<Expression> {
        let (first, second) = (self.comma_operand(first)?, self.comma_operand(second)?);
        let value_type = second.value_type.clone();
        let kind = ExpressionKind::Comma {
            first: Box::new(first),
            second: Box::new(second),
        };
        Ok(Expression { kind, value_type, span })
    }

    /// `(to)operand`.
    fn cast(&mut self, to: &TypeName, operand: &Node, span: Span) -> Checked<Expression> {
        let to = self.type_of(to)?;
        if super::translators::is_translation(operand).is_some() {
            let message = format!("invalid cast expression: translated data to \"{}\"", types::name(&to));
            return Err(Diagnostic::new("D_CAST_INVAL", span, message));
        }
        let operand = self.placed_operand(operand)?;
        // A value that already has the type stays where it lies.
        if types::is_aggregate(&to) && operand.value_type == to {
            return Ok(operand);
        }
        let operand = memory::readable(memory::decayed(operand))?;
        if let Type::Foreign(foreign) = &to
            && let Some(integer) = foreign.integer()
        {
            let value = coerce::explicit(operand, &Type::Integer(integer), span)?;
            return Ok(enumerations::of_enumeration(value, foreign));
        }
        coerce::explicit(operand, &to, span)
    }

    /// `sizeof operand`.
    fn sizeof_operand(&mut self, operand: &Node, span: Span) -> Checked<Expression> {
        if matches!(&operand.kind, NodeKind::Identifier(name) if name == "NULL") {
            // In DTrace the result is an `int`.
            return Ok(constant::integer(4, constant::UNSIGNED_LONG, span));
        }
        let operand = self.measured(operand, span)?;
        if let ExpressionKind::String(text) = &operand.kind {
            return Ok(constant::integer(text.len() as i64 + 1, constant::UNSIGNED_LONG, span));
        }
        self.sizeof(&operand.value_type, span)
    }

    /// `stringof operand`.
    fn stringof(&mut self, operand: &Node, span: Span) -> Checked<Expression> {
        let operand = self.expression(operand)?;
        match operand.value_type {
            Type::Void => Err(Diagnostic::new(
                "D_STRINGOF_TYPE",
                span,
                "cannot apply stringof to a value of type void",
            )),
            _ => Ok(Expression {
                span,
                ..convert::to_string(operand)
            }),
        }
    }

    /// A name. The user's variables come first, as in DTrace: they may hide later built-in names.
    fn identifier(&mut self, name: &str, node: &Node) -> Checked<Expression> {
        if let Some(declared) = self.declared_name(name, node)? {
            return Ok(declared);
        }
        if let Some(known) = self.known_name(name, node.span)? {
            return Ok(known);
        }
        if name.contains('`') {
            return self.symbol(name, node.span);
        }
        refuse_as_scalar(name, node.span)?;
        // A name without any other meaning may be one of the program's enumerators.
        let unknown = match self.variable_of(node) {
            Err(unknown) if unknown.tag == "D_IDENT_UNDEF" => unknown,
            found => return found,
        };
        match self.target().ok().and_then(|target| target.enumerator(name)) {
            Some(value) => Ok(literal(IntegerLiteral::decimal(value), node.span)),
            None => Err(unknown),
        }
    }

    /// A name to which the text has given a meaning.
    fn declared_name(&mut self, name: &str, node: &Node) -> Checked<Option<Expression>> {
        let span = node.span;
        if let Some((_, bound)) = self.scope.bound.iter().rev().find(|(parameter, _)| parameter == name) {
            return Ok(Some(Expression { span, ..bound.clone() }));
        }
        if self.variables.known(Scope::Global, name).is_some() {
            return self.variable_of(node).map(Some);
        }
        if self.scope.inline_functions.contains_key(name) {
            let message = format!("inline '{name}' may not be referenced as scalar");
            return Err(Diagnostic::new("D_IDENT_BADREF", span, message).with_help(format!("{name}[...]")));
        }
        if let Some(inline) = self.scope.inlines.get(name) {
            self.inline_without_words(name, inline, span)?;
            return Ok(Some(Expression { span, ..inline.clone() }));
        }
        if let Some((to, operand)) = self.scope.inline_translations.get(name).cloned() {
            return Err(self.untaken(&to, &operand, span));
        }
        if let Some(of) = self.scope.externals.get(name) {
            return self.external_symbol(name, of, span).map(Some);
        }
        if self.scope.floats.contains_key(name) {
            return Err(float_as_value(name, span));
        }
        if let Some(value) = self.scope.enumerators.get(name) {
            let of = constant::narrowest(*value);
            return Ok(Some(constant::integer(*value as i64, of, span)));
        }
        Ok(None)
    }

    /// A name that every program knows: of a constant or a built-in variable.
    fn known_name(&mut self, name: &str, span: Span) -> Checked<Option<Expression>> {
        if let Some(value) = self.constant_name(name) {
            return Ok(Some(constant::integer(value, constant::INT, span)));
        }
        if let Some((builtin, value_type)) = names::builtin(name) {
            if let Some(word) = self.derived_word(builtin, span)? {
                return Ok(Some(word));
            }
            if builtin == crate::program::Builtin::Goroutine {
                self.needs_goroutines(span)?;
            }
            let kind = ExpressionKind::Builtin(builtin);
            return Ok(Some(Expression { kind, value_type, span }));
        }
        if let Some((function, argument)) = names::asked_for(name) {
            let argument = argument.map(|value| constant::integer(value, constant::LONG, span));
            return Ok(Some(Expression {
                kind: ExpressionKind::Call {
                    function,
                    arguments: argument.into_iter().collect(),
                },
                value_type: Type::String,
                span,
            }));
        }
        // A statement runs only while no interrupt is being served, so `ipl` is constant.
        if name == "ipl" {
            return Ok(Some(constant::integer(0, names::UNSIGNED, span)));
        }
        if name == "NULL" {
            let zero = constant::integer(0, constant::UNSIGNED_LONG, span);
            return Ok(Some(convert::cast(zero, Type::Pointer(None))));
        }
        if let Some(instead) = names::missing_variable(name) {
            let diagnostic = unsupported("N_VARIABLE", &format!("the built-in variable {name}"), span);
            return Err(if instead.is_empty() {
                diagnostic
            } else {
                diagnostic.with_help(instead)
            });
        }
        Ok(None)
    }

    fn variable_of(&mut self, node: &Node) -> Checked<Expression> {
        match designator(node) {
            Some(designator) => self.read(&designator, node.span),
            None => Err(Diagnostic::new("D_OP_IDENT", node.span, "expected a variable")),
        }
    }

    /// The value of a name for a number: a register, a signal, a kind of fault, a family of addresses, a data model,
    /// an error.
    fn constant_name(&self, name: &str) -> Option<i64> {
        names::register(name)
            .or_else(|| names::signal(name))
            .or_else(|| names::fault(name))
            .or_else(|| {
                internet::family(name)
                    .or_else(|| names::data_model(name))
                    .or_else(|| names::error(name))
                    .filter(|_| !self.is_declared(name))
            })
    }

    /// `base[index]`: an element of an associative array, a register, or an element at a pointer.
    fn index(&mut self, base: &Node, indices: &[Node], node: &Node) -> Checked<Expression> {
        let span = node.span;
        match &base.kind {
            NodeKind::Aggregation(name) => return self.aggregation_as_value(name, span),
            NodeKind::Index { base: inner, .. } if matches!(inner.kind, NodeKind::Aggregation(_)) => {
                return Err(multi_dimensional(inner, span));
            }
            NodeKind::Identifier(name) if self.scope.bound.iter().any(|(parameter, _)| parameter == name) => {}
            NodeKind::Identifier(name) if self.scope.inline_functions.contains_key(name) => {
                if let Some(value) = self.inline_call(name, indices, span) {
                    return value;
                }
            }
            NodeKind::Identifier(name) if self.variables.known(Scope::Global, name).is_none() => match name.as_str() {
                "uregs" => return self.register(indices, span),
                "args" => return self.typed_argument(indices, span),
                _ if name.contains('`') => {}
                "vmregs" | "fds" => {
                    self.identifier(name, base)?;
                }
                _ if !names::is_variable(name)
                    && !self.scope.inlines.contains_key(name)
                    && !self.scope.externals.contains_key(name) =>
                {
                    return self.variable_of(node);
                }
                _ => {}
            },
            _ => {}
        }
        if let Some(found) =
            designator(node).filter(|found| self.scope.bound.iter().all(|(name, _)| name != found.name))
        {
            let scalar = match self.variables.known(found.scope, found.name) {
                Some(known) => self
                    .variables
                    .get((found.scope, known.id))
                    .is_some_and(|v| v.keys.is_none()),
                None => found.scope == Scope::Global,
            };
            if !scalar {
                return self.read(&found, span);
            }
        }
        let pointer = self.operand(base)?;
        if matches!(pointer.value_type, Type::Array { .. }) {
            return self.element(pointer, indices, span);
        }
        if pointer.value_type == Type::String {
            return self.character(pointer, indices, span);
        }
        if !matches!(pointer.value_type, Type::Pointer(_)) {
            let message = format!(
                "a value of type \"{}\" has no elements",
                types::name(&pointer.value_type)
            );
            return Err(Diagnostic::new("D_ARR_BADREF", base.span, message));
        }
        let [index] = indices else {
            return Err(Diagnostic::new(
                "D_ARR_BADREF",
                span,
                "a pointer has one index, not several keys",
            ));
        };
        let index = self.expression(index)?;
        let address = operators::binary(BinaryOperator::Add, pointer, index, span)?;
        pointers::dereference(address, span)
    }

    fn register(&mut self, indices: &[Node], span: Span) -> Checked<Expression> {
        let [index] = indices else {
            return Err(Diagnostic::new(
                "D_PROTO_LEN",
                span,
                "uregs[ ] prototype mismatch: 1 index expected",
            ));
        };
        let at = index.span;
        let index = self.expression(index)?;
        if !matches!(index.value_type, Type::Integer(_)) {
            return Err(
                Diagnostic::new("D_REGS_IDX", at, "the index of uregs[ ] must be an integer")
                    .with_help("uregs[R_RAX], uregs[R_RSP], ..."),
            );
        }
        if constant::wide_value(&index).is_some_and(|value| !(0..28).contains(&value)) {
            return Err(
                Diagnostic::new("D_REGS_IDX", at, "there is no such register in uregs[ ]")
                    .with_help("from 0 (R_R15) to 27 (R_GSBASE)"),
            );
        }
        let index = Box::new(convert::to_integer(index, constant::LONG));
        Ok(Expression {
            kind: ExpressionKind::Register(index),
            value_type: Type::U64,
            span,
        })
    }

    /// The size of a value of this type. The size of a string is the room of a string variable.
    fn sizeof(&self, of: &Type, span: Span) -> Checked<Expression> {
        let size = match of {
            Type::String => Some(u64::from(self.settings.string_bytes)),
            _ => types::size_of(of),
        };
        match size {
            Some(size) => Ok(constant::integer(size as i64, constant::UNSIGNED_LONG, span)),
            None => Err(Diagnostic::new(
                "D_SIZEOF_TYPE",
                span,
                format!("cannot apply sizeof to an operand of unknown size: {}", types::name(of)),
            )),
        }
    }

    /// The operand of `sizeof`, which must not be a bit-field.
    fn measured(&mut self, operand: &Node, span: Span) -> Checked<Expression> {
        let NodeKind::Member { base, name, arrow } = &operand.kind else {
            return self.operand(operand);
        };
        match self.member_in_unit(base, name, *arrow, operand.span)? {
            (part, None) => Ok(part),
            (_, Some(_)) => {
                let message = format!("cannot apply sizeof to a bit-field: {name}");
                Err(Diagnostic::new("D_SIZEOF_BITFIELD", span, message))
            }
        }
    }

    fn comma_operand(&mut self, node: &Node) -> Checked<Expression> {
        if let NodeKind::Call { function, .. } = &node.kind
            && let NodeKind::Identifier(name) = &function.kind
            && names::callable(name) == Some(Callable::Action)
        {
            return Err(
                Diagnostic::new("D_OP_ACT", node.span, "operator , operands cannot be actions")
                    .with_help("separate actions with `;`"),
            );
        }
        if matches!(&node.kind, NodeKind::Assign { left, .. } if super::aggregations::named(left).is_some()) {
            return Err(
                Diagnostic::new("D_OP_DYN", node.span, "operator , operands cannot be of dynamic type")
                    .with_help("separate the statements with `;`"),
            );
        }
        self.expression(node)
    }
}

/// Refuses the name of an array or a function in the place of a value.
fn refuse_as_scalar(name: &str, span: Span) -> Checked<()> {
    if name == "args" {
        return Err(
            Diagnostic::new("D_IDENT_BADREF", span, "array 'args' may not be referenced as scalar")
                .with_help("args[0], args[1], ..."),
        );
    }
    if name == "uregs" {
        return Err(
            Diagnostic::new("D_IDENT_BADREF", span, "array 'uregs' may not be referenced as scalar")
                .with_help("uregs[R_RAX], uregs[R_RSP], ..."),
        );
    }
    if names::callable(name).is_some() {
        return Err(Diagnostic::new(
            "D_IDENT_BADREF",
            span,
            format!("function '{name}' may not be referenced as scalar"),
        )
        .with_help(format!("call it: {name}(...)")));
    }
    Ok(())
}

/// A constant, of the type that C gives it.
pub(super) fn literal(of: IntegerLiteral, span: Span) -> Expression {
    let fits_int = of.value <= i32::MAX as u64;
    let fits_unsigned = of.value <= u64::from(u32::MAX);
    let fits_long = of.value <= i64::MAX as u64;
    let bytes = if !of.long
        && (if of.unsigned || !of.decimal {
            fits_unsigned
        } else {
            fits_int
        }) {
        4
    } else {
        8
    };
    let fits_signed = if bytes == 4 { fits_int } else { fits_long };
    let constant_type = IntegerType {
        bytes,
        signed: !of.unsigned && fits_signed,
    };
    let value = if of.negative {
        (of.value as i64).wrapping_neg()
    } else {
        of.value as i64
    };
    constant::integer(value, constant_type, span)
}

/// The error of a variable of floating point that D would have to compute with.
pub(super) fn float_as_value(name: &str, span: Span) -> Diagnostic {
    unsupported(
        "N_FLOAT",
        &format!("an expression with {name}, of floating point,"),
        span,
    )
    .with_help("D computes with integers; print(*(double *)address) shows one of the program's")
}

pub(super) fn multi_dimensional(aggregation: &Node, span: Span) -> Diagnostic {
    let name = super::forward_uses::name_of(aggregation).unwrap_or_default();
    Diagnostic::new(
        "D_AGG_MDIM",
        span,
        format!("improper attempt to reference {name} as a multi-dimensional array"),
    )
    .with_help(format!("separate the keys with commas: {name}[a, b]"))
}
