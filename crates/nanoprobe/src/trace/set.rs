//! A run on a set of processes: those of `-p A,B` or of a name, and those that `--exe`, `--cgroup` or `--container`
//! find, at first and while tracing.
//!
//! ```text
//!   leader                a session without a process: BEGIN, END and ticks fire there
//!   prepare               each process: the program is compiled for it, and its probes are matched
//!   begin                 BEGIN, then the probes of one process after the other
//!   rounds                what the members have recorded; a look for newcomers, of which one begins in each round
//! ```
//!
//! The program is compiled for each process, because types and addresses are each process's own. So `$target` is the
//! number of the process in which a clause fires. Variables must be the same in all: they begin as BEGIN leaves them.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nanoprobe_lang::{Diagnostic, Source};
use nanoprobe_session::{Acquired, Compiled, Known, Prepared, SessionError, TracedProgram};
use nanoprobe_target::Stat;

use super::anew::Root;
use super::compiling::{ForProcess, compile_for, first_of, has_same_results};
use crate::arguments::Arguments;
use crate::output::message;
use crate::processes::shown;
use crate::retry::Attempt;
use crate::wanted::{Listed, Rule};
use crate::{interrupt, traced};

/// The shortest time between two looks for newcomers, which take at most a fiftieth of the time.
pub const LOOK_PERIOD: Duration = Duration::from_millis(250);
const LOOK_SHARE: u32 = 50;
/// The most attempts for a new process that is just being started, or that executes a program at that moment.
const TRIES_MAX: u32 = 10;
/// The most new processes that are remembered because they could not be traced.
const FAILED_MAX: usize = 10_000;

/// A process that is about to be traced.
pub struct Ready {
    pub(super) pid: i32,
    pub(super) prepared: Prepared,
    pub(super) compiled: Rc<Compiled>,
    pub(super) traced: Rc<TracedProgram>,
}

impl Ready {
    /// The program of the process and of those that it makes.
    pub fn root(&self) -> Root {
        Root {
            compiled: self.compiled.clone(),
            asks: self.traced.was_asked(),
        }
    }
}

/// A process by its number and the time at which it began: numbers pass to other processes.
type Identity = (i32, u64);

/// The state of a set besides its members.
pub struct Set {
    /// The processes at first.
    pub(super) ready: VecDeque<Ready>,
    /// The numbers that descriptions may name.
    pids: Vec<i32>,
    rule: Option<Rule>,
    look_at: Instant,
    came: VecDeque<i32>,
    /// For each new process that is not traced: the number of attempts to attach to it.
    tries: HashMap<Identity, u32>,
    /// How many processes were attached to.
    pub(super) began: usize,
}

/// Compiles the program for a process, and finds its matches there. `first`: the program of the first process, of which
/// the output is made. The inner error is one of the text.
pub fn prepare(
    arguments: &Arguments,
    sources: &[Source],
    listed: &Listed,
    (pids, first): (&[i32], Option<&Compiled>),
    now: Attempt,
) -> Result<Result<Ready, Vec<Diagnostic>>, anyhow::Error> {
    let pid = listed.pid;
    let acquired = Acquired::member(pid)?;
    listed.check().map_err(anyhow::Error::msg)?;
    let now = Attempt {
        // The compiled program is printed once.
        is_first: now.is_first && first.is_none(),
        ..now
    };
    let ForProcess {
        traced,
        program,
        options,
    } = match compile_for(arguments, sources, &acquired, now)? {
        Ok(compiled) => compiled,
        Err(diagnostics) => return Ok(Err(diagnostics)),
    };
    if let Some(first) = first
        && !has_same_results(&program, first.program())
    {
        anyhow::bail!("its aggregations have other types than those of the first process");
    }
    let compiled = Compiled::for_processes(program, options, pids.to_vec(), first)?;
    let prepared = Prepared::new(compiled.clone(), acquired)?;
    // Types and addresses are valid only if the process still executes the same program.
    traced.check_program()?;
    if now.may_wait && !prepared.known().is_whole() {
        return Err(SessionError::Starting { pid, error: None }.into());
    }
    Ok(Ok(Ready {
        pid,
        prepared,
        compiled,
        traced,
    }))
}

impl Set {
    /// A set in which nothing is ready yet.
    pub fn new(rule: Option<Rule>) -> Set {
        Set {
            ready: VecDeque::new(),
            pids: Vec::new(),
            rule,
            look_at: Instant::now() + LOOK_PERIOD,
            came: VecDeque::new(),
            tries: HashMap::new(),
            began: 0,
        }
    }

    /// Notes which processes are there at first: descriptions may name them.
    pub fn name(&mut self, listed: &[Listed]) {
        self.pids = listed.iter().map(|listed| listed.pid).collect();
    }

    /// The numbers that descriptions may name.
    pub fn pids(&self) -> &[i32] {
        &self.pids
    }

    /// Whether further processes are looked for.
    pub fn has_rule(&self) -> bool {
        self.rule.is_some()
    }

    /// Whether processes may still come.
    pub fn is_awaiting(&self) -> bool {
        self.rule.is_some() || !self.came.is_empty() || !self.ready.is_empty()
    }

    /// The tracer's knowledge of the first processes.
    pub fn known(&self) -> impl Iterator<Item = &Known> {
        self.ready.iter().map(|ready| ready.prepared.known())
    }

    /// Reports a process that is not traced.
    pub fn leave(&mut self, pid: i32, error: &dyn std::fmt::Display) {
        message(format_args!("process {pid} is not traced: {error}"));
        self.give_up(pid);
    }

    fn give_up(&mut self, pid: i32) {
        if self.tries.len() >= FAILED_MAX {
            self.tries.clear();
        }
        if let Some(identity) = identity(pid) {
            self.tries.insert(identity, TRIES_MAX);
        }
    }

    /// The next process that has come, `is_member` says whether it is traced already. Looks for newcomers when that is
    /// due.
    pub fn newcomer(&mut self, is_member: &dyn Fn(i32) -> bool) -> Option<i32> {
        let now = Instant::now();
        if let Some(rule) = self
            .rule
            .as_ref()
            .filter(|_| self.came.is_empty() && now >= self.look_at)
        {
            match rule.look() {
                Some(pids) => {
                    let is_new = |pid: &i32| !is_member(*pid) && !self.is_given_up(*pid);
                    self.came = pids.into_iter().filter(is_new).collect();
                }
                None => self.rule = None,
            }
            self.look_at = now + (now.elapsed() * LOOK_SHARE).max(LOOK_PERIOD);
        }
        // A child that is followed has our probes already.
        std::iter::from_fn(|| self.came.pop_front()).find(|pid| !is_member(*pid) && !is_followed_child(*pid))
    }

    /// Whether a process could not be traced, and is not tried again.
    pub fn is_given_up(&self, pid: i32) -> bool {
        let tries = identity(pid).and_then(|identity| self.tries.get(&identity));
        tries.is_some_and(|tries| *tries >= TRIES_MAX)
    }

    /// Prepares a newcomer. `None`: it is not traced, or not yet.
    pub fn prepare_newcomer(
        &mut self,
        arguments: &Arguments,
        sources: &[Source],
        pid: i32,
        first: &Compiled,
    ) -> Option<Ready> {
        let identity = identity(pid)?;
        let tries = self.tries.get(&identity).copied().unwrap_or(0) + 1;
        let now = Attempt {
            is_first: false,
            may_wait: tries < TRIES_MAX,
        };
        let listed = Listed { pid, name: None };
        match prepare(arguments, sources, &listed, (&self.pids, Some(first)), now) {
            Ok(Ok(ready)) => return Some(ready),
            // It has ended, or an end was requested.
            _ if self::identity(pid) != Some(identity) || interrupt::requested() => {}
            Ok(Err(diagnostics)) => self.leave(pid, &first_of(&diagnostics)),
            Err(error) if tries >= TRIES_MAX => self.leave(pid, &error),
            Err(_) => {
                self.tries.insert(identity, tries);
            }
        }
        None
    }

    /// A process that was prepared could not be attached to.
    pub fn failed(&mut self, pid: i32, error: &SessionError) {
        match (error, &self.rule) {
            (SessionError::Interrupted, _) => {}
            // The next look finds the program that it executes now.
            (SessionError::Executed { .. }, Some(_)) => {}
            (SessionError::Executed { .. }, None) if !self.is_given_up(pid) => {
                if let Some(identity) = identity(pid) {
                    *self.tries.entry(identity).or_default() += 1;
                }
                self.came.push_back(pid);
            }
            _ => self.leave(pid, error),
        }
    }
}

fn identity(pid: i32) -> Option<Identity> {
    Some((pid, Stat::of(pid).ok()?.start_time))
}

/// Whether a process was forked from one that we trace, and has its probes.
fn is_followed_child(pid: i32) -> bool {
    traced::is_ours(pid)
}

/// A process's name for messages.
pub fn name_of(known: &Known) -> String {
    known
        .process()
        .map_or_else(String::new, |process| shown(&process.facts().name))
}
