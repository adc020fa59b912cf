//! Which of a built-in text's own clauses a program needs: those that keep what its derived probes read, directly or
//! through other such clauses. So whoever does not ask how often a lock span has no probe where it spins.

use std::cell::RefCell;
use std::collections::HashSet;

use super::rewrite::replaced;
use super::text::{Place, Provider};
use crate::syntax::{Clause, DerivedArgument, Item, LocalScope, Node, NodeKind, Statement};

/// Names: of variables of a built-in text, which no program can write, or all that a program writes.
pub(super) type Names = HashSet<String>;

/// All names that a program's expressions have.
pub(super) fn written_in(items: &[Item]) -> Names {
    let mut names = Names::new();
    for item in items {
        match item {
            Item::Clause(clause) => names.extend(read_by(clause)),
            Item::Inline(inline) => names.extend(names_in(&inline.value)),
            Item::Translator(translator) => {
                let values = translator.members.iter().map(|(_, value, _)| value);
                names.extend(values.flat_map(names_in));
            }
            Item::Declaration(_) | Item::PassedOver | Item::Provider(_) => {}
        }
    }
    names
}

/// What a derived probe reads at its places, with those of its arguments that the program has `written`.
pub(super) fn read_at(place: &Place, written: &Names) -> Names {
    let is_used = |argument: &DerivedArgument| match argument {
        DerivedArgument::Word(number) => written.contains(&format!("arg{number}")),
        DerivedArgument::Whole(_) | DerivedArgument::Member(..) => true,
    };
    let arguments = place.arguments.iter().filter(|(argument, _)| is_used(argument));
    let values = arguments.map(|(_, value)| value).chain(&place.predicate);
    values.flat_map(names_in).collect()
}

/// The clauses of a provider that keep `wanted`, and what these need in turn: those before the program's clauses, and
/// those after them.
pub(super) fn needed(provider: &Provider, mut wanted: Names) -> (Vec<Clause>, Vec<Clause>) {
    let all = || provider.before.iter().chain(&provider.after);
    let is_needed = |clause: &Clause, wanted: &Names| !assigned_by(clause).is_disjoint(wanted);
    loop {
        let known = wanted.len();
        let more: Vec<Names> = all().filter(|clause| is_needed(clause, &wanted)).map(read_by).collect();
        wanted.extend(more.into_iter().flatten());
        if wanted.len() == known {
            break;
        }
    }
    let of = |clauses: &[Clause]| {
        let found = clauses.iter().filter(|clause| is_needed(clause, &wanted));
        found.cloned().collect()
    };
    (of(&provider.before), of(&provider.after))
}

/// The variables that a clause sets.
fn assigned_by(clause: &Clause) -> Names {
    let expressions = clause.body.iter().filter_map(|statement| match statement {
        Statement::Expression(node) => Some(node),
        Statement::If { .. } => None,
    });
    let set = expressions.filter_map(|node| match &node.kind {
        NodeKind::Assign { left, .. } => Some(left),
        NodeKind::Increment { operand, .. } => Some(operand),
        _ => None,
    });
    set.filter_map(|node| variable(node).map(str::to_owned)).collect()
}

/// What a clause reads. What it only sets does not count.
fn read_by(clause: &Clause) -> Names {
    let mut names: Names = clause.predicate.iter().flat_map(names_in).collect();
    read_in(&clause.body, &mut names);
    names
}

/// Statements of D nest no deeper than the parser allows.
fn read_in(statements: &[Statement], names: &mut Names) {
    for statement in statements {
        match statement {
            Statement::Expression(node) => match &node.kind {
                NodeKind::Assign {
                    operator: None,
                    left,
                    right,
                } => {
                    names.extend(names_in(right));
                    if let NodeKind::Index { indices, .. } = &left.kind {
                        names.extend(indices.iter().flat_map(names_in));
                    } else if variable(left).is_none() {
                        names.extend(names_in(left));
                    }
                }
                _ => names.extend(names_in(node)),
            },
            Statement::If {
                condition,
                then,
                otherwise,
            } => {
                names.extend(names_in(condition));
                read_in(then, names);
                read_in(otherwise, names);
            }
        }
    }
}

/// The variable that an expression is, or is an element of.
fn variable(node: &Node) -> Option<&str> {
    match &node.kind {
        NodeKind::Index { base, .. } => variable(base),
        NodeKind::Identifier(name) => Some(name),
        NodeKind::Local {
            scope: LocalScope::Thread,
            name,
        } => Some(name),
        _ => None,
    }
}

fn names_in(node: &Node) -> Names {
    let names = RefCell::new(Names::new());
    replaced(node, &|part: &Node| {
        if let NodeKind::Identifier(name) | NodeKind::Local { name, .. } = &part.kind {
            names.borrow_mut().insert(name.clone());
        }
        None
    });
    names.into_inner()
}
