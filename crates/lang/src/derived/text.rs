//! Reads a built-in text: where each derived probe fires, and with which arguments.

use super::BUILT_IN;
use super::rewrite::replaced;
use crate::diagnostic::Diagnostic;
use crate::lexer::MacroState;
use crate::macros::MacroValues;
use crate::program::{DerivedProbe, ProbeDescription};
use crate::source::Span;
use crate::syntax::{Clause, DerivedArgument, DerivedPlaces, Item, LocalScope, Node, NodeKind, Statement};
use crate::target::NoTarget;
use crate::{parser, probes};
use std::collections::HashSet;
use std::rc::Rc;

/// A derived probe at some of its places.
pub(super) struct Place {
    pub(super) name: String,
    /// The module of the probe, which then has no function; `None`: both are those of the place.
    pub(super) module: Option<&'static str>,
    pub(super) probes: Vec<ProbeDescription>,
    pub(super) predicate: Option<Node>,
    pub(super) arguments: Vec<(DerivedArgument, Node)>,
    /// Whether it fires only in programs that a traced process has executed.
    pub(super) only_executed: bool,
}

/// What a built-in text says.
#[derive(Default)]
pub(super) struct Provider {
    pub(super) places: Vec<Place>,
    /// Clauses that keep what the probes need, before those of the program run.
    pub(super) before: Vec<Clause>,
    /// Those that run after them.
    pub(super) after: Vec<Clause>,
}

/// The module of the probes that follow from system calls, as in DTrace on Linux.
const MODULE: &str = "vmlinux";

/// `this->name`: what it stands for.
type Definitions = Vec<(String, Node)>;

/// Reads the text of a provider for a process; 0: its name has no number. Yields its declarations, too.
pub(super) fn read(name: &str, text: &str, process: u32) -> Result<(Provider, Vec<Item>), Vec<Diagnostic>> {
    let macros = MacroValues::default();
    let mut state = MacroState::new(&macros);
    let parsed = parser::parse(text, BUILT_IN, &mut state, &mut HashSet::new(), &NoTarget);
    if !parsed.diagnostics.is_empty() {
        return Err(parsed.diagnostics);
    }
    let mut reader = Reader {
        name,
        process,
        provider: Provider::default(),
        groups: Vec::new(),
        groups_are_used: false,
        common: Assigned::default(),
        globals: HashSet::new(),
    };
    let mut declarations = Vec::new();
    for item in parsed.items {
        match item {
            Item::Clause(clause) => reader.clause(clause).map_err(|wrong| vec![wrong])?,
            Item::Declaration(mut declaration) => {
                for declarator in &mut declaration.declarators {
                    if declaration.storage.is_none() {
                        reader.globals.insert(declarator.name.clone());
                    }
                    declarator.name = hidden_name(name, &declarator.name);
                }
                declarations.push(Item::Declaration(declaration));
            }
            other => declarations.push(other),
        }
    }
    Ok((reader.provider, declarations))
}

struct Reader<'t> {
    name: &'t str,
    process: u32,
    provider: Provider,
    /// Places with what they define.
    groups: Vec<(Vec<ProbeDescription>, Definitions)>,
    /// Whether a probe has been said to fire at these places. Places that come after it are others.
    groups_are_used: bool,
    /// What is said about all probes of the provider.
    common: Assigned,
    /// The global variables that the text declares.
    globals: HashSet<String>,
}

/// What a clause on derived probes assigns.
#[derive(Default)]
struct Assigned {
    /// `this->at`
    at: Option<String>,
    /// `probename`
    end: String,
    definitions: Definitions,
    arguments: Vec<(DerivedArgument, Node)>,
    /// `this->executed`
    only_executed: bool,
}

impl Reader<'_> {
    fn clause(&mut self, clause: Clause) -> Result<(), Diagnostic> {
        let is_own = clause.probes.iter().all(|probe| probe.provider == self.name);
        if is_own {
            return self.derived(&clause);
        }
        let assigned = assigned(&clause)?;
        match assigned {
            Some(assigned) => {
                if std::mem::take(&mut self.groups_are_used) {
                    self.groups.clear();
                }
                let probes = clause.probes.iter().map(|probe| self.placed(probe)).collect();
                self.groups.push((probes, assigned.definitions));
            }
            None => {
                let hidden = self.hidden(clause);
                match self.provider.places.is_empty() {
                    true => self.provider.before.push(hidden),
                    false => self.provider.after.push(hidden),
                }
            }
        }
        Ok(())
    }

    /// A clause on derived probes: each of them at each of its places.
    fn derived(&mut self, clause: &Clause) -> Result<(), Diagnostic> {
        let Some(assigned) = assigned(clause)? else {
            return Err(wrong(clause.span));
        };
        if clause.probes.iter().all(|probe| probe.name.is_empty()) {
            self.common = assigned;
            return Ok(());
        }
        let groups = match &assigned.at {
            Some(places) => {
                let parsed = places.split(',').map(|place| probes::parse(place.trim(), clause.span));
                let parsed: Vec<ProbeDescription> = parsed.collect::<Result<_, _>>()?;
                vec![(parsed.iter().map(|probe| self.placed(probe)).collect(), Vec::new())]
            }
            None => {
                self.groups_are_used = true;
                self.groups.clone()
            }
        };
        for (probes, mut known) in groups {
            for (name, value) in assigned.definitions.iter().chain(&self.common.definitions) {
                let value = self.with(&known, value);
                known.push((name.clone(), value));
            }
            let probes: Vec<ProbeDescription> = probes
                .into_iter()
                .map(|probe| ProbeDescription {
                    name: if probe.name.is_empty() {
                        assigned.end.clone()
                    } else {
                        probe.name
                    },
                    ..probe
                })
                .collect();
            // The first that names an argument counts.
            let arguments = assigned.arguments.iter().chain(&self.common.arguments);
            let arguments: Vec<_> = arguments
                .map(|(argument, value)| (argument.clone(), self.with(&known, value)))
                .collect();
            let is_call = probes.iter().all(|probe| probe.provider == "syscall");
            for derived in &clause.probes {
                self.provider.places.push(Place {
                    name: derived.name.clone(),
                    module: is_call.then_some(MODULE),
                    probes: probes.clone(),
                    predicate: clause.predicate.as_ref().map(|value| self.with(&known, value)),
                    arguments: arguments.clone(),
                    only_executed: assigned.only_executed,
                });
            }
        }
        Ok(())
    }

    /// A clause that is added to the program.
    fn hidden(&self, clause: Clause) -> Clause {
        let mapped = |statement: &Statement| match statement {
            Statement::Expression(node) => Statement::Expression(self.with(&Vec::new(), node)),
            other => other.clone(),
        };
        let written = clause
            .probes
            .first()
            .map(|probe| self.placed(probe))
            .unwrap_or_else(|| ProbeDescription {
                provider: String::new(),
                module: String::new(),
                function: String::new(),
                name: String::new(),
                span: clause.span,
            });
        let probe = DerivedProbe {
            provider: written.provider.clone(),
            place: None,
            name: String::new(),
            written,
            is_hidden: true,
            only_executed: clause.body.iter().any(says_executed),
        };
        Clause {
            probes: clause.probes.iter().map(|probe| self.placed(probe)).collect(),
            predicate: clause.predicate.as_ref().map(|value| self.with(&Vec::new(), value)),
            body: clause
                .body
                .iter()
                .filter(|one| !says_executed(one))
                .map(mapped)
                .collect(),
            span: clause.span,
            derived: Some(Rc::new(DerivedPlaces {
                probe,
                arguments: Vec::new(),
            })),
        }
    }

    /// A description of the text, for the process.
    fn placed(&self, probe: &ProbeDescription) -> ProbeDescription {
        let mut placed = probe.clone();
        if placed.provider == "pid" {
            placed.provider = format!("pid{}", self.process);
        }
        placed
    }

    /// A global variable of the text, with a name that no program can write.
    fn global(&self, node: &Node) -> Option<Node> {
        let NodeKind::Identifier(name) = &node.kind else {
            return None;
        };
        let kind = NodeKind::Identifier(hidden_name(self.name, name));
        self.globals.contains(name).then(|| Node::new(kind, node.span))
    }

    /// An expression with what `this->` variables stand for, and with `self->` variables that no program can name.
    fn with(&self, known: &Definitions, node: &Node) -> Node {
        replaced(node, &|part: &Node| {
            let NodeKind::Local { scope, name } = &part.kind else {
                return self.global(part);
            };
            match scope {
                LocalScope::Clause => {
                    let found = known.iter().rev().find(|(known, _)| known == name);
                    found.map(|(_, value)| value.clone())
                }
                LocalScope::Thread => {
                    let kind = NodeKind::Local {
                        scope: LocalScope::Thread,
                        name: hidden_name(self.name, name),
                    };
                    Some(Node::new(kind, part.span))
                }
            }
        })
    }
}

/// The name of a variable of a provider's text.
fn hidden_name(provider: &str, name: &str) -> String {
    format!("%{provider}_{name}")
}

/// Whether a statement is `this->executed = 1`.
fn says_executed(statement: &Statement) -> bool {
    let Statement::Expression(node) = statement else {
        return false;
    };
    let NodeKind::Assign { left, .. } = &node.kind else {
        return false;
    };
    matches!(&left.kind, NodeKind::Local { scope: LocalScope::Clause, name } if name == "executed")
}

/// What a clause assigns; `None`: it does something else.
fn assigned(clause: &Clause) -> Result<Option<Assigned>, Diagnostic> {
    let mut all = Assigned::default();
    for statement in &clause.body {
        let Statement::Expression(node) = statement else {
            return Ok(None);
        };
        let NodeKind::Assign {
            operator: None,
            left,
            right,
        } = &node.kind
        else {
            return Ok(None);
        };
        match &left.kind {
            NodeKind::Local {
                scope: LocalScope::Clause,
                name,
            } if name == "at" => {
                let more = string(right)?;
                all.at = Some(all.at.take().map_or(more.clone(), |before| format!("{before}, {more}")));
            }
            NodeKind::Local {
                scope: LocalScope::Clause,
                name,
            } if name == "executed" => all.only_executed = true,
            NodeKind::Local {
                scope: LocalScope::Clause,
                name,
            } => all.definitions.push((name.clone(), right.as_ref().clone())),
            NodeKind::Identifier(name) if name == "probename" => all.end = string(right)?,
            _ => match argument(left) {
                Some(argument) => all.arguments.push((argument, right.as_ref().clone())),
                None => return Ok(None),
            },
        }
    }
    Ok(Some(all))
}

/// `arg0`, `args[0]` or `args[0]->member`.
fn argument(node: &Node) -> Option<DerivedArgument> {
    match &node.kind {
        NodeKind::Identifier(name) => {
            let number = name.strip_prefix("arg")?.parse().ok()?;
            Some(DerivedArgument::Word(number))
        }
        NodeKind::Member { base, name, .. } => Some(DerivedArgument::Member(typed(base)?, name.clone())),
        _ => typed(node).map(DerivedArgument::Whole),
    }
}

/// The number of `args[number]`.
pub(crate) fn typed(node: &Node) -> Option<u8> {
    let NodeKind::Index { base, indices } = &node.kind else {
        return None;
    };
    match (&base.kind, indices.as_slice()) {
        (NodeKind::Identifier(name), [index]) if name == "args" => match &index.kind {
            NodeKind::Integer(literal) => u8::try_from(literal.value).ok(),
            _ => None,
        },
        _ => None,
    }
}

fn string(node: &Node) -> Result<String, Diagnostic> {
    match &node.kind {
        NodeKind::String(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        _ => Err(wrong(node.span)),
    }
}

fn wrong(span: Span) -> Diagnostic {
    Diagnostic::new(
        "D_SYNTAX",
        span,
        "a clause of a built-in text says nothing about a derived probe",
    )
}
