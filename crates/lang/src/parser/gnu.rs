//! The parts of C and GNU C that only headers have: attributes, `_Alignas`, names for the assembler,
//! functions with bodies, values of variables. Those that change the layout of types are kept;
//! everything else is skipped.

use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;
use crate::syntax::{Attributes, BaseType, Declaration, Item, Node, NodeKind};

/// D's keywords that are ordinary names in C headers. (`string` is missing because it begins a type in D, and
/// `inline` because it is a keyword of C, too.)
const OWN_KEYWORDS: &[&str] = &[
    "counter",
    "import",
    "offsetof",
    "probe",
    "provider",
    "self",
    "string",
    "stringof",
    "this",
    "translator",
    "userland",
    "xlate",
];

/// Words of C and GNU C, but not of D, that may begin a header's declaration.
const BEGINNINGS: &[&str] = &[
    "_Alignas",
    "_Atomic",
    "_Complex",
    "_Noreturn",
    "_Static_assert",
    "_Thread_local",
    "__asm",
    "__asm__",
    "__attribute",
    "__attribute__",
    "__complex__",
    "__const",
    "__const__",
    "__extension__",
    "__inline",
    "__inline__",
    "__restrict",
    "__restrict__",
    "__signed",
    "__signed__",
    "__thread",
    "__typeof",
    "__typeof__",
    "__volatile",
    "__volatile__",
];

/// Whether this word of GNU C begins a declaration.
pub(super) fn begins_declaration(word: &str) -> bool {
    BEGINNINGS.contains(&word)
}

/// A keyword that can be a name in C.
pub(super) fn own_keyword(kind: &TokenKind) -> Option<&'static str> {
    match kind {
        TokenKind::Keyword(word) if OWN_KEYWORDS.contains(word) => Some(word),
        _ => None,
    }
}

/// Whether this is the expansion of the C library's macro `errno`, after its star.
pub(super) fn is_errno(operand: &Node) -> bool {
    let NodeKind::Call { function, arguments } = &operand.kind else {
        return false;
    };
    arguments.is_empty() && matches!(&function.kind, NodeKind::Identifier(name) if name == "__errno_location")
}

/// The usual name of a function that the C library's headers replace by a macro; any other name unchanged.
pub(super) fn of_macro(name: String) -> String {
    match name.as_str() {
        "__xpg_basename" => "basename".to_owned(),
        _ => name,
    }
}

impl Parser<'_> {
    /// Any number of attributes, alignments and assembler's names.
    pub(super) fn attributes(&mut self, attributes: &mut Attributes) -> Parse<()> {
        loop {
            let token = self.peek()?;
            let TokenKind::Identifier(word) = token.kind else {
                return Ok(());
            };
            match word.as_str() {
                "__attribute__" | "__attribute" => {
                    self.take()?;
                    self.expect("(", "after `__attribute__`")?;
                    self.expect("(", "after `__attribute__(`")?;
                    self.attribute_list(attributes)?;
                    self.expect(")", "after attributes")?;
                }
                "_Alignas" => {
                    self.take()?;
                    self.expect("(", "after `_Alignas`")?;
                    let value = if self.at_type()? {
                        let of = self.type_name()?;
                        self.node(NodeKind::Alignof(of), token.span.to(self.last))?
                    } else {
                        self.conditional_expression()?
                    };
                    self.expect(")", "after the value of `_Alignas`")?;
                    attributes.aligned.push(Some(value));
                }
                "_Noreturn" | "_Atomic" => {
                    self.take()?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// The attributes between the brackets, and the first closing bracket.
    fn attribute_list(&mut self, attributes: &mut Attributes) -> Parse<()> {
        loop {
            if self.accept(")")? {
                return Ok(());
            }
            if self.accept(",")? {
                continue;
            }
            let token = self.take()?;
            let (TokenKind::Identifier(_) | TokenKind::Keyword(_)) = token.kind else {
                let message = format!("expected an attribute, found {}", token.kind.describe());
                return Err(Diagnostic::new("D_SYNTAX", token.span, message));
            };
            let name = match &token.kind {
                TokenKind::Identifier(name) => name.trim_matches('_'),
                _ => "",
            };
            let has_value = self.at("(")?;
            match name {
                "packed" => attributes.packed = true,
                "aligned" | "warn_if_not_aligned" if !has_value => attributes.aligned.push(None),
                "aligned" => {
                    self.take()?;
                    attributes.aligned.push(Some(self.conditional_expression()?));
                    self.expect(")", "after the value of an attribute")?;
                }
                "vector_size" if has_value => {
                    self.take()?;
                    attributes.vector = Some(Box::new(self.conditional_expression()?));
                    self.expect(")", "after the value of an attribute")?;
                }
                "mode" if has_value => {
                    self.take()?;
                    let (mode, span) = self.expect_identifier("a mode")?;
                    attributes.mode = Some((mode.trim_matches('_').to_owned(), span));
                    self.expect(")", "after the value of an attribute")?;
                }
                "ms_struct" | "scalar_storage_order" => {
                    let message =
                        format!("the attribute {name}, which changes the layout of members, is not supported");
                    return Err(Diagnostic::new("N_ATTRIBUTE", token.span, message));
                }
                _ if has_value => self.pass_over()?,
                _ => {}
            }
        }
    }

    /// Skips `__asm__ ("name")` after a declared name. Yields whether there was one.
    pub(super) fn assembler_name(&mut self) -> Parse<bool> {
        let TokenKind::Identifier(word) = self.peek()?.kind else {
            return Ok(false);
        };
        if !matches!(word.as_str(), "__asm__" | "__asm" | "asm") {
            return Ok(false);
        }
        self.take()?;
        // `__asm__ volatile ("...")`, outside of functions.
        while matches!(self.peek()?.kind, TokenKind::Keyword("volatile" | "inline")) {
            self.take()?;
        }
        self.pass_over()?;
        Ok(true)
    }

    /// Skips a bracket that opens here, up to the bracket that closes it.
    pub(super) fn pass_over(&mut self) -> Parse<()> {
        let open = self.peek()?;
        if !matches!(open.kind, TokenKind::Punctuator("(" | "{")) {
            let message = format!("expected an opening bracket, found {}", open.kind.describe());
            return Err(Diagnostic::new("D_SYNTAX", open.span, message));
        }
        self.peeked = None;
        match self.lexer.pass_over(open.span) {
            true => Ok(()),
            false => Err(Diagnostic::new("D_SYNTAX", open.span, "this bracket is not closed")),
        }
    }

    /// Skips the value that a header gives to a declared name.
    pub(super) fn pass_over_value(&mut self) -> Parse<()> {
        self.expect("=", "before a value")?;
        self.peeked = None;
        self.lexer.pass_over_value();
        Ok(())
    }

    /// Skips `_Static_assert(...);`. Yields whether there was one.
    pub(super) fn assertion(&mut self) -> Parse<bool> {
        let TokenKind::Identifier(word) = self.peek()?.kind else {
            return Ok(false);
        };
        if word != "_Static_assert" {
            return Ok(false);
        }
        self.take()?;
        self.pass_over()?;
        self.expect(";", "after an assertion")?;
        Ok(true)
    }

    /// The part of a header's declaration that is useful in D: the type, if the declaration defines one.
    pub(super) fn type_alone(base: BaseType, span: Span) -> Item {
        let defines = match &base {
            BaseType::Aggregate { tag, members, .. } => !tag.is_empty() && members.is_some(),
            BaseType::Enumeration { enumerators, .. } => !enumerators.is_empty(),
            _ => false,
        };
        if !defines {
            return Item::PassedOver;
        }
        Item::Declaration(Declaration {
            storage: None,
            base,
            declarators: Vec::new(),
            span,
        })
    }
}
