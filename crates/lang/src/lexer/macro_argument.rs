//! `$target`, `$1`, `$$1`: the lexer replaces them by tokens (the guide's chapter Scripting).
//!
//! `$1` becomes an integer or a name if the argument's text is one, else a string; `$$1` is always
//! a string. In a probe description the text itself is inserted: `pid$1:::entry`.

use super::{Lexer, TokenKind, identifier_length, number, text, word};
use crate::diagnostic::Diagnostic;
use crate::macros::MacroValues;
use crate::source::Span;
use crate::syntax::IntegerLiteral;

/// The macro arguments of a program, and a note which of them were used.
#[derive(Debug)]
pub struct MacroState {
    values: MacroValues,
    used: Vec<bool>,
}

impl MacroState {
    /// The state in which no argument is used yet.
    #[must_use]
    pub fn new(values: &MacroValues) -> MacroState {
        MacroState {
            values: values.clone(),
            used: vec![false; values.arguments.len()],
        }
    }

    /// `#pragma D option defaultargs`.
    pub fn default_arguments(&mut self) {
        self.values.options.default_arguments = true;
    }

    /// `#pragma D option argref`.
    pub fn unused_arguments(&mut self) {
        self.values.options.unused_arguments = true;
    }

    /// The first argument that the program does not use, counted from 1, and its text.
    #[must_use]
    pub fn first_unused(&self) -> Option<(usize, &str)> {
        if self.values.options.default_arguments || self.values.options.unused_arguments {
            return None;
        }
        let index = self.used.iter().position(|used| !used)?;
        Some((index + 1, self.values.arguments.get(index)?))
    }

    /// The text of the argument `$digits`, such as `$1`; `None`: there is no such argument.
    fn positional(&mut self, digits: &str) -> Option<&str> {
        let index: usize = digits.parse().ok()?;
        let Some(index) = index.checked_sub(1) else {
            return self.values.script.as_deref();
        };
        if let Some(used) = self.used.get_mut(index) {
            *used = true;
        }
        self.values.arguments.get(index).map(String::as_str)
    }
}

/// The name after the `$` signs.
enum Reference {
    Named(i64),
    Positional(Option<String>),
}

impl Lexer<'_> {
    pub(super) fn macro_argument(&mut self) -> Result<TokenKind, Diagnostic> {
        let start = self.position;
        let quoted = self.rest().starts_with("$$");
        let name = &self.rest()[if quoted { 2 } else { 1 }..];
        let length = name_length(name);
        self.position += length + if quoted { 2 } else { 1 };
        let span = self.span(start);
        match self.look_up(&name[..length], span)? {
            Reference::Named(value) if quoted => Ok(TokenKind::String(value.to_string().into_bytes())),
            Reference::Named(value) => Ok(TokenKind::Integer(IntegerLiteral::decimal(value))),
            Reference::Positional(None) if quoted => Ok(TokenKind::String(Vec::new())),
            Reference::Positional(None) => Ok(TokenKind::Integer(IntegerLiteral::decimal(0))),
            Reference::Positional(Some(value)) if quoted => Ok(argument_string(&value)),
            Reference::Positional(Some(value)) => argument(&value, span),
        }
    }

    /// A probe description of `length` bytes, with its macro arguments replaced.
    pub(super) fn probe(&mut self, length: usize) -> Result<TokenKind, Diagnostic> {
        let start = self.position;
        let mut rest = &self.rest()[..length];
        self.position += length;
        let mut expanded = String::with_capacity(length);
        while let Some(at) = rest.find('$') {
            expanded.push_str(&rest[..at]);
            let from = start + length - rest.len() + at;
            let name = rest[at + 1..].trim_start_matches('$');
            let name_bytes = name_length(name);
            rest = &name[name_bytes..];
            let span = self.span_of(from, start + length - rest.len());
            match self.look_up(&name[..name_bytes], span)? {
                Reference::Named(value) => expanded.push_str(&value.to_string()),
                Reference::Positional(value) => expanded.push_str(value.as_deref().unwrap_or("")),
            }
        }
        expanded.push_str(rest);
        Ok(TokenKind::Probe(expanded))
    }

    fn look_up(&mut self, name: &str, span: Span) -> Result<Reference, Diagnostic> {
        if name.is_empty() {
            return Err(Diagnostic::new(
                "D_SYNTAX",
                span,
                "expected the name of a macro variable after `$`",
            ));
        }
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            let value = self.macros.positional(name).map(str::to_owned);
            if value.is_none() && !self.macros.values.options.default_arguments {
                return Err(
                    Diagnostic::new("D_MACRO_UNDEF", span, format!("macro argument ${name} is not defined"))
                        .with_help("give it after the program, or set the option defaultargs to make it 0 or \"\""),
                );
            }
            return Ok(Reference::Positional(value));
        }
        match self.macros.values.named(name) {
            Some(Some(value)) => Ok(Reference::Named(value)),
            Some(None) if name == "target" => {
                Err(
                    Diagnostic::new("D_MACRO_UNDEF", span, "macro variable $target is not defined")
                        .with_help("name the process with -p PID, or the command to run with -c COMMAND"),
                )
            }
            _ => Err(
                Diagnostic::new("D_MACRO_UNDEF", span, format!("macro variable ${name} is not defined")).with_help(
                    format!("variables have no $ in D: {name}, self->{name} of a thread, this->{name} of a clause"),
                ),
            ),
        }
    }
}

/// The length of a macro's name: digits, or a name.
fn name_length(text: &str) -> usize {
    match text.bytes().take_while(u8::is_ascii_digit).count() {
        0 => identifier_length(text),
        digits => digits,
    }
}

/// The token that the text of an argument becomes.
fn argument(value: &str, span: Span) -> Result<TokenKind, Diagnostic> {
    let unsigned = value.strip_prefix(['-', '+']).unwrap_or(value);
    if unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        match number::parse(unsigned) {
            Ok(literal) => {
                return Ok(TokenKind::Integer(IntegerLiteral {
                    negative: value.starts_with('-'),
                    ..literal
                }));
            }
            Err(number::NumberError::Overflow) => {
                return Err(Diagnostic::new(
                    "D_MACRO_OFLOW",
                    span,
                    format!("the macro argument {value} does not fit into 64 bits"),
                ));
            }
            Err(number::NumberError::Digit(_)) => {}
        }
    }
    if !value.is_empty() && identifier_length(value) == value.len() {
        return Ok(word(value));
    }
    let inner = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
    Ok(argument_string(inner.unwrap_or(value)))
}

fn argument_string(value: &str) -> TokenKind {
    TokenKind::String(text::until_nul(text::unescape(value)))
}
