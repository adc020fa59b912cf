//! The provider `sched`: the clauses fire for the moments at which the target's threads leave their processors and come
//! back, by the kernel's records ([`Switches`]).

use nanoprobe_lang::program::Builtin;
use nanoprobe_target::{Sample, Switch, Turn};

use super::{Timers, clause_of, own_number, walks_stack};
use crate::error::SessionError;
use crate::probes::{Place, SwitchKind};
use crate::sampled::SampledThread;
use crate::session::rows::frames_of;
use crate::session::switches::{Off, Switches};
use crate::session::tracing::Tracing;

/// The only frame of a stack that is not known.
const UNKNOWN: &str = "[the sleep ended before the stack was read]";

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
        let walks = enablings.iter().any(|(_, index)| walks_stack(known, *index));
        if walks {
            for module in 0..known.modules.list().len() {
                self.rows.of(&known.modules, module);
            }
        }
        match process.switches(walks) {
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
                self.switches = Some(Switches::new(watch, enablings, walks, asks_calls));
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
        let constants = tracing.known.codegen.constants.clone();
        for switch in taken {
            let Switch {
                thread, time_ns, turn, ..
            } = switch;
            let (kinds, is_preempted): (&[SwitchKind], bool) = match turn {
                Turn::Ended => {
                    switches.off.remove(&thread);
                    switches.read.remove(&thread);
                    tracing.tracer.forget_thread(thread.cast_unsigned());
                    continue;
                }
                Turn::On => (&[SwitchKind::OnCpu], false),
                Turn::Off { is_preempted, user } => {
                    let read = switches.read.remove(&thread).filter(|(left_ns, _)| *left_ns == time_ns);
                    let (read, call) = read.map_or((None, None), |(_, seen)| (seen.user, seen.call));
                    let user = user.or(read);
                    let frames = match (&user, switches.walks) {
                        (Some(user), true) => frames_of(&tracing.known, rows, tracing.shared_arena(), user, thread),
                        (None, true) => vec![tracing.known.foreign.borrow_mut().number(UNKNOWN.to_owned(), None)],
                        _ => Vec::new(),
                    };
                    switches.off.insert(thread, Off { user, frames, call });
                    match is_preempted {
                        true => (&[SwitchKind::Preempt, SwitchKind::OffCpu], true),
                        false => (&[SwitchKind::Sleep, SwitchKind::OffCpu], false),
                    }
                }
            };
            let Off { user, frames, call } = match kinds {
                [SwitchKind::OnCpu] => switches.off.remove(&thread).unwrap_or_default(),
                _ => switches.off.get(&thread).cloned().unwrap_or_default(),
            };
            let sample = Sample {
                process: switch.process,
                thread,
                processor: switch.processor,
                time_ns,
                executed: user.as_ref().map_or(0, |user| user.register("ip")),
                user,
            };
            let shown = SampledThread {
                sample: &sample,
                tid: own_number(&tracing.known, &sample),
                frames: &frames,
                call,
                constants: &constants,
            };
            let mut arguments = [0; 10];
            arguments[0] = is_preempted.into();
            for kind in kinds {
                for (_, enabling) in switches.enablings.iter().filter(|(of, _)| of == kind) {
                    tracing.fire(*enabling, arguments, Some(shown))?;
                }
            }
        }
        Ok(())
    }
}
