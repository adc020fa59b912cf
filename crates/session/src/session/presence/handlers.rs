//! The program's signal handlers, where clauses fire: those that are installed when we attach, and those that the
//! program installs later. For these it waits (`agent/handlers.c`).

use std::mem::offset_of;

use nanoprobe_arena::Memory as _;
use nanoprobe_arena::layout::{Control, HANDLERS};
use nanoprobe_target::Pauses;

use super::Presence;
use crate::arming::Armed;
use crate::error::SessionError;
use crate::session::tracing::Tracing;
use crate::signals::handlers;

/// The program's list of its handlers, as the tracer has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeenHandlers(u32);

impl Presence {
    /// From now on the agent notes the handlers that the program installs. Its shims come with the first patches.
    pub(super) fn begin_to_watch_handlers(&self, tracing: &mut Tracing) -> Result<(), SessionError> {
        if self.listing || !tracing.known.watches_handlers() {
            return Ok(());
        }
        if self.attachment.actions.host.is_some() {
            tracing.warn(
                "another nanoprobe traces this process: proc:::signal-handle and proc:::fault do not fire in handlers \
                 that are installed from now on, nor in those of SIGILL, SIGTRAP, SIGBUS, SIGFPE and SIGSEGV",
            );
        }
        let memory = self.attachment.memory()?;
        Ok(memory.store_u32(offset_of!(Control, watches_handlers) as u64, 1)?)
    }

    /// Places probes in the handlers that a running program has installed. The shims are in place, so none that it
    /// installs meanwhile is lost.
    pub(super) fn place_in_handlers(&mut self, tracing: &mut Tracing) -> Result<Armed, SessionError> {
        let (process, table) = (self.attachment.process.clone(), self.attachment.addresses.table);
        let mut pauses = Pauses::default();
        let mut stopped = process.stop()?;
        let noted = handlers::note_handlers(&self.attachment.actions, table, &mut stopped);
        pauses.add_whole(stopped.release());
        noted?;
        let first = tracing.known.enablings.list().len();
        let seen = self.take_handlers(tracing)?;
        let mut armed = Armed::default();
        if tracing.known.enablings.list().len() > first {
            armed = self.place(tracing, first, 0, &[], None)?;
        }
        self.answer_handlers(tracing, seen)?;
        armed.pauses.add(&pauses);
        Ok(armed)
    }

    /// Matches probes in the handlers that are on the program's list.
    pub(super) fn take_handlers(&mut self, tracing: &mut Tracing) -> Result<SeenHandlers, SessionError> {
        if !tracing.known.watches_handlers() {
            return Ok(SeenHandlers(0));
        }
        let (process, table) = (&self.attachment.process, self.attachment.addresses.table);
        let listed = handlers::listed_handlers(process, table)?;
        for handler in tracing.known.add_handlers(&listed)? {
            tracing.warn(format!(
                "a signal handler begins at {handler}, where no file has code: proc:::signal-handle and proc:::fault do \
                 not fire there"
            ));
        }
        Ok(SeenHandlers(listed.len() as u32))
    }

    /// Tells the program which handlers it need not wait for any more.
    pub(super) fn answer_handlers(
        &self,
        tracing: &Tracing,
        SeenHandlers(count): SeenHandlers,
    ) -> Result<(), SessionError> {
        if !tracing.known.watches_handlers() {
            return Ok(());
        }
        handlers::answer_handlers(&self.attachment.process, self.attachment.addresses.table, count)
    }

    /// Tells once that handlers were installed that have no probe.
    pub(in crate::session) fn tell_unseen_handlers(&mut self, tracing: &mut Tracing) -> Result<(), SessionError> {
        if self.told_of_handlers {
            return Ok(());
        }
        let unseen = self
            .attachment
            .memory()?
            .load_u32(offset_of!(Control, handlers_unseen) as u64)?;
        // The question is asked last: it goes through all probes.
        if unseen > 0 && tracing.known.watches_handlers() {
            self.told_of_handlers = true;
            tracing.warn(format!(
                "proc:::signal-handle and proc:::fault do not fire in all signal handlers: a forked child has installed \
                 one that its parent has not, or there are more than {HANDLERS}"
            ));
        }
        Ok(())
    }
}
