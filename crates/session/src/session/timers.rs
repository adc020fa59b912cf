//! `tick-...` and `profile-...`.
//!
//! A `tick` fires once each time. A `profile` fires once for each processor: for a thread of the target's that was on one,
//! as a sample of it shows that thread ([`nanoprobe_target::Sampler`]), and for the other processors in the tracer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::UnwindRow;
use nanoprobe_lang::options::IntervalKind;
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Process, Sample};
use nanoprobe_text::modules::Modules;

use super::timer::{Timer, due};
use super::{Output, Session};
use crate::error::SessionError;
use crate::probes::{Place, ProbeIndex};
use crate::sampled::SampledThread;
use crate::stack::Known;
use crate::{identity, sampled, stack};

/// How often it is looked for code that samples have shown and no module has.
const CODE_PERIOD: Duration = Duration::from_millis(100);

/// The processors that we may run on.
fn processors() -> Vec<u32> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
        return vec![0];
    };
    let numbers = (0..rustix::thread::CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
    numbers.filter_map(|number| u32::try_from(number).ok()).collect()
}

/// For which processors a profile probe is still to fire, of so many firings, when these were sampled: as in DTrace once for
/// each, so `cpu` is not ours.
fn idle(sampled: &[u32], firings: usize) -> Vec<Option<u32>> {
    let mut idle: Vec<u32> = processors().into_iter().cycle().take(firings).collect();
    for processor in sampled {
        match idle.iter().position(|number| number == processor) {
            Some(at) => drop(idle.remove(at)),
            None => drop(idle.pop()),
        }
    }
    idle.into_iter().map(Some).collect()
}

impl Session {
    /// When the next timer is due.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.iter().map(Timer::due).min()
    }

    pub(super) fn start_timers(&mut self) {
        let now = Instant::now();
        let processors = processors().len();
        let mut timers: Vec<(ProbeIndex, Timer)> = Vec::new();
        for (index, enabling) in self.enablings.list().iter().enumerate() {
            let Some(Place::Interval(interval)) = self.probes.get(enabling.probe).map(|probe| &probe.place) else {
                continue;
            };
            if let Some((_, timer)) = timers.iter_mut().find(|(probe, _)| *probe == enabling.probe) {
                timer.enablings.push(index);
                continue;
            }
            let period = Duration::from_nanos(interval.period_ns);
            let is_profile = interval.kind == IntervalKind::Profile;
            let timer = Timer {
                enablings: vec![index],
                period,
                next: now + period,
                firings: if is_profile { processors } else { 1 },
                sampler: None,
                read: now,
            };
            timers.push((enabling.probe, timer));
        }
        self.timers = timers.into_iter().map(|(_, timer)| timer).collect();
        if !self.listing {
            self.start_sampling();
        }
    }

    fn start_sampling(&mut self) {
        let Some(process) = self.process.clone() else { return };
        for index in 0..self.timers.len() {
            let Some(timer) = self.timers.get(index) else { continue };
            if !self.is_profile(timer) {
                continue;
            }
            let walks = timer.enablings.iter().any(|enabling| self.walks_stack(*enabling));
            if walks {
                // Read before the first sample comes, since it takes a while.
                for module in 0..self.modules.list().len() {
                    rows_of(&mut self.rows, &self.modules, module);
                }
            }
            let period_ns = u64::try_from(timer.period.as_nanos()).unwrap_or(u64::MAX);
            match process.sampler(period_ns, walks) {
                Ok(sampler) => {
                    if sampler.may_miss_threads() {
                        let warning = format!(
                            "profile probes may miss threads of process {}: ever others appeared while the sampling began",
                            process.pid()
                        );
                        self.outputs.push_back(Output::Warning(warning));
                    }
                    if let Some(timer) = self.timers.get_mut(index) {
                        timer.sampler = Some(sampler);
                    }
                }
                Err(error) => {
                    let warning = format!("profile probes see no thread of process {}: {error}", process.pid());
                    self.outputs.push_back(Output::Warning(warning));
                    return;
                }
            }
        }
    }

    /// Samples go on when the process executes another program, whose code this is from now on.
    pub(super) fn sample_another_program(&mut self) {
        if self.timers.iter().any(|timer| timer.sampler.is_some()) {
            self.executed_another = true;
            self.look_for_code();
        }
    }

    /// Looks at the program that the process executes by now, and at its libraries, of which no dynamic linker tells us.
    fn look_for_code(&mut self) {
        self.code_looked_for = Instant::now();
        // What we hold of the process is of the program that is no more.
        let pid = self.process.as_ref().map(Process::pid);
        let Some(Ok(process)) = pid.map(Process::open) else {
            return;
        };
        let Ok(map) = process.map() else { return };
        let constants = &mut self.codegen.constants;
        constants.execname.clone_from(&process.facts().name);
        constants.arguments = identity::arguments_of(process.pid() as u32);
        let (pid, executable) = (process.living_thread(), process.facts().executable.clone());
        let _ = self.modules.update(pid, &map, process.memory(), &executable);
    }

    /// Whether samples show code that no module has, and it is time to look for it.
    fn shows_new_code(&self, samples: &[Sample]) -> bool {
        let is_unknown = |sample: &Sample| {
            let executed = sample.user.as_ref().map(|user| TargetAddress(user.register("ip")));
            executed.is_some_and(|address| self.modules.find(address).is_none())
        };
        self.executed_another && self.code_looked_for.elapsed() > CODE_PERIOD && samples.iter().any(is_unknown)
    }

    fn is_profile(&self, timer: &Timer) -> bool {
        let enabling = timer
            .enablings
            .first()
            .and_then(|index| self.enablings.list().get(*index));
        let probe = enabling.and_then(|enabling| self.probes.get(enabling.probe));
        matches!(probe.map(|probe| &probe.place), Some(Place::Interval(interval)) if interval.kind == IntervalKind::Profile)
    }

    fn walks_stack(&self, enabling: usize) -> bool {
        let enabling = self.enablings.list().get(enabling);
        let clause = enabling.and_then(|enabling| self.program.clauses.get(enabling.clause));
        clause.is_some_and(nanoprobe_lang::program::Clause::walks_stack)
    }

    pub(super) fn fire_timers(&mut self) -> Result<(), SessionError> {
        let now = Instant::now();
        for index in 0..self.timers.len() {
            let Some(timer) = self.timers.get_mut(index).filter(|timer| timer.due() <= now) else {
                continue;
            };
            if let Some(sampler) = timer.sampler.as_mut() {
                sampler.read();
                timer.read = now;
            }
            if timer.next > now {
                continue;
            }
            let due = due(timer.next, timer.period, now);
            timer.next = due.next;
            let firings = timer.firings.saturating_mul(due.firings);
            if timer.sampler.is_none() {
                self.missed_ticks += due.missed;
            }
            let sampled = self.fire_samples(index)?;
            let enablings = self
                .timers
                .get(index)
                .map_or_else(Vec::new, |timer| timer.enablings.clone());
            let is_profile = self.timers.get(index).is_some_and(|timer| self.is_profile(timer));
            let idle = if is_profile {
                idle(&sampled, firings)
            } else {
                vec![None; firings]
            };
            for processor in idle {
                self.tracer.processor = processor;
                for enabling in &enablings {
                    self.fire(*enabling, [0; 10], None)?;
                }
            }
            self.tracer.processor = None;
        }
        Ok(())
    }

    /// What was sampled up to the end.
    pub(super) fn end_timers(&mut self) -> Result<(), SessionError> {
        for index in 0..self.timers.len() {
            self.fire_samples(index)?;
        }
        self.timers.clear();
        Ok(())
    }

    /// Fires a probe for each sample that has come; yields the processors that they are of.
    fn fire_samples(&mut self, index: usize) -> Result<Vec<u32>, SessionError> {
        let Some(sampler) = self.timers.get_mut(index).and_then(|timer| timer.sampler.as_mut()) else {
            return Ok(Vec::new());
        };
        let (samples, lost) = sampler.take();
        self.lost_samples += lost;
        let enablings = self
            .timers
            .get(index)
            .map_or_else(Vec::new, |timer| timer.enablings.clone());
        let walks = enablings.iter().any(|enabling| self.walks_stack(*enabling));
        let is_inside = self
            .process
            .as_ref()
            .is_some_and(|process| process.facts().in_other_pid_namespace);
        if self.shows_new_code(&samples) {
            self.look_for_code();
        }
        let constants = self.codegen.constants.clone();
        for sample in &samples {
            let frames = if walks { self.frames_of(sample) } else { Vec::new() };
            let inner = self.process.as_ref().filter(|_| is_inside);
            let tid = inner.and_then(|process| process.inner_tid(sample.thread));
            let thread = SampledThread {
                sample,
                tid: tid.unwrap_or(sample.thread) as u32,
                frames: &frames,
                constants: &constants,
            };
            for enabling in &enablings {
                self.fire(*enabling, sampled::arguments(sample), Some(thread))?;
            }
        }
        Ok(samples.iter().map(|sample| sample.processor).collect())
    }

    fn frames_of(&mut self, sample: &Sample) -> Vec<u64> {
        let Some(user) = sample.user.as_ref() else {
            return Vec::new();
        };
        let (rows, modules) = (&mut self.rows, &self.modules);
        stack::walk(user, |pc| {
            let Some((index, module)) = modules.find(TargetAddress(pc)) else {
                return Known::Nothing;
            };
            let base = module.bias().to_target(module.unwind_base()).0;
            let rows = rows_of(rows, modules, index);
            let Some(relative) = pc.checked_sub(base) else {
                return Known::Nothing;
            };
            let behind = rows.partition_point(|row| u64::from(row.pc) <= relative);
            let row = behind.checked_sub(1).and_then(|index| rows.get(index));
            row.map_or(Known::Nothing, |row| Known::Row(*row))
        })
    }
}

/// The rows of a module, compiled when they are first needed.
fn rows_of<'r>(rows: &'r mut HashMap<usize, Vec<UnwindRow>>, modules: &Modules, index: usize) -> &'r [UnwindRow] {
    rows.entry(index).or_insert_with(|| {
        let module = modules.list().get(index);
        module.map(nanoprobe_symbols::unwind_rows).unwrap_or_default()
    })
}
