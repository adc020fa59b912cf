//! Work on the text while the program runs: it makes room for foreign breakpoints, and takes traps out of restartable
//! sequences that no section describes.

use std::mem::offset_of;

use nanoprobe_arena::Memory as _;
use nanoprobe_arena::layout::Control;
use nanoprobe_patch::{Tactic, TargetAddress};

use super::Presence;
use crate::beside::{Aborted, Extent};
use crate::error::SessionError;
use crate::session::tracing::Tracing;

/// At most this many foreign breakpoints are reported.
const TOLD_MAX: usize = 8;

impl Presence {
    /// Looks for foreign breakpoints in our patches: see [`crate::beside`].
    pub(in crate::session) fn look_beside(&mut self, tracing: &mut Tracing) {
        // The next look sees again what could not be changed, and other code notices that the target has gone.
        let Ok(changed) = self.attachment.look_beside(false) else {
            return;
        };
        let known = &tracing.known;
        let place = |address| known.modules.symbolize(address, known.shown());
        let mut warnings = Vec::new();
        for address in changed.suspended.into_iter().take(TOLD_MAX) {
            let place = place(address);
            warnings.push(format!(
                "{place}: somebody else has put a breakpoint there (a kernel uprobe?); the probe is off, and misses \
                 hits, until that breakpoint is gone"
            ));
        }
        for address in changed.resumed.into_iter().take(TOLD_MAX) {
            warnings.push(format!(
                "{}: the breakpoint is gone, and the probe is back",
                place(address)
            ));
        }
        for warning in warnings {
            tracing.warn(warning);
        }
    }

    /// Gives back the room of libraries that are gone.
    pub(in crate::session) fn collect(&mut self, tracing: &Tracing) -> Result<(), SessionError> {
        match self.attachment.collect() {
            // A later call tries again. A change that finds no room reports an error of its own.
            Err(SessionError::Stop(_) | SessionError::Remote(_)) => Ok(()),
            Err(_) if tracing.known.target_is_gone() => Ok(()),
            other => other,
        }
    }

    /// Takes out traps that abort restartable sequences. Otherwise the program would repeat these for ever.
    pub(in crate::session) fn look_for_aborted(&mut self, tracing: &mut Tracing) -> Result<(), SessionError> {
        let load = |field: usize| tracing.memory().load_u64(field as u64);
        let count = load(offset_of!(Control, aborted))?;
        let at = TargetAddress(load(offset_of!(Control, aborted_at))?);
        let modules = &tracing.known.modules;
        let Aborted { seen, mut step } = self.attachment.beside.aborted;
        if count == seen {
            return Ok(());
        }
        let function = modules.function_start(at);
        let module = modules.find(at).and_then(|(index, _)| modules.range(index));
        let taken = loop {
            let module = module.clone().unwrap_or_default();
            let taken = self.attachment.set_armed(false, &mut |patch| {
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
        // Aborts that came while the traps were taken out need no further work.
        let seen = load(offset_of!(Control, aborted))?;
        self.attachment.beside.aborted = Aborted { seen, step };
        if taken > 0 {
            let place = modules.symbolize(at, tracing.known.shown());
            tracing.warn(format!(
                "a trap aborted a restartable sequence (rseq) that no section describes, and it continued at \
                 {place}: {taken} traps were removed, and their probes see nothing from now on"
            ));
        }
        Ok(())
    }
}
