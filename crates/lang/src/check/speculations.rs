//! Speculations: `speculate`, `commit`, `discard`, and which actions may be in the same clause.
//!
//! A clause writes one record, to one place. So `speculate()` must come before all
//! actions that record, and no clause may have both `commit()` and an action that
//! records. Manual: "Speculative Tracing".

use super::subroutines::check_count;
use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::constant;
use crate::program::{Clause, RecordKind, Statement};
use crate::source::Span;
use crate::syntax::Node;

impl Checker {
    pub(super) fn speculative(&mut self, name: &str, arguments: &[Node], span: Span) -> Checked<RecordKind> {
        check_count(name, arguments, 1..=1, span)?;
        let id = self.integer_argument(name, arguments, 0, constant::INT, span)?;
        Ok(match name {
            "speculate" => RecordKind::Speculate(id),
            "commit" => RecordKind::CommitSpeculation(id),
            _ => RecordKind::DiscardSpeculation(id),
        })
    }
}

/// Which kinds of statements the clause has had so far.
#[derive(Default)]
struct Seen {
    speculate: bool,
    commit: bool,
    records: bool,
}

/// Checks the order of a clause's statements.
pub(super) fn check_order(clause: &Clause) -> Checked<()> {
    let mut seen = Seen::default();
    for statement in &clause.statements {
        let refuse = |tag, span: Span, what: &str| Err(Diagnostic::new(tag, span, what.to_owned()));
        match statement {
            Statement::Expression(expression) => {
                if let (true, Some((_, span))) = (seen.speculate, expression.destructive()) {
                    return refuse("D_ACT_SPEC", span, "destructive actions may not follow speculate( )");
                }
            }
            Statement::Aggregate { span, .. } => {
                if seen.speculate {
                    return refuse("D_AGG_SPEC", *span, "aggregating actions may not follow speculate( )");
                }
                if seen.commit {
                    return refuse("D_AGG_COMM", *span, "aggregating actions may not follow commit( )");
                }
                seen.records = true;
            }
            Statement::Record(action) => {
                let span = action.span;
                match &action.kind {
                    RecordKind::CommitSpeculation(_) => {
                        if seen.records {
                            return refuse("D_COMM_DREC", span, "commit( ) may not follow data-recording action(s)");
                        }
                        seen.commit = true;
                    }
                    RecordKind::Speculate(_) => {
                        if seen.speculate {
                            return refuse("D_SPEC_SPEC", span, "speculate( ) may not follow speculate( )");
                        }
                        if seen.commit {
                            return refuse("D_SPEC_COMM", span, "speculate( ) may not follow commit( )");
                        }
                        if seen.records {
                            return refuse(
                                "D_SPEC_DREC",
                                span,
                                "speculate( ) may not follow data-recording action(s)",
                            );
                        }
                        seen.speculate = true;
                    }
                    RecordKind::DiscardSpeculation(_) => {}
                    RecordKind::Exit(_) if seen.speculate => {
                        return refuse("D_EXIT_SPEC", span, "exit( ) may not follow speculate( )");
                    }
                    kind if kind.destructive().is_some() => {
                        if seen.speculate {
                            return refuse("D_ACT_SPEC", span, "destructive actions may not follow speculate( )");
                        }
                    }
                    _ => {
                        if seen.commit {
                            return refuse("D_DREC_COMM", span, "data-recording actions may not follow commit( )");
                        }
                        seen.records |= !seen.speculate;
                    }
                }
            }
        }
    }
    Ok(())
}
