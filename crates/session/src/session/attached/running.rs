//! The session while it runs, and its end.

use std::time::{Duration, Instant};

use nanoprobe_lang::options::BufferPolicy;
use nanoprobe_target::{Exit, Process};

use super::Attached;
use crate::detach::Detached;
use crate::error::SessionError;
use crate::session::ended::Ended;
use crate::session::output::Output;

/// How long a step waits at most.
const STEP: Duration = Duration::from_millis(2);
/// How long to wait for the end of a target that could not be detached from.
const LAST_WAIT: Duration = Duration::from_millis(200);

impl Attached {
    /// Yields what has happened since the last call; waits a little when nothing has.
    ///
    /// # Errors
    /// The session cannot go on; [`Attached::end`] must still be called.
    pub fn step(&mut self) -> Result<Vec<Output>, SessionError> {
        self.look()?;
        if self.tracing.outputs.is_empty() && !self.is_finished() {
            let now = Instant::now();
            let timer = self.timers.next().map(|next| next.saturating_duration_since(now));
            let wait = timer.unwrap_or(STEP).min(STEP);
            match self.known().process().cloned() {
                Some(process) if self.known().loaded => {
                    if let Some(exit) = process.wait_exit(Some(wait)) {
                        self.note_exit(exit)?;
                    }
                }
                Some(_) => std::thread::sleep(Duration::from_micros(50)),
                None => std::thread::sleep(wait),
            }
            self.look()?;
        }
        Ok(self.tracing.outputs.drain(..).collect())
    }

    /// Whether there is nothing more to wait for.
    pub fn is_finished(&self) -> bool {
        self.tracing.exit_status().is_some() || self.exited.is_some() || self.filled
    }

    fn look(&mut self) -> Result<(), SessionError> {
        if self.exited.is_none()
            && let Some(exit) = self.known().process().and_then(Process::try_wait)
        {
            self.note_exit(exit)?;
        }
        self.look_for_exec();
        self.look_at_target()?;
        let tracing = &mut self.tracing;
        match tracing.known.compiled.options.recording.buffer_policy {
            BufferPolicy::Switch => tracing.take_records()?,
            // Read at the end, which comes when the first record has found no room.
            BufferPolicy::Fill => self.filled |= tracing.losses()?.drops > 0,
            BufferPolicy::Ring => {}
        }
        let is_alive = self.exited.is_none();
        if let Some(presence) = &mut self.presence
            && is_alive
            && tracing.known.loaded
        {
            presence.attachment.reuse_threads()?;
        }
        tracing.turn_aggregations(is_alive)?;
        self.timers.fire(tracing)?;
        tracing.look_for_exit()?;
        if let Some(presence) = &mut self.presence
            && is_alive
        {
            presence.refresh_ranges();
        }
        Ok(())
    }

    /// Serves what the target asks for, and looks at what has changed there.
    fn look_at_target(&mut self) -> Result<(), SessionError> {
        let Some(presence) = &mut self.presence else {
            return Ok(());
        };
        presence.attachment.check_present()?;
        presence.attachment.beat()?;
        if self.exited.is_some() {
            return Ok(());
        }
        presence.take_libraries(&mut self.tracing)?;
        presence.look_beside(&mut self.tracing);
        presence.collect(&self.tracing)?;
        presence.look_for_aborted(&mut self.tracing)
    }

    fn note_exit(&mut self, exit: Exit) -> Result<(), SessionError> {
        self.exited = Some(exit);
        self.tracing.take_records()
    }

    /// After the process executes another program, samples go on with that program's code.
    fn look_for_exec(&mut self) {
        if let Some(presence) = &mut self.presence
            && self.exited.is_none()
            && presence.leave_after_exec(&mut self.tracing)
        {
            self.timers.sample_another_program(&mut self.tracing.known);
        }
    }

    /// Takes the patches out. [`Ended::remaining`] yields what was recorded until then. A command that was started
    /// for the session runs on until then, and is killed when the session is dropped.
    ///
    /// # Errors
    /// The target could not be restored: the message says what is left, and `nanoprobe restore` may try again.
    pub fn end(mut self) -> Result<(Ended, Detached), SessionError> {
        // An error in the last samples, for example from a damaged arena, must not keep probes in the text.
        let sampled = self.timers.end(&mut self.tracing);
        self.look_for_exec();
        let mut detached = match &mut self.presence {
            Some(presence) if self.exited.is_none() => presence.detach(),
            _ => Ok(Detached::default()),
        };
        // The process may have ended meanwhile, which is no failure.
        if detached.is_err() && self.known().has_executed() {
            self.look_for_exec();
            detached = Ok(Detached::default());
        } else if detached.is_err()
            && let Some(process) = self.known().process()
            && let Some(exit) = process.wait_exit(Some(LAST_WAIT))
        {
            self.note_exit(exit)?;
            detached = Ok(Detached::default());
        }
        let detached = detached?;
        sampled?;
        let mut tracing = self.tracing;
        tracing.lost.calls += detached.abandoned_calls;
        let rounds = tracing.consumer.rounds_of_full_rings(&tracing.known.compiled.layout);
        let ended = Ended {
            tracing,
            presence: self.presence,
            exited: self.exited,
            rounds_left: Some(rounds),
        };
        Ok((ended, detached))
    }
}
