//! The provider `sched`: the clauses fire for the moments at which the target's threads leave their processors and come
//! back, by the kernel's records ([`Switches`]), and at which somebody wakes them (`wakings`).

use nanoprobe_lang::program::Builtin;
use nanoprobe_target::{Sample, Switch, ThreadId, Turn};

use super::wakings::{Act, Wakers, fire_act, watch_others};
use super::{Timers, clause_of, own_number, stacks_of};
use crate::error::SessionError;
use crate::kernel_names;
use crate::probes::{Place, SwitchKind};
use crate::sampled::SampledThread;
use crate::session::rows::{Rows, frames_of};
use crate::session::switches::{Moment, Off, Switches};
use crate::session::tracing::Tracing;

/// The only frame of a stack that is not known.
const UNKNOWN: &str = "[the sleep ended before the stack was read]";
/// The only frame of a stack of the kernel that it has not given.
const UNSAMPLED: &str = "[the kernel gave no sample]";

impl Timers {
    /// Begins to watch the switches, if clauses ask for them.
    pub(super) fn start_switches(&mut self, tracing: &mut Tracing) {
        let known = &tracing.known;
        let Some(process) = known.process().cloned() else {
            return;
        };
        let enablings = known.enablings().enumerate().filter_map(|(index, enabling)| {
            let Some(Place::Switch(kind)) = known.probe(enabling.probe).map(|probe| &probe.place) else {
                return None;
            };
            Some((*kind, index))
        });
        let enablings: Vec<(SwitchKind, usize)> = enablings.collect();
        if enablings.is_empty() {
            return;
        }
        let asks = |(_, index): &(SwitchKind, usize)| {
            clause_of(known, *index).is_some_and(|clause| clause.reads(Builtin::SystemCall))
        };
        let asks_calls = enablings.iter().any(asks);
        let stacks = stacks_of(known, enablings.iter().map(|(_, index)| index));
        let walks = stacks.program;
        if stacks.kernel {
            kernel_names::prepare().into_iter().for_each(|text| tracing.warn(text));
        }
        let known = &tracing.known;
        if walks {
            for module in 0..known.modules.list().len() {
                self.rows.of(&known.modules, module);
            }
        }
        match process.switches(stacks) {
            Ok(watch) => {
                let pid = process.pid();
                if watch.may_miss_threads() {
                    tracing.warn(format!(
                        "sched probes may miss threads of process {pid}: new threads kept appearing while the watch \
                         began"
                    ));
                }
                if walks && !watch.has_stacks() {
                    tracing.warn(format!(
                        "the kernel shows no stacks of process {pid} at its switches: they are read while its threads \
                         sleep, and those of short sleeps are not known (root, CAP_PERFMON, or 1 in \
                         /proc/sys/kernel/perf_event_paranoid gives all)"
                    ));
                }
                let others = watch_others(&process, &enablings, tracing);
                let threads = process.threads().unwrap_or_default();
                let switches = Switches::new(watch, enablings, stacks, asks_calls);
                self.switches = Some(switches.beside(others, &threads));
            }
            Err(error) => tracing.warn(format!(
                "sched probes see no thread of process {}: {error}",
                process.pid()
            )),
        }
    }

    /// Fires for the switches that have come.
    pub(super) fn fire_switches(&mut self, tracing: &mut Tracing, is_last: bool) -> Result<(), SessionError> {
        let Timers { switches, rows, .. } = self;
        let (Some(switches), Some(process)) = (switches, tracing.known.process().cloned()) else {
            return Ok(());
        };
        let (taken, lost) = switches.take(&process, is_last);
        tracing.lost.switches += lost;
        if taken.is_empty() {
            return Ok(());
        }
        let mut wakers = Wakers::beside(tracing.known.codegen.constants.clone());
        for moment in taken {
            match moment {
                Moment::Switch(switch) => fire_switch(switches, rows, tracing, switch, &mut wakers)?,
                Moment::Waking(waking) => {
                    if switches.threads.contains(&waking.woken) {
                        switches.sleeps.is_woken(waking.woken);
                        let act = Act::of_waking(*waking);
                        fire_act(switches, rows, tracing, act, &mut wakers)?;
                    }
                }
                Moment::Discard(discard) => {
                    if switches.threads.contains(&discard.recipient) {
                        fire_act(switches, rows, tracing, Act::of_discard(*discard), &mut wakers)?;
                    }
                }
                Moment::Succession(of) => drop(switches.next.insert(of.thread, of.next)),
            }
        }
        Ok(())
    }
}

/// Fires for a thread that left its processor or came to one.
fn fire_switch(
    switches: &mut Switches,
    rows: &mut Rows,
    tracing: &mut Tracing,
    switch: Switch,
    wakers: &mut Wakers,
) -> Result<(), SessionError> {
    let Switch {
        thread, time_ns, turn, ..
    } = switch;
    if turn == Turn::Ended {
        switches.threads.remove(&thread);
    } else {
        switches.threads.insert(thread);
    }
    let (kinds, is_preempted): (&[SwitchKind], bool) = match turn {
        Turn::Ended => {
            switches.off.remove(&thread);
            switches.read.remove(&thread);
            switches.sleeps.forget(thread);
            tracing.tracer.forget_thread(thread.cast_unsigned());
            return Ok(());
        }
        Turn::On => {
            switches.sleeps.runs(thread);
            (&[SwitchKind::OnCpu], false)
        }
        Turn::Off { is_preempted, sample } => {
            let off = off_of(switches, rows, tracing, (thread, time_ns), sample);
            switches.off.insert(thread, off);
            match is_preempted {
                true => (&[SwitchKind::Preempt, SwitchKind::OffCpu], true),
                false => {
                    switches.sleeps.begins(thread);
                    (&[SwitchKind::Sleep, SwitchKind::OffCpu], false)
                }
            }
        }
    };
    let Off {
        user,
        frames,
        kernel,
        call,
    } = match kinds {
        [SwitchKind::OnCpu] => switches.off.remove(&thread).unwrap_or_default(),
        _ => switches.off.get(&thread).cloned().unwrap_or_default(),
    };
    let next = next_of(switches, wakers, thread, switch.processor, kinds != [SwitchKind::OnCpu]);
    let sample = Sample {
        process: switch.process,
        thread,
        processor: switch.processor,
        time_ns,
        executed: user.as_ref().map_or(0, |user| user.register("ip")),
        kernel,
        user,
    };
    let shown = SampledThread {
        sample: &sample,
        tid: own_number(&tracing.known, &sample),
        frames: &frames,
        call,
        other: wakers.process_of(&tracing.known, &switches.threads, next),
        constants: &wakers.own,
    };
    let mut arguments = [0; 10];
    arguments[0] = is_preempted.into();
    for kind in kinds {
        for (_, enabling) in switches.enablings.iter().filter(|(of, _)| of == kind) {
            tracing.fire(*enabling, arguments, Some(shown))?;
        }
    }
    Ok(())
}

/// What is known of a thread that has left its processor at this time.
fn off_of(
    switches: &mut Switches,
    rows: &mut Rows,
    tracing: &Tracing,
    (thread, time_ns): (ThreadId, u64),
    sample: Option<Box<Sample>>,
) -> Off {
    let named = |text: &str| vec![tracing.known.foreign.borrow_mut().number(text.to_owned(), None)];
    let (user, kernel) = match (sample, switches.stacks.kernel) {
        (Some(sample), _) => (sample.user, sample.kernel),
        (None, true) => (None, named(UNSAMPLED)),
        (None, false) => (None, Vec::new()),
    };
    let read = switches.read.remove(&thread).filter(|(left_ns, _)| *left_ns == time_ns);
    let (read, call) = read.map_or((None, None), |(_, seen)| (seen.user, seen.call));
    let user = user.or(read);
    let frames = match (&user, switches.stacks.program) {
        (Some(user), true) => frames_of(&tracing.known, rows, tracing.shared_arena(), user, thread),
        (None, true) => named(UNKNOWN),
        _ => Vec::new(),
    };
    Off {
        user,
        frames,
        kernel,
        call,
    }
}

/// The thread that the processor runs next, which becomes known. `None`: it came to a processor, or the kernel has not
/// shown it, which is counted.
fn next_of(
    switches: &mut Switches,
    wakers: &mut Wakers,
    thread: ThreadId,
    processor: u32,
    is_off: bool,
) -> Option<ThreadId> {
    let next = switches.next.remove(&thread);
    match next {
        Some(next) => wakers.learn_thread(next, processor),
        None if is_off && switches.watches_next() => switches.unknown_next += 1,
        None => {}
    }
    next
}
