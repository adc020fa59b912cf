//! The first step into a process: our memory is mapped there. If another tracer does the same, or has just gone, we
//! wait and try again.

use std::time::{Duration, Instant};

use nanoprobe_target::{Pauses, Process, StopError, Stopped};

use super::Presence;
use crate::acquire::{Starting, clean_up};
use crate::attachment::Attachment;
use crate::clock::Clock;
use crate::error::SessionError;
use crate::session::known::Known;
use crate::thread_key::Seen;

/// For how long attaching waits for other tracers that come or go.
const PATIENCE_WITH_TRACERS: Duration = Duration::from_secs(2);

/// Maps our memory. The thread that did so, or all threads of a program that is being started, stay stopped. Where
/// another tracer is about to do the same, or has just gone, this begins again.
pub(in crate::session) fn enter(
    known: &Known,
    process: &Process,
    starting: &mut Starting,
    clock: &Clock,
    listing: bool,
    pauses: &mut Pauses,
) -> Result<(Presence, Stopped), SessionError> {
    let deadline = Instant::now() + PATIENCE_WITH_TRACERS;
    let seen = match starting.is_some() {
        true => None,
        false => Some(look_in_turn(process, deadline, pauses)?),
    };
    loop {
        let claim = process.claim()?;
        let parameters = known.parameters(process, seen)?;
        let layout = known.compiled.layout.clone();
        let attachment = Attachment::prepare(process.clone(), &process.map()?, layout, parameters)?;
        let mut presence = Presence::new(attachment, listing);
        let starting = starting.take();
        let is_running = starting.is_none();
        let stopped = match starting {
            Some(stopped) => Ok(stopped),
            None => process.stop_one(),
        };
        let entered = stopped.map_err(SessionError::from).and_then(|mut stopped| {
            presence.attachment.map(&mut stopped, clock)?;
            presence.attachment.check_others()?;
            Ok(stopped)
        });
        let error = match entered {
            Ok(stopped) => {
                presence.claim = Some(claim);
                return Ok((presence, stopped));
            }
            Err(error) => error,
        };
        // Only the first error is reported.
        let _ = presence.detach();
        if !is_running || !error.is_another_tracers() || Instant::now() > deadline {
            return Err(presence.not_begun(known, error));
        }
        // The arena's lock is released with `presence`: what could not be taken back now counts as left by a dead
        // tracer.
        drop(presence);
        drop(claim);
        give_way(process, deadline)?;
    }
}

impl Presence {
    /// Takes back mappings and patches when attaching failed. Where that fails, too, the error says what is left in the
    /// process. Nothing is left in a process that has ended.
    pub(in crate::session) fn not_begun(&mut self, known: &Known, error: SessionError) -> SessionError {
        let clean_up = self.detach().err();
        let error = known.or_ended(error);
        let gone = |error: &SessionError| {
            matches!(
                error,
                SessionError::Executed { .. } | SessionError::Stop(StopError::Gone { .. })
            )
        };
        let (Some(clean_up), Some(process)) = (clean_up, known.process()) else {
            return error;
        };
        if gone(&error) || gone(&clean_up) || known.target_is_gone() || process.has_executed() {
            return error;
        }
        SessionError::NotCleanedUp {
            pid: process.pid(),
            error: Box::new(error),
            clean_up: Box::new(clean_up),
            left: if self.attachment.actions.are_installed() {
                "still runs with nanoprobe's probes, which record nothing: the next attach, or `nanoprobe restore`, \
                 removes them"
            } else {
                "still runs with its original code, and nanoprobe's memory stays mapped, unused: the next attach, \
                 or `nanoprobe restore`, unmaps it"
            },
        }
    }
}

/// The same as [`look_at_threads`], where another tracer may hold a thread for a moment.
fn look_in_turn(process: &Process, deadline: Instant, pauses: &mut Pauses) -> Result<Seen, SessionError> {
    loop {
        match look_at_threads(process, pauses) {
            Err(error) if error.is_another_tracers() && Instant::now() < deadline => give_way(process, deadline)?,
            seen => return seen,
        }
    }
}

/// Stops all threads for as long as it takes to look at their thread pointers. A new thread of Go shares its creator's
/// thread pointer for a moment. So a shared thread pointer is looked at again.
fn look_at_threads(process: &Process, pauses: &mut Pauses) -> Result<Seen, SessionError> {
    const LOOKS: u32 = 5;
    let mut look = 0;
    loop {
        let stopped = process.stop()?;
        let seen = Seen::of(&stopped);
        release_one(stopped, pauses);
        let seen = seen?;
        look += 1;
        if !seen.shared || look == LOOKS {
            return Ok(seen);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Lets the one stopped thread go.
pub(super) fn release_one(stopped: Stopped, pauses: &mut Pauses) {
    let tid = stopped.best_thread().unwrap_or(0);
    pauses.add_single(tid, stopped.release());
}

/// Waits until another tracer that came at the same time has gone. Each waits for a time of its own, so that they
/// do not meet again.
fn give_way(process: &Process, deadline: Instant) -> Result<(), SessionError> {
    loop {
        let unlike_the_other = u64::from(std::process::id()).wrapping_mul(7) % 32;
        std::thread::sleep(Duration::from_millis(1 + 2 * unlike_the_other));
        match clean_up(process) {
            Err(SessionError::TracerLives { .. } | SessionError::Stop(StopError::Refused { .. }))
                if Instant::now() < deadline => {}
            other => return other,
        }
    }
}
