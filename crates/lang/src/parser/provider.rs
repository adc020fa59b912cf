//! Provider definitions: a program's description of its own probes.
//!
//! ```text
//! provider     = "provider" name "{" { probe } "}" ";"
//! probe        = "probe" name "(" [ parameters ] ")" [ ":" "(" [ parameters ] ")" ] ";"
//! ```
//!
//! The types are the program's, so an unknown name is accepted as a type. Manual: "Statically Defined
//! Tracing for User Applications".

use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::providers::{ARGUMENTS_MAX, NAME_MAX};
use crate::source::Span;
use crate::syntax::{Attributes, BaseType, DeclaredProbe, Item, ProviderDefinition};

impl Parser<'_> {
    /// `provider name { probes };`
    pub(super) fn provider(&mut self) -> Parse<Item> {
        let start = self.take()?.span;
        self.in_provider = true;
        let result = self.provider_behind_keyword(start);
        self.in_provider = false;
        result.map(Item::Provider)
    }

    fn provider_behind_keyword(&mut self, start: Span) -> Parse<ProviderDefinition> {
        let (name, span) = self.expect_identifier("the provider's name")?;
        check_name("provider", &name, span)?;
        if name.ends_with(|last: char| last.is_ascii_digit()) {
            let message = format!("provider name may not end with a digit: {name}");
            return Err(Diagnostic::new("D_PROV_BADNAME", span, message)
                .with_help("the number of the process follows the name"));
        }
        self.expect("{", "before the provider's probes")?;
        let mut probes = Vec::new();
        while !self.accept("}")? {
            probes.push(self.declared_probe()?);
        }
        let mut end = self.last;
        // Files written for another tool may lack the semicolon.
        if self.peek()?.kind != TokenKind::End && !self.at_keyword("provider")? {
            end = self.expect(";", "after the provider")?;
        }
        Ok(ProviderDefinition {
            name,
            probes,
            span: start.to(end),
        })
    }

    fn declared_probe(&mut self) -> Parse<DeclaredProbe> {
        let token = self.peek()?;
        if token.kind != TokenKind::Keyword("probe") {
            let message = format!(
                "expected a probe or `}}` in the provider, found {}",
                token.kind.describe()
            );
            return Err(Diagnostic::new("D_SYNTAX", token.span, message));
        }
        self.take()?;
        let token = self.peek()?;
        let name = match token.kind {
            TokenKind::Identifier(name) => name,
            TokenKind::Keyword(word) => word.to_owned(),
            kind => {
                let message = format!("expected the probe's name, found {}", kind.describe());
                return Err(Diagnostic::new("D_SYNTAX", token.span, message));
            }
        };
        self.take()?;
        check_name("probe", &name, token.span)?;
        self.expect("(", "after the probe's name")?;
        let arguments = self.probe_parameters()?;
        if arguments.len() > ARGUMENTS_MAX {
            let message = format!(
                "probe {name} has more than {ARGUMENTS_MAX} parameters: {}",
                arguments.len()
            );
            return Err(Diagnostic::new("D_PROV_PRARGLEN", token.span, message));
        }
        // After the colon: the types of the arguments for tracers. The program itself does not need them.
        if self.accept(":")? {
            self.expect("(", "before the probe's translated arguments")?;
            self.probe_parameters()?;
        }
        self.expect(";", "after the probe")?;
        Ok(DeclaredProbe {
            name,
            arguments,
            span: token.span,
        })
    }

    /// The parameters and the closing parenthesis; yields the place of each.
    fn probe_parameters(&mut self) -> Parse<Vec<Span>> {
        if self.accept(")")? {
            return Ok(Vec::new());
        }
        let around = std::mem::replace(&mut self.in_parameters, true);
        let result = self.probe_parameter_list();
        self.in_parameters = around;
        result
    }

    fn probe_parameter_list(&mut self) -> Parse<Vec<Span>> {
        let mut parameters = Vec::new();
        loop {
            let start = self.peek()?.span;
            let base = self.base_type()?;
            let named = self.parameter_has_name()?;
            let declarator = self.declarator(named)?;
            self.attributes(&mut Attributes::default())?;
            if base == BaseType::Void && declarator.derived.is_empty() {
                if parameters.is_empty() && declarator.name.is_empty() && self.accept(")")? {
                    return Ok(parameters);
                }
                let message = "void must be the only parameter of a probe, without a name";
                return Err(Diagnostic::new("D_DECL_PROTO_VOID", start, message));
            }
            parameters.push(start.to(self.last));
            if !self.accept(",")? {
                break;
            }
        }
        self.expect(")", "after the parameters of a probe")?;
        Ok(parameters)
    }
}

fn check_name(what: &str, name: &str, span: Span) -> Parse<()> {
    let message = match name {
        _ if name.contains('`') => format!("{what} name may not contain scoping operator: {name}"),
        _ if name.len() > NAME_MAX => format!("{what} name may not exceed {NAME_MAX} characters: {name}"),
        _ => return Ok(()),
    };
    Err(Diagnostic::new("D_PROV_BADNAME", span, message))
}
