//! `-x maxcost`: the cost of the probes in all processes of a run together.

use nanoprobe_session::Attached;

use super::run::Trace;
use crate::cost::limit::look_at_all;

impl Trace<'_> {
    /// Turns off probes that cost too much, if a limit is set and a check is due.
    pub(super) fn watch_cost(&mut self, attached: &mut Attached) -> Result<(), anyhow::Error> {
        if !self.aggregated.is_cost_due() {
            return Ok(());
        }
        self.aggregated.load(attached.tracing_mut())?;
        for member in self.members.iter_mut().flat_map(|members| &mut members.list) {
            member.load_into(&mut self.aggregated)?;
        }
        let mut all: Vec<_> = self
            .aggregated
            .limit()
            .map(|limit| (limit, attached))
            .into_iter()
            .collect();
        for member in self.members.iter_mut().flat_map(|members| &mut members.list) {
            if let Some(limit) = &mut member.limit {
                all.push((limit, &mut member.session));
            }
        }
        look_at_all(&mut all);
        Ok(())
    }
}
