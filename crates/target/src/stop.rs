//! Stopping threads, and letting them go as if nothing had happened.
//!
//! 1. Wait, with a limit, until each thread has been seen outside of an uninterruptible sleep (a vfork parent, a
//!    hanging file system). A thread that is asked to stop there would stop later, unnoticed.
//! 2. `PTRACE_SEIZE` and `PTRACE_INTERRUPT` every thread in /proc/PID/task, then wait for each to stand still. Repeat
//!    until two listings in a row show no new thread: threads that create threads are stopped sooner or later.
//! 3. A thread may report something other than our stop:
//!    - about to receive a signal: it is interrupted anew and resumed *with* the signal. So the handler's frame is
//!      built, or the default action taken, exactly once, and the thread stops at the handler's first instruction;
//!    - stopped by us between an instruction that trapped or faulted and the signal for that: it is resumed without
//!      being interrupted, and then reports that it is about to receive that signal. Otherwise the signal would come
//!      while the thread makes calls for the tracer, and would be lost as if these calls had raised it. After an
//!      `int3` the thread would go on in the middle of an instruction;
//!    - stopped by job control: that stop is reported in the same way as ours, and the kernel resumes it on detach;
//!    - at its end: the thread is gone; at an execve: the whole stop fails with [`StopError::Executed`]. The stop
//!      also fails if the program that was opened had been replaced before.
//! 4. Detach. Deliberate changes ([`Stopped::set_registers`]) stay.

mod interruptible;
mod patience;
mod progress;
mod standing;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::claim::Claim;
use crate::error::{MemoryError, StopError};
use crate::process::Process;
use crate::raw::{self, Event, Resume};
use crate::status::Status;
use crate::urgency::Urgency;
use crate::{ThreadId, restart, sandbox, threads};

pub(crate) use patience::Patience;
pub(crate) use progress::Progress;

/// How long a thread may take to leave an uninterruptible sleep. It may then take as long to stop.
const LIMIT: Duration = Duration::from_secs(1);
/// The least number of looks before a wait ends, because a tracer that had no processor meanwhile has seen nothing.
const LOOKS_MIN: u32 = 500;
/// The limit for a thread that is ready to run, and stops as soon as a busy machine lets it.
const BUSY_LIMIT: Duration = Duration::from_secs(60);
/// How long a release waits for a thread that could not be stopped.
const STRAGGLER_LIMIT: Duration = Duration::from_secs(5);
/// The largest number of threads of one process. The kernel's own default limit is lower on most machines.
const THREADS_MAX: usize = 1 << 17;

/// The threads of a process, standing still. Dropping it lets all of them go.
///
/// It is not `Send`: the kernel accepts ptrace requests only from the thread that seized. A thread of the target that
/// could not be stopped ([`StopError::Uninterruptible`]) is detached as soon as possible, for at most five seconds.
/// After that, the kernel detaches it when the calling thread ends.
#[derive(Debug)]
pub struct Stopped {
    process: Process,
    threads: BTreeMap<ThreadId, State>,
    since: Instant,
    all: bool,
    /// Raises the tracer's priority while a thread is stopped.
    urgency: Option<Urgency>,
    /// Keeps other tracers out meanwhile.
    claim: Option<Claim>,
    tied_to_thread: PhantomData<*const ()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The thread is seized and was asked to stop.
    Running,
    /// The thread stands at PTRACE_EVENT_STOP.
    Standing,
    Ended,
}

/// The threads to wait for, and the deadlines.
#[derive(Debug)]
pub(crate) struct Wait {
    tids: Vec<ThreadId>,
    executed: bool,
    deadline: Instant,
    busy: Instant,
    looks: u32,
}

/// The outcome of a wait for one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Standing,
    Ended,
}

impl Process {
    /// Stops all threads.
    ///
    /// # Errors
    /// [`StopError`]; the threads that were stopped by then run again.
    pub fn stop(&self) -> Result<Stopped, StopError> {
        let claim = self.claim()?;
        self.wait_for_interruptible(&self.listed()?)?;
        let mut stopped = Stopped::new(self.clone(), true);
        stopped.claim = Some(claim);
        stopped.urgency = Some(Urgency::begin());
        stopped.since = Instant::now();
        let mut quiet_listings = 0;
        while quiet_listings < 2 {
            let listed = self.listed()?;
            quiet_listings += 1;
            for tid in listed {
                match stopped.threads.get(&tid) {
                    Some(State::Running | State::Standing) => continue,
                    Some(State::Ended) if threads::has_ended(self.pid(), tid) => continue,
                    // The number may also belong to a new thread by now.
                    _ => stopped.seize(tid)?,
                }
                quiet_listings = 0;
            }
            stopped.await_all()?;
            if stopped.threads.len() > THREADS_MAX {
                return Err(StopError::TooManyThreads {
                    pid: self.pid(),
                    threads: stopped.threads.len(),
                });
            }
        }
        stopped.of_this_program()
    }

    /// Stops one thread: the main one, or another if the main one has ended or sleeps uninterruptibly. The others run
    /// on.
    ///
    /// # Errors
    /// As [`Process::stop`].
    pub fn stop_one(&self) -> Result<Stopped, StopError> {
        let claim = self.claim()?;
        let alive: Vec<ThreadId> = self
            .listed()?
            .into_iter()
            .filter(|&tid| !threads::has_ended(self.pid(), tid))
            .collect();
        let can_stop = alive.iter().find(|&&tid| threads::state(self.pid(), tid) != Some('D'));
        let tid = can_stop.or(alive.first()).copied();
        let tid = tid.ok_or(StopError::Gone { pid: self.pid() })?;
        self.wait_for_interruptible(&[tid])?;
        let mut stopped = self.stop_thread(tid)?;
        stopped.claim = Some(claim);
        Ok(stopped)
    }

    /// Stops this thread, which must not be in an uninterruptible sleep. The others run on.
    fn stop_thread(&self, tid: ThreadId) -> Result<Stopped, StopError> {
        let urgency = Urgency::begin();
        let mut stopped = self.ask_to_stop(tid)?;
        stopped.urgency = Some(urgency);
        stopped.await_all()?;
        stopped.of_this_program()
    }

    /// Asks a thread to stop, without waiting: [`Stopped::look`] shows when it has stopped.
    pub(crate) fn ask_to_stop(&self, tid: ThreadId) -> Result<Stopped, StopError> {
        let mut stopped = Stopped::new(self.clone(), false);
        stopped.seize(tid)?;
        Ok(stopped)
    }

    pub(crate) fn listed(&self) -> Result<Vec<ThreadId>, StopError> {
        self.threads().map_err(|error| match error {
            MemoryError::Gone { pid } => StopError::Gone { pid },
            error => error.into(),
        })
    }
}

impl Stopped {
    pub(crate) fn new(process: Process, all: bool) -> Stopped {
        Stopped {
            process,
            threads: BTreeMap::new(),
            since: Instant::now(),
            all,
            urgency: None,
            claim: None,
            tied_to_thread: PhantomData,
        }
    }

    /// Checks that the threads stand in the program that was opened, because calls that are meant for it would do
    /// harm in another program.
    fn of_this_program(self) -> Result<Stopped, StopError> {
        let pid = self.process.pid();
        if self.threads().next().is_none() {
            Err(StopError::Gone { pid })
        } else if self.process.has_executed() {
            Err(StopError::Executed { pid })
        } else {
            Ok(self)
        }
    }

    /// Takes over a thread that is seized already, and stops it.
    pub(crate) fn adopt(&mut self, tid: ThreadId) -> Result<(), StopError> {
        self.threads.insert(tid, State::Running);
        self.await_all()
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The time since which the first thread has been standing still, or a little earlier: the time of the request.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Whether all threads are stopped, not only one.
    pub fn is_whole_process(&self) -> bool {
        self.all
    }

    pub fn threads(&self) -> impl Iterator<Item = ThreadId> {
        self.threads
            .iter()
            .filter(|&(_, &state)| state == State::Standing)
            .map(|(&tid, _)| tid)
    }

    /// Lets all threads go. Returns how long the first of them was held.
    pub fn release(mut self) -> Duration {
        self.let_go();
        self.since.elapsed()
    }

    /// Lets all threads go except one. Returns how long the first of them was held. From now on, this value stands
    /// for that one thread.
    pub fn release_others(&mut self, tid: ThreadId) -> Duration {
        let (kept, others) = std::mem::take(&mut self.threads)
            .into_iter()
            .partition(|&(other, state)| other == tid && state == State::Standing);
        self.threads = others;
        self.let_go();
        self.threads = kept;
        self.all = false;
        let held = self.since.elapsed();
        self.since = Instant::now();
        held
    }

    pub(crate) fn failed(&self, tid: ThreadId, request: &'static str) -> impl Fn(Errno) -> StopError + use<> {
        let pid = self.process.pid();
        move |errno| StopError::Ptrace {
            pid,
            tid,
            request,
            errno,
        }
    }

    /// Notes that the thread is no longer stopped.
    pub(crate) fn lost(&mut self, tid: ThreadId) {
        self.process.at_start().end();
        self.threads.insert(tid, State::Running);
    }

    /// Counts that a borrowed thread is resumed.
    pub(crate) fn count_resume(&self) {
        if self.all {
            self.process.count_resume_in_whole_stop();
        }
    }

    fn forget(&mut self, tid: ThreadId) {
        self.threads.insert(tid, State::Ended);
    }

    fn seize(&mut self, tid: ThreadId) -> Result<(), StopError> {
        let pid = self.process.pid();
        match raw::seize(tid) {
            Ok(()) => {}
            // The thread has ended since it was listed. An ended main thread stays listed, so its number is remembered.
            Err(Errno::ESRCH | Errno::EPERM) if threads::has_ended(pid, tid) => {
                self.forget(tid);
                return Ok(());
            }
            Err(errno) => {
                let tracer = Status::of(tid).map_or(0, |status| status.tracer);
                let reason = if tracer != 0 {
                    format!("process {tracer} traces it: end that one (or detach it) first")
                } else {
                    "another tracer has just let it go, or its user, its protection or the kernel's settings changed: try \
                     again, or run nanoprobe as root"
                        .to_owned()
                };
                return Err(StopError::Refused {
                    pid,
                    tid,
                    errno,
                    reason,
                });
            }
        }
        self.threads.insert(tid, State::Running);
        // ESRCH means that the thread has just ended. The wait that follows will find that out.
        let _ = raw::interrupt(tid);
        Ok(())
    }

    /// Waits for all threads that were asked to stop, looking at each in turn. A wait for a single thread might never
    /// end: a thread in execve waits until its siblings have ended and the tracer has collected them.
    fn await_all(&mut self) -> Result<(), StopError> {
        let mut wait = self.wait();
        let mut patience = Patience::until(wait.busy);
        while !self.look(&mut wait, patience.is_long())? {
            patience.pause();
        }
        Ok(())
    }

    /// Begins a wait for the threads that were asked to stop and do not stand still yet.
    pub(crate) fn wait(&self) -> Wait {
        let now = Instant::now();
        Wait {
            tids: self.running(),
            executed: false,
            deadline: now + LIMIT,
            busy: now + BUSY_LIMIT,
            looks: 0,
        }
    }

    /// Looks once at each thread that is waited for; true when none is left. `look_closer` also asks /proc.
    ///
    /// # Errors
    /// [`StopError::Uninterruptible`] when the time is over, [`StopError::Executed`].
    pub(crate) fn look(&mut self, wait: &mut Wait, look_closer: bool) -> Result<bool, StopError> {
        let pid = self.process.pid();
        wait.tids.retain(
            |&tid| match poll_stop(&self.process, tid, look_closer, &mut wait.executed) {
                None => true,
                Some(Outcome::Standing) => {
                    self.threads.insert(tid, State::Standing);
                    hide_interruption(tid);
                    false
                }
                Some(Outcome::Ended) => {
                    self.threads.insert(tid, State::Ended);
                    false
                }
            },
        );
        if look_closer {
            self.collect_ended();
        }
        let Some(&tid) = wait.tids.first() else {
            return if wait.executed {
                Err(StopError::Executed { pid })
            } else {
                Ok(true)
            };
        };
        let now = Instant::now();
        wait.looks = wait.looks.saturating_add(1);
        if now < wait.deadline || wait.looks < LOOKS_MIN {
            return Ok(false);
        }
        let state = threads::state(pid, tid).unwrap_or('?');
        // 't': the thread has stopped since the last look.
        if matches!(state, 'R' | 't') && now < wait.busy {
            wait.deadline = now + LIMIT;
            return Ok(false);
        }
        Err(StopError::Uninterruptible {
            pid,
            tid,
            state,
            place: threads::waits_at(pid, tid),
        })
    }

    /// Collects the threads that were killed while they stood.
    fn collect_ended(&mut self) {
        let process = &self.process;
        for (&tid, state) in self.threads.iter_mut().filter(|(_, state)| **state == State::Standing) {
            if has_ended(process, tid) {
                *state = State::Ended;
            }
        }
    }

    fn running(&self) -> Vec<ThreadId> {
        self.threads
            .iter()
            .filter(|&(_, &state)| state == State::Running)
            .map(|(&tid, _)| tid)
            .collect()
    }

    fn let_go(&mut self) {
        self.process.at_start().end();
        let mut stragglers = self.running();
        // ESRCH: the thread was killed while it stood still. Unless we collect its end, its parent is never told of it.
        let detach = |tid: &ThreadId| raw::resume(*tid, Resume::Detach, 0).is_err();
        let mut killed: Vec<ThreadId> = self.threads().filter(detach).collect();
        self.threads.clear();
        let limit = if stragglers.is_empty() { LIMIT } else { STRAGGLER_LIMIT };
        let mut patience = Patience::until(Instant::now() + limit);
        loop {
            stragglers.retain(
                |&tid| match poll_stop(&self.process, tid, patience.is_long(), &mut false) {
                    None => true,
                    Some(Outcome::Ended) => false,
                    Some(Outcome::Standing) => {
                        hide_interruption(tid);
                        killed.extend(Some(tid).filter(detach));
                        false
                    }
                },
            );
            killed.retain(|&tid| !has_ended(&self.process, tid));
            if (stragglers.is_empty() && killed.is_empty()) || !patience.pause() {
                return;
            }
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Looks once at what a traced thread reports on its way to our stop. Sets `executed` if it has executed another
/// program. `look_closer` also asks /proc.
fn poll_stop(process: &Process, tid: ThreadId, look_closer: bool, executed: &mut bool) -> Option<Outcome> {
    let signal = match raw::poll_event(tid, process.keeps_end(tid)) {
        Ok(Some(Event::Interrupted)) if !is_about_to_be_signalled(tid) => return Some(Outcome::Standing),
        Ok(Some(Event::Interrupted)) => {
            // The thread is not interrupted anew: the kernel would handle that before the signal. It executes nothing
            // before it reports the signal. An error means that the thread was killed; the next look will show that.
            let _ = raw::resume(tid, Resume::Continue, 0);
            return None;
        }
        Ok(Some(Event::Ended)) | Err(_) => return Some(Outcome::Ended),
        Ok(Some(Event::Signal(signal))) => signal,
        Ok(Some(Event::Executed)) => {
            *executed = true;
            0
        }
        Ok(Some(Event::SystemCall | Event::Other(_))) => 0,
        // A main thread that ended before the others is reported together with the last of them, and `wait_exit`
        // collects it. Any other thread reports its own end and has to be collected, or the process never ends for its
        // parent.
        Ok(None) => {
            let main_ended = look_closer && tid == process.pid() && threads::has_ended(process.pid(), tid);
            return main_ended.then_some(Outcome::Ended);
        }
    };
    // Any stop cancels the pending interruption, so it is requested again before the thread can run. Errors mean
    // that the thread was killed; the next look will show that.
    let _ = raw::interrupt(tid);
    let _ = raw::resume(tid, Resume::Continue, signal);
    None
}

/// Whether an instruction of a standing thread has raised a signal that the thread has not received yet.
fn is_about_to_be_signalled(tid: ThreadId) -> bool {
    let raised = threads::raised_by_itself();
    // Usually there is no such signal, so the cheap question comes first. An error means that the thread is dead.
    raw::has_queued(tid, raised).unwrap_or(false) && threads::deliverable(tid) & raised != 0
}

/// Whether a stopped thread was killed. The call collects a killed thread.
fn has_ended(process: &Process, tid: ThreadId) -> bool {
    matches!(
        raw::poll_event(tid, process.keeps_end(tid)),
        Ok(Some(Event::Ended)) | Err(_)
    )
}

pub(crate) fn hide_interruption(tid: ThreadId) {
    // Errors mean that the thread was killed, so there is nothing to hide.
    if let Ok(mut registers) = raw::registers(tid)
        && (restart::hide_interruption(&mut registers)
            || restart::begin_anew(&mut registers) && sandbox::may_forbid_restart(tid))
    {
        let _ = raw::set_registers(tid, &registers);
    }
}
