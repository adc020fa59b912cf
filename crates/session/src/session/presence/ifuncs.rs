//! IFUNCs: each function's own resolver chooses, in the target, which of its implementations is used.

use nanoprobe_patch::{TargetAddress, ThreadKey};
use nanoprobe_target::Stopped;

use super::Presence;
use super::suppress_hits::Unseen;
use crate::error::SessionError;
use crate::session::tracing::Tracing;
use crate::thread_key;

impl Presence {
    /// Calls each IFUNC's resolver in the target, as the dynamic linker has done. Resolvers are pure functions of
    /// the processor's features.
    pub(super) fn resolve_ifuncs(
        &mut self,
        tracing: &mut Tracing,
        stopped: &mut Stopped,
        first: usize,
    ) -> Result<(), SessionError> {
        const STACK_BYTES: u64 = 64 << 10;
        let resolvers = tracing.known.unresolved(first);
        if resolvers.is_empty() {
            return Ok(());
        }
        let attachment = &mut self.attachment;
        // Reserved once, since libraries may come again and again.
        let stack = match attachment.resolvers_stack {
            Some(stack) => stack,
            None => *attachment
                .resolvers_stack
                .insert(attachment.room.growth.reserve(STACK_BYTES, 64)?),
        };
        let tid = stopped.best_thread()?;
        let mut remote = stopped.remote(tid)?;
        let slot_bytes = tracing.known.enablings.slots_used();
        let thread_key = match attachment.parameters.thread_key {
            ThreadKey::Asked => thread_key::of_number(remote.process(), tid),
            ThreadKey::TlsSelf | ThreadKey::FsBase => {
                thread_key::of_pointer(remote.process(), tid, remote.saved_registers().fs_base)
            }
        };
        let layout = &tracing.known.compiled.layout;
        let unseen = Unseen::begin(tracing.memory(), layout, thread_key, slot_bytes)?;
        for resolver in resolvers {
            match remote.call(resolver, [0; 6], stack..TargetAddress(stack.0 + STACK_BYTES)) {
                Ok(choice) => {
                    tracing.known.choices.insert(resolver, TargetAddress(choice));
                }
                Err(error) => tracing.warn(format!("the IFUNC at {resolver}: {error}")),
            }
        }
        unseen.end(tracing.memory(), &tracing.known.compiled.layout)?;
        Ok(remote.finish()?)
    }
}
