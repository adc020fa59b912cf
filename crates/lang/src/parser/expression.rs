//! Expressions: C's, with `^^`, aggregations and `self->`.
//!
//! ```text
//! comma < assignment (right) < ?: < || < ^^ < && < | < ^ < & < == != < relations < shifts < + - < * / %
//!       < casts and prefix operators < postfix operators
//! ```

use super::{Parse, Parser, gnu};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::program::{BinaryOperator, LogicalOperator};
use crate::syntax::{LocalScope, Node, NodeKind, PrefixOperator};

/// An operator between two operands.
enum Infix {
    Binary(BinaryOperator),
    Logical(LogicalOperator),
}

/// The operator of a mark, with its precedence (higher binds tighter).
fn infix(mark: &str) -> Option<(u8, Infix)> {
    use BinaryOperator as B;
    Some(match mark {
        "||" => (1, Infix::Logical(LogicalOperator::Or)),
        "^^" => (2, Infix::Logical(LogicalOperator::Xor)),
        "&&" => (3, Infix::Logical(LogicalOperator::And)),
        "|" => (4, Infix::Binary(B::Or)),
        "^" => (5, Infix::Binary(B::Xor)),
        "&" => (6, Infix::Binary(B::And)),
        "==" => (7, Infix::Binary(B::Equal)),
        "!=" => (7, Infix::Binary(B::NotEqual)),
        "<" => (8, Infix::Binary(B::Less)),
        "<=" => (8, Infix::Binary(B::LessOrEqual)),
        ">" => (8, Infix::Binary(B::Greater)),
        ">=" => (8, Infix::Binary(B::GreaterOrEqual)),
        "<<" => (9, Infix::Binary(B::ShiftLeft)),
        ">>" => (9, Infix::Binary(B::ShiftRight)),
        "+" => (10, Infix::Binary(B::Add)),
        "-" => (10, Infix::Binary(B::Subtract)),
        "*" => (11, Infix::Binary(B::Multiply)),
        "/" => (11, Infix::Binary(B::Divide)),
        "%" => (11, Infix::Binary(B::Remainder)),
        _ => return None,
    })
}

/// The operation of an assignment operator; `Some(None)` for `=`.
fn assignment(mark: &str) -> Option<Option<BinaryOperator>> {
    use BinaryOperator as B;
    Some(match mark {
        "=" => None,
        "+=" => Some(B::Add),
        "-=" => Some(B::Subtract),
        "*=" => Some(B::Multiply),
        "/=" => Some(B::Divide),
        "%=" => Some(B::Remainder),
        "&=" => Some(B::And),
        "^=" => Some(B::Xor),
        "|=" => Some(B::Or),
        "<<=" => Some(B::ShiftLeft),
        ">>=" => Some(B::ShiftRight),
        _ => return None,
    })
}

impl Parser<'_> {
    /// A whole expression, commas included.
    pub(super) fn expression(&mut self) -> Parse<Node> {
        let mut first = self.assignment_expression()?;
        while self.accept(",")? {
            let second = self.assignment_expression()?;
            let span = first.span.to(second.span);
            first = self.node(
                NodeKind::Comma {
                    first: Box::new(first),
                    second: Box::new(second),
                },
                span,
            )?;
        }
        Ok(first)
    }

    /// An expression without commas: an argument, a key.
    pub(super) fn assignment_expression(&mut self) -> Parse<Node> {
        self.nested(|parser| {
            let left = parser.conditional_expression()?;
            let token = parser.peek()?;
            let TokenKind::Punctuator(mark) = token.kind else {
                return Ok(left);
            };
            let Some(operator) = assignment(mark) else {
                return Ok(left);
            };
            parser.take()?;
            let right = parser.assignment_expression()?;
            let span = left.span.to(right.span);
            parser.node(
                NodeKind::Assign {
                    operator,
                    left: Box::new(left),
                    right: Box::new(right),
                },
                span,
            )
        })
    }

    /// An expression without assignments: the size of an array, the value of an enumerator.
    pub(super) fn conditional_expression(&mut self) -> Parse<Node> {
        let condition = self.binary_expression(1)?;
        if !self.accept("?")? {
            return Ok(condition);
        }
        let then = self.expression()?;
        self.expect(":", "between the values of `?:`")?;
        let otherwise = self.nested(Self::conditional_expression)?;
        let span = condition.span.to(otherwise.span);
        self.node(
            NodeKind::Conditional {
                condition: Box::new(condition),
                then: Box::new(then),
                otherwise: Box::new(otherwise),
            },
            span,
        )
    }

    /// Operators of at least this precedence; all are left-associative.
    fn binary_expression(&mut self, least: u8) -> Parse<Node> {
        let mut left = self.cast_expression()?;
        loop {
            let TokenKind::Punctuator(mark) = self.peek()?.kind else {
                return Ok(left);
            };
            let Some((precedence, operator)) = infix(mark) else {
                return Ok(left);
            };
            if precedence < least {
                return Ok(left);
            }
            self.take()?;
            let right = self.binary_expression(precedence + 1)?;
            let span = left.span.to(right.span);
            let (left_box, right) = (Box::new(left), Box::new(right));
            let kind = match operator {
                Infix::Binary(operator) => NodeKind::Binary {
                    operator,
                    left: left_box,
                    right,
                },
                Infix::Logical(operator) => NodeKind::Logical {
                    operator,
                    left: left_box,
                    right,
                },
            };
            left = self.node(kind, span)?;
        }
    }

    fn cast_expression(&mut self) -> Parse<Node> {
        self.nested(|parser| {
            let token = parser.peek()?;
            let TokenKind::Punctuator(mark) = token.kind else {
                return parser.unary_expression();
            };
            let operator = match mark {
                "(" => {
                    parser.take()?;
                    if !parser.at_type()? && !parser.at_foreign_cast()? {
                        return parser.parenthesised(token.span);
                    }
                    let to = parser.type_name()?;
                    parser.expect(")", "after the type of a cast")?;
                    let operand = parser.cast_expression()?;
                    let span = token.span.to(operand.span);
                    return parser.node(
                        NodeKind::Cast {
                            to,
                            operand: Box::new(operand),
                        },
                        span,
                    );
                }
                "++" | "--" => {
                    parser.take()?;
                    let operand = parser.cast_expression()?;
                    let span = token.span.to(operand.span);
                    let delta = if mark == "++" { 1 } else { -1 };
                    return parser.node(
                        NodeKind::Increment {
                            operand: Box::new(operand),
                            delta,
                            post: false,
                        },
                        span,
                    );
                }
                "&" => PrefixOperator::AddressOf,
                "*" => PrefixOperator::Dereference,
                "+" => PrefixOperator::Plus,
                "-" => PrefixOperator::Minus,
                "~" => PrefixOperator::Complement,
                "!" => PrefixOperator::Not,
                _ => return parser.unary_expression(),
            };
            parser.take()?;
            let operand = parser.cast_expression()?;
            let span = token.span.to(operand.span);
            if operator == PrefixOperator::Dereference && gnu::is_errno(&operand) {
                return parser.node(NodeKind::Identifier("errno".to_owned()), span);
            }
            parser.node(
                NodeKind::Unary {
                    operator,
                    operand: Box::new(operand),
                },
                span,
            )
        })
    }

    /// `sizeof`, `stringof`, and everything that begins with an operand.
    fn unary_expression(&mut self) -> Parse<Node> {
        let token = self.peek()?;
        match token.kind {
            TokenKind::Keyword("sizeof") => {
                self.take()?;
                if self.at("(")? {
                    let open = self.take()?.span;
                    if self.at_type()? || self.at_foreign_name()? {
                        let of = self.type_name()?;
                        let end = self.expect(")", "after the type of sizeof")?;
                        return self.node(NodeKind::SizeofType(of), token.span.to(end));
                    }
                    let operand = self.parenthesised(open)?;
                    let span = token.span.to(operand.span);
                    return self.node(NodeKind::Sizeof(Box::new(operand)), span);
                }
                let operand = self.cast_expression()?;
                let span = token.span.to(operand.span);
                self.node(NodeKind::Sizeof(Box::new(operand)), span)
            }
            TokenKind::Identifier(ref name) if matches!(name.as_str(), "__alignof__" | "__alignof" | "_Alignof") => {
                self.take()?;
                self.expect("(", "after `__alignof__`")?;
                let of = self.type_name()?;
                let end = self.expect(")", "after the type of `__alignof__`")?;
                self.node(NodeKind::Alignof(of), token.span.to(end))
            }
            TokenKind::Keyword("stringof") => {
                self.take()?;
                let operand = self.cast_expression()?;
                let span = token.span.to(operand.span);
                self.node(NodeKind::Stringof(Box::new(operand)), span)
            }
            TokenKind::Keyword("offsetof") => {
                self.take()?;
                self.expect("(", "after `offsetof`")?;
                let of = self.type_name()?;
                self.expect(",", "after the type of offsetof")?;
                let (mut member, _) = self.member_name()?;
                // Macros of headers may name a member of a member.
                while self.accept(".")? {
                    member.push('.');
                    member.push_str(&self.member_name()?.0);
                }
                let end = self.expect(")", "after offsetof's member")?;
                self.node(NodeKind::Offsetof(of, member), token.span.to(end))
            }
            TokenKind::Keyword("xlate") => {
                self.take()?;
                self.expect("<", "after `xlate`")?;
                let to = self.type_name()?;
                self.expect(">", "after the type of xlate")?;
                self.expect("(", "before the operand of xlate")?;
                let operand = self.expression()?;
                let end = self.expect(")", "after the operand of xlate")?;
                let translation = self.node(
                    NodeKind::Translate {
                        to,
                        operand: Box::new(operand),
                    },
                    token.span.to(end),
                )?;
                self.postfix(translation)
            }
            _ => {
                let primary = self.primary_expression()?;
                self.postfix(primary)
            }
        }
    }

    /// The expression after an opening parenthesis that is not a cast, and the postfix operators after it.
    fn parenthesised(&mut self, open: crate::source::Span) -> Parse<Node> {
        let mut inner = self.expression()?;
        let end = self.expect(")", "to close the parenthesis")?;
        // The parentheses belong to the expression: messages underline them, too.
        inner.span = open.to(end);
        if let NodeKind::Identifier(name) = &inner.kind {
            let next = self.peek()?;
            if matches!(
                next.kind,
                TokenKind::Identifier(_) | TokenKind::Integer(_) | TokenKind::String(_) | TokenKind::Aggregation(_)
            ) || matches!(next.kind, TokenKind::Keyword("self" | "this" | "stringof" | "sizeof"))
            {
                return Err(Diagnostic::new(
                    "D_SYNTAX",
                    next.span,
                    format!("expected an operator after `({name})`, found {}", next.kind.describe()),
                )
                .with_help(format!(
                    "if this is a cast: the type `{name}` is not known; declare it with typedef"
                )));
            }
        }
        self.postfix(inner)
    }

    fn postfix(&mut self, mut operand: Node) -> Parse<Node> {
        loop {
            let token = self.peek()?;
            let TokenKind::Punctuator(mark) = token.kind else {
                return Ok(operand);
            };
            let start = operand.span;
            operand = match mark {
                "[" => {
                    self.take()?;
                    let indices = self.list("]", "after the keys")?;
                    if indices.is_empty() {
                        return Err(Diagnostic::new(
                            "D_SYNTAX",
                            self.last,
                            "expected a key between `[` and `]`",
                        ));
                    }
                    self.node(
                        NodeKind::Index {
                            base: Box::new(operand),
                            indices,
                        },
                        start.to(self.last),
                    )?
                }
                "(" => {
                    if !matches!(operand.kind, NodeKind::Identifier(_)) {
                        let message = "function designator is not of function type";
                        return Err(Diagnostic::new("D_FUNC_IDENT", operand.span, message));
                    }
                    self.take()?;
                    let arguments = self.list(")", "after the arguments")?;
                    self.node(
                        NodeKind::Call {
                            function: Box::new(operand),
                            arguments,
                        },
                        start.to(self.last),
                    )?
                }
                "." | "->" => {
                    self.take()?;
                    let (name, end) = self.member_name()?;
                    let kind = NodeKind::Member {
                        base: Box::new(operand),
                        name,
                        arrow: mark == "->",
                    };
                    self.node(kind, start.to(end))?
                }
                "++" | "--" => {
                    self.take()?;
                    let delta = if mark == "++" { 1 } else { -1 };
                    let kind = NodeKind::Increment {
                        operand: Box::new(operand),
                        delta,
                        post: true,
                    };
                    self.node(kind, start.to(token.span))?
                }
                _ => return Ok(operand),
            };
        }
    }

    /// The name of a member. In a program's own types it may be any keyword of D or C: `auto` in Rust.
    fn member_name(&mut self) -> Parse<(String, crate::source::Span)> {
        let token = self.peek()?;
        if let TokenKind::Keyword(word) = token.kind {
            self.take()?;
            return Ok((word.to_owned(), token.span));
        }
        self.expect_identifier("the name of a member")
    }

    /// Arguments or keys, up to and including the closing mark.
    fn list(&mut self, close: &'static str, context: &str) -> Parse<Vec<Node>> {
        let mut list = Vec::new();
        if self.accept(close)? {
            return Ok(list);
        }
        loop {
            list.push(self.assignment_expression()?);
            if !self.accept(",")? {
                break;
            }
        }
        let token = self.peek()?;
        if matches!(token.kind, TokenKind::Punctuator(mark) if mark == close) {
            self.take()?;
            return Ok(list);
        }
        Err(Diagnostic::new(
            "D_SYNTAX",
            token.span,
            format!("expected `,` or `{close}` {context}, found {}", token.kind.describe()),
        ))
    }

    fn primary_expression(&mut self) -> Parse<Node> {
        let token = self.take()?;
        let kind = match token.kind {
            TokenKind::Identifier(name) => NodeKind::Identifier(gnu::of_macro(name)),
            TokenKind::Aggregation(name) => NodeKind::Aggregation(name),
            TokenKind::Integer(literal) => NodeKind::Integer(literal),
            TokenKind::String(text) => NodeKind::String(text),
            TokenKind::Keyword(word @ ("self" | "this")) => {
                self.expect("->", &format!("after `{word}`"))?;
                let (name, end) = self.expect_identifier("the name of a variable")?;
                let scope = if word == "self" {
                    LocalScope::Thread
                } else {
                    LocalScope::Clause
                };
                return self.node(NodeKind::Local { scope, name }, token.span.to(end));
            }
            // `return` is an action of DTrace for Linux, which has a meaning only when it is called.
            TokenKind::Keyword("return") if self.at("(")? => NodeKind::Identifier("return".to_owned()),
            TokenKind::Keyword(word @ ("for" | "while" | "do" | "goto" | "switch" | "break" | "continue")) => {
                return Err(Diagnostic::new("D_SYNTAX", token.span, format!("D has no `{word}`"))
                    .with_help("a clause runs in bounded time: there are no loops and jumps"));
            }
            kind => {
                self.braces_of_unexpected(&kind);
                let diagnostic = Diagnostic::new(
                    "D_SYNTAX",
                    token.span,
                    format!("expected an expression, found {}", kind.describe()),
                );
                return Err(diagnostic);
            }
        };
        self.node(kind, token.span)
    }

    /// Records that a closing brace in place of an operand has ended the clause, so that recovery does not look for
    /// another brace.
    fn braces_of_unexpected(&mut self, kind: &TokenKind) {
        if let TokenKind::Punctuator("}") = kind {
            self.braces += 1;
            self.lexer.rewind(self.last);
        }
    }
}
