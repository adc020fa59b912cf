//! Names that the traced program provides: `args[]`, types by name, variables, enumerators.
//!
//! All of it comes from [`crate::target::Target`], and only when the text names it. A structure
//! passed by value lies where the ABI puts it. In memory it has an address like any other
//! ([`super::memory`]). In registers it has no address: a member is cut out of the word that holds
//! the member:
//!
//! ```text
//! struct pair { int a; int b; long c; } by value     arg0 = b:a, arg1 = c
//! args[0].b                                          (int)(arg0 >> 32)
//! ```

use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::memory::at_address;
use crate::lower::{coerce, constant, convert, memory};
use crate::program::{Builtin, Expression, ExpressionKind, Structure, Type};
use crate::source::Span;
use crate::syntax::Node;
use crate::target::{Argument, ArgumentPlace, Unknown};
use crate::types;

/// `R_RSP` in `uregs[]`.
const STACK_POINTER: i64 = 20;

impl From<(Unknown, Span)> for Diagnostic {
    fn from((unknown, span): (Unknown, Span)) -> Diagnostic {
        let diagnostic = Diagnostic::new(unknown.tag, span, unknown.message);
        match unknown.help {
            Some(help) => diagnostic.with_help(help),
            None => diagnostic,
        }
    }
}

impl Checker {
    /// `args[index]`.
    pub(super) fn typed_argument(&mut self, indices: &[Node], span: Span) -> Checked<Expression> {
        let [index] = indices else {
            let message = format!("args[ ] prototype mismatch: {} args passed, 1 expected", indices.len());
            return Err(Diagnostic::new("D_PROTO_LEN", span, message));
        };
        let Some(number) = constant::wide_value(&self.expression(index)?) else {
            let message = "args[ ] argument #1 is incompatible with prototype: expected an integer constant";
            return Err(Diagnostic::new("D_PROTO_ARG", index.span, message));
        };
        if let Some(value) = self.derived_whole(number, span)? {
            return Ok(value);
        }
        self.scheduled_whole(number, span)?;
        if self.clause_at_hand.probes.is_empty() {
            let message = "args[ ] may not be referenced outside of a probe clause";
            return Err(Diagnostic::new("D_ARGS_NONE", span, message));
        }
        // As in DTrace, the probes of these providers have no typed arguments.
        if self.clause_at_hand.in_tracer {
            let message = format!(
                "index {number} is out of range for args[ ]: this clause runs in the tracer, not in a thread of the target"
            );
            let refused = Diagnostic::new("D_ARGS_IDX", span, message);
            return Err(refused.with_help("use it in a clause on a pid probe"));
        }
        let arguments = match &self.clause_at_hand.arguments {
            Some(known) => known.clone(),
            None => {
                let asked = self
                    .target()
                    .and_then(|target| target.arguments(&self.clause_at_hand.probes));
                self.clause_at_hand.arguments.insert(asked).clone()
            }
        };
        let arguments = arguments.map_err(|unknown| Diagnostic::from((unknown, span)))?;
        let found = usize::try_from(number).ok().and_then(|number| arguments.get(number));
        let Some(argument) = found else {
            let message = format!(
                "index {number} is out of range for args[ ]: there are {}",
                arguments.len()
            );
            let names: Vec<String> = arguments.iter().map(described).collect();
            return Err(Diagnostic::new("D_ARGS_IDX", span, message).with_help(names.join(", ")));
        };
        typed_value(argument, span)
    }

    /// A structure of the traced program, for a name that the text does not define.
    pub(super) fn foreign_structure(&mut self, keyword: &str, tag: &str, name: &str) -> Option<Structure> {
        if tag.is_empty() || self.later.defines(name) {
            return None;
        }
        match self.target().and_then(|target| target.tagged(keyword, tag)) {
            Ok(Type::Structure(structure)) => Some(structure),
            Ok(_) => None,
            Err(unknown) => {
                self.types.unknown.insert(name.to_owned(), unknown);
                None
            }
        }
    }

    /// Adds to the error of an unknown structure why the program does not provide it.
    pub(super) fn with_reason(&self, error: Diagnostic, structure: &Structure) -> Diagnostic {
        match self.types.unknown.get(structure.name()) {
            Some(unknown) if matches!(error.tag, "D_OP_INCOMPLETE" | "D_OFFSETOF_TYPE") => match &unknown.help {
                Some(help) => error.with_help(format!("{}; {help}", unknown.message)),
                None => error.with_help(unknown.message.clone()),
            },
            _ => error,
        }
    }

    /// `enum tag` of the traced program, for a tag that the text does not define.
    pub(super) fn foreign_enumeration(&self, tag: &str) -> Type {
        let found = self.target().and_then(|target| target.tagged("enum", tag));
        // As in C, a value of an unknown enumeration is an int.
        found.unwrap_or(Type::I32)
    }

    /// A type of the traced program, for a name that D does not know.
    pub(super) fn foreign_type(&self, name: &str, span: Span) -> Checked<Type> {
        let found = self.target().and_then(|target| target.named(name));
        found.map_err(|unknown| Diagnostic::from((unknown, span)))
    }

    /// A variable of the program: a name with a backquote in it.
    pub(super) fn symbol(&self, name: &str, span: Span) -> Checked<Expression> {
        self.symbol_as(name, None, span)
    }

    /// A variable of the program that `extern` has declared.
    pub(super) fn external_symbol(&self, name: &str, of: &Type, span: Span) -> Checked<Expression> {
        self.symbol_as(&format!("`{name}"), Some(of), span)
    }

    /// `&symbol` of a symbol without a type, such as a function: its address.
    pub(super) fn address_of_symbol(&self, name: &str, span: Span) -> Option<Expression> {
        let found = self.target().and_then(|target| target.variable(name)).ok()?;
        let address = constant::integer(found.address as i64, constant::UNSIGNED_LONG, span);
        let pointer = || convert::cast(address, Type::Pointer(None));
        found.value_type.is_none().then(pointer)
    }

    fn symbol_as(&self, name: &str, of: Option<&Type>, span: Span) -> Checked<Expression> {
        let found = self.target().and_then(|target| target.variable(name));
        let found = found.map_err(|unknown| Diagnostic::from((unknown, span)))?;
        let address = constant::integer(found.address as i64, constant::UNSIGNED_LONG, span);
        match of.or(found.value_type.as_ref()) {
            Some(of) => at_address(address, of, span),
            None => {
                let message = format!("no symbolic type information is available for {name}");
                Err(Diagnostic::new("D_SYM_NOTYPES", span, message).with_help(format!("its address is &{name}")))
            }
        }
    }
}

/// The value of an argument, read from the place where it is.
fn typed_value(argument: &Argument, span: Span) -> Checked<Expression> {
    let word = |index: u8| Expression {
        kind: ExpressionKind::Builtin(Builtin::Argument(index)),
        value_type: Type::I64,
        span,
    };
    let of = &argument.value_type;
    match &argument.place {
        ArgumentPlace::Words(first) if types::is_aggregate(of) => Ok(Expression {
            value_type: of.clone(),
            ..word(*first)
        }),
        ArgumentPlace::Words(first) => coerce::of_word(word(*first), of, span),
        ArgumentPlace::Behind(index) => at_address(convert::to_address(word(*index)), of, span),
        ArgumentPlace::Stack(offset) => {
            let stack = Expression {
                kind: ExpressionKind::Register(Box::new(constant::integer(STACK_POINTER, constant::LONG, span))),
                value_type: Type::U64,
                span,
            };
            let offset = constant::integer(8 + i64::from(*offset), constant::UNSIGNED_LONG, span);
            at_address(memory::add(stack, offset, span), of, span)
        }
        ArgumentPlace::Unreadable(reason) => {
            let message = format!("args[ ]: {} cannot be read: {reason}", described(argument));
            Err(Diagnostic::new("D_ARGS_TYPE", span, message))
        }
    }
}

/// `struct request *request`.
fn described(argument: &Argument) -> String {
    let of = types::name(&argument.value_type);
    let space = if of.ends_with('*') || argument.name.is_empty() {
        ""
    } else {
        " "
    };
    format!("{of}{space}{}", argument.name)
}
