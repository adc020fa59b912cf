//! Reads provider definitions for the options that make a header and an object of them (`-h`, `-G`). A
//! program that traces may not contain any.
//!
//! No type is resolved: the types of the parameters belong to the program that is compiled with the
//! header.

use crate::diagnostic::Diagnostic;
use crate::lexer::MacroState;
use crate::source::Source;
use crate::syntax::{Item, ProviderDefinition};
use crate::target::{NoTarget, Target};
use crate::{MacroValues, parser};
use std::collections::HashSet;

/// The most characters of a provider's or probe's name, as in DTrace.
pub const NAME_MAX: usize = 63;
/// The most arguments of a probe: sys/sdt.h has no more, and no more are read from notes.
pub const ARGUMENTS_MAX: usize = 12;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Providers {
    /// The providers, in order. Definitions of the same name are merged.
    pub list: Vec<Provider>,
    /// Whether the text also has a clause. A header or an object ignores it.
    pub has_clauses: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    pub name: String,
    /// The probes, in order, each name once.
    pub probes: Vec<Probe>,
}

/// A probe of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The probe's name as written: `query__start`.
    pub name: String,
    /// The parameters, as written.
    pub arguments: Vec<String>,
}

/// The providers that the texts define.
///
/// # Errors
///
/// All errors found.
pub fn providers(sources: &[Source], macros: &MacroValues) -> Result<Providers, Vec<Diagnostic>> {
    let mut state = MacroState::new(macros);
    let mut types = HashSet::new();
    let mut found = Providers::default();
    let mut diagnostics = Vec::new();
    let target: &dyn Target = &NoTarget;
    for (index, source) in (0_u32..).zip(sources) {
        if let Some(diagnostic) = crate::too_long(source, index) {
            diagnostics.push(diagnostic);
            continue;
        }
        let parsed = parser::parse(&source.text, index, &mut state, &mut types, target);
        diagnostics.extend(parsed.diagnostics);
        for item in parsed.items {
            match item {
                Item::Provider(provider) => diagnostics.extend(found.add(source, provider)),
                Item::Clause(_) => found.has_clauses = true,
                _ => {}
            }
        }
    }
    if diagnostics.is_empty() {
        Ok(found)
    } else {
        Err(diagnostics)
    }
}

impl Providers {
    /// Adds a definition, unless it contradicts an earlier one.
    fn add(&mut self, source: &Source, definition: ProviderDefinition) -> Vec<Diagnostic> {
        let known = self.list.iter().position(|known| known.name == definition.name);
        let number = known.unwrap_or_else(|| {
            self.list.push(Provider {
                name: definition.name.clone(),
                probes: Vec::new(),
            });
            self.list.len() - 1
        });
        let mut wrong = Vec::new();
        for probe in definition.probes {
            let text = |span| source.slice(span).split_whitespace().collect::<Vec<_>>().join(" ");
            let new = Probe {
                arguments: probe.arguments.into_iter().map(text).collect(),
                name: probe.name,
            };
            let Some(provider) = self.list.get_mut(number) else {
                break;
            };
            match provider.probes.iter().find(|known| known.name == new.name) {
                None => provider.probes.push(new),
                Some(known) if known.arguments.len() == new.arguments.len() => {}
                Some(_) => {
                    let message = format!("probe {}:::{} has other arguments than before", provider.name, new.name);
                    wrong.push(Diagnostic::new("D_PROV_INCOMPAT", probe.span, message));
                }
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Providers, Vec<Diagnostic>> {
        providers(&[Source::new("p.d", text)], &MacroValues::default())
    }

    #[track_caller]
    fn shown(text: &str) -> String {
        let found = of(text).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
        let probe = |probe: &Probe| format!("{}({})", probe.name, probe.arguments.join("; "));
        let provider = |provider: &Provider| {
            let probes: Vec<String> = provider.probes.iter().map(probe).collect();
            format!("{} {}", provider.name, probes.join(" "))
        };
        let providers: Vec<String> = found.list.iter().map(provider).collect();
        providers.join("; ")
    }

    #[test]
    fn definitions_are_read_as_software_has_them() {
        for (text, expected) in [
            ("provider p { probe a(); probe b__c(void); };", "p a() b__c()"),
            (
                "/* one */\nprovider py {\n    probe function__entry(const char *, const char *, int);\n};\n\
                 #pragma D attributes Evolving/Evolving/Common provider py provider\n",
                "py function__entry(const char *; const char *; int)",
            ),
            (
                "provider p { probe a(unsigned int x, char *y[4], struct s *z) : (string a, int b); };",
                "p a(unsigned int x; char *y[4]; struct s *z)",
            ),
            // Types of the program.
            (
                "provider p { probe a(Oid, const zval *v, LWLockMode mode, void (*f)(Oid)); };",
                "p a(Oid; const zval *v; LWLockMode mode; void (*f)(Oid))",
            ),
            // Names that are keywords of D; a definition in two parts, of which one lacks its semicolon.
            (
                "typedef int number; provider p { probe return(number self); };\nprovider p { probe b(); }",
                "p return(number self) b()",
            ),
            ("BEGIN { exit(0); }", ""),
            ("", ""),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
        assert!(of("BEGIN{}").unwrap().has_clauses);
    }

    #[test]
    fn what_is_wrong_has_a_tag() {
        let twelve = "int, ".repeat(ARGUMENTS_MAX);
        for (text, tag) in [
            ("provider p1 { probe a(); };", "D_PROV_BADNAME"),
            ("provider p`x { probe a(); };", "D_PROV_BADNAME"),
            (&format!("provider {} {{ }};", "p".repeat(64)), "D_PROV_BADNAME"),
            (&format!("provider p {{ probe a({twelve}int); }};"), "D_PROV_PRARGLEN"),
            ("provider p { probe a(); probe a(int); };", "D_PROV_INCOMPAT"),
            ("provider p { probe a(int, void); };", "D_DECL_PROTO_VOID"),
            ("provider p { int a; };", "D_SYNTAX"),
            ("provider p { probe a() };", "D_SYNTAX"),
            ("provider p { probe a(", "D_SYNTAX"),
        ] {
            let wrong = of(text).map(|_| "nothing").map_err(|wrong| wrong[0].tag);
            assert_eq!(wrong, Err(tag), "{text}");
        }
    }
}
