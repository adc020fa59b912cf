//! IFUNCs: each function's own resolver chooses, in the target, which of its implementations is used.
//!
//! Another thread may unload a library, and load another one at the same place, between the look at the modules and the
//! call of a resolver. The call would then execute any code at all. So the resolvers of libraries that can be unloaded
//! are called only while all threads are stopped, and only where a new look at the map shows the library at its place.
//! The program, the linker, and the libraries that these need are never unloaded. There one stopped thread is enough.

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Pauses, StopError, Stopped};
use nanoprobe_text::modules::permanent;

use super::Presence;
use super::entering::release_one;
use super::suppress_hits::Unseen;
use crate::error::SessionError;
use crate::session::known::Resolver;
use crate::session::tracing::Tracing;
use crate::thread_key;

impl Presence {
    /// Calls the resolver of each IFUNC that matters, as the dynamic linker has done. Resolvers are pure functions of
    /// the processor's features. `first`: the first enabling that may need one. `stopped`: one thread, or all of them.
    /// They run on before this returns.
    pub(super) fn resolve_ifuncs(
        &mut self,
        tracing: &mut Tracing,
        mut stopped: Stopped,
        first: usize,
        pauses: &mut Pauses,
    ) -> Result<(), SessionError> {
        let permanent = permanent(tracing.known.modules.list());
        let unresolved = tracing.known.unresolved(first);
        let (staying, others): (Vec<_>, Vec<_>) = unresolved
            .into_iter()
            .partition(|resolver| permanent.contains(&resolver.module));
        self.call_resolvers(tracing, &mut stopped, &staying)?;
        release_one(stopped, pauses);
        if others.is_empty() {
            return Ok(());
        }
        let process = self.attachment.process.clone();
        let mut stopped = match process.stop() {
            Err(error @ StopError::Uninterruptible { .. }) => {
                tracing.warn(format!("{} IFUNCs are not resolved: {error}", others.len()));
                return Ok(());
            }
            stopped => stopped?,
        };
        let map = process.map()?;
        let modules = &tracing.known.modules;
        let is_there = |resolver: &Resolver| modules.is_in(resolver.module, &map);
        let there: Vec<Resolver> = others.into_iter().filter(is_there).collect();
        let called = self.call_resolvers(tracing, &mut stopped, &there);
        pauses.add_whole(stopped.release());
        called
    }

    fn call_resolvers(
        &mut self,
        tracing: &mut Tracing,
        stopped: &mut Stopped,
        resolvers: &[Resolver],
    ) -> Result<(), SessionError> {
        const STACK_BYTES: u64 = 64 << 10;
        if resolvers.is_empty() {
            return Ok(());
        }
        let attachment = &mut self.attachment;
        // Reserved once, since libraries may come again and again.
        let stack = match attachment.room.resolvers_stack {
            Some(stack) => stack,
            None => {
                let room = &mut attachment.room;
                *room.resolvers_stack.insert(room.growth.reserve(STACK_BYTES, 64)?)
            }
        };
        let tid = stopped.best_thread()?;
        let mut remote = stopped.remote(tid)?;
        let slot_bytes = tracing.known.enablings.slots_used();
        let thread_keys = [
            thread_key::of_pointer(remote.process(), tid, remote.saved_registers().fs_base),
            thread_key::of_number(remote.process(), tid),
        ];
        let layout = &tracing.known.compiled.layout;
        let unseen = Unseen::begin(tracing.memory(), layout, thread_keys, slot_bytes)?;
        for resolver in resolvers.iter().map(|resolver| resolver.address) {
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
