//! The marks around a declared name: `*`, `( )`, and `[ ]` with a size or with the types of keys. They
//! are read from the inside out, as in C.

use super::{Parse, Parser, gnu};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;
use crate::syntax::{Attributes, BaseType, Declarator, Derived};

impl Parser<'_> {
    /// A declarator: `*`, a name, `[ ]` and `( )`. `named`: whether the name is required or forbidden.
    pub(super) fn declarator(&mut self, named: bool) -> Parse<Declarator> {
        self.nested(|parser| {
            let start = parser.peek()?.span;
            let mut derived = Vec::new();
            let mut attributes = Attributes::default();
            parser.attributes(&mut attributes)?;
            while parser.accept("*")? {
                derived.push(Derived::Pointer);
                while let TokenKind::Keyword("const" | "volatile" | "restrict") = parser.peek()?.kind {
                    parser.take()?;
                }
                // Attributes of the pointer itself.
                parser.attributes(&mut Attributes::default())?;
            }
            let mut name = String::new();
            let mut span = start;
            let mut inner = Vec::new();
            let next = parser.peek()?;
            match next.kind {
                TokenKind::Identifier(identifier) if named => {
                    if identifier.contains('`') {
                        let message = format!("the scoping operator may not be used in a declared name: {identifier}");
                        return Err(Diagnostic::new("D_DECL_SCOPE", next.span, message));
                    }
                    parser.take()?;
                    name = identifier;
                    span = next.span;
                }
                kind if named && gnu::own_keyword(&kind).is_some() && parser.may_be_name(next.span) => {
                    parser.take()?;
                    name = gnu::own_keyword(&kind).unwrap_or_default().to_owned();
                    span = next.span;
                }
                TokenKind::Punctuator("(") if named || parser.opens_declarator()? => {
                    if named {
                        parser.take()?;
                    }
                    let declarator = parser.declarator(named)?;
                    parser.expect(")", "after a declarator")?;
                    (name, span, inner) = (declarator.name, declarator.span, declarator.derived);
                    attributes.add(&declarator.attributes);
                }
                kind if named => {
                    return Err(Diagnostic::new(
                        "D_SYNTAX",
                        next.span,
                        format!("expected a name to declare, found {}", kind.describe()),
                    ));
                }
                _ => {}
            }
            let mut suffixes = Vec::new();
            loop {
                if parser.accept("[")? {
                    suffixes.push(parser.dimension()?);
                } else if parser.accept("(")? {
                    parser.parameters()?;
                    suffixes.push(Derived::Function);
                } else {
                    break;
                }
            }
            derived.extend(suffixes.into_iter().rev());
            derived.extend(inner);
            parser.attributes(&mut attributes)?;
            if derived.len() > usize::from(super::MAXIMUM_NESTING) {
                return Err(super::too_deep(span));
            }
            Ok(Declarator {
                name,
                derived,
                attributes,
                span,
            })
        })
    }

    /// Whether a keyword of D is a name here: of a member, a parameter, or anything that a header declares.
    fn may_be_name(&self, place: Span) -> bool {
        self.braces > 0 || self.in_parameters || self.lexer.is_included(place)
    }

    /// In a type without a name: whether `(` opens a declarator such as `(*)`. The `(` is then consumed.
    fn opens_declarator(&mut self) -> Parse<bool> {
        let open = self.take()?;
        if matches!(self.peek()?.kind, TokenKind::Punctuator("*" | "[" | "(")) {
            return Ok(true);
        }
        self.peeked = None;
        self.lexer.rewind(open.span);
        Ok(false)
    }

    /// The text between brackets, and the closing bracket.
    fn dimension(&mut self) -> Parse<Derived> {
        // `[static 4]` and `[restrict]` occur only in parameters.
        while matches!(
            self.peek()?.kind,
            TokenKind::Keyword("static" | "const" | "restrict" | "volatile")
        ) && self.in_parameters
        {
            self.take()?;
        }
        if self.accept("]")? {
            return Ok(Derived::ArrayOfUnknownSize);
        }
        if self.at("...")? {
            let span = self.take()?.span;
            let message = "an array may not have a variable number of keys";
            return Err(Diagnostic::new("D_DECL_PROTO_VARARGS", span, message));
        }
        if !self.at_type()? {
            let size = self.conditional_expression()?;
            self.expect("]", "after the size of an array")?;
            return Ok(Derived::Array(Box::new(size)));
        }
        let mut keys = Vec::new();
        loop {
            let mut key = self.nested(Self::type_name)?;
            // The keys of an inline have names.
            if let TokenKind::Identifier(name) = self.peek()?.kind {
                key.name = name;
                self.take()?;
            }
            keys.push(key);
            if !self.accept(",")? {
                break;
            }
        }
        self.expect("]", "after the types of an array's keys")?;
        Ok(Derived::Keys(keys))
    }

    /// The parameters of a function type, and the closing parenthesis. They are checked and
    /// dropped: D calls no such function.
    fn parameters(&mut self) -> Parse<()> {
        if self.accept(")")? {
            return Ok(());
        }
        let around = std::mem::replace(&mut self.in_parameters, true);
        let result = self.parameter_list();
        self.in_parameters = around;
        result
    }

    fn parameter_list(&mut self) -> Parse<()> {
        let (mut count, mut void) = (0, None);
        loop {
            if self.accept("...")? {
                break;
            }
            let start = self.peek()?;
            if let TokenKind::Keyword(word) = start.kind
                && super::declaration::STORAGE.contains(&word)
                && word != "register"
            {
                let message = format!("inappropriate storage class for a parameter: {word}");
                return Err(Diagnostic::new("D_DECL_PARMCLASS", start.span, message));
            }
            if start.kind == TokenKind::Keyword("register") {
                self.take()?;
            }
            let base = self.base_type()?;
            let anonymous = !self.parameter_has_name()?;
            let declarator = self.declarator(!anonymous)?;
            self.attributes(&mut Attributes::default())?;
            let span = start.span.to(self.last);
            if declarator.derived.iter().any(|of| matches!(of, Derived::Keys(_))) || base == BaseType::String {
                let message = "a parameter of a function may not be of a type that only D has";
                return Err(Diagnostic::new("D_DECL_PROTO_TYPE", span, message));
            }
            if base == BaseType::Void && declarator.derived.is_empty() {
                if !declarator.name.is_empty() {
                    let message = format!("a void parameter may not have a name: {}", declarator.name);
                    return Err(Diagnostic::new("D_DECL_PROTO_NAME", span, message));
                }
                void = Some(span);
            }
            count += 1;
            if !self.accept(",")? {
                break;
            }
        }
        self.expect(")", "after the parameters")?;
        match void {
            Some(span) if count > 1 => Err(Diagnostic::new(
                "D_DECL_PROTO_VOID",
                span,
                "void must be the only parameter of a function",
            )),
            _ => Ok(()),
        }
    }

    /// Whether a parameter's declarator has a name: `char *const argv[]`, `void (*done)(int)`. The name of a type after
    /// a parenthesis does not count: as in C, `int (size_t)` is a function.
    pub(super) fn parameter_has_name(&mut self) -> Parse<bool> {
        let start = self.peek()?.span;
        let mut behind_parenthesis = false;
        loop {
            match self.peek()?.kind {
                TokenKind::Punctuator("*") | TokenKind::Keyword("const" | "volatile" | "restrict") => {
                    behind_parenthesis = false;
                }
                TokenKind::Punctuator("(") => behind_parenthesis = true,
                TokenKind::Identifier(name) if gnu::begins_declaration(&name) => {
                    self.attributes(&mut Attributes::default())?;
                    continue;
                }
                _ => break,
            }
            self.take()?;
        }
        let next = self.peek()?.kind;
        let named = matches!(next, TokenKind::Identifier(_)) || gnu::own_keyword(&next).is_some();
        let named = named && !(behind_parenthesis && self.at_type()?);
        self.peeked = None;
        self.lexer.rewind(start);
        Ok(named)
    }
}
