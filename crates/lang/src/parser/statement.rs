//! Statements: expressions between semicolons, and `if`.

use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::syntax::Statement;

impl Parser<'_> {
    /// Statements, up to and including the closing brace.
    pub(super) fn statements(&mut self, into: &mut Vec<Statement>) -> Parse<()> {
        loop {
            let token = self.peek()?;
            match token.kind {
                TokenKind::Punctuator("}") => {
                    self.take()?;
                    return Ok(());
                }
                TokenKind::Punctuator(";") => {
                    self.take()?;
                }
                TokenKind::Keyword("if") => into.push(self.if_statement()?),
                _ => {
                    let expression = self.expression()?;
                    let next = self.peek()?;
                    match next.kind {
                        TokenKind::Punctuator(";" | "}") => {}
                        kind => {
                            return Err(self.unexpected_after_operand(
                                next.span,
                                &kind,
                                "`;` or `}` after a statement",
                            ));
                        }
                    }
                    into.push(Statement::Expression(expression));
                }
            }
        }
    }

    fn if_statement(&mut self) -> Parse<Statement> {
        self.take()?;
        self.expect("(", "after `if`")?;
        let condition = self.expression()?;
        self.expect(")", "after the condition")?;
        let then = self.nested(Self::branch)?;
        let mut otherwise = Vec::new();
        if self.at_keyword("else")? {
            self.take()?;
            otherwise = self.nested(Self::branch)?;
        }
        Ok(Statement::If {
            condition,
            then,
            otherwise,
        })
    }

    /// A block, or a single statement.
    fn branch(&mut self) -> Parse<Vec<Statement>> {
        let mut statements = Vec::new();
        if self.accept("{")? {
            self.statements(&mut statements)?;
        } else if self.at_keyword("if")? {
            statements.push(self.if_statement()?);
        } else if !self.accept(";")? {
            statements.push(Statement::Expression(self.expression()?));
            let next = self.peek()?;
            match next.kind {
                TokenKind::Punctuator(";") => {
                    self.take()?;
                }
                TokenKind::Punctuator("}") => {}
                kind => {
                    return Err(Diagnostic::new(
                        "D_SYNTAX",
                        next.span,
                        format!("expected `;` after a statement, found {}", kind.describe()),
                    ));
                }
            }
        }
        Ok(statements)
    }
}
