//! Tokens to syntax tree: recursive descent over the grammar of the DTrace guide.
//!
//! ```text
//! program      = { clause | declaration | inline | translator | provider }
//! clause       = probe { "," probe } [ "/" expression "/" ] "{" { statement ";" } "}"
//!              | probe { "," probe }                          at the end of the text, as in -n 'pid$target::f:entry'
//! statement    = [ expression ] | "if" "(" expression ")" block [ "else" block ]
//! ```
//!
//! The parser decides which token language the lexer uses ([`Mode`]). [`MAXIMUM_NESTING`] bounds the
//! depth, so that no input can exhaust the stack, here or in code that walks the tree later.
//!
//! After an error, everything up to the end of the clause or declaration is skipped. So only the first
//! error of each is reported, and none of its consequences.

mod base_type;
mod declaration;
mod declarator;
mod expression;
mod gnu;
mod provider;
mod statement;

use crate::diagnostic::Diagnostic;
use crate::lexer::{Lexer, MacroState, Mode, Token, TokenKind};
use crate::libraries::Dependency;
use crate::probes;
use crate::program::Pragma;
use crate::source::Span;
use crate::syntax::{Clause, Item, Node, NodeKind};
use crate::target::Target;
use std::collections::HashSet;

/// The most levels of nesting in expressions, types and statements. Each level takes the stack
/// of several functions.
pub const MAXIMUM_NESTING: u16 = 100;

/// The most recursions of the parser. A parenthesis takes two: an operand, and the expression in it.
const MAXIMUM_RECURSION: u16 = 2 * MAXIMUM_NESTING;

/// The number of errors after which the rest of a source is skipped.
const MAXIMUM_ERRORS: usize = 20;

/// The content of a source.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The items in order; items with errors are missing.
    pub items: Vec<Item>,
    pub pragmas: Vec<Pragma>,
    /// The requirements of the text (`depends_on`).
    pub dependencies: Vec<Dependency>,
    /// The errors, in order.
    pub diagnostics: Vec<Diagnostic>,
}

/// Parses one source. `types` has the names of typedefs: at first the typedefs of earlier sources, afterwards also
/// those of this source. If a name must be a type and is not in `types`, the parser asks `target`.
pub fn parse(
    text: &str,
    source: u32,
    macros: &mut MacroState,
    types: &mut HashSet<String>,
    target: &dyn Target,
) -> Parsed {
    let mut parser = Parser {
        lexer: Lexer::new(text, source, macros),
        types,
        target,
        peeked: None,
        last: Span {
            source,
            start: 0,
            end: 0,
        },
        braces: 0,
        depth: 0,
        in_parameters: false,
        in_provider: false,
    };
    let mut parsed = Parsed::default();
    loop {
        match parser.item() {
            Ok(Some(item)) => parsed.items.push(item),
            Ok(None) => break,
            Err(diagnostic) => {
                parsed.diagnostics.push(diagnostic);
                if parsed.diagnostics.len() >= MAXIMUM_ERRORS {
                    break;
                }
                parser.recover();
            }
        }
    }
    parsed.pragmas = std::mem::take(&mut parser.lexer.pragmas);
    parsed.dependencies = std::mem::take(&mut parser.lexer.dependencies);
    parsed
}

type Parse<T> = Result<T, Diagnostic>;

struct Parser<'a> {
    lexer: Lexer<'a>,
    types: &'a mut HashSet<String>,
    target: &'a dyn Target,
    peeked: Option<(Mode, Token)>,
    /// The token that was taken last.
    last: Span,
    /// The number of open braces.
    braces: u32,
    /// The current level of nesting.
    depth: u16,
    /// Whether the position is among the parameters of a function.
    in_parameters: bool,
    /// Whether the position is in a provider's definition, where the names of types are the program's.
    in_provider: bool,
}

impl Parser<'_> {
    /// The next top-level item; `None` at the end.
    fn item(&mut self) -> Parse<Option<Item>> {
        self.braces = 0;
        self.depth = 0;
        self.in_parameters = false;
        self.in_provider = false;
        let token = self.peek_in(Mode::Outer)?;
        let included = self.lexer.is_included(token.span);
        match &token.kind {
            TokenKind::End => Ok(None),
            // In a header a `;` may be anywhere, as in C.
            TokenKind::Punctuator(";") if included => {
                self.take_in(Mode::Outer)?;
                Ok(Some(Item::PassedOver))
            }
            TokenKind::Probe(text) if self.begins_declaration(text, token.span) => {
                self.lexer.rewind(token.span);
                self.peeked = None;
                self.external_declaration().map(Some)
            }
            TokenKind::Probe(_) | TokenKind::Integer(_) => self.clause().map(Some),
            TokenKind::Punctuator(";") => Err(Diagnostic::new("D_SYNTAX", token.span, "unexpected `;`")
                .with_help("a clause ends with its `}`: no `;` between clauses")),
            kind => Err(Diagnostic::new(
                "D_SYNTAX",
                token.span,
                format!(
                    "expected a probe description or a declaration, found {}",
                    kind.describe()
                ),
            )),
        }
    }

    /// Whether a word outside of clauses begins a declaration. Such a word is a keyword of declarations,
    /// or the name of a type without a colon, up to a `*` as in `int*x;`.
    fn begins_declaration(&self, text: &str, span: Span) -> bool {
        const KEYWORDS: &[&str] = &[
            "auto",
            "char",
            "const",
            "counter",
            "double",
            "enum",
            "extern",
            "float",
            "import",
            "inline",
            "int",
            "long",
            "provider",
            "register",
            "restrict",
            "self",
            "short",
            "signed",
            "static",
            "string",
            "struct",
            "this",
            "translator",
            "typedef",
            "union",
            "unsigned",
            "void",
            "volatile",
        ];
        // The text of a macro argument belongs to a description.
        if text.contains(':') || (span.end - span.start) as usize != text.len() {
            return false;
        }
        let word = text.split('*').next().unwrap_or("");
        KEYWORDS.contains(&word) || gnu::begins_declaration(word) || self.is_type(word)
    }

    fn clause(&mut self) -> Parse<Item> {
        let mut probes = Vec::new();
        loop {
            let token = self.take_in(Mode::Outer)?;
            match token.kind {
                TokenKind::Probe(text) => {
                    if let Some(sign @ ('<' | '(' | '&' | '>')) = self.lexer.character_after(token.span) {
                        return Err(probes::ended_by(sign, &text, token.span));
                    }
                    probes.push(probes::parse(&text, token.span)?);
                }
                TokenKind::Integer(literal) => probes.push(probes::numbered(literal.value, token.span)?),
                kind => {
                    return Err(Diagnostic::new(
                        "D_SYNTAX",
                        token.span,
                        format!("expected a probe description, found {}", kind.describe()),
                    ));
                }
            }
            if !matches!(self.peek_in(Mode::Outer)?.kind, TokenKind::Punctuator(",")) {
                break;
            }
            self.take_in(Mode::Outer)?;
        }
        let start = probes.first().map_or(self.last, |probe| probe.span);
        let mut predicate = None;
        let mut body = Vec::new();
        let next = self.take_in(Mode::Outer)?;
        match next.kind {
            TokenKind::End => {
                return Ok(Item::Clause(Clause {
                    probes,
                    predicate,
                    body,
                    span: start.to(self.last),
                    derived: None,
                }));
            }
            TokenKind::Punctuator("{") => {}
            TokenKind::Punctuator("/") => {
                predicate = Some(self.expression()?);
                self.end_of_predicate()?;
                let brace = self.peek_in(Mode::Clause)?;
                if brace.kind != TokenKind::Punctuator("{") {
                    return Err(Diagnostic::new(
                        "D_SYNTAX",
                        brace.span,
                        format!(
                            "expected actions in {{ }} after the predicate, found {}",
                            brace.kind.describe()
                        ),
                    ));
                }
                self.take_in(Mode::Clause)?;
            }
            kind => {
                return Err(Diagnostic::new(
                    "D_SYNTAX",
                    next.span,
                    format!(
                        "expected `,`, a predicate or `{{` after the probe description, found {}",
                        kind.describe()
                    ),
                ));
            }
        }
        self.braces = 1;
        self.statements(&mut body)?;
        Ok(Item::Clause(Clause {
            probes,
            predicate,
            body,
            span: start.to(self.last),
            derived: None,
        }))
    }

    fn end_of_predicate(&mut self) -> Parse<()> {
        let token = self.take()?;
        match token.kind {
            TokenKind::EndOfPredicate => Ok(()),
            TokenKind::Punctuator("{") => Err(Diagnostic::new(
                "D_SYNTAX",
                token.span,
                "expected `/` at the end of the predicate, found `{`",
            )),
            kind => Err(self.unexpected_after_operand(token.span, &kind, "an operator or `/`")),
        }
    }

    /// After an error, skips the rest of the clause or declaration.
    fn recover(&mut self) {
        let mut braces = self.braces;
        loop {
            match self.take_in(Mode::Clause).map(|token| token.kind) {
                Ok(TokenKind::End) => return,
                Ok(TokenKind::Punctuator("{")) => braces += 1,
                Ok(TokenKind::Punctuator("}")) if braces <= 1 => return,
                Ok(TokenKind::Punctuator("}")) => braces -= 1,
                Ok(TokenKind::Punctuator(";")) if braces == 0 => return,
                // After another token, and after an error, the lexer has moved on.
                Ok(_) | Err(_) => {}
            }
        }
    }

    // ---- tokens ----

    fn peek_in(&mut self, mode: Mode) -> Parse<Token> {
        if let Some((peeked_mode, token)) = &self.peeked {
            if *peeked_mode == mode {
                return Ok(token.clone());
            }
            let span = token.span;
            self.lexer.rewind(span);
            self.peeked = None;
        }
        let token = self.lexer.next(mode)?;
        self.peeked = Some((mode, token.clone()));
        Ok(token)
    }

    fn take_in(&mut self, mode: Mode) -> Parse<Token> {
        let token = self.peek_in(mode)?;
        self.peeked = None;
        self.last = token.span;
        match token.kind {
            TokenKind::Punctuator("{") => self.braces += 1,
            TokenKind::Punctuator("}") => self.braces = self.braces.saturating_sub(1),
            _ => {}
        }
        Ok(token)
    }

    fn peek(&mut self) -> Parse<Token> {
        self.peek_in(Mode::Clause)
    }

    fn take(&mut self) -> Parse<Token> {
        self.take_in(Mode::Clause)
    }

    /// Whether the next token is this mark.
    fn at(&mut self, mark: &str) -> Parse<bool> {
        Ok(matches!(self.peek()?.kind, TokenKind::Punctuator(next) if next == mark))
    }

    fn at_keyword(&mut self, word: &str) -> Parse<bool> {
        Ok(matches!(self.peek()?.kind, TokenKind::Keyword(next) if next == word))
    }

    /// Takes this mark, if it is the next token.
    fn accept(&mut self, mark: &str) -> Parse<bool> {
        let found = self.at(mark)?;
        if found {
            self.take()?;
        }
        Ok(found)
    }

    fn expect(&mut self, mark: &str, context: &str) -> Parse<Span> {
        let token = self.peek()?;
        if matches!(token.kind, TokenKind::Punctuator(next) if next == mark) {
            return Ok(self.take()?.span);
        }
        Err(Diagnostic::new(
            "D_SYNTAX",
            token.span,
            format!("expected `{mark}` {context}, found {}", token.kind.describe()),
        ))
    }

    fn expect_identifier(&mut self, what: &str) -> Parse<(String, Span)> {
        let token = self.peek()?;
        if let TokenKind::Identifier(name) = token.kind {
            self.take()?;
            return Ok((name, token.span));
        }
        Err(Diagnostic::new(
            "D_SYNTAX",
            token.span,
            format!("expected {what}, found {}", token.kind.describe()),
        ))
    }

    /// The error of a token that cannot follow an operand.
    fn unexpected_after_operand(&self, span: Span, kind: &TokenKind, expected: &str) -> Diagnostic {
        let diagnostic = Diagnostic::new(
            "D_SYNTAX",
            span,
            format!("expected {expected}, found {}", kind.describe()),
        );
        match kind {
            TokenKind::EndOfPredicate => diagnostic
                .with_help("before `;`, `{`, `/` or the end of the text, a `/` ends a predicate and does not divide"),
            TokenKind::End => diagnostic.with_help("the clause is not closed"),
            _ => diagnostic,
        }
    }

    /// Runs `parse` one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.depth >= MAXIMUM_RECURSION {
            let span = self.peek().map_or(self.last, |token| token.span);
            return Err(too_deep(span));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// A node. It is refused if it is nested too deeply: a chain of operators nests to the left, and the
    /// recursion of the parser does not count these levels.
    fn node(&self, kind: NodeKind, span: Span) -> Parse<Node> {
        let node = Node::new(kind, span);
        if node.depth > MAXIMUM_NESTING {
            Err(too_deep(span))
        } else {
            Ok(node)
        }
    }
}

fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::new(
        "N_NESTING",
        span,
        format!("nested more than {MAXIMUM_NESTING} levels deep"),
    )
    .with_help("compute parts of it in clause-local variables (this->part = ...;)")
}
