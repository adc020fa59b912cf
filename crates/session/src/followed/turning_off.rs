//! Patches that are turned off while the tracing goes on leave the text of children, too.
//!
//! The target's text has changed before, so processes that it forks have no such patch. A child that has one may fork
//! at any time, so the search is repeated until it finds none several times in a row: nobody can inherit one then. A
//! child that cannot be changed now (a debugger holds it, or another tracer is at work there) is tried again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nanoprobe_target::Process;

use super::{EMPTY_SEARCHES, Followed, LOOK_SHARE, PAUSE, QUIET_SEARCH, ROUNDS_MAX, TurningOff, is_targets_own};
use crate::attachment::Attachment;
use crate::detach::turn_off_in_child;
use crate::error::SessionError;

/// The time between two attempts to change a child.
const RETRY: Duration = Duration::from_millis(100);
/// An attempt takes no longer, apart from the child at which it is then. Other processes of the run may wait.
const TIME_MAX: Duration = Duration::from_secs(1);
/// A child that could not be changed so often in a row is told of: most reasons are over by then.
const REFUSALS: u32 = 10;

impl Followed {
    /// Takes patches that are turned off out of the text of all children, if there are any and it is time to try.
    /// `is_traced`: the target itself still executes its program. Yields messages.
    pub fn turn_off(&mut self, attachment: &mut Attachment, is_traced: bool) -> Vec<String> {
        let now = Instant::now();
        if attachment.off.in_children.is_empty() || self.turning_off.next.is_some_and(|next| now < next) {
            return Vec::new();
        }
        let _heartbeat = attachment.heartbeat();
        let (refused, is_done) = self.take_out(attachment, is_traced);
        if refused.is_empty() && is_done {
            attachment.off.in_children.clear();
            self.turning_off = TurningOff::default();
            return Vec::new();
        }
        self.turning_off.next = Some(Instant::now() + RETRY.max(now.elapsed() * LOOK_SHARE));
        let before = std::mem::take(&mut self.turning_off.refused);
        let mut messages = Vec::new();
        for (pid, error) in refused {
            let times = before.get(&pid).copied().unwrap_or(0).saturating_add(1);
            if times == REFUSALS {
                messages.push(format!(
                    "process {pid}, which was forked from the target, still has probes that are off elsewhere: {error}"
                ));
            }
            self.turning_off.refused.insert(pid, times);
        }
        messages
    }

    /// Yields the children that could not be changed, and whether the search for others has come to its end.
    fn take_out(&self, attachment: &Attachment, is_traced: bool) -> (BTreeMap<i32, SessionError>, bool) {
        let arena = attachment.addresses.arena;
        let target = (&attachment.process, is_traced);
        let mut refused = BTreeMap::new();
        let mut empty_searches = 0;
        let begun = Instant::now();
        for _ in 0..ROUNDS_MAX {
            if !is_traced && self.nobody_has_it() {
                return (BTreeMap::new(), true);
            }
            let search = self.searches.now();
            let mut found = self
                .arena
                .map_or_else(Vec::new, |file| search.with(file, arena, self.since));
            // Those that have been in the way before come last.
            found.sort_by_key(|pid| self.turning_off.refused.get(pid));
            let mut was_any = false;
            for pid in found {
                if refused.contains_key(&pid) || is_targets_own(target, pid) {
                    continue;
                }
                if begun.elapsed() > TIME_MAX {
                    return (refused, false);
                }
                let open = Process::open(pid).map_err(SessionError::from);
                match open.and_then(|child| turn_off_in_child(&child, arena, &attachment.off.in_children)) {
                    Ok(was_there) => was_any |= was_there,
                    // Otherwise it has ended, or executes another program.
                    Err(error) if self.holders(arena).contains(&pid) => {
                        refused.insert(pid, error);
                    }
                    Err(_) => {}
                }
            }
            empty_searches = match was_any {
                true => 0,
                false if search.is_quiet => empty_searches + QUIET_SEARCH,
                false => empty_searches + 1,
            };
            if empty_searches >= EMPTY_SEARCHES {
                return (refused, true);
            }
            if !was_any {
                std::thread::sleep(PAUSE);
            }
        }
        (refused, false)
    }
}
