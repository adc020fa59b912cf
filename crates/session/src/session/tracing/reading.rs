//! The data that a session has collected so far.

use std::time::{Duration, Instant};

use nanoprobe_arena::Mapping;
use nanoprobe_export::{Epoch, Snapshot};

use super::Tracing;
use crate::aggregations::{Aggregations, Source};
use crate::drain::Losses;
use crate::error::SessionError;

impl Tracing {
    /// The aggregations since the last call.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn take_aggregations(&mut self) -> Result<Snapshot, SessionError> {
        self.read_aggregations(|aggregations, memory, source| aggregations.read(memory, source, &[]))?;
        self.take_own_aggregations();
        Ok(self.aggregations.take())
    }

    /// Makes cleared minima and maxima begin anew in the target.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn begin_epochs(&mut self, epochs: &[Epoch]) -> Result<(), SessionError> {
        self.read_aggregations(|aggregations, memory, source| aggregations.read(memory, source, epochs))
    }

    /// Takes over the tables that threads have left, and asks threads to leave those that are due.
    pub(in crate::session) fn turn_aggregations(&mut self, is_alive: bool) -> Result<(), SessionError> {
        let now = Instant::now();
        let period = Duration::from_nanos(self.known.compiled.options.recording.aggregation_ns);
        if self.aggregations.is_due(now, period) {
            self.take_own_aggregations();
        }
        if !is_alive {
            return Ok(());
        }
        self.read_aggregations(|aggregations, memory, source| aggregations.turn(memory, source, now))
    }

    /// Reads what is counted under the process of contexts that are about to pass to other processes.
    pub(in crate::session) fn take_from_contexts(&mut self, contexts: &[usize]) -> Result<(), SessionError> {
        if !self.known.program().follows || contexts.is_empty() {
            return Ok(());
        }
        self.read_aggregations(|aggregations, memory, source| aggregations.take_from(memory, source, contexts))
    }

    /// Takes the aggregations of the tracer's own clauses; their buffer is empty afterwards.
    fn take_own_aggregations(&mut self) {
        let own = std::mem::take(&mut self.tracer.aggregates);
        self.tracer.aggregated_bytes = 0;
        self.aggregations.add(self.known.program(), own);
    }

    fn read_aggregations(
        &mut self,
        read: impl FnOnce(&mut Aggregations, &Mapping, &Source<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let Some((memory, shared)) = self.arena.shared() else {
            return Ok(());
        };
        let known = &self.known;
        let source = Source {
            arena: shared.address,
            layout: &known.compiled.layout,
            program: known.program(),
            limits: known.compiled.limits,
            probes: &known.probes,
            enablings: &known.enablings,
            pid: known.codegen.constants.pid,
        };
        read(&mut self.aggregations, memory, &source)
    }

    /// The losses so far.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn losses(&self) -> Result<Losses, SessionError> {
        let mut losses = match self.arena.shared() {
            Some((memory, _)) => self.consumer.losses(memory, &self.known.compiled.layout)?,
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
        losses.lost_samples = self.lost.samples;
        losses.lost_switches = self.lost.switches;
        losses.missed_ticks = self.lost.ticks;
        losses.missed_returns += self.lost.calls;
        Ok(losses)
    }
}
