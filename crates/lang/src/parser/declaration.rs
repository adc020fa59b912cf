//! Declarations: C's, with `self`, `this`, `string` and arrays whose dimensions are types.

use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::program::IntegerType;
use crate::source::Span;
use crate::syntax::{
    BaseType, Declaration, Declarator, Derived, Inline, Item, MemberDeclaration, Translator, TypeName,
};
use crate::types;

/// Keywords that say where something is kept.
const STORAGE: &[&str] = &["auto", "extern", "register", "self", "static", "this", "typedef"];

/// Keywords that a type can begin with.
const TYPE_WORDS: &[&str] = &[
    "char", "const", "double", "enum", "float", "int", "long", "restrict", "short", "signed", "string", "struct",
    "union", "unsigned", "userland", "void", "volatile",
];

/// The words of a type that C lets stand in any order.
#[derive(Default)]
struct Specifiers {
    signed: bool,
    unsigned: bool,
    short: u8,
    long: u8,
    base: Option<BaseType>,
    /// `char` or `int`, which the others modify.
    integer: Option<&'static str>,
    any: bool,
}

impl Parser<'_> {
    /// A declaration, inline, translator or provider.
    pub(super) fn external_declaration(&mut self) -> Parse<Item> {
        let token = self.peek()?;
        match token.kind {
            TokenKind::Keyword("inline") => self.inline(token.span),
            TokenKind::Keyword("translator") => self.translator(token.span),
            TokenKind::Keyword(keyword @ "provider") => self.unsupported(keyword),
            TokenKind::Keyword(word @ ("counter" | "import")) => Err(Diagnostic::new(
                "D_SYNTAX",
                token.span,
                format!("the word `{word}` is reserved"),
            )),
            _ => self.declaration(token.span),
        }
    }

    /// `keyword ... { ... } ;`: passed over as a whole, brackets matched.
    fn unsupported(&mut self, keyword: &'static str) -> Parse<Item> {
        let start = self.take()?.span;
        while !self.at("{")? {
            let token = self.take()?;
            if matches!(token.kind, TokenKind::End | TokenKind::Punctuator(";" | "}")) {
                return Err(Diagnostic::new(
                    "D_SYNTAX",
                    token.span,
                    format!("expected `{{` in the {keyword}, found {}", token.kind.describe()),
                ));
            }
        }
        self.take()?;
        while self.braces > 0 {
            if self.take()?.kind == TokenKind::End {
                return Err(Diagnostic::new(
                    "D_SYNTAX",
                    self.last,
                    format!("the {keyword} is not closed"),
                ));
            }
        }
        let end = self.expect(";", &format!("after the {keyword}"))?;
        Ok(Item::Unsupported {
            keyword,
            span: start.to(end),
        })
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
        let mut storage: Option<(&'static str, Span)> = None;
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
        let base = self.base_type()?;
        let mut declarators = Vec::new();
        if !self.at(";")? {
            loop {
                declarators.push(self.declarator(true)?);
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

    /// Whether `word` is a type's name.
    pub(super) fn is_type(&self, word: &str) -> bool {
        types::named(word).is_some() || self.types.contains(word)
    }

    /// Whether the traced program has a type of this name. Asked only where an identifier can be nothing else.
    pub(super) fn is_foreign_type(&self, word: &str) -> bool {
        self.target.named(word).is_ok()
    }

    /// Whether what follows an opening parenthesis is a cast to a type that only the traced program has. The parentheses
    /// hold a name and stars, or a name with an operand behind, which is no expression in D.
    pub(super) fn at_foreign_cast(&mut self) -> Parse<bool> {
        let start = self.peek()?;
        let TokenKind::Identifier(name) = start.kind else {
            return Ok(false);
        };
        self.take()?;
        let mut stars = 0;
        while self.accept("*")? {
            stars += 1;
        }
        let closed = self.accept(")")?;
        let operand = match self.peek()?.kind {
            TokenKind::Identifier(_) | TokenKind::Integer(_) | TokenKind::String(_) => true,
            TokenKind::Keyword(word) => matches!(word, "self" | "this" | "stringof" | "sizeof"),
            _ => false,
        };
        self.peeked = None;
        self.lexer.rewind(start.span);
        Ok(closed && (stars > 0 || operand) && self.is_foreign_type(&name))
    }

    /// Whether what follows `sizeof (` is the name of a type of the traced program's, with stars or without.
    pub(super) fn at_foreign_name(&mut self) -> Parse<bool> {
        let start = self.peek()?;
        let TokenKind::Identifier(name) = start.kind else {
            return Ok(false);
        };
        self.take()?;
        while self.accept("*")? {}
        let closed = self.at(")")?;
        self.peeked = None;
        self.lexer.rewind(start.span);
        Ok(closed && self.is_foreign_type(&name))
    }

    /// Whether a type begins here.
    pub(super) fn at_type(&mut self) -> Parse<bool> {
        Ok(match self.peek()?.kind {
            TokenKind::Keyword(word) => TYPE_WORDS.contains(&word),
            TokenKind::Identifier(name) => self.is_type(&name),
            _ => false,
        })
    }

    /// A type without a name.
    pub(super) fn type_name(&mut self) -> Parse<TypeName> {
        let start = self.peek()?.span;
        let base = self.base_type()?;
        let declarator = self.declarator(false)?;
        Ok(TypeName {
            base,
            derived: declarator.derived,
            name: String::new(),
            span: start.to(self.last),
        })
    }

    fn base_type(&mut self) -> Parse<BaseType> {
        let start = self.peek()?.span;
        let mut found = Specifiers::default();
        loop {
            let token = self.peek()?;
            match token.kind {
                TokenKind::Keyword("const" | "volatile" | "restrict" | "userland") => {
                    self.take()?;
                    found.any = true;
                    continue;
                }
                TokenKind::Keyword("signed") => found.signed = true,
                TokenKind::Keyword("unsigned") => found.unsigned = true,
                TokenKind::Keyword("short") => found.short += 1,
                TokenKind::Keyword("long") => found.long = found.long.saturating_add(1),
                TokenKind::Keyword(word @ ("int" | "char")) if found.integer.is_none() && found.base.is_none() => {
                    found.integer = Some(word);
                }
                TokenKind::Keyword(word @ ("void" | "float" | "double" | "string" | "int" | "char")) => {
                    let base = match word {
                        "void" => BaseType::Void,
                        "string" => BaseType::String,
                        _ => BaseType::Floating,
                    };
                    if found.base.replace(base).is_some() || found.integer.is_some() {
                        return Err(combination(token.span));
                    }
                }
                TokenKind::Keyword(word @ ("struct" | "union")) if found.base.is_none() => {
                    found.base = Some(self.struct_or_union(word)?);
                    continue;
                }
                TokenKind::Keyword("enum") if found.base.is_none() => {
                    found.base = Some(self.enumeration()?);
                    continue;
                }
                TokenKind::Identifier(name) if !found.has_type() && self.is_type(&name) => {
                    found.base = Some(BaseType::Named(name));
                }
                _ if found.has_type() => break,
                _ if found.any => break,
                TokenKind::Identifier(name) if self.is_foreign_type(&name) => {
                    found.base = Some(BaseType::Named(name));
                }
                TokenKind::Identifier(name) => {
                    return Err(Diagnostic::new(
                        "D_TYPE_ERR",
                        token.span,
                        format!("the type `{name}` is not known"),
                    ));
                }
                kind => {
                    return Err(Diagnostic::new(
                        "D_SYNTAX",
                        token.span,
                        format!("expected a type, found {}", kind.describe()),
                    ));
                }
            }
            self.take()?;
        }
        found.finish(start.to(self.last))
    }

    /// `struct tag`, `struct tag { members }`.
    fn struct_or_union(&mut self, keyword: &'static str) -> Parse<BaseType> {
        self.nested(|parser| {
            parser.take()?;
            let mut tag = String::new();
            if let TokenKind::Identifier(name) = parser.peek()?.kind {
                parser.take()?;
                tag = name;
            }
            let mut members = None;
            if parser.accept("{")? {
                let members = members.insert(Vec::new());
                while !parser.accept("}")? {
                    members.push(parser.member()?);
                }
            } else if tag.is_empty() {
                let token = parser.peek()?;
                return Err(Diagnostic::new(
                    "D_SYNTAX",
                    token.span,
                    format!(
                        "expected a tag or `{{` after `{keyword}`, found {}",
                        token.kind.describe()
                    ),
                ));
            }
            Ok(BaseType::Aggregate { keyword, tag, members })
        })
    }

    /// `type name, name : width;`
    fn member(&mut self) -> Parse<MemberDeclaration> {
        let start = self.peek()?.span;
        let base = self.base_type()?;
        let mut declarators = Vec::new();
        while !self.accept(";")? {
            let declarator = if self.at(":")? {
                Declarator {
                    name: String::new(),
                    derived: Vec::new(),
                    span: self.last,
                }
            } else {
                self.declarator(true)?
            };
            let width = if self.accept(":")? {
                Some(self.conditional_expression()?)
            } else {
                None
            };
            declarators.push((declarator, width));
            if !self.at(";")? {
                self.expect(",", "or `;` after a member")?;
            }
        }
        Ok(MemberDeclaration {
            base,
            declarators,
            span: start.to(self.last),
        })
    }

    fn enumeration(&mut self) -> Parse<BaseType> {
        self.take()?;
        let mut tag = String::new();
        if let TokenKind::Identifier(name) = self.peek()?.kind {
            self.take()?;
            tag = name;
        }
        let mut enumerators = Vec::new();
        if !tag.is_empty() && !self.at("{")? {
            return Ok(BaseType::Enumeration { tag, enumerators });
        }
        self.expect("{", "after `enum`")?;
        loop {
            let (name, span) = self.expect_identifier("the name of an enumerator")?;
            let value = if self.accept("=")? {
                Some(self.conditional_expression()?)
            } else {
                None
            };
            enumerators.push((name, value, span));
            if !self.accept(",")? || self.at("}")? {
                break;
            }
        }
        self.expect("}", "after the enumerators")?;
        Ok(BaseType::Enumeration { tag, enumerators })
    }

    /// `*` and names and `[ ]` and `( )`; `named`: there must be a name, else there must be none.
    fn declarator(&mut self, named: bool) -> Parse<Declarator> {
        self.nested(|parser| {
            let start = parser.peek()?.span;
            let mut derived = Vec::new();
            while parser.accept("*")? {
                derived.push(Derived::Pointer);
                while let TokenKind::Keyword("const" | "volatile" | "restrict") = parser.peek()?.kind {
                    parser.take()?;
                }
            }
            let mut name = String::new();
            let mut span = start;
            let mut inner = Vec::new();
            let next = parser.peek()?;
            match next.kind {
                TokenKind::Identifier(identifier) if named => {
                    parser.take()?;
                    name = identifier;
                    span = next.span;
                }
                TokenKind::Punctuator("(") if named || parser.opens_declarator()? => {
                    if named {
                        parser.take()?;
                    }
                    let declarator = parser.declarator(named)?;
                    parser.expect(")", "after a declarator")?;
                    (name, span, inner) = (declarator.name, declarator.span, declarator.derived);
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
            if derived.len() > usize::from(super::MAXIMUM_NESTING) {
                return Err(super::too_deep(span));
            }
            Ok(Declarator { name, derived, span })
        })
    }

    /// In a type without a name, whether `(` opens a declarator such as `(*)`; it is then taken.
    fn opens_declarator(&mut self) -> Parse<bool> {
        let open = self.take()?;
        if matches!(self.peek()?.kind, TokenKind::Punctuator("*" | "[" | "(")) {
            return Ok(true);
        }
        self.peeked = None;
        self.lexer.rewind(open.span);
        Ok(false)
    }

    /// What stands between brackets, and the closing one.
    fn dimension(&mut self) -> Parse<Derived> {
        if self.accept("]")? {
            return Ok(Derived::ArrayOfUnknownSize);
        }
        if !self.at_type()? {
            let size = self.conditional_expression()?;
            self.expect("]", "after the size of an array")?;
            return Ok(Derived::Array(Box::new(size)));
        }
        let mut keys = Vec::new();
        loop {
            let mut key = self.nested(Self::type_name)?;
            // An inline names its keys.
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

    /// Parameters of a function type, and the closing parenthesis: parsed and dropped.
    fn parameters(&mut self) -> Parse<()> {
        if self.accept(")")? {
            return Ok(());
        }
        loop {
            if self.accept("...")? {
                break;
            }
            self.base_type()?;
            let anonymous = !self.parameter_has_name()?;
            self.declarator(!anonymous)?;
            if !self.accept(",")? {
                break;
            }
        }
        self.expect(")", "after the parameters")?;
        Ok(())
    }

    /// Whether a parameter's declarator has a name, seen from its first token after the stars.
    fn parameter_has_name(&mut self) -> Parse<bool> {
        let start = self.peek()?.span;
        while self.accept("*")? {}
        let named = matches!(self.peek()?.kind, TokenKind::Identifier(_));
        self.peeked = None;
        self.lexer.rewind(start);
        Ok(named)
    }
}

impl Specifiers {
    fn has_type(&self) -> bool {
        self.base.is_some() || self.integer.is_some() || self.signed || self.unsigned || self.short > 0 || self.long > 0
    }

    fn finish(self, span: Span) -> Parse<BaseType> {
        let modified = self.signed || self.unsigned || self.short > 0 || self.long > 0;
        if let Some(base) = self.base {
            return match base {
                BaseType::Floating if self.long == 1 && !self.signed && !self.unsigned && self.short == 0 => Ok(base),
                BaseType::Void if modified => {
                    Err(Diagnostic::new("D_DECL_VOIDATTR", span, "invalid attributes for void"))
                }
                _ if self.signed || self.unsigned => Err(Diagnostic::new(
                    "D_DECL_SIGNINT",
                    span,
                    "signed and unsigned belong to integer types only",
                )),
                _ if modified => Err(Diagnostic::new(
                    "D_DECL_LONGINT",
                    span,
                    "short and long belong to arithmetic types only",
                )),
                _ => Ok(base),
            };
        }
        if self.short + self.long.min(3) > 2 || (self.short > 0 && self.long > 0) || self.short > 1 {
            return Err(combination(span));
        }
        if self.signed && self.unsigned {
            return Err(combination(span));
        }
        if self.integer == Some("char") {
            if self.short > 0 || self.long > 0 {
                return Err(Diagnostic::new("D_DECL_CHARATTR", span, "invalid attributes for char"));
            }
            return Ok(BaseType::Integer(IntegerType {
                bytes: 1,
                signed: !self.unsigned,
            }));
        }
        let bytes = match (self.short, self.long) {
            (1, _) => 2,
            (_, 0) => 4,
            _ => 8,
        };
        Ok(BaseType::Integer(IntegerType {
            bytes,
            signed: !self.unsigned,
        }))
    }
}

fn combination(span: Span) -> Diagnostic {
    Diagnostic::new("D_DECL_COMBO", span, "invalid combination of types")
}
