//! What the text needs while the program runs: others' breakpoints among our patches, and traps in restartable sequences
//! that no section describes.

use std::mem::offset_of;

use nanoprobe_arena::Memory as _;
use nanoprobe_arena::layout::Control;
use nanoprobe_patch::{Tactic, TargetAddress};

use super::{Output, Session};
use crate::beside::{Aborted, Extent};
use crate::error::SessionError;

/// So many breakpoints of others are told of.
const TOLD_MAX: usize = 8;

impl Session {
    /// Looks whether others' breakpoints stand among our patches: see [`crate::beside`].
    pub(super) fn look_beside(&mut self) -> Result<(), SessionError> {
        let Some(attachment) = self.attachment.as_mut().filter(|_| self.exited.is_none()) else {
            return Ok(());
        };
        // What could not be changed is seen again by the next look; that the target has gone, others notice.
        let Ok(changed) = attachment.look_beside(false) else {
            return Ok(());
        };
        for address in changed.suspended.into_iter().take(TOLD_MAX) {
            let place = self.modules.symbolize(address, self.shown());
            self.outputs.push_back(Output::Warning(format!(
                "{place}: somebody else has put a breakpoint there (a kernel uprobe?); the probe was taken out of its way, and \
                 misses hits until the breakpoint has gone"
            )));
        }
        for address in changed.resumed.into_iter().take(TOLD_MAX) {
            let place = self.modules.symbolize(address, self.shown());
            let told = format!("{place}: the breakpoint has gone, the probe is back");
            self.outputs.push_back(Output::Warning(told));
        }
        Ok(())
    }

    /// Gives back the room of libraries that are gone.
    pub(super) fn collect(&mut self) -> Result<(), SessionError> {
        match self.attachment.as_mut().filter(|_| self.exited.is_none()) {
            // It is tried again; where there is no room in the end, that is told.
            Some(attachment) => attachment.collect().or_else(|error| match error {
                SessionError::Stop(_) | SessionError::Remote(_) => Ok(()),
                _ if self.target_is_gone() => Ok(()),
                other => Err(other),
            }),
            None => Ok(()),
        }
    }

    /// Takes out traps that abort restartable sequences: the program would try these again for ever.
    pub(super) fn look_for_aborted(&mut self) -> Result<(), SessionError> {
        let (count, at) = match self.memory() {
            Some(memory) if self.exited.is_none() => {
                let load = |field: usize| memory.load_u64(field as u64);
                let count = load(offset_of!(Control, aborted))?;
                (count, TargetAddress(load(offset_of!(Control, aborted_at))?))
            }
            _ => return Ok(()),
        };
        let Some(attachment) = self.attachment.as_ref() else {
            return Ok(());
        };
        let Aborted { seen, mut step } = attachment.beside.aborted;
        if count == seen {
            return Ok(());
        }
        let function = self.modules.function_start(at);
        let module = self.modules.find(at).and_then(|(index, _)| self.modules.range(index));
        let taken = loop {
            let module = module.clone().unwrap_or_default();
            let taken = self.attachment_mut()?.set_armed(false, &mut |patch| {
                let is_near = match step {
                    Extent::Function => patch.function == function,
                    Extent::Module => module.contains(&patch.built.address.0),
                    Extent::Everywhere => true,
                };
                patch.tactic == Tactic::Trap && is_near
            })?;
            let next = match step {
                Extent::Function => Extent::Module,
                Extent::Module => Extent::Everywhere,
                Extent::Everywhere => break taken.patches,
            };
            if taken.patches > 0 {
                break taken.patches;
            }
            step = next;
        };
        // Those that came while the traps were taken out are over with them.
        let memory = self.memory().ok_or(SessionError::NotAttached)?;
        let seen = memory.load_u64(offset_of!(Control, aborted) as u64)?;
        self.attachment_mut()?.beside.aborted = Aborted { seen, step };
        if taken > 0 {
            let place = self.modules.symbolize(at, self.shown());
            self.outputs.push_back(Output::Warning(format!(
                "a restartable sequence (rseq) that no section describes met a trap and went on at {place}: {taken} traps were \
                 taken out, their probes see nothing from now on"
            )));
        }
        Ok(())
    }
}
