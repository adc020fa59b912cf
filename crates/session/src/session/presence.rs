//! The things that a session owns in its target, and the work that keeps them up to date: patches, hooks, shims, new
//! libraries.

mod beside;
pub(super) mod entering;
mod errno;
mod handlers;
mod ifuncs;
mod libraries;
mod made;
pub(super) mod placing;
mod returns;
mod suppress_hits;

use std::collections::HashSet;
use std::mem::offset_of;
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::Control;
use nanoprobe_arena::{ControlBlock, Memory as _};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Claim;

use crate::attachment::Attachment;
use crate::detach::{self, Detached};
use crate::error::SessionError;
use crate::heartbeat::Heartbeat;
use crate::interrupt::Present;
use crate::placement::{CallTables, Fired, Handlers};
use crate::ranges::Publisher;
use crate::session::tracing::Tracing;

/// How often the map of readable memory is refreshed.
const RANGES_PERIOD: Duration = Duration::from_millis(500);

/// See the module's description.
pub(super) struct Presence {
    pub(super) attachment: Attachment,
    pub(super) placed: Placed,
    /// Only for a list: nothing but the linker's hook is placed, and no clause fires.
    listing: bool,
    ranges: Publisher,
    made: made::MadeCalls,
    /// When the map of readable memory is next refreshed.
    next_ranges: Instant,
    /// The places where unwinders, and the linker, are hooked.
    return_hooks: HashSet<u64>,
    warned_of_returns: bool,
    told_of_handlers: bool,
    /// Whether the place of errno is known, or it is known that no library has an errno.
    errno_known: bool,
    /// Keeps other tracers out while this one attaches.
    claim: Option<Claim>,
    _present: Present,
}

/// The placed probes: which of them fire in which function, and where the handlers are.
#[derive(Default)]
pub(super) struct Placed {
    pub(super) fired: Fired,
    handlers: Handlers,
    call_tables: CallTables,
    /// The system calls at which shims fire, sorted.
    shims: Vec<TargetAddress>,
}

impl Presence {
    fn new(attachment: Attachment, listing: bool) -> Presence {
        Presence {
            attachment,
            placed: Placed::default(),
            listing,
            ranges: Publisher::default(),
            made: made::MadeCalls::default(),
            next_ranges: Instant::now(),
            return_hooks: HashSet::new(),
            warned_of_returns: false,
            told_of_handlers: false,
            errno_known: false,
            claim: None,
            _present: Present::new(),
        }
    }

    /// Keeps the heartbeat going for as long as the value lives.
    pub(super) fn heartbeat(&self) -> Option<Heartbeat> {
        self.attachment.heartbeat()
    }

    /// Refreshes now and then, when clauses read memory, the map of readable memory.
    pub(super) fn refresh_ranges(&mut self) {
        let now = Instant::now();
        if now < self.next_ranges {
            return;
        }
        self.next_ranges = now + RANGES_PERIOD;
        if self.attachment.parameters.reads_memory {
            // A target that has just ended has no map; the next look notices that.
            let _ = self.ranges.publish(&mut self.attachment);
        }
    }

    /// Removes everything of ours from the target.
    pub(super) fn detach(&mut self) -> Result<Detached, SessionError> {
        if self.attachment.regions.is_empty() {
            return Ok(Detached::default());
        }
        // A thread that has just loaded a library must not wait for probes that will not come. On an error there is
        // no arena (yet or any more), so no thread waits.
        if let Ok(memory) = self.attachment.memory() {
            let _ = ControlBlock::open(memory).and_then(|control| control.beat(0));
        }
        detach::detach(&mut self.attachment)
    }

    /// Leaves a process in which a thread is about to turn Syscall User Dispatch on, and waits for that
    /// (`agent/dispatch.c`). Records are kept, and the process is followed to its end. Yields whether it was just left.
    pub(super) fn leave_before_dispatch(&mut self, tracing: &mut Tracing) -> Result<bool, SessionError> {
        if self.attachment.regions.is_empty() {
            return Ok(false);
        }
        let waits = self
            .attachment
            .memory()?
            .load_u64(offset_of!(Control, dispatch_waits) as u64)?;
        if waits == 0 {
            return Ok(false);
        }
        let detached = self.detach()?;
        self.attachment.leave_behind();
        tracing.lost.calls += detached.abandoned_calls;
        tracing.warn(format!(
            "process {} turns Syscall User Dispatch on (prctl 59), which would send it signals for calls of \
             nanoprobe's: its probes are gone",
            self.attachment.process.pid()
        ));
        Ok(true)
    }
}
