//! The session while it runs, and its end.

use std::mem::offset_of;
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::Control;
use nanoprobe_arena::{Mapping, Memory as _};
use nanoprobe_lang::options::BufferPolicy;
use nanoprobe_target::{Exit, Process};

use super::{Output, STATUS_PERIOD, STEP, Session};
use crate::acquire::Starting;
use crate::arena_memory::ArenaMemory;
use crate::detach::Detached;
use crate::error::SessionError;
use crate::probes::Place;
use crate::{consume, detach, threads};

/// How long the end of a target is waited for that could not be detached from.
const LAST_WAIT: Duration = Duration::from_millis(200);

impl Session {
    /// Takes what has happened since the last call; waits a little when nothing has.
    ///
    /// # Errors
    /// The session cannot go on; [`Session::end`] is still to be called.
    pub fn step(&mut self) -> Result<Vec<Output>, SessionError> {
        self.look()?;
        if self.outputs.is_empty() && !self.is_finished() {
            let now = Instant::now();
            let timer = self.next_timer().map(|next| next.saturating_duration_since(now));
            let wait = timer.unwrap_or(STEP).min(STEP);
            match self.process.clone() {
                Some(process) if self.loaded => {
                    if let Some(exit) = process.wait_exit(Some(wait)) {
                        self.note_exit(exit)?;
                    }
                }
                Some(_) => std::thread::sleep(Duration::from_micros(50)),
                None => std::thread::sleep(wait),
            }
            self.look()?;
        }
        Ok(self.outputs.drain(..).collect())
    }

    /// Whether there is nothing more to wait for.
    pub fn is_finished(&self) -> bool {
        self.exit_status.is_some() || self.exited.is_some() || self.filled
    }

    pub(super) fn look(&mut self) -> Result<(), SessionError> {
        if self.exited.is_none()
            && let Some(exit) = self.process.as_ref().and_then(Process::try_wait)
        {
            self.note_exit(exit)?;
        }
        self.look_for_exec();
        if let Some(attachment) = self.attachment.as_mut() {
            attachment.check_present()?;
            attachment.beat()?;
            self.take_libraries()?;
        }
        self.look_beside()?;
        self.collect()?;
        self.look_for_aborted()?;
        match self.options.buffer_policy {
            BufferPolicy::Switch => self.take_records()?,
            // Read at the end, which comes when the first record has found no room.
            BufferPolicy::Fill => self.filled |= self.losses()?.drops > 0,
            BufferPolicy::Ring => {}
        }
        if let Some(attachment) = self
            .attachment
            .as_mut()
            .filter(|_| self.exited.is_none() && self.loaded)
        {
            threads::reuse(attachment)?;
        }
        self.turn_aggregations()?;
        self.fire_timers()?;
        if let Some(memory) = self.memory()
            && self.exit_status.is_none()
            && consume::exit_requested(memory)?
        {
            let status = memory.load_u32(offset_of!(Control, exit_status) as u64)?;
            self.exit_status = Some(status as i32);
        }
        let now = Instant::now();
        if now >= self.next_status && self.exited.is_none() {
            self.next_status = now + STATUS_PERIOD;
            if let Some(attachment) = self
                .attachment
                .as_mut()
                .filter(|attachment| attachment.parameters.reads_memory)
            {
                // A target that has just ended has no map; it is noticed at the next look.
                let _ = self.ranges.publish(attachment);
            }
        }
        Ok(())
    }

    pub(super) fn note_exit(&mut self, exit: Exit) -> Result<(), SessionError> {
        self.exited = Some(exit);
        self.take_records()
    }

    /// Takes the patches out. What was recorded until then comes from [`Session::remaining`]. A command that was started for
    /// the session runs on until that has been told: it is killed when the session goes (see [`Session::open`]).
    ///
    /// # Errors
    /// The target could not be restored: the message says what is left, and `nanoprobe restore` may try again.
    pub fn end(&mut self) -> Result<Detached, SessionError> {
        self.starting = Starting::default();
        self.end_timers()?;
        self.look_for_exec();
        let mut detached = if self.exited.is_none() {
            self.detach()
        } else {
            Ok(Detached::default())
        };
        // It may have ended under our hands, which is no failure.
        if detached.is_err() && self.has_executed() {
            self.look_for_exec();
            detached = Ok(Detached::default());
        } else if detached.is_err()
            && let Some(exit) = self
                .process
                .as_ref()
                .and_then(|process| process.wait_exit(Some(LAST_WAIT)))
        {
            self.note_exit(exit)?;
            detached = Ok(Detached::default());
        }
        self.rounds_left = Some(self.consumer.rounds_of_full_rings(&self.layout));
        detached
    }

    /// After [`Session::end`]: what is still to be told, part by part, so that the tracer's memory holds one part; `None` when
    /// that was all. The last part is what END has recorded.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn remaining(&mut self) -> Result<Option<Vec<Output>>, SessionError> {
        let Some(rounds) = self.rounds_left else {
            return Ok(None);
        };
        // A process that records on, though its probes are gone, is not listened to for ever.
        self.rounds_left = rounds.checked_sub(1);
        let any = self.rounds_left.is_some() && self.take_records_until(u64::MAX)?;
        if !any {
            self.rounds_left = None;
            if let Some(exit) = self.exited {
                self.outputs.push_back(Output::Exited(exit));
            }
            if self.memory().is_some() {
                self.fire_all(|place| *place == Place::End, [0; 10])?;
            }
        }
        Ok(Some(self.outputs.drain(..).collect()))
    }

    pub(super) fn detach(&mut self) -> Result<Detached, SessionError> {
        match self.attachment.as_mut() {
            Some(attachment) if !attachment.regions.is_empty() => {
                // Who has just loaded a library is not kept waiting for probes that do not come. An error: there is no arena
                // yet, or no more, and nobody waits.
                if let Ok(memory) = attachment.memory() {
                    let _ = nanoprobe_arena::ControlBlock::open(memory).and_then(|control| control.beat(0));
                }
                let detached = detach::detach(attachment)?;
                self.abandoned_calls += detached.abandoned_calls;
                Ok(detached)
            }
            _ => Ok(Detached::default()),
        }
    }

    pub(super) fn memory(&self) -> Option<&Mapping> {
        let shared = self.attachment.as_ref().and_then(|attachment| attachment.memory().ok());
        shared
            .or(self.private.as_ref().map(ArenaMemory::memory))
            .filter(|_| self.clock.is_some())
    }

    /// Ends a session that has not begun; a command that was started for it is ended too.
    pub fn abandon(&mut self) {
        self.kill_command();
        self.starting = Starting::default();
    }

    /// Nobody else has its number while it is not collected, and a process that has ended takes no harm.
    fn kill_command(&self) {
        if let Some(process) = self.process.as_ref().filter(|process| process.is_child()) {
            process.kill();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.kill_command();
    }
}
