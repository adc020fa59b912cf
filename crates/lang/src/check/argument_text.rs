//! `argtext()` and `returntext()`: words as the parameters, or the result, of the clause's function.
//!
//! The debug information is asked when the text is compiled. A call becomes constants that are joined with numbers:
//!
//! ```text
//! long work(int id, struct job *job)
//! argtext(self->first, self->second)    strjoin(strjoin("id=", lltostr((int)self->first, 10)), strjoin(", job=", ...))
//! ```

use super::Checker;
use crate::lower::{constant, convert};
use crate::program::{Expression, ExpressionKind, Function, ProbeDescription, Type};
use crate::source::Span;
use crate::target::{Argument, ArgumentPlace, Unknown};

/// The most bytes of a parameter's name. Six parameters and their values fit into a string of the default `strsize`.
const NAME_BYTES_MAX: usize = 16;

/// The text for a value that is not known.
const UNKNOWN: &str = "?";

impl Checker {
    /// `argtext(word[, ...])`: the words are `arg0`, `arg1`, ... as the entry of the function had them.
    pub(super) fn argument_text(&self, words: &[Expression], span: Span) -> Expression {
        let Ok(arguments) = self.arguments_at("entry") else {
            return literal(UNKNOWN, span);
        };
        let mut text: Option<Expression> = None;
        let mut append = |part: Expression| {
            text = Some(match text.take() {
                Some(before) => joined(before, part, span),
                None => part,
            });
        };
        for (index, argument) in arguments.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            if index == words.len() {
                append(literal(&format!("{comma}..."), span));
                break;
            }
            let word = match argument.place {
                ArgumentPlace::Words(word) => words.get(usize::from(word)),
                _ => None,
            };
            let equals = if argument.name.is_empty() { "" } else { "=" };
            append(literal(&format!("{comma}{}{equals}", short(&argument.name)), span));
            let value = word.and_then(|word| value_text(word, &argument.value_type, span));
            append(value.unwrap_or_else(|| literal(UNKNOWN, span)));
        }
        text.unwrap_or_else(|| literal("", span))
    }

    /// `returntext(word)`: the word is `arg1` of a return.
    pub(super) fn result_text(&self, word: &Expression, span: Span) -> Expression {
        let Ok(arguments) = self.arguments_at("return") else {
            return number_text(word.clone(), 10, span);
        };
        match arguments.get(1).map(|result| &result.value_type) {
            None | Some(Type::Void) => literal("", span),
            Some(of) => value_text(word, of, span).unwrap_or_else(|| literal(UNKNOWN, span)),
        }
    }

    /// `args[]` of the clause's functions at their probes of this name (`entry`, `return`).
    fn arguments_at(&self, name: &str) -> Result<Vec<Argument>, Unknown> {
        let probes = self.clause_at_hand.probes.iter().map(|probe| ProbeDescription {
            name: name.to_owned(),
            ..probe.clone()
        });
        let probes: Vec<ProbeDescription> = probes.collect();
        self.target().and_then(|target| target.arguments(&probes))
    }
}

/// A word as a value of a type: an address in hexadecimal, any other integer in decimal.
fn value_text(word: &Expression, of: &Type, span: Span) -> Option<Expression> {
    let integer = match of {
        Type::Pointer(_) => return Some(number_text(word.clone(), 16, span)),
        Type::Integer(integer) => *integer,
        Type::Foreign(foreign) => foreign.integer()?,
        _ => return None,
    };
    let value = convert::to_integer(convert::to_integer(word.clone(), integer), constant::LONG);
    Some(number_text(value, 10, span))
}

fn number_text(value: Expression, base: i64, span: Span) -> Expression {
    call(
        Function::NumberToString,
        vec![value, constant::integer(base, constant::LONG, span)],
        span,
    )
}

fn joined(left: Expression, right: Expression, span: Span) -> Expression {
    call(Function::StringJoin, vec![left, right], span)
}

fn call(function: Function, arguments: Vec<Expression>, span: Span) -> Expression {
    Expression {
        kind: ExpressionKind::Call { function, arguments },
        value_type: Type::String,
        span,
    }
}

fn literal(text: &str, span: Span) -> Expression {
    Expression {
        kind: ExpressionKind::String(text.as_bytes().to_vec()),
        value_type: Type::String,
        span,
    }
}

/// The beginning of a name, cut between characters.
fn short(name: &str) -> &str {
    let end = (0..=NAME_BYTES_MAX.min(name.len())).rev();
    let end = end.into_iter().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name.get(..end).unwrap_or_default()
}
