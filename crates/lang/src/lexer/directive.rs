//! Lines that begin with `#`: `#!`, `#pragma`, and the line markers of a preprocessor.
//!
//! `#pragma D option` and `depends_on` are returned to the caller. The attributes and bindings of the
//! manual's chapter on stability do not change a program, and are skipped. Everything else is
//! refused by name.

use super::{Lexer, is_blank};
use crate::diagnostic::Diagnostic;
use crate::libraries::Dependency;
use crate::program::Pragma;
use crate::source::Span;

impl Lexer<'_> {
    /// Takes the whole line. The lexer stands at its `#`.
    pub(super) fn directive(&mut self) -> Result<(), Diagnostic> {
        let start = self.position;
        let line = self.rest().split('\n').next().unwrap_or("");
        self.position += line.len();
        let line = line.trim_end_matches(is_blank);
        let span = self.span_of(start, start + line.len());
        if line.starts_with("#!") {
            return Ok(());
        }
        let body = strip_comment(&line[1..]);
        let mut words = body.split(is_blank).filter(|word| !word.is_empty());
        match words.next() {
            None | Some("line" | "ident") => Ok(()),
            Some(word) if word.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.line_marker(body);
                Ok(())
            }
            Some("pragma") if self.pragma_pack(body.trim_start_matches(is_blank).trim_start_matches("pragma")) => {
                Ok(())
            }
            Some("pragma") => self.pragma(&words.collect::<Vec<_>>(), span),
            Some(word @ ("include" | "define" | "undef" | "if" | "ifdef" | "ifndef" | "elif" | "else" | "endif")) => {
                Err(Diagnostic::new(
                    "D_PRAGCTL_INVAL",
                    span,
                    format!("the directive #{word} needs a preprocessor"),
                )
                .with_help("-C runs cpp over scripts; constants can be declared with `inline`"))
            }
            Some("error") => Err(error(&words.collect::<Vec<_>>(), span)),
            Some(word) => Err(Diagnostic::new(
                "D_PRAGCTL_INVAL",
                span,
                format!("invalid control directive: #{word}"),
            )),
        }
    }

    fn pragma(&mut self, words: &[&str], span: Span) -> Result<(), Diagnostic> {
        match words {
            [] => Ok(()),
            ["D", "option", options @ ..] => self.options(options, span),
            ["D", "attributes", attributes, _, ..] if !is_attributes(attributes) => Err(Diagnostic::new(
                "D_PRAGMA_INVAL",
                span,
                format!("invalid attributes specified by #pragma attributes: {attributes}"),
            )
            .with_help("name stability/data stability/class, such as Stable/Evolving/Common")),
            ["D", "attributes" | "binding", _, _, ..] => Ok(()),
            ["D", name @ ("attributes" | "binding"), ..] => Err(Diagnostic::new(
                "D_PRAGMA_MALFORM",
                span,
                format!("malformed #pragma {name}: expected two words after it"),
            )),
            ["D", "depends_on", class, name, ..] => {
                let (class, name) = ((*class).to_owned(), (*name).to_owned());
                self.dependencies.push(Dependency { class, name, span });
                Ok(())
            }
            ["D", "depends_on", ..] => Err(Diagnostic::new(
                "D_PRAGMA_MALFORM",
                span,
                "malformed #pragma depends_on <class> <name>",
            )),
            ["D", "error", message @ ..] | ["error", message @ ..] => Err(error(message, span)),
            ["ident", ..] | ["D", "ident", ..] => Ok(()),
            ["D", name, ..] => Err(Diagnostic::new(
                "D_PRAGMA_INVAL",
                span,
                format!("invalid #pragma D {name}"),
            )),
            ["D"] => Err(
                Diagnostic::new("D_PRAGMA_MALFORM", span, "malformed #pragma D: expected its name")
                    .with_help("#pragma D option name[=value]"),
            ),
            // As in C, pragmas for other compilers are skipped: `#pragma option quiet`, without the
            // D, is one.
            _ => Ok(()),
        }
    }

    /// `#pragma D option`: one or several options.
    fn options(&mut self, options: &[&str], span: Span) -> Result<(), Diagnostic> {
        if options.is_empty() {
            return Err(Diagnostic::new(
                "D_PRAGMA_MALFORM",
                span,
                "malformed #pragma D option: expected name[=value]",
            ));
        }
        for option in options {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.trim_matches('"').to_owned())),
                None => (*option, None),
            };
            let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
            if !is_name || value.as_deref() == Some("") {
                return Err(Diagnostic::new(
                    "D_PRAGMA_MALFORM",
                    span,
                    format!("malformed #pragma D option {option}: expected name[=value]"),
                ));
            }
            match name {
                "defaultargs" => self.macros.default_arguments(),
                "argref" => self.macros.unused_arguments(),
                _ => {}
            }
            self.pragmas.push(Pragma {
                name: name.to_owned(),
                value,
                span,
            });
        }
        Ok(())
    }
}

/// Whether this is `name stability/data stability/dependency class`, with the words of the chapter
/// on stability in any case.
fn is_attributes(text: &str) -> bool {
    const STABILITIES: [&str; 8] = [
        "internal", "private", "obsolete", "external", "unstable", "evolving", "stable", "standard",
    ];
    const CLASSES: [&str; 6] = ["unknown", "cpu", "platform", "group", "isa", "common"];
    let text = text.to_ascii_lowercase();
    match text.split('/').collect::<Vec<_>>()[..] {
        [name, data, class] => STABILITIES.contains(&name) && STABILITIES.contains(&data) && CLASSES.contains(&class),
        _ => false,
    }
}

fn error(message: &[&str], span: Span) -> Diagnostic {
    Diagnostic::new("D_PRAGERR", span, format!("#error: {}", message.join(" ")))
}

/// A comment at the end of a `#` line is removed, if it ends on that line.
fn strip_comment(line: &str) -> &str {
    match line.find("/*") {
        Some(at) if line[at..].trim_end_matches(is_blank).ends_with("*/") => &line[..at],
        _ => line,
    }
}
