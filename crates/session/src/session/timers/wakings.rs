//! Other threads, in clauses of `sched`. Clauses on `wakeup` fire for the waker of a thread of the target, and those on
//! `proc:::signal-discard` for the sender of a signal; those on `off-cpu` know who runs next.
//!
//! The waker is a thread of the target, a thread of another process, or an interrupt. What is not the target's has no
//! stack here: the code of other processes has other names, and an interrupt belongs to no program.

use std::collections::{HashMap, HashSet};

use nanoprobe_codegen::SessionConstants;
use nanoprobe_lang::program::Clause;
use nanoprobe_target::{Discard, Process, ProcessId, Sample, ThreadId, Waking};

use super::{clause_of, own_number, stacks_of};
use crate::error::SessionError;
use crate::identity;
use crate::probes::SwitchKind;
use crate::sampled::{Other, SampledThread};
use crate::session::known::Known;
use crate::session::rows::{Rows, frames_of};
use crate::session::switches::{Others, Switches};
use crate::session::tracing::Tracing;

/// The only frame where an interrupt has woken the thread.
const INTERRUPT: &str = "[an interrupt]";
/// The only frame where another process has woken the thread.
const ANOTHER: &str = "[another process]";
/// The waker's name where an interrupt has woken the thread.
const INTERRUPT_NAME: &str = "<interrupt>";

/// The name of another process that has ended.
const UNKNOWN_NAME: &str = "<unknown>";

/// The processes of other threads in one round. The next round looks again, because a number may belong to another
/// process then.
pub(super) struct Wakers {
    /// The traced process.
    pub(super) own: SessionConstants,
    interrupt: SessionConstants,
    others: HashMap<ProcessId, SessionConstants>,
    /// The processes of threads that run next; `None`: the thread is gone.
    of_threads: HashMap<ThreadId, Option<ProcessId>>,
}

impl Wakers {
    pub(super) fn beside(own: SessionConstants) -> Wakers {
        Wakers {
            own,
            interrupt: SessionConstants {
                execname: INTERRUPT_NAME.to_owned(),
                ..SessionConstants::default()
            },
            others: HashMap::new(),
            of_threads: HashMap::new(),
        }
    }

    /// Learns what there is to know of a thread that runs next. 0: the processor is idle.
    pub(super) fn learn_thread(&mut self, thread: ThreadId, processor: u32) {
        if thread == 0 {
            let idle = SessionConstants {
                execname: format!("swapper/{processor}"),
                ..SessionConstants::default()
            };
            self.others.insert(0, idle);
            return;
        }
        if self.of_threads.contains_key(&thread) {
            return;
        }
        let process = identity::process_of(thread.cast_unsigned()).map(u32::cast_signed);
        self.of_threads.insert(thread, process);
        if let Some(process) = process {
            self.learn(process);
        }
    }

    /// A thread that runs next, and its process, if that is known.
    pub(super) fn process_of(
        &self,
        known: &Known,
        own_threads: &HashSet<ThreadId>,
        thread: Option<ThreadId>,
    ) -> Option<Other<'_>> {
        let thread = thread?;
        if own_threads.contains(&thread) {
            return Some((inner_number(known, thread), Some(&self.own)));
        }
        let process = match thread {
            0 => Some(&0),
            _ => self.of_threads.get(&thread).and_then(Option::as_ref),
        };
        Some((
            thread.cast_unsigned(),
            process.and_then(|process| self.others.get(process)),
        ))
    }

    fn learn(&mut self, process: ProcessId) {
        self.others.entry(process).or_insert_with(|| {
            let name = identity::thread_name_of(process.cast_unsigned(), process.cast_unsigned());
            let name = match name.as_slice() {
                // The process has ended.
                [] => UNKNOWN_NAME.to_owned(),
                name => String::from_utf8_lossy(name).into_owned(),
            };
            identity::constants_of(process.cast_unsigned(), name)
        });
    }
}

/// What a thread, or an interrupt, does to a thread of the target.
pub(super) struct Act {
    kind: SwitchKind,
    /// The thread of the target.
    other: ThreadId,
    by: Sample,
    in_interrupt: bool,
    /// `arg0`
    word: u64,
}

impl Act {
    pub(super) fn of_waking(waking: Waking) -> Act {
        Act {
            kind: SwitchKind::Wakeup,
            other: waking.woken,
            by: waking.waker,
            in_interrupt: waking.in_interrupt,
            word: 0,
        }
    }

    pub(super) fn of_discard(discard: Discard) -> Act {
        Act {
            kind: SwitchKind::Discard,
            other: discard.recipient,
            by: discard.sender,
            in_interrupt: discard.in_interrupt,
            word: discard.signal,
        }
    }
}

/// Begins to watch other threads, if a clause asks for them.
pub(super) fn watch_others(process: &Process, enablings: &[(SwitchKind, usize)], tracing: &mut Tracing) -> Others {
    let pid = process.pid();
    let known = &tracing.known;
    let of_kind = |wanted: SwitchKind| enablings.iter().filter(move |(kind, _)| *kind == wanted);
    let asks_next =
        of_kind(SwitchKind::OffCpu).any(|(_, index)| clause_of(known, *index).is_some_and(Clause::reads_other));
    let asks_wakers = of_kind(SwitchKind::Wakeup).next().is_some();
    let stacks = stacks_of(known, of_kind(SwitchKind::Wakeup).map(|(_, index)| index));
    let mut others = Others::default();
    if asks_wakers {
        match process.wakings(stacks) {
            Ok(watch) => {
                if watch.may_miss_threads() {
                    tracing.warn(format!(
                        "sched:::wakeup may miss wakers of process {pid}: new threads kept appearing while the watch \
                         began"
                    ));
                }
                others.wakes = Some(watch);
            }
            Err(error) => tracing.warn(format!(
                "sched:::wakeup sees nobody who wakes threads of process {pid}: {error}. Without that right, nanoprobe \
                 tool futexes shows the wakers of threads that wait by futex"
            )),
        }
    }
    if of_kind(SwitchKind::Discard).next().is_some() {
        let stacks = stacks_of(&tracing.known, of_kind(SwitchKind::Discard).map(|(_, index)| index));
        match process.discards(stacks) {
            Ok(watch) => {
                if watch.may_miss_threads() {
                    tracing.warn(format!(
                        "proc:::signal-discard may miss senders of process {pid}: new threads kept appearing while the \
                         watch began"
                    ));
                }
                others.discards = Some(watch);
            }
            Err(error) => tracing.warn(format!(
                "proc:::signal-discard sees no signals for process {pid}: {error}. Without that right, \
                 proc:::signal-send shows what the traced processes send, and proc:::signal-handle what is not discarded"
            )),
        }
    }
    if asks_next {
        match process.successions() {
            Ok(watch) => others.successions = Some(watch),
            Err(error) => tracing.warn(format!(
                "sched:::off-cpu does not know who runs next (args[0] and args[1]) in process {pid}: {error}"
            )),
        }
    }
    others
}

/// Tells of wakings for which `wakeup` did not fire, and of threads that ran next and are not known, because the kernel
/// has not shown them.
pub(super) fn tell_unseen(switches: &Switches, tracing: &mut Tracing) {
    let sleeps = &switches.sleeps;
    let pid = tracing.known.process().map(Process::pid);
    if let (Some(pid), true, 1..) = (pid, switches.watches_wakers(), sleeps.unseen) {
        tracing.warn(format!(
            "sched:::wakeup did not fire for {} of {} wakings of threads of process {pid}: the kernel has not shown \
             them (some virtual machines record nothing while a processor idles)",
            sleeps.unseen, sleeps.ended
        ));
    }
    if let (Some(pid), 1..) = (pid, switches.unknown_next) {
        tracing.warn(format!(
            "the kernel has not shown {} times who runs after a thread of process {pid}: args[] are -1 there",
            switches.unknown_next
        ));
    }
}

/// Fires for what was done to a thread of the target.
pub(super) fn fire_act(
    switches: &Switches,
    rows: &mut Rows,
    tracing: &mut Tracing,
    act: Act,
    wakers: &mut Wakers,
) -> Result<(), SessionError> {
    let other = inner_number(&tracing.known, act.other);
    let is_own = tracing.known.process().map(Process::pid) == Some(act.by.process);
    let mut waker = act.by;
    let (constants, tid) = match (act.in_interrupt, is_own) {
        (true, _) => {
            // The registers are those of whoever was interrupted.
            (waker.process, waker.thread, waker.user) = (0, 0, None);
            (&wakers.interrupt, 0)
        }
        (_, true) => (&wakers.own, own_number(&tracing.known, &waker)),
        _ => {
            waker.user = None;
            wakers.learn(waker.process);
            let constants = wakers.others.get(&waker.process).unwrap_or(&wakers.interrupt);
            (constants, waker.thread.cast_unsigned())
        }
    };
    let frames = match (&waker.user, switches.stacks.program) {
        (_, false) => Vec::new(),
        (Some(user), _) => frames_of(&tracing.known, rows, tracing.shared_arena(), user, waker.thread),
        (None, _) => {
            let text = if act.in_interrupt { INTERRUPT } else { ANOTHER };
            vec![tracing.known.foreign.borrow_mut().number(text.to_owned(), None)]
        }
    };
    let sample = Sample {
        executed: waker.user.as_ref().map_or(0, |user| user.register("ip")),
        ..waker
    };
    let shown = SampledThread {
        sample: &sample,
        tid,
        frames: &frames,
        call: None,
        other: Some((other, Some(&wakers.own))),
        constants,
    };
    let mut arguments = [0; 10];
    arguments[0] = act.word.cast_signed();
    for (_, enabling) in switches.enablings.iter().filter(|(of, _)| *of == act.kind) {
        tracing.fire(*enabling, arguments, Some(shown))?;
    }
    Ok(())
}

/// The number of a thread of the target, as the program knows it.
fn inner_number(known: &Known, thread: ThreadId) -> u32 {
    let process = known.process().filter(|process| process.facts().in_other_pid_namespace);
    let inner = process.and_then(|process| process.inner_tid(thread));
    inner.unwrap_or(thread).cast_unsigned()
}
