//! `exit()` in a clause that the tracer runs: it stops the handlers in the process from outside.
//!
//! A handler's `exit()` takes all contexts out of the thread table, so that no detour finds one any more. The table
//! is the target's own memory. The tracer cannot change a pointer there while threads may load it, since its writes
//! arrive byte by byte. So it marks each context, which lies in the arena, as if a handler ran in that thread for
//! ever. A detour that finds the mark calls `np_enter` (agent/enter.c), which looks at `exit_requested` first:
//!
//! ```text
//! tracer   exit_requested = 1; each context: busy 0 -> BUSY_FOR_EVER   a handler that runs is waited for
//! hit      busy? missed++, np_enter: exit_requested: no handler        misses from then on are not reported
//! ```
//!
//! A clause that only counts has no handler: it counts until its probe is gone, some milliseconds later. A handler may
//! not end soon, since its thread has no processor. The tracer does not wait for it: its later records come after the
//! exit, and are ignored.

use core::mem::offset_of;
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::{Context, Control};
use nanoprobe_arena::{ControlBlock, Mapping, Memory as _};

use super::{HandlersStopped, Tracing};
use crate::clock;
use crate::drain::context_offset;
use crate::error::SessionError;

/// Deeper in the stack than any hit is, so the mark is not mistaken for a handler that was left by a longjmp.
const BUSY_FOR_EVER: u64 = u64::MAX;
/// How long to wait for running handlers, all together.
const WAIT: Duration = Duration::from_millis(2);

impl Tracing {
    /// Keeps handlers from beginning, though the probes are still there.
    ///
    /// # Errors
    /// The arena is damaged.
    pub(super) fn stop_handlers(&mut self) -> Result<(), SessionError> {
        let Some((memory, _)) = self.arena.shared() else {
            return Ok(());
        };
        let layout = &self.known.compiled.layout;
        // Read before the contexts are closed, because closed ones miss all hits, some ten in each microsecond.
        let missed = self.consumer.losses(memory, layout)?.missed;
        let time = clock::tsc();
        memory.store_u32(offset_of!(Control, exit_requested) as u64, 1)?;
        let end = Instant::now() + WAIT;
        for index in 0..u64::from(ControlBlock::open(memory)?.contexts_in_use()?) {
            let busy = context_offset(layout, index) + offset_of!(Context, busy) as u64;
            while !close(memory, busy)? && Instant::now() < end {
                std::thread::yield_now();
            }
        }
        self.handlers_stopped = Some(HandlersStopped { time, missed });
        Ok(())
    }
}

/// Marks a context. Yields whether no handler runs in its thread from now on.
fn close(memory: &Mapping, busy: u64) -> Result<bool, SessionError> {
    Ok(memory.load_u64(busy)? == BUSY_FOR_EVER || memory.compare_exchange_u64(busy, 0, BUSY_FOR_EVER)?)
}
