//! Declarations: C's, with `self`, `this`, inlines and translators. `base_type` and `declarator`
//! parse the types.

use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::program::IntegerType;
use crate::source::Span;
use crate::syntax::{Attributes, BaseType, Declaration, Derived, Inline, Item, Translator, TypeName};

/// Keywords that say where a variable is stored.
pub(super) const STORAGE: &[&str] = &["auto", "extern", "register", "self", "static", "this", "typedef"];

impl Parser<'_> {
    /// A declaration, inline, translator or provider.
    pub(super) fn external_declaration(&mut self) -> Parse<Item> {
        let token = self.peek()?;
        if self.assertion()? {
            return Ok(Item::PassedOver);
        }
        if self.assembler_name()? {
            self.expect(";", "after text for the assembler")?;
            return Ok(Item::PassedOver);
        }
        match token.kind {
            TokenKind::Keyword("inline") if !self.at_function_of_header(token.span)? => self.inline(token.span),
            TokenKind::Keyword("translator") => self.translator(token.span),
            TokenKind::Keyword("provider") => self.provider(),
            TokenKind::Keyword(word @ ("counter" | "import")) => Err(Diagnostic::new(
                "D_SYNTAX",
                token.span,
                format!("the word `{word}` is reserved"),
            )),
            _ => self.declaration(token.span),
        }
    }

    fn translator(&mut self, start: Span) -> Parse<Item> {
        self.take()?;
        let output = self.type_name()?;
        self.expect("<", "after the output type of a translator")?;
        let from = self.peek()?.span;
        let base = self.base_type()?;
        let declarator = self.declarator(true)?;
        let input = TypeName {
            base,
            derived: declarator.derived,
            name: declarator.name,
            span: from.to(self.last),
        };
        self.expect(">", "after the input of a translator")?;
        self.expect("{", "before the members of a translator")?;
        let mut members = Vec::new();
        while !self.accept("}")? {
            let (name, span) = self.expect_identifier("the name of a member")?;
            self.expect("=", "after the name of a member")?;
            let value = self.assignment_expression()?;
            self.expect(";", "after the value of a member")?;
            members.push((name, value, span));
        }
        let end = self.expect(";", "after a translator")?;
        Ok(Item::Translator(Translator {
            output,
            input,
            members,
            span: start.to(end),
        }))
    }

    fn inline(&mut self, start: Span) -> Parse<Item> {
        self.take()?;
        let base = self.base_type()?;
        let declarator = self.declarator(true)?;
        self.expect("=", "after the name of an inline")?;
        let value = self.assignment_expression()?;
        let end = self.expect(";", "after an inline")?;
        Ok(Item::Inline(Inline {
            base,
            declarator,
            value,
            span: start.to(end),
        }))
    }

    fn declaration(&mut self, start: Span) -> Parse<Item> {
        let included = self.lexer.is_included(start);
        let mut attributes = Attributes::default();
        let mut storage: Option<(&'static str, Span)> = None;
        self.attributes(&mut attributes)?;
        while let TokenKind::Keyword(word) = self.peek()?.kind {
            if !STORAGE.contains(&word) {
                break;
            }
            let span = self.take()?.span;
            if storage.replace((word, span)).is_some() {
                return Err(Diagnostic::new(
                    "D_DECL_CLASS",
                    span,
                    "only one storage class can be given",
                ));
            }
        }
        let base = if storage.is_some() && self.at_untyped_name()? {
            BaseType::Integer(IntegerType { bytes: 4, signed: true })
        } else {
            self.specifiers(&mut attributes, Some(&mut storage))?
        };
        let mut declarators = Vec::new();
        // These declarations of a header are useless in D: functions and variables of the header itself, and names for
        // which the header has a macro.
        let is_own = |storage: Option<(&str, Span)>| included && matches!(storage, Some(("static", _)));
        let mut passed_over = false;
        if !self.at(";")? {
            loop {
                let mut declarator = self.declarator(true)?;
                declarator.attributes.add(&attributes);
                passed_over |= self.assembler_name()?;
                self.attributes(&mut declarator.attributes)?;
                if included && self.at("{")? && matches!(declarator.derived.last(), Some(Derived::Function)) {
                    self.pass_over()?;
                    return Ok(Self::type_alone(base, start.to(self.last)));
                }
                declarators.push(declarator);
                if included && self.at("=")? {
                    self.pass_over_value()?;
                    passed_over = true;
                }
                if self.at("=")? {
                    let span = self.take()?.span;
                    return Err(Diagnostic::new("D_SYNTAX", span, "a declaration cannot give a value")
                        .with_help("assign it in a BEGIN clause, or declare a constant with `inline`"));
                }
                if !self.accept(",")? {
                    break;
                }
            }
        }
        let end = self.expect(";", "after a declaration")?;
        if is_own(storage) || passed_over {
            return Ok(Self::type_alone(base, start.to(end)));
        }
        if matches!(storage, Some(("typedef", _))) {
            self.types
                .extend(declarators.iter().map(|declarator| declarator.name.clone()));
        }
        Ok(Item::Declaration(Declaration {
            storage,
            base,
            declarators,
            span: start.to(end),
        }))
    }

    /// Whether this `inline` is C's, as in headers, and not D's: no value follows the declared name.
    fn at_function_of_header(&mut self, start: Span) -> Parse<bool> {
        if !self.lexer.is_included(start) {
            return Ok(false);
        }
        let found = loop {
            match self.take()?.kind {
                TokenKind::Punctuator("=") => break false,
                TokenKind::Punctuator("(" | "{" | ";") | TokenKind::End => break true,
                TokenKind::Keyword(word) if STORAGE.contains(&word) => break true,
                _ => {}
            }
        };
        self.braces = 0;
        self.peeked = None;
        self.lexer.rewind(start);
        Ok(found)
    }

    /// Whether a name without a type follows, as in `self x;`: it is an int, as in C before 1999.
    fn at_untyped_name(&mut self) -> Parse<bool> {
        let start = self.peek()?;
        let TokenKind::Identifier(name) = start.kind else {
            return Ok(false);
        };
        if self.is_type(&name) {
            return Ok(false);
        }
        self.take()?;
        let alone = matches!(self.peek()?.kind, TokenKind::Punctuator(";" | "," | "["));
        self.peeked = None;
        self.lexer.rewind(start.span);
        Ok(alone)
    }
}
