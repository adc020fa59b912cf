//! Where each name is first assigned. This serves one hint: for a use before the first assignment,
//! it names the later assignment.

use crate::source::Span;
use crate::syntax::{BaseType, Item, LocalScope, Node, NodeKind, Statement};
use std::collections::{HashMap, HashSet};

/// The first assignment to each variable (`x`, `self->x`, `this->x`) and aggregation (`@a`).
#[derive(Debug, Default)]
pub(super) struct Later {
    first: HashMap<String, Span>,
    /// The types `struct tag` and `enum tag` that the text defines.
    defined: HashSet<String>,
}

impl Later {
    pub(super) fn of(items: &[Item]) -> Later {
        let mut later = Later::default();
        for item in items {
            match item {
                Item::Clause(clause) => later.statements(&clause.body),
                Item::Declaration(declaration) => later.definition(&declaration.base),
                Item::Inline(inline) => later.definition(&inline.base),
                Item::Translator(_) | Item::PassedOver | Item::Provider(_) => {}
            }
        }
        later
    }

    /// Whether the text defines `struct tag`, `union tag`, `enum tag`.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.defined.contains(name)
    }

    fn definition(&mut self, base: &BaseType) {
        match base {
            BaseType::Aggregate {
                keyword,
                tag,
                members: Some(members),
                ..
            } => {
                self.defined.insert(format!("{keyword} {tag}"));
                members.iter().for_each(|member| self.definition(&member.base));
            }
            BaseType::Enumeration { tag, enumerators, .. } if !enumerators.is_empty() => {
                self.defined.insert(format!("enum {tag}"));
            }
            _ => {}
        }
    }

    pub(super) fn first(&self, name: &str) -> Option<Span> {
        self.first.get(name).copied()
    }

    fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Expression(node) => self.expression(node),
                Statement::If { then, otherwise, .. } => {
                    self.statements(then);
                    self.statements(otherwise);
                }
            }
        }
    }

    /// Finds assignments that are statements, or operands of such statements. Other assignments are
    /// rare, and only cost a hint.
    fn expression(&mut self, node: &Node) {
        match &node.kind {
            NodeKind::Assign { left, right, .. } => {
                let base = match &left.kind {
                    NodeKind::Index { base, .. } => base,
                    _ => left,
                };
                if let Some(name) = name_of(base) {
                    self.first.entry(name).or_insert(base.span);
                }
                self.expression(right);
            }
            NodeKind::Comma { first, second } => {
                self.expression(first);
                self.expression(second);
            }
            _ => {}
        }
    }
}

/// The name of a variable or aggregation as written.
pub(super) fn name_of(node: &Node) -> Option<String> {
    match &node.kind {
        NodeKind::Identifier(name) | NodeKind::Aggregation(name) => Some(name.clone()),
        NodeKind::Local {
            scope: LocalScope::Thread,
            name,
        } => Some(format!("self->{name}")),
        NodeKind::Local {
            scope: LocalScope::Clause,
            name,
        } => Some(format!("this->{name}")),
        _ => None,
    }
}
