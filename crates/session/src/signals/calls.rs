//! Signal actions, read and changed by system calls in a stopped thread.

use std::collections::BTreeMap;

use nanoprobe_target::proc_file;
use nanoprobe_target::{SignalAction, Stopped};

use crate::error::SessionError;

/// Signal actions by their signals.
pub(crate) type Known = BTreeMap<i32, SignalAction>;

/// Reads the actions of some signals.
pub(super) fn look_at(stopped: &mut Stopped, signals: Vec<i32>) -> Result<Known, SessionError> {
    if signals.is_empty() {
        return Ok(Known::new());
    }
    let tid = stopped.best_thread()?;
    let mut remote = stopped.remote(tid)?;
    let asked: Vec<_> = signals.iter().map(|signal| (*signal, None)).collect();
    let found = remote.signal_actions(&asked)?;
    remote.finish()?;
    Ok(signals.into_iter().zip(found).collect())
}

/// Changes signal actions by `change`, while all threads are stopped, and yields the old actions. For actions that are
/// still as in `known` one pass is enough; all others take a second pass.
pub(super) fn exchange(
    stopped: &mut Stopped,
    signals: &[i32],
    known: Known,
    change: &mut dyn FnMut(i32, SignalAction) -> Result<SignalAction, SessionError>,
) -> Result<Known, SessionError> {
    let mut before = Known::new();
    if signals.is_empty() {
        return Ok(before);
    }
    let mut left: Vec<i32> = signals.to_vec();
    let mut known = known;
    let tid = stopped.best_thread()?;
    let mut remote = stopped.remote(tid)?;
    while !left.is_empty() {
        let mut calls = Vec::with_capacity(left.len());
        for signal in &left {
            let Some(action) = known.get(signal) else {
                calls.push((*signal, None));
                continue;
            };
            let changed = change(*signal, *action)?;
            calls.push((
                *signal,
                (changed != *action || before.contains_key(signal)).then_some(changed),
            ));
        }
        let found = remote.signal_actions(&calls)?;
        let mut again = Vec::new();
        for (signal, found) in left.into_iter().zip(found) {
            // Once we have changed an action, the action that is found is ours; and no other code changes it.
            if before.contains_key(&signal) {
                continue;
            }
            before.insert(signal, found);
            if known.insert(signal, found) != Some(found) {
                again.push(signal);
            }
        }
        left = again;
    }
    remote.finish()?;
    Ok(before)
}

/// A mask that the kernel shows for a thread.
pub(super) fn signals_of(pid: i32, tid: i32, field: &str) -> Option<u64> {
    let status = proc_file::read_text(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let text = status.lines().find_map(|line| line.strip_prefix(field))?;
    u64::from_str_radix(text.trim(), 16).ok()
}
