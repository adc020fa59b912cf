//! `tick-...` and `profile-...`.
//!
//! A `tick` fires once each time. A `profile` fires once for each processor. Where a thread of the target was on
//! the processor it fires for a sample of that thread ([`nanoprobe_target::Sampler`]), and for the other processors
//! it fires in the tracer. Without a target it fires for samples of all processes (`system`).

mod switches;
mod system;
mod wakings;

use std::time::{Duration, Instant};

use nanoprobe_lang::options::IntervalKind;
use nanoprobe_lang::program::{Clause, Side};
use nanoprobe_patch::TargetAddress;
use nanoprobe_runtimes::{CachedMemory, Cursor};
use nanoprobe_target::{Exit, Process, Sample, Sampler, Stacks};

use super::elsewhere::Processes;
use super::rows::Rows;
use super::switches::Switches;
use super::timer::{Timer, due};
use crate::acquire::Role;
use crate::error::SessionError;
use crate::interpreted::{Sources, TargetMemory};
use crate::kernel_names;
use crate::probes::{Place, ProbeIndex};
use crate::sampled;
use crate::sampled::SampledThread;
use crate::session::known::Known;
use crate::session::tracing::Tracing;
use crate::stack::Made;

/// How often to look for code that samples have shown and that no module has.
const CODE_PERIOD: Duration = Duration::from_millis(100);

/// The processors that we may run on.
fn processors() -> Vec<u32> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
        return vec![0];
    };
    let numbers = (0..rustix::thread::CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
    numbers.filter_map(|number| u32::try_from(number).ok()).collect()
}

/// The processors for which a profile probe must still fire when `sampled` were sampled, if it fires `firings` times in
/// all. As in DTrace it fires once for each processor, so `cpu` is not the tracer's own.
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

/// The timers of a program, and what samples need.
pub(super) struct Timers {
    list: Vec<Timer>,
    /// The process executes another program than the instrumented one, and is still sampled.
    executed_another: bool,
    code_looked_for: Instant,
    /// A descriptor of samples is at its end.
    cannot_wake: bool,
    /// How to walk through each module's frames.
    rows: Rows,
    /// The processes of samples, where there is no target.
    elsewhere: Processes,
    /// The switches of the target's threads, for `sched`.
    switches: Option<Switches>,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            list: Vec::new(),
            executed_another: false,
            code_looked_for: Instant::now(),
            cannot_wake: false,
            rows: Rows::default(),
            elsewhere: Processes::default(),
            switches: None,
        }
    }
}

impl Timers {
    /// When the next timer is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.list.iter().map(Timer::due).min()
    }

    /// Starts the timers.
    pub(super) fn start(&mut self, tracing: &mut Tracing) {
        let known = &tracing.known;
        let now = Instant::now();
        let processors = processors().len();
        let mut timers: Vec<(ProbeIndex, Timer)> = Vec::new();
        for (index, enabling) in known.enablings().enumerate() {
            let Some(Place::Interval(interval)) = known.probe(enabling.probe).map(|probe| &probe.place) else {
                continue;
            };
            if let Some((_, timer)) = timers.iter_mut().find(|(probe, _)| *probe == enabling.probe) {
                timer.enablings.push(index);
                continue;
            }
            let period = Duration::from_nanos(interval.period_ns);
            let is_profile = interval.kind == IntervalKind::Profile;
            // The first session of a run has the ticks, and fires for the idle processors. In a set, profile fires for
            // samples only: it is unknown on how many processors all members together were idle.
            let is_elsewhere = match known.role {
                Role::First => false,
                Role::Leader => is_profile,
                Role::Member { .. } => !is_profile,
            };
            if is_elsewhere {
                continue;
            }
            let timer = Timer {
                enablings: vec![index],
                period,
                next: now + period,
                firings: match is_profile {
                    true if known.is_member() => 0,
                    true => processors,
                    false => 1,
                },
                sampler: None,
                system: None,
                look_at: now,
                read: now,
                stacks: Vec::new(),
                is_interpreted: false,
            };
            timers.push((enabling.probe, timer));
        }
        self.list = timers.into_iter().map(|(_, timer)| timer).collect();
        self.start_sampling(tracing);
        self.start_switches(tracing);
    }

    /// Counts all periods from now on: all probes are in place. The samples that were taken meanwhile stay.
    pub(super) fn count_from_now(&mut self) {
        let now = Instant::now();
        for timer in &mut self.list {
            timer.next = now + timer.period;
        }
    }

    fn start_sampling(&mut self, tracing: &mut Tracing) {
        let known = &tracing.known;
        let Some(process) = known.process().cloned() else {
            if known.role == Role::First {
                self.start_system(tracing);
            }
            return;
        };
        for timer in &mut self.list {
            let known = &tracing.known;
            if !is_profile(known, timer) {
                continue;
            }
            let stacks = stacks_of(known, &timer.enablings);
            if stacks.program {
                // Read before the first sample comes, since this takes a while.
                for module in 0..known.modules.list().len() {
                    self.rows.of(&known.modules, module);
                }
            }
            let period_ns = u64::try_from(timer.period.as_nanos()).unwrap_or(u64::MAX);
            if stacks.kernel {
                kernel_names::prepare().into_iter().for_each(|text| tracing.warn(text));
            }
            let is_interpreted = stacks.program && looks_for_runtimes(tracing, &process);
            match process.sampler(period_ns, stacks, is_interpreted) {
                Ok(sampler) => {
                    if sampler.may_miss_threads() {
                        let warning = format!(
                            "profile probes may miss threads of process {}: new threads kept appearing while the \
                             sampling began",
                            process.pid()
                        );
                        tracing.warn(warning);
                    }
                    timer.sampler = Some(sampler);
                }
                Err(error) => {
                    let warning = format!("profile probes see no thread of process {}: {error}", process.pid());
                    tracing.warn(warning);
                    return;
                }
            }
        }
    }

    /// After the process executes another program, samples go on with that program's code.
    pub(super) fn sample_another_program(&mut self, known: &mut Known) {
        if self.switches.is_some() || self.list.iter().any(|timer| timer.sampler.is_some()) {
            self.executed_another = true;
            self.look_for_code(known);
        }
    }

    /// No dynamic linker reports what another program loads.
    fn look_for_code(&mut self, known: &mut Known) {
        self.code_looked_for = Instant::now();
        known.update_after_exec();
    }

    /// Whether [`Timers::wait`] has more to wait for than the process's end.
    pub(super) fn has_samplers(&self) -> bool {
        self.list.iter().any(|timer| timer.sampler.is_some())
    }

    /// Waits for the process's end. Reads samples of interpreted code as soon as they come.
    pub(super) fn wait(&mut self, process: &Process, wait: Duration, tracing: &mut Tracing) -> Option<Exit> {
        let samplers = self.list.iter().filter_map(|timer| timer.sampler.as_ref());
        let wakers: Vec<_> = samplers.flat_map(Sampler::descriptors).collect();
        if self.cannot_wake || wakers.is_empty() {
            return process.wait_exit(Some(wait));
        }
        let (exit, can_wake) = process.wait_exit_or(&wakers, wait);
        // Each wait would end at once.
        self.cannot_wake = !can_wake;
        for index in 0..self.list.len() {
            if let Some(sampler) = self.list.get_mut(index).and_then(|timer| timer.sampler.as_mut()) {
                sampler.read();
            }
            self.walk_samples(tracing, index);
        }
        exit
    }

    fn is_time_to_look(&self) -> bool {
        self.executed_another && self.code_looked_for.elapsed() > CODE_PERIOD
    }

    pub(super) fn fire(&mut self, tracing: &mut Tracing) -> Result<(), SessionError> {
        self.fire_switches(tracing, false)?;
        let now = Instant::now();
        for index in 0..self.list.len() {
            let Some(timer) = self.list.get_mut(index).filter(|timer| timer.due() <= now) else {
                continue;
            };
            if timer.system.is_some() {
                timer.read = now;
                self.fire_system(tracing, index)?;
                continue;
            }
            if let Some(sampler) = timer.sampler.as_mut() {
                sampler.read();
                timer.read = now;
            }
            self.walk_samples(tracing, index);
            let Some(timer) = self.list.get_mut(index) else {
                continue;
            };
            if timer.next > now {
                continue;
            }
            let due = due(timer.next, timer.period, now);
            timer.next = due.next;
            let firings = timer.firings.saturating_mul(due.firings);
            if timer.sampler.is_none() {
                tracing.lost.ticks += due.missed;
            }
            let sampled = self.fire_samples(tracing, index)?;
            let Some(timer) = self.list.get(index) else { continue };
            let is_profile = is_profile(&tracing.known, timer);
            let idle = if is_profile {
                idle(&sampled, firings)
            } else {
                vec![None; firings]
            };
            for processor in idle {
                tracing.tracer.processor = processor;
                for enabling in &timer.enablings {
                    tracing.fire(*enabling, [0; 10], None)?;
                }
            }
            tracing.tracer.processor = None;
        }
        Ok(())
    }

    /// Fires for the samples up to the end.
    pub(super) fn end(&mut self, tracing: &mut Tracing) -> Result<(), SessionError> {
        self.end_sampling(tracing)?;
        self.list.clear();
        Ok(())
    }

    /// Fires for the samples up to now, and takes no more. The ticks of the run go on.
    pub(super) fn end_sampling(&mut self, tracing: &mut Tracing) -> Result<(), SessionError> {
        self.fire_switches(tracing, true)?;
        if let Some(switches) = self.switches.take() {
            wakings::tell_unseen(&switches, tracing);
        }
        for index in 0..self.list.len() {
            self.fire_system(tracing, index)?;
            self.fire_samples(tracing, index)?;
        }
        for timer in &self.list {
            system::tell_missing(timer, tracing);
        }
        self.list.retain(|timer| !is_profile(&tracing.known, timer));
        Ok(())
    }

    /// Fires a probe for each sample that has come; yields the processors of the samples.
    fn fire_samples(&mut self, tracing: &mut Tracing, index: usize) -> Result<Vec<u32>, SessionError> {
        if let Some(sampler) = self.list.get_mut(index).and_then(|timer| timer.sampler.as_mut()) {
            sampler.read();
        }
        self.walk_samples(tracing, index);
        let Some(timer) = self.list.get_mut(index) else {
            return Ok(Vec::new());
        };
        let stacks = std::mem::take(&mut timer.stacks);
        let Some(sampler) = timer.sampler.as_mut() else {
            return Ok(Vec::new());
        };
        let (samples, lost) = sampler.take_read();
        tracing.lost.samples += lost;
        let enablings = timer.enablings.clone();
        if self.is_time_to_look() && shows_new_code(&tracing.known, &samples) {
            self.look_for_code(&mut tracing.known);
        }
        let constants = tracing.known.codegen.constants.clone();
        for (index, sample) in samples.iter().enumerate() {
            let thread = SampledThread {
                sample,
                tid: own_number(&tracing.known, sample),
                frames: stacks.get(index).map_or(&[], Vec::as_slice),
                call: None,
                other: None,
                constants: &constants,
            };
            for enabling in &enablings {
                tracing.fire(*enabling, sampled::arguments(sample), Some(thread))?;
            }
        }
        Ok(samples.iter().map(|sample| sample.processor).collect())
    }

    /// Walks the stacks of the samples that have come since the last call.
    fn walk_samples(&mut self, tracing: &mut Tracing, index: usize) {
        let is_time_to_look = self.is_time_to_look();
        let Some(timer) = self.list.get_mut(index) else { return };
        let Some(sampler) = &timer.sampler else { return };
        let fresh = sampler.kept().get(timer.stacks.len()..).unwrap_or_default();
        if !stacks_of(&tracing.known, &timer.enablings).program || fresh.is_empty() {
            return;
        }
        if is_time_to_look && shows_new_code(&tracing.known, fresh) {
            self.code_looked_for = Instant::now();
            tracing.known.update_after_exec();
        }
        let known = &tracing.known;
        let memory = known.process().map(Process::memory);
        timer.is_interpreted = known
            .process()
            .is_some_and(|process| looks_for_runtimes(tracing, process));
        let mut interpreted = known.interpreted.borrow_mut();
        let target = memory.map(TargetMemory);
        let cached = target.as_ref().map(|target| CachedMemory::new(target));
        let mut stacks = Vec::new();
        for sample in fresh {
            let Some(user) = sample.user.as_ref() else {
                stacks.push(Vec::new());
                continue;
            };
            let (Some(target), Some(memory), true) = (memory, &cached, timer.is_interpreted) else {
                let native = self.rows.frames(&known.modules, user, |_| Made::ByNone);
                stacks.push(native.iter().map(|frame| frame.pc).collect());
                continue;
            };
            let sources = Sources {
                arena: tracing.shared_arena(),
                target,
                memory,
                modules: &known.modules,
                user,
            };
            let reading = interpreted.read_thread(target, own_number(known, sample));
            let of_code = |cursor: &Cursor| interpreted.caller_in_code(&sources, cursor);
            let native = self.rows.frames(&known.modules, user, of_code);
            stacks.push(interpreted.frames_of_sample(&sources, &native, reading.as_ref()));
        }
        timer.stacks.extend(stacks);
    }
}

/// A thread's number, as the program knows it.
fn own_number(known: &Known, sample: &Sample) -> u32 {
    let process = known.process().filter(|process| process.facts().in_other_pid_namespace);
    let inner = process.and_then(|process| process.inner_tid(sample.thread));
    inner.unwrap_or(sample.thread) as u32
}

/// Whether samples show code that no module has.
fn shows_new_code(known: &Known, samples: &[Sample]) -> bool {
    let is_unknown = |sample: &Sample| {
        let executed = sample.user.as_ref().map(|user| TargetAddress(user.register("ip")));
        executed.is_some_and(|address| known.modules.find(address).is_none())
    };
    samples.iter().any(is_unknown)
}

fn looks_for_runtimes(tracing: &Tracing, process: &Process) -> bool {
    let mut interpreted = tracing.known.interpreted.borrow_mut();
    interpreted.looks_for_runtimes(&tracing.known.modules, (tracing.shared_arena(), process.memory()))
}

fn is_profile(known: &Known, timer: &Timer) -> bool {
    let enabling = timer
        .enablings
        .first()
        .and_then(|index| known.enablings.list().get(*index));
    let probe = enabling.and_then(|enabling| known.probes.get(enabling.probe));
    matches!(probe.map(|probe| &probe.place), Some(Place::Interval(interval)) if interval.kind == IntervalKind::Profile)
}

/// The stacks that the clauses of these enablings ask for.
fn stacks_of<'e>(known: &Known, enablings: impl IntoIterator<Item = &'e usize>) -> Stacks {
    let mut stacks = Stacks::default();
    for clause in enablings.into_iter().filter_map(|index| clause_of(known, *index)) {
        stacks.program |= clause.walks_stack();
        stacks.kernel |= clause.shows_stack(Side::Kernel);
    }
    stacks
}

fn clause_of(known: &Known, enabling: usize) -> Option<&Clause> {
    let enabling = known.enablings.list().get(enabling)?;
    known.program().clauses.get(enabling.clause)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Placing the probes has taken longer than a period.
    #[test]
    fn the_first_interval_is_a_whole_one() {
        let started = Instant::now()
            .checked_sub(Duration::from_secs(5))
            .expect("an earlier time");
        let period = Duration::from_secs(1);
        let timer = Timer {
            enablings: vec![0],
            period,
            next: started + period,
            firings: 1,
            sampler: None,
            system: None,
            look_at: started,
            read: started,
            stacks: Vec::new(),
            is_interpreted: false,
        };
        let mut timers = Timers {
            list: vec![timer],
            ..Timers::default()
        };
        let placed = Instant::now();
        assert!(timers.next().is_some_and(|next| next < placed), "it would fire at once");
        timers.count_from_now();
        assert!(timers.next().is_some_and(|next| next >= placed + period));
    }
}
