//! The session while it runs, and its end.

use std::time::{Duration, Instant};

use nanoprobe_lang::options::BufferPolicy;
use nanoprobe_target::{Exit, Process};

use super::Attached;
use crate::arena_memory::wait_for_change;
use crate::detach::Detached;
use crate::error::SessionError;
use crate::followed::Followed;
use crate::programs::{Programs, Requests};
use crate::session::ended::Ended;
use crate::session::output::Output;
use crate::session::presence::Presence;

/// How long a step waits at most.
const STEP: Duration = Duration::from_millis(2);
/// How long to wait for the end of a target that could not be detached from.
const LAST_WAIT: Duration = Duration::from_millis(200);

impl Attached {
    /// Yields the events since the last call; waits a little if there are none.
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
                    if self.exited.is_some() {
                        std::thread::sleep(wait);
                    } else if let Some(exit) = self.timers.wait(&process, wait, &mut self.tracing) {
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

    /// Yields the events since the last call, without waiting.
    ///
    /// # Errors
    /// As [`Attached::step`].
    pub fn poll(&mut self) -> Result<Vec<Output>, SessionError> {
        self.look()?;
        Ok(self.tracing.outputs.drain(..).collect())
    }

    /// Whether requests to execute programs are all that is worth waiting for here.
    pub fn only_awaits_requests(&self) -> bool {
        self.requests.is_some() && self.known().is_loaded() && !self.timers.has_samplers()
    }

    /// Waits until a thread of these sessions is about to execute a program, or has loaded a library, or for so long.
    /// Yields whether that had happened already.
    pub fn wait_for_requests<'s>(sessions: impl Iterator<Item = &'s Attached>, limit: Duration) -> bool {
        let words = |session: &'s Attached| {
            let presence = session.presence.as_ref().filter(|_| session.exited.is_none());
            let library = presence.and_then(Presence::library_word);
            session.requests.as_ref().map(Requests::word).into_iter().chain(library)
        };
        wait_for_change(sessions.flat_map(words), limit)
    }

    /// Answers the requests of threads that are about to execute programs.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn serve(&mut self, programs: &mut Programs) -> Result<(), SessionError> {
        self.requests
            .as_mut()
            .map_or(Ok(()), |requests| programs.serve(requests))
    }

    /// The process has executed another program, which has a session of its own. The old program's session goes on for
    /// its children.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn replaced(&mut self) -> Result<(), SessionError> {
        if let Some(presence) = &mut self.presence {
            presence.attachment.leave_behind();
        }
        self.is_replaced = true;
        self.timers.end_sampling(&mut self.tracing)?;
        self.note_exit(Exit::Unknown)
    }

    /// Counts the periods of ticks from now on: the probes of the other processes of the run are in place.
    pub fn count_from_now(&mut self) {
        self.timers.count_from_now();
    }

    /// Whether there is nothing more to wait for.
    pub fn is_finished(&self) -> bool {
        self.tracing.exit_status().is_some() || self.has_ended() || self.filled
    }

    /// Whether the target has ended, and all children that are followed.
    pub fn has_ended(&self) -> bool {
        self.exited.is_some() && self.followed.as_ref().is_none_or(Followed::have_ended)
    }

    /// Frees what ended children have left, and finds out after the target's end whether children live.
    fn look_at_children(&mut self) -> Result<(), SessionError> {
        self.turn_off_in_children();
        let (Some(followed), Some(presence)) = (&mut self.followed, &self.presence) else {
            return Ok(());
        };
        let tracing = &mut self.tracing;
        let mut take = |contexts: &[usize]| tracing.take_from_contexts(contexts);
        let came = followed.look(&presence.attachment, self.exited.is_some(), &mut take)?;
        let ends = followed.ends();
        if followed.has_new_libraries(&presence.attachment)? {
            self.tracing.warn(
                "a forked child has changed its list of libraries: libraries that a child loads have no probes there",
            );
        }
        self.tracing
            .outputs
            .extend(came.into_iter().map(|pid| Output::Child { pid }));
        let ends = ends.into_iter().map(|(pid, exit)| Output::ChildExited { pid, exit });
        self.tracing.outputs.extend(ends);
        Ok(())
    }

    /// Notes whether the target has ended. If all sessions of a round are asked before one of them looks for children,
    /// one search is enough for all.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn look_for_end(&mut self) -> Result<(), SessionError> {
        if self.exited.is_none()
            && let Some(exit) = self.known().process().and_then(Process::try_wait)
        {
            self.note_exit(exit)?;
            if let Some(followed) = &mut self.followed {
                followed.note_end();
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), SessionError> {
        self.look_for_end()?;
        self.look_for_exec();
        self.look_at_target()?;
        self.look_at_children()?;
        let tracing = &mut self.tracing;
        match tracing.known.compiled.options.recording.buffer_policy {
            BufferPolicy::Switch => tracing.take_records()?,
            // With this policy, records are read at the end, which comes when the first record has found no room.
            BufferPolicy::Fill => self.filled |= tracing.losses()?.drops > 0,
            BufferPolicy::Ring => {}
        }
        let is_alive = self.exited.is_none();
        let has_children = self.followed.as_ref().is_some_and(|followed| !followed.have_ended());
        if let Some(presence) = &mut self.presence
            && is_alive
            && tracing.known.loaded
        {
            let of_children = self.followed.as_ref().map_or(0, Followed::contexts);
            let mut take = |contexts: &[usize]| tracing.take_from_contexts(contexts);
            presence.attachment.reuse_threads(of_children, &mut take)?;
        }
        tracing.turn_aggregations(is_alive || has_children)?;
        tracing.look_for_code()?;
        self.timers.fire(tracing)?;
        tracing.look_for_exit()?;
        if let Some(presence) = &mut self.presence
            && is_alive
        {
            presence.refresh_ranges();
        }
        Ok(())
    }

    /// Serves the target's requests, and looks at its changes.
    fn look_at_target(&mut self) -> Result<(), SessionError> {
        let Some(presence) = &mut self.presence else {
            return Ok(());
        };
        presence.attachment.check_present()?;
        presence.attachment.beat()?;
        presence.tell_unseen_handlers(&mut self.tracing)?;
        if self.exited.is_some() {
            return Ok(());
        }
        if presence.leave_before_dispatch(&mut self.tracing)? {
            return Ok(());
        }
        presence.take_libraries(&mut self.tracing)?;
        presence.look_at_made_code(&mut self.tracing, false)?;
        presence.look_beside(&mut self.tracing);
        presence.collect(&self.tracing)?;
        presence.look_for_aborted(&mut self.tracing)
    }

    fn note_exit(&mut self, exit: Exit) -> Result<(), SessionError> {
        self.exited = Some(exit);
        self.tracing.take_records()?;
        self.tracing.look_for_code()
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

    /// Takes the patches out. [`Ended::remaining`] yields the records up to then. A command that was started for the
    /// session keeps running, and is killed when the session is dropped.
    ///
    /// # Errors
    /// The target could not be restored: the message says what is left, and `nanoprobe restore` may try again.
    pub fn end(mut self) -> Result<(Ended, Detached), SessionError> {
        if let Some(requests) = &self.requests {
            requests.end();
        }
        // An error in the last samples, for example from a damaged arena, must not keep probes in the text.
        let sampled = self.timers.end(&mut self.tracing);
        self.look_for_exec();
        // A damaged arena must not keep probes in the text.
        let told = match &mut self.presence {
            Some(presence) => presence.tell_unseen_handlers(&mut self.tracing),
            None => Ok(()),
        };
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
        // Now a process that is forked from the target has its own text.
        if let (Some(followed), Some(presence)) = (&mut self.followed, &self.presence)
            && !followed.have_ended()
        {
            let process = (&presence.attachment.process, self.exited.is_none());
            let warnings = followed.restore(process, presence.attachment.addresses.arena);
            warnings.into_iter().for_each(|text| self.tracing.warn(text));
        }
        let detached = detached?;
        sampled?;
        told?;
        if self.is_replaced {
            self.exited = self.tracing.known.process().and_then(Process::try_wait);
        }
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
