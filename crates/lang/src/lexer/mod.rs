//! Text to tokens.
//!
//! D has two token languages. Outside of clauses, a probe description is a single word in which `-`,
//! `*`, `:` and more are letters ([`Mode::Outer`]). In predicates, bodies and declarations the tokens
//! are C's ([`Mode::Clause`]). Only the parser knows which language applies. So it asks for one token
//! at a time and names the mode.
//!
//! As in DTrace, the lexer handles comments, `#` lines (see [`directive`]) and macro arguments (see
//! [`macro_argument`]). On every error the position moves on by at least one byte, so a parser that
//! recovers always ends.

mod directive;
mod included;
mod macro_argument;
mod number;
mod text;

pub use macro_argument::MacroState;

use crate::diagnostic::Diagnostic;
use crate::libraries::Dependency;
use crate::program::Pragma;
use crate::source::Span;
use crate::syntax::IntegerLiteral;

/// The token language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Outside of clauses: probe descriptions.
    Outer,
    /// In predicates, bodies and declarations.
    Clause,
}

/// A token and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub kind: TokenKind,
    pub span: Span,
}

/// The kinds of token.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenKind {
    /// The end of the text.
    End,
    /// A name, perhaps with backquotes.
    Identifier(String),
    /// A reserved word.
    Keyword(&'static str),
    /// `@name`.
    Aggregation(String),
    /// A number, or a character constant.
    Integer(IntegerLiteral),
    /// A string, escapes replaced.
    String(Vec<u8>),
    /// A probe description ([`Mode::Outer`]), macro arguments replaced.
    Probe(String),
    /// An operator or another mark.
    Punctuator(&'static str),
    /// The `/` that ends a predicate.
    EndOfPredicate,
}

impl TokenKind {
    /// The token's name in a message.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            TokenKind::End => "the end of the text".to_owned(),
            TokenKind::Identifier(name) => format!("`{name}`"),
            TokenKind::Keyword(word) => format!("the keyword `{word}`"),
            TokenKind::Aggregation(name) => format!("`{name}`"),
            TokenKind::Integer(literal) => format!("the number {}", literal.value),
            TokenKind::String(_) => "a string".to_owned(),
            TokenKind::Probe(text) => format!("`{text}`"),
            TokenKind::Punctuator(mark) => format!("`{mark}`"),
            TokenKind::EndOfPredicate => "`/`".to_owned(),
        }
    }
}

/// A word of GNU C that [`Lexer::next`] skips.
const EXTENSION: &str = "__extension__";

/// Words that cannot be names in a clause.
const KEYWORDS: &[&str] = &[
    "auto",
    "break",
    "case",
    "char",
    "const",
    "continue",
    "counter",
    "default",
    "do",
    "double",
    "else",
    "enum",
    "extern",
    "float",
    "for",
    "goto",
    "if",
    "import",
    "inline",
    "int",
    "long",
    "offsetof",
    "probe",
    "provider",
    "register",
    "restrict",
    "return",
    "self",
    "short",
    "signed",
    "sizeof",
    "static",
    "string",
    "stringof",
    "struct",
    "switch",
    "this",
    "translator",
    "typedef",
    "union",
    "unsigned",
    "userland",
    "void",
    "volatile",
    "while",
    "xlate",
];

/// Operators and other marks of clauses, longer ones before shorter ones.
const PUNCTUATORS: &[&str] = &[
    "<<=", ">>=", "...", "&&", "^^", "||", "==", "!=", "<=", ">=", "<<", ">>", "+=", "-=", "*=", "/=", "%=", "&=",
    "^=", "|=", "++", "--", "->", "|", "^", "&", "<", ">", "+", "-", "*", "%", "~", "!", "?", ":", ".", "=", ",", ";",
    "(", ")", "[", "]", "{", "}",
];

/// The lexer of one source.
pub struct Lexer<'a> {
    text: &'a str,
    source: u32,
    position: usize,
    macros: &'a mut MacroState,
    /// The `#pragma D option`s read so far.
    pub pragmas: Vec<Pragma>,
    /// The `#pragma D depends_on`s read so far.
    pub dependencies: Vec<Dependency>,
    included: included::Included,
}

impl<'a> Lexer<'a> {
    /// A lexer at the beginning of a text.
    pub fn new(text: &'a str, source: u32, macros: &'a mut MacroState) -> Lexer<'a> {
        Lexer {
            text,
            source,
            position: 0,
            macros,
            pragmas: Vec::new(),
            dependencies: Vec::new(),
            included: included::Included::default(),
        }
    }

    /// The character right after a token.
    pub fn character_after(&self, token: Span) -> Option<char> {
        self.text.get(token.end as usize..)?.chars().next()
    }

    /// Goes back to where a token begins, to read it in another mode.
    pub fn rewind(&mut self, to: Span) {
        self.position = to.start as usize;
    }

    /// The next token.
    ///
    /// # Errors
    /// Text that is not a token, bad `#` lines and macro arguments.
    pub fn next(&mut self, mode: Mode) -> Result<Token, Diagnostic> {
        self.skip_blank(mode)?;
        // GNU C's `__extension__` has no meaning here.
        while mode == Mode::Clause && self.rest().starts_with(EXTENSION) && !self.continues_word(EXTENSION.len()) {
            self.position += EXTENSION.len();
            self.skip_blank(mode)?;
        }
        let start = self.position;
        let kind = match (self.peek(), mode) {
            (None, _) => TokenKind::End,
            (Some(_), Mode::Outer) => self.outer()?,
            (Some(_), Mode::Clause) => self.clause()?,
        };
        Ok(Token {
            kind,
            span: self.span(start),
        })
    }

    fn continues_word(&self, length: usize) -> bool {
        let next = self.rest().as_bytes().get(length);
        next.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    }

    fn outer(&mut self) -> Result<TokenKind, Diagnostic> {
        let rest = self.rest();
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            let digits = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
            if rest.as_bytes().get(digits).is_none_or(|byte| !is_probe_byte(*byte)) {
                return self.number();
            }
        }
        let length = rest.bytes().take_while(|byte| is_probe_byte(*byte)).count();
        if length > 0 {
            return self.probe(length);
        }
        for mark in ["/", ",", "{", "}", ";"] {
            if rest.starts_with(mark) {
                self.position += mark.len();
                return Ok(TokenKind::Punctuator(mark));
            }
        }
        Err(self.unexpected())
    }

    fn clause(&mut self) -> Result<TokenKind, Diagnostic> {
        let rest = self.rest();
        let first = rest.bytes().next().unwrap_or(0);
        match first {
            b'0'..=b'9' => return self.number(),
            b'.' if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => return self.number(),
            b'"' => return self.string(),
            b'\'' => return self.character(),
            b'$' => return self.macro_argument(),
            b'@' => {
                let name = identifier_length(&rest[1..]);
                self.position += 1 + name;
                return Ok(TokenKind::Aggregation(rest[..=name].to_owned()));
            }
            b'/' => {
                if let Some(kind) = self.slash() {
                    return Ok(kind);
                }
            }
            _ if is_identifier_start(first) => {
                let length = scoped_identifier_length(rest);
                self.position += length;
                return Ok(word(&rest[..length]));
            }
            _ => {}
        }
        for mark in PUNCTUATORS {
            if rest.starts_with(mark) {
                self.position += mark.len();
                return Ok(TokenKind::Punctuator(mark));
            }
        }
        Err(self.unexpected())
    }

    /// `/` divides, or ends a predicate. It ends one when the end of the text, `;`, `{` or `/`
    /// follows. `/=` is left to the table of marks.
    fn slash(&mut self) -> Option<TokenKind> {
        let after = &self.rest()[1..];
        if after.starts_with('=') {
            return None;
        }
        self.position += 1;
        Some(match after_blank(after).bytes().next() {
            None | Some(b';' | b'{' | b'/') => TokenKind::EndOfPredicate,
            _ => TokenKind::Punctuator("/"),
        })
    }

    /// Skips white space, comments, escaped ends of lines, and `#` lines.
    fn skip_blank(&mut self, mode: Mode) -> Result<(), Diagnostic> {
        loop {
            let rest = self.rest();
            if rest.starts_with(is_blank) {
                self.position += 1;
            } else if rest.starts_with("/*") {
                self.comment()?;
            } else if is_line_comment(rest) {
                self.position += rest.find('\n').unwrap_or(rest.len());
            } else if mode == Mode::Clause && (rest.starts_with("\\\n") || rest.starts_with("\\\r\n")) {
                self.position += 1;
            } else if rest.starts_with('#') && self.at_start_of_line() {
                self.directive()?;
            } else {
                return Ok(());
            }
        }
    }

    fn comment(&mut self) -> Result<(), Diagnostic> {
        let start = self.position;
        let body = &self.text[start + 2..];
        let end = body.find("*/");
        if let Some(inner) = body[..end.unwrap_or(body.len())].find("/*") {
            self.position = end.map_or(self.text.len(), |end| start + end + 4);
            let at = start + 2 + inner;
            return Err(
                Diagnostic::new("D_SYNTAX", self.span_of(at, at + 2), "`/*` inside a comment")
                    .with_related(self.span_of(start, start + 2), "the comment begins here"),
            );
        }
        match end {
            Some(end) => {
                self.position = start + 2 + end + 2;
                Ok(())
            }
            None => {
                self.position = self.text.len();
                Err(Diagnostic::new(
                    "D_SYNTAX",
                    self.span_of(start, start + 2),
                    "the comment has no end: expected `*/`",
                ))
            }
        }
    }

    fn at_start_of_line(&self) -> bool {
        let before = &self.text[..self.position];
        before
            .rsplit('\n')
            .next()
            .unwrap_or("")
            .bytes()
            .all(|byte| is_blank(char::from(byte)))
    }

    fn unexpected(&mut self) -> Diagnostic {
        let start = self.position;
        let character = self.peek().unwrap_or(' ');
        self.position += character.len_utf8();
        Diagnostic::new(
            "D_SYNTAX",
            self.span(start),
            format!("unexpected character `{}`", character.escape_debug()),
        )
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// The span from `start` to the current position.
    fn span(&self, start: usize) -> Span {
        self.span_of(start, self.position)
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "compile() refuses sources of 4 GiB and more"
    )]
    fn span_of(&self, start: usize, end: usize) -> Span {
        Span {
            source: self.source,
            start: start as u32,
            end: end as u32,
        }
    }
}

/// The text after white space and comments.
fn after_blank(text: &str) -> &str {
    let mut rest = text.trim_start_matches(is_blank);
    loop {
        let after = if let Some(comment) = rest.strip_prefix("/*") {
            comment.find("*/").map_or("", |end| &comment[end + 2..])
        } else if is_line_comment(rest) {
            rest.find('\n').map_or("", |end| &rest[end..])
        } else {
            return rest;
        };
        rest = after.trim_start_matches(is_blank);
    }
}

/// Whether a comment up to the end of the line begins here. In `/x//* why */` the first `/` ends the
/// predicate, and `/*` begins the comment.
fn is_line_comment(text: &str) -> bool {
    text.starts_with("//") && !text.starts_with("//*")
}

/// A keyword or a name. For headers, GNU C's other spellings of C's keywords are known, too.
fn word(text: &str) -> TokenKind {
    let text = match text {
        "__const" | "__const__" => "const",
        "__inline" | "__inline__" => "inline",
        "__restrict" | "__restrict__" => "restrict",
        "__signed" | "__signed__" => "signed",
        "__volatile" | "__volatile__" => "volatile",
        "__builtin_offsetof" => "offsetof",
        _ => text,
    };
    match KEYWORDS.binary_search(&text) {
        Ok(index) => TokenKind::Keyword(KEYWORDS[index]),
        Err(_) => TokenKind::Identifier(text.to_owned()),
    }
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

fn is_identifier_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte == b'`'
}

/// The characters that DTrace accepts in a probe description, and `+ @ ~ ^`, which occur in names
/// of libraries and symbol versions.
fn is_probe_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-$:_.`?*\\[]!+@~^".contains(&byte)
}

/// The length of the plain name at the start of a text, 0 when there is none.
fn identifier_length(text: &str) -> usize {
    match text.bytes().next() {
        Some(first) if first.is_ascii_alphabetic() || first == b'_' => text
            .bytes()
            .take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            .count(),
        _ => 0,
    }
}

/// The length of a name that may have a module before it: ``libc.so.6`environ``. A module's name may
/// have dots.
fn scoped_identifier_length(text: &str) -> usize {
    let run = text
        .bytes()
        .take_while(|b| b.is_ascii_alphanumeric() || b"_.`".contains(b))
        .count();
    let module = text[..run].rfind('`').map_or(0, |at| at + 1);
    let name = text[module..]
        .bytes()
        .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
        .count();
    module + name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_sorted() {
        assert!(KEYWORDS.is_sorted());
    }

    #[test]
    fn longer_punctuators_come_first() {
        for (index, mark) in PUNCTUATORS.iter().enumerate() {
            assert!(
                PUNCTUATORS[..index].iter().all(|earlier| !mark.starts_with(earlier)),
                "{mark}"
            );
        }
    }

    #[test]
    fn scoped_names_take_dots_only_before_the_backquote() {
        assert_eq!(scoped_identifier_length("a.b"), 1);
        assert_eq!(scoped_identifier_length("libc.so.6`environ.x"), 17);
        assert_eq!(scoped_identifier_length("`errno+1"), 6);
    }
}
