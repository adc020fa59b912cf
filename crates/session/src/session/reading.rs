//! What a session has collected so far.

use std::time::{Duration, Instant};

use nanoprobe_arena::Mapping;
use nanoprobe_export::{Epoch, Snapshot};

use super::Session;
use crate::aggregations::{Aggregations, Source};
use crate::consume::Losses;
use crate::error::SessionError;

impl Session {
    /// What was aggregated since this was last asked.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn take_aggregations(&mut self) -> Result<Snapshot, SessionError> {
        self.read_aggregations(|aggregations, memory, source| aggregations.read(memory, source, &[]))?;
        self.take_own_aggregations();
        Ok(self.aggregations.take())
    }

    /// Minima and maxima that were cleared begin anew in the target.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn begin_epochs(&mut self, epochs: &[Epoch]) -> Result<(), SessionError> {
        self.read_aggregations(|aggregations, memory, source| aggregations.read(memory, source, epochs))
    }

    /// Takes over what threads have left, and lets them leave what is due.
    pub(super) fn turn_aggregations(&mut self) -> Result<(), SessionError> {
        let now = Instant::now();
        let period = Duration::from_nanos(self.options.aggregation_ns);
        if self.aggregations.is_due(now, period) {
            self.take_own_aggregations();
        }
        if self.exited.is_some() {
            return Ok(());
        }
        self.read_aggregations(|aggregations, memory, source| aggregations.turn(memory, source, now))
    }

    /// What the tracer's clauses have aggregated has a buffer of its own, which is empty now.
    fn take_own_aggregations(&mut self) {
        let own = std::mem::take(&mut self.tracer.aggregates);
        self.tracer.aggregated_bytes = 0;
        self.aggregations.add(&self.program, own);
    }

    fn read_aggregations(
        &mut self,
        read: impl FnOnce(&mut Aggregations, &Mapping, &Source<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let Some(attachment) = self.attachment.as_ref() else {
            return Ok(());
        };
        let Ok(memory) = attachment.memory() else {
            return Ok(());
        };
        let source = Source {
            arena: attachment.addresses.arena,
            layout: &self.layout,
            program: &self.program,
            limits: self.limits,
            probes: &self.probes,
            enablings: &self.enablings,
            pid: self.codegen.constants.pid,
        };
        read(&mut self.aggregations, memory, &source)
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
        losses.damaged += self.aggregations.damaged();
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
