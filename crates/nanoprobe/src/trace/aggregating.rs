//! What a run has aggregated, up to date where it is needed.

use nanoprobe_lang::program::{Clause, RecordKind, Statement};
use nanoprobe_session::Session;

use super::Trace;
use crate::cost::hits;
use crate::output::Names;

impl Trace<'_> {
    /// Brings the aggregations up to date.
    pub(super) fn load(&mut self, session: &mut Session) -> Result<(), anyhow::Error> {
        let mut new = session.take_aggregations()?;
        let session = &*session;
        // Ours is never printed.
        if let (Some(limit), Some(id)) = (&mut self.limit, hits::aggregation(session.program())) {
            limit.add(session.program(), new.split_off(id));
        }
        let new = new.with_symbols(session.program(), &mut Names(session));
        self.aggregations.add(session.program(), new);
        Ok(())
    }
}

/// Whether a clause's records are printed by what was aggregated.
pub(super) fn needs_aggregations(clause: &Clause) -> bool {
    clause.statements.iter().any(|statement| match statement {
        Statement::Record(action) => matches!(
            action.kind,
            RecordKind::Printa { .. }
                | RecordKind::Clear(_)
                | RecordKind::Truncate { .. }
                | RecordKind::Normalize { .. }
                | RecordKind::Denormalize(_)
        ),
        _ => false,
    })
}
