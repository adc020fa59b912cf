//! Modules that come and go while the program runs: the dynamic linker's hook reports them, and the program waits.

use std::mem::offset_of;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_arena::ControlBlock;
use nanoprobe_arena::layout::Control;
use nanoprobe_patch::{Fire, TargetAddress};
use nanoprobe_target::{MemoryError, Pauses};

use super::Presence;
use crate::arena_memory::ArenaMemory;
use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::placement::Hook;
use crate::session::known::Known;
use crate::session::output::Output;
use crate::session::tracing::Tracing;

/// The most patches that are written while a process with one thread is stopped: about a millisecond's work.
const ALONE_MAX: usize = 256;

impl Presence {
    /// The enablings that fire at the linker's hook.
    pub(super) fn hooks(&self, known: &Known) -> Vec<Hook> {
        let Some((module, address)) = known.linker_hook() else {
            return Vec::new();
        };
        let fire = Fire::Call {
            handler: self.attachment.agent(AgentFunction::LibraryEventHandler),
            enabling: TargetAddress(0),
        };
        vec![Hook { module, address, fire }]
    }

    /// A live target may have announced a change of its libraries, and then waits for our answer.
    pub(in crate::session) fn take_libraries(&mut self, tracing: &mut Tracing) -> Result<(), SessionError> {
        let control = ControlBlock::open(tracing.memory())?;
        let (event, answered) = control.library_events()?;
        if event == answered || self.attachment.regions.is_empty() {
            return Ok(());
        }
        let heartbeat = self.heartbeat();
        let updated = self.update_libraries(tracing);
        let updated = updated.and_then(|()| self.look_at_made_code(tracing, true));
        let result = updated.and_then(|()| self.serve_returns(tracing));
        drop(heartbeat);
        if let (Err(SessionError::AtDescription { .. }), Some(command)) = (&result, tracing.known.command())
            && !command.has_executed()
        {
            // The command was started to be traced, and cannot be: it waits for an answer that will not come.
            command.kill();
        }
        ControlBlock::open(tracing.memory())?.acknowledge_library(event)?;
        if let Some(arena) = &self.attachment.arena {
            arena.wake(offset_of!(Control, library_ack) as u64);
        }
        match result {
            Err(SessionError::Memory(_) | SessionError::Stop(_) | SessionError::Remote(_))
                if tracing.known.target_is_gone() =>
            {
                Ok(())
            }
            // The next look sees it, too, and says so.
            Err(_) if tracing.known.has_executed() => Ok(()),
            other => other,
        }
    }

    /// The word that changes when the program's list of libraries does, and its value at the last answer. Who changes
    /// it wakes the tracer.
    pub(in crate::session) fn library_word(&self) -> Option<(&ArenaMemory, u64, u32)> {
        let arena = self.attachment.arena.as_deref();
        let arena = arena.filter(|_| !self.attachment.regions.is_empty())?;
        let (_, answered) = ControlBlock::open(arena.memory()).ok()?.library_events().ok()?;
        Some((arena, offset_of!(Control, library_event) as u64, answered))
    }

    /// Matches and places probes in the modules that have come.
    pub(super) fn update_libraries(&mut self, tracing: &mut Tracing) -> Result<(), SessionError> {
        let changes = tracing.known.update_modules()?;
        // The patches in these ranges are gone too; other mappings may take the place of the ranges.
        for range in &changes.gone {
            self.placed.fired.retain(|start, _| !range.contains(start));
            self.return_hooks.retain(|address| !range.contains(address));
            self.attachment.forget(range);
        }
        for warning in changes.warnings {
            tracing.warn(warning);
        }
        let module = changes.first_new;
        let known = &mut tracing.known;
        let first = known.enablings.list().len();
        let came = known.modules.list().len() > module;
        let first_time = !known.loaded && came;
        if came {
            known.match_target(module)?;
        }
        let handlers = self.take_handlers(tracing)?;
        let known = &mut tracing.known;
        if self.listing {
            known.loaded |= came;
            return Ok(());
        }
        let shims = self.attachment.shimmed.is_some();
        if known.enablings.list().len() > first
            || !known.matches.later.is_empty()
            || came && (known.enablings.needs().walks_stacks || shims)
        {
            let mut pauses = Pauses::default();
            if !known.unresolved(first).is_empty() {
                let stopped = self.attachment.process.clone().stop_one()?;
                self.resolve_ifuncs(tracing, stopped, first, &mut pauses)?;
                tracing.known.match_choices()?;
            }
            self.attachment.look_for_holes()?;
            let armed = self.place(tracing, first, module, &[], None)?;
            pauses.add(&armed.pauses);
            tracing.outputs.push_back(Output::Library {
                sites: armed.patches,
                pauses,
            });
        }
        self.answer_handlers(tracing, handlers)?;
        if first_time {
            tracing.known.loaded = true;
            tracing.known.check_matches()?;
        }
        Ok(())
    }

    /// Leaves a process that has executed another program. Our patches went with the old address space, and there
    /// is nothing to take back. Records are kept, and the process is followed to its end. Yields whether a live
    /// process was just found to have done so.
    pub(in crate::session) fn leave_after_exec(&mut self, tracing: &mut Tracing) -> bool {
        let Some(process) = tracing.known.process() else {
            return false;
        };
        let arena = self.attachment.addresses.arena;
        let is_gone = || matches!(process.memory().read_u64(arena), Err(MemoryError::Gone { .. }));
        // A process that has ended has no map either.
        if self.attachment.regions.is_empty() || !is_gone() || process.map().is_err() {
            return false;
        }
        self.attachment.leave_behind();
        // The new program has a session of its own, or a message has told why not.
        if self.attachment.parameters.follows_programs {
            return true;
        }
        let program = std::fs::read_link(format!("/proc/{}/exe", process.living_thread())).unwrap_or_default();
        let warning = format!(
            "process {} executed {}: its probes are gone",
            process.pid(),
            program.display()
        );
        tracing.warn(warning);
        true
    }
}

impl Attachment {
    /// Whether the process has one thread, which waits for our answer about its libraries, and the patches are few.
    pub(super) fn waits_alone_for(&self, patches: usize) -> bool {
        if !(1..=ALONE_MAX).contains(&patches) {
            return false;
        }
        let events = || ControlBlock::open(self.memory().ok()?).ok()?.library_events().ok();
        let waits = events().is_some_and(|(event, answered)| event != answered);
        waits && self.process.threads().is_ok_and(|threads| threads.len() == 1)
    }
}
