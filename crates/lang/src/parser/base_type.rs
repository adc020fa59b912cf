//! The beginning of a declaration: the words of a type in any order, structures, unions, enumerations.
//! This file also decides whether a word can begin a type.

use super::{Parse, Parser, declaration, gnu};
use crate::diagnostic::Diagnostic;
use crate::lexer::{Token, TokenKind};
use crate::program::IntegerType;
use crate::source::Span;
use crate::syntax::{Attributes, BaseType, Declarator, MemberDeclaration, TypeName};
use crate::types;

/// Keywords that a type can begin with.
const TYPE_WORDS: &[&str] = &[
    "char", "const", "double", "enum", "float", "int", "long", "restrict", "short", "signed", "string", "struct",
    "union", "unsigned", "userland", "void", "volatile",
];

/// The words of a type that C allows in any order.
#[derive(Default)]
struct Specifiers {
    signed: bool,
    unsigned: bool,
    short: u8,
    long: u8,
    base: Option<BaseType>,
    /// `char` or `int`, if one of them was given. The other words modify it.
    integer: Option<&'static str>,
    complex: bool,
    any: bool,
}

/// Whether a keyword is a word of an arithmetic type, `void` or `string`.
fn is_arithmetic(word: &str) -> bool {
    matches!(
        word,
        "char" | "double" | "float" | "int" | "long" | "short" | "signed" | "string" | "unsigned" | "void"
    )
}

/// The error of a token in the place of a type.
fn no_type(kind: &TokenKind, span: Span) -> Diagnostic {
    let message = match kind {
        TokenKind::Identifier(name) => format!("the type `{name}` is not known"),
        kind => format!("expected a type, found {}", kind.describe()),
    };
    Diagnostic::new("D_SYNTAX", span, message)
}

impl Parser<'_> {
    /// Whether `word` is a type's name.
    pub(super) fn is_type(&self, word: &str) -> bool {
        let word = unscoped(word);
        types::named(word).is_some() || self.types.contains(word) || word == crate::check::ADDRESS_NAME
    }

    /// Whether the traced program has a type of this name. The program is asked only where an identifier
    /// can be nothing else.
    pub(super) fn is_foreign_type(&self, word: &str) -> bool {
        self.target.named(unscoped(word)).is_ok()
    }

    /// Whether a cast to a type of the traced program follows an opening parenthesis. The
    /// parentheses hold a name and stars, or a name with an operand after it; neither is an
    /// expression in D.
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

    /// Whether the name of a type of the traced program, perhaps with stars, follows `sizeof (`.
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

    /// A type where only a type may stand. GNU C's attributes have no effect there.
    pub(super) fn base_type(&mut self) -> Parse<BaseType> {
        self.specifiers(&mut Attributes::default(), None)
    }

    /// The beginning of a declaration: a type. Attributes and, if allowed, a storage class may be among its words.
    pub(super) fn specifiers(
        &mut self,
        attributes: &mut Attributes,
        mut storage: Option<&mut Option<(&'static str, Span)>>,
    ) -> Parse<BaseType> {
        let start = self.peek()?.span;
        let included = self.lexer.is_included(start);
        let mut found = Specifiers::default();
        loop {
            self.attributes(attributes)?;
            let token = self.peek()?;
            match token.kind {
                TokenKind::Keyword(word) if included && storage.is_some() && declaration::STORAGE.contains(&word) => {
                    if let Some(storage) = storage.as_deref_mut() {
                        *storage = Some((word, token.span));
                    }
                }
                // A keyword of D can be a name in a header of C: `unsigned string`.
                kind if included && found.has_type() && gnu::own_keyword(&kind).is_some() => break,
                TokenKind::Keyword("inline") if included => {}
                TokenKind::Identifier(ref name) if matches!(name.as_str(), "__thread" | "_Thread_local") => {
                    if let Some(storage) = storage.as_deref_mut() {
                        *storage = Some(("static", token.span));
                    }
                }
                TokenKind::Identifier(ref name) if matches!(name.as_str(), "_Complex" | "__complex__") => {
                    found.complex = true;
                }
                TokenKind::Keyword("const" | "volatile" | "restrict" | "userland") => found.any = true,
                TokenKind::Keyword(word) if is_arithmetic(word) => found.add(word, included, token.span)?,
                TokenKind::Keyword(word @ ("struct" | "union")) if found.base.is_none() => {
                    found.base = Some(self.struct_or_union(word)?);
                    continue;
                }
                TokenKind::Keyword("enum") if found.base.is_none() => {
                    found.base = Some(self.enumeration()?);
                    continue;
                }
                TokenKind::Identifier(ref name) if name == "__int128" && found.base.is_none() => {
                    found.base = Some(BaseType::Named(name.clone()));
                }
                TokenKind::Identifier(name) if !found.has_type() && self.is_type(&name) => {
                    found.base = Some(BaseType::Named(unscoped(&name).to_owned()));
                }
                TokenKind::Identifier(name) if self.in_provider && !found.has_type() => {
                    found.base = Some(BaseType::Named(name));
                }
                // A type has begun already, so the previous declaration lacks its semicolon:
                // `struct a { ... } struct b`.
                TokenKind::Keyword("struct" | "union" | "enum") => return Err(combination(token.span)),
                _ if found.has_type() || found.any => break,
                TokenKind::Identifier(name) if self.is_foreign_type(&name) => {
                    found.base = Some(BaseType::Named(unscoped(&name).to_owned()));
                }
                kind => return Err(no_type(&kind, token.span)),
            }
            self.take()?;
        }
        found.finish(start.to(self.last))
    }

    /// `struct tag`, `struct tag { members }`.
    fn struct_or_union(&mut self, keyword: &'static str) -> Parse<BaseType> {
        self.nested(|parser| {
            parser.take()?;
            let (mut attributes, mut pack) = (Attributes::default(), None);
            parser.attributes(&mut attributes)?;
            let named = parser.peek()?;
            let tag = parser.tag()?;
            parser.refuse_scoped(&named)?;
            let mut members = None;
            if parser.accept("{")? {
                let members = members.insert(Vec::new());
                while !parser.accept("}")? {
                    if !parser.assertion()? && !parser.accept(";")? {
                        members.push(parser.member()?);
                    }
                }
                pack = parser.lexer.pack(parser.last);
                parser.attributes(&mut attributes)?;
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
            Ok(BaseType::Aggregate {
                keyword,
                tag,
                members,
                attributes,
                pack,
            })
        })
    }

    /// A type of a module can be named but not defined: ``struct a.out`tag {`` is an error.
    fn refuse_scoped(&mut self, named: &Token) -> Parse<()> {
        match &named.kind {
            TokenKind::Identifier(name) if name.contains('`') && self.at("{")? => Err(Diagnostic::new(
                "D_DECL_SCOPE",
                named.span,
                "D scoping operator may not be used in a type name",
            )),
            _ => Ok(()),
        }
    }

    /// The tag of a structure, union or enumeration; empty if there is none.
    fn tag(&mut self) -> Parse<String> {
        let kind = self.peek()?.kind;
        let tag = match (&kind, gnu::own_keyword(&kind)) {
            (TokenKind::Identifier(name), _) => unscoped(name),
            (_, Some(word)) => word,
            _ => return Ok(String::new()),
        };
        self.take()?;
        Ok(tag.to_owned())
    }

    /// `type name, name : width;`
    fn member(&mut self) -> Parse<MemberDeclaration> {
        let start = self.peek()?.span;
        let mut attributes = Attributes::default();
        let base = self.specifiers(&mut attributes, None)?;
        let mut declarators = Vec::new();
        while !self.accept(";")? {
            let mut declarator = if self.at(":")? {
                Declarator {
                    name: String::new(),
                    derived: Vec::new(),
                    attributes: Attributes::default(),
                    span: self.last,
                }
            } else {
                self.declarator(true)?
            };
            declarator.attributes.add(&attributes);
            let width = if self.accept(":")? {
                Some(self.conditional_expression()?)
            } else {
                None
            };
            self.attributes(&mut declarator.attributes)?;
            declarators.push((declarator, width));
            if !self.at(";")? {
                self.expect(",", "or `;` after a member")?;
            }
        }
        Ok(MemberDeclaration {
            base,
            declarators,
            attributes,
            span: start.to(self.last),
        })
    }

    fn enumeration(&mut self) -> Parse<BaseType> {
        self.take()?;
        let mut attributes = Attributes::default();
        self.attributes(&mut attributes)?;
        let included = self.lexer.is_included(self.last);
        let named = self.peek()?;
        let tag = self.tag()?;
        self.refuse_scoped(&named)?;
        let mut enumerators = Vec::new();
        if !tag.is_empty() && !self.at("{")? {
            return Ok(BaseType::Enumeration {
                tag,
                enumerators,
                attributes,
                included,
            });
        }
        self.expect("{", "after `enum`")?;
        loop {
            let (name, span) = self.expect_identifier("the name of an enumerator")?;
            self.attributes(&mut Attributes::default())?;
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
        self.attributes(&mut attributes)?;
        Ok(BaseType::Enumeration {
            tag,
            enumerators,
            attributes,
            included,
        })
    }
}

impl Specifiers {
    /// Adds a word of an arithmetic type, `void` or `string`.
    fn add(&mut self, word: &'static str, included: bool, span: Span) -> Parse<()> {
        match word {
            "signed" if !self.signed => self.signed = true,
            "unsigned" if !self.unsigned => self.unsigned = true,
            // As in DTrace, a word may occur once; C allows more.
            "signed" | "unsigned" if !included => return Err(combination(span)),
            "signed" | "unsigned" => {}
            "short" => self.short += 1,
            "long" => self.long = self.long.saturating_add(1),
            "int" | "char" if self.integer.is_none() && self.base.is_none() => self.integer = Some(word),
            _ => {
                let base = match word {
                    "void" => BaseType::Void,
                    "string" => BaseType::String,
                    "float" => BaseType::Floating(4),
                    _ => BaseType::Floating(8),
                };
                if self.base.replace(base).is_some() || self.integer.is_some() {
                    return Err(combination(span));
                }
            }
        }
        Ok(())
    }

    fn has_type(&self) -> bool {
        self.base.is_some() || self.integer.is_some() || self.signed || self.unsigned || self.short > 0 || self.long > 0
    }

    fn finish(self, span: Span) -> Parse<BaseType> {
        if self.complex {
            let part = Specifiers { complex: false, ..self };
            // `_Complex` alone means `double _Complex`.
            let part = match part.has_type() {
                true => part.finish(span)?,
                false => BaseType::Floating(8),
            };
            return Ok(BaseType::Complex(Box::new(part)));
        }
        let modified = self.signed || self.unsigned || self.short > 0 || self.long > 0;
        if let Some(base) = self.base {
            return match base {
                // GNU C's integers of 128 bits, signed or unsigned.
                BaseType::Named(ref name) if name == "__int128" && self.short == 0 && self.long == 0 => Ok(base),
                BaseType::Floating(8) if self.long == 1 && !self.signed && !self.unsigned && self.short == 0 => {
                    Ok(BaseType::Floating(16))
                }
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

/// The name of a type of the text or of C without ``D` `` or ``C` ``, which may precede it as if they were modules.
/// The same for a type of the traced program and ``pid` ``.
fn unscoped(name: &str) -> &str {
    ["D`", "C`", "pid`"]
        .into_iter()
        .find_map(|module| name.strip_prefix(module))
        .unwrap_or(name)
}

fn combination(span: Span) -> Diagnostic {
    Diagnostic::new("D_DECL_COMBO", span, "invalid combination of types")
}
