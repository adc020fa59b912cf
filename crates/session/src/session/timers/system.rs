//! `profile-...` without a target: samples of all processes, or of those that the user may trace.

use std::time::{Duration, Instant};

use nanoprobe_target::{Event, Reach, SystemSampler};

use super::{Timer, Timers, is_profile, stacks_of};
use crate::error::SessionError;
use crate::kernel_names;
use crate::sampled::{self, SampledThread};
use crate::session::tracing::Tracing;

/// The shortest time between two looks for new processes, and how much of the time they take at most.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
const LOOK_SHARE: u32 = 50;

impl Timers {
    /// Starts the samples of a program that traces no process. Where there are none, `profile` does not fire: the
    /// tracer's own time is no answer.
    pub(super) fn start_system(&mut self, tracing: &mut Tracing) {
        let mut is_told = false;
        let mut failed = Vec::new();
        for (index, timer) in self.list.iter_mut().enumerate() {
            if !is_profile(&tracing.known, timer) {
                continue;
            }
            if !is_told {
                self.elsewhere.begin();
            }
            let stacks = stacks_of(&tracing.known, &timer.enablings);
            if stacks.kernel {
                kernel_names::prepare().into_iter().for_each(|text| tracing.warn(text));
            }
            let period_ns = u64::try_from(timer.period.as_nanos()).unwrap_or(u64::MAX);
            match SystemSampler::open(period_ns, stacks) {
                Ok(system) => {
                    if let (false, Some(text)) = (is_told, told(&system)) {
                        tracing.warn(text);
                    }
                    timer.system = Some(system);
                }
                Err(error) => {
                    tracing.warn(format!("profile probes see no process: {error}"));
                    failed.push(index);
                }
            }
            is_told = true;
        }
        for index in failed.into_iter().rev() {
            self.list.remove(index);
        }
    }

    /// Fires a probe for each sample of the system that has come.
    pub(super) fn fire_system(&mut self, tracing: &mut Tracing, index: usize) -> Result<(), SessionError> {
        let Timers { list, elsewhere, .. } = self;
        let Some(timer) = list.get_mut(index) else {
            return Ok(());
        };
        let Some(system) = timer.system.as_mut() else {
            return Ok(());
        };
        if timer.look_at <= Instant::now() {
            let start = Instant::now();
            system.look();
            timer.look_at = Instant::now() + LOOK_PERIOD.max(start.elapsed() * LOOK_SHARE);
        }
        let (events, lost) = system.take();
        tracing.lost.samples += lost;
        let (compiled, foreign) = (tracing.known.compiled.clone(), tracing.known.foreign.clone());
        for event in &events {
            let Event::Sample(sample) = event else {
                elsewhere.note(event);
                if let Event::Ended { thread, .. } = event {
                    tracing.tracer.forget_thread(thread.cast_unsigned());
                }
                continue;
            };
            let sighted = elsewhere.sighted(sample, &compiled, &foreign);
            let thread = SampledThread {
                sample,
                tid: sample.thread.cast_unsigned(),
                frames: &[],
                call: None,
                other: None,
                constants: sighted.constants,
            };
            for enabling in &timer.enablings {
                tracing.fire_for(*enabling, sampled::arguments(sample), Some(thread), Some(&sighted))?;
            }
        }
        Ok(())
    }
}

/// Tells of samples that should have come, and did not.
pub(super) fn tell_missing(timer: &Timer, tracing: &mut Tracing) {
    let Some(system) = &timer.system else { return };
    for missing in system.missing() {
        tracing.warn(format!(
            "the kernel gave {} of the {} samples that were due on processor {} (some virtual machines give none of an \
             idle processor); the others are in no result",
            missing.given, missing.due, missing.processor
        ));
    }
}

/// Which processes are sampled, if not all of them.
fn told(system: &SystemSampler) -> Option<String> {
    let Reach::Own { processes, others } = system.reach() else {
        return None;
    };
    let time = if system.sees_kernel() {
        ""
    } else {
        ", without their time in the kernel"
    };
    Some(format!(
        "profile probes sample the {processes} processes that you may trace{time}, and those that come; {others} others \
         are not sampled, nor is idle time (the whole system needs root, CAP_PERFMON, or 0 in \
         /proc/sys/kernel/perf_event_paranoid)"
    ))
}
