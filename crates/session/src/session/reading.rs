//! What a session has collected so far.

use super::*;

impl Session {
    /// All aggregations, as they are now.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn snapshot(&self) -> Result<Snapshot, SessionError> {
        let base = self.tracer.aggregates.clone();
        let Some(memory) = self.attachment.as_ref().and_then(|attachment| attachment.memory().ok()) else {
            return Ok(base);
        };
        Ok(consume::snapshot(memory, &self.aggregation_source(), base)?.0)
    }

    /// Minima and maxima that were cleared begin anew, in the target as well as in the tracer.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn begin_epochs(&mut self, epochs: &[Epoch]) -> Result<(), SessionError> {
        epochs.iter().for_each(|epoch| self.tracer.aggregates.begin(epoch));
        let Some(memory) = self.attachment.as_ref().and_then(|attachment| attachment.memory().ok()) else {
            return Ok(());
        };
        consume::begin_epochs(memory, &self.aggregation_source(), epochs)
    }

    pub(super) fn aggregation_source(&self) -> consume::Source<'_> {
        consume::Source {
            layout: &self.layout,
            program: &self.program,
            limits: self.limits,
            probes: &self.probes,
            enablings: &self.enablings,
            pid: self.codegen.constants.pid,
        }
    }

    /// What was lost so far.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn losses(&self) -> Result<Losses, SessionError> {
        let attachment = self.attachment.as_ref().and_then(|attachment| attachment.memory().ok());
        let mut losses = match attachment {
            Some(memory) => self.consumer.losses(memory, &self.layout)?,
            None => Losses::default(),
        };
        if let Some(stopped) = self.handlers_stopped {
            losses.missed = stopped.missed;
        }
        losses.drops += self.tracer.drops;
        losses.aggregation_drops += self.tracer.aggregation_drops;
        losses.dynamic_drops += self.tracer.dynamic_drops;
        losses.speculation_drops += self.tracer.speculation_drops + self.speculations.drops();
        losses.failed_speculations += self.tracer.failed_speculations;
        losses.errors_in_error = self.tracer.errors_in_error;
        losses.lost_samples = self.lost_samples;
        losses.missed_ticks = self.missed_ticks;
        losses.missed_returns += self.abandoned_calls;
        Ok(losses)
    }
}
