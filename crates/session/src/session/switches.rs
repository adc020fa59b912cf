//! The switches of a process's threads, in their order, with the stacks of the threads that sleep.
//!
//! # The stack of a thread that is off its processor
//!
//! It is the same from the moment when the thread left until it is back. So `on-cpu` shows the stack of the `off-cpu`
//! before it. Where the kernel samples no stack, the tracer reads it while the thread sleeps:
//!
//! ```text
//! 1  the records are read; the last one of the thread says that it sleeps
//! 2  its call, its stack pointer and its program counter (/proc/PID/task/TID/syscall), then its stack
//! 3  the records are read again: there is no newer one of the thread
//! ```
//!
//! A thread that ran between 1 and 3 has left a record before it executed anything. So a stack is that of the sleep, or
//! it is unknown.
//!
//! # Order
//!
//! A thread that moves from one processor to another leaves its records in two rings, which are read one after the
//! other.
//! So a record waits until it is older than [`SETTLED`] when the reading begins: then all records before it were read.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{
    Asleep, Discard, DiscardWatch, Process, Stacks, Succession, SuccessionWatch, Switch, SwitchWatch, ThreadId, Turn,
    UserState, WakeWatch, Waking,
};

use super::sleeps::Sleeps;
use crate::clock;
use crate::probes::SwitchKind;

/// How long after its time a record is in its ring for certain.
const SETTLED: Duration = Duration::from_micros(200);
/// How much of a sleeping thread's stack is read.
const STACK_BYTES: usize = 16 << 10;
/// As many threads are looked at in one round.
const LOOKS_MAX: usize = 64;

/// What the kernel has recorded.
pub(super) enum Moment {
    /// A thread of the process left its processor, or came to one, or ended.
    Switch(Switch),
    /// Anybody has woken any thread.
    Waking(Box<Waking>),
    /// A signal of anybody for any thread was discarded.
    Discard(Box<Discard>),
    /// Who runs after a thread of the process: comes before the thread's switch.
    Succession(Succession),
}

impl Moment {
    fn time_ns(&self) -> u64 {
        match self {
            Moment::Switch(switch) => switch.time_ns,
            Moment::Waking(waking) => waking.waker.time_ns,
            Moment::Discard(discard) => discard.sender.time_ns,
            Moment::Succession(succession) => succession.time_ns,
        }
    }

    fn switch(&self) -> Option<&Switch> {
        match self {
            Moment::Switch(switch) => Some(switch),
            Moment::Waking(_) | Moment::Discard(_) | Moment::Succession(_) => None,
        }
    }
}

/// What is watched of other threads.
#[derive(Default)]
pub(super) struct Others {
    pub(super) wakes: Option<WakeWatch>,
    pub(super) discards: Option<DiscardWatch>,
    pub(super) successions: Option<SuccessionWatch>,
}

/// The watched switches of a process.
pub(super) struct Switches {
    pub(super) watch: SwitchWatch,
    /// Who wakes its threads, and who runs after them, if a clause asks for it.
    others: Others,
    /// The living threads, as far as the records say. A thread that was created has come to a processor before anybody
    /// can wake it.
    pub(super) threads: HashSet<ThreadId>,
    /// Which of their sleeps nobody was seen to end.
    pub(super) sleeps: Sleeps,
    /// Who runs after a thread that is about to leave its processor.
    pub(super) next: HashMap<ThreadId, ThreadId>,
    /// How often the kernel has not shown who runs next.
    pub(super) unknown_next: u64,
    /// The probes, with the enablings of each, in the order of the clauses.
    pub(super) enablings: Vec<(SwitchKind, usize)>,
    /// The stacks that clauses ask for.
    pub(super) stacks: Stacks,
    asks_calls: bool,
    /// Records that may not be in order yet.
    pending: Vec<Moment>,
    /// The state of sleeping threads that the tracer has read, with the time at which they left.
    pub(super) read: HashMap<ThreadId, (u64, Seen)>,
    /// Each thread that is off its processor.
    pub(super) off: HashMap<ThreadId, Off>,
}

/// What the tracer has seen of a thread that sleeps.
pub(super) struct Seen {
    /// If its stack is wanted, and the kernel does not sample it.
    pub(super) user: Option<UserState>,
    /// The system call in which it sleeps.
    pub(super) call: Option<u64>,
}

/// A thread that is off its processor.
#[derive(Clone, Default)]
pub(super) struct Off {
    pub(super) user: Option<UserState>,
    pub(super) frames: Vec<u64>,
    /// The kernel's frames.
    pub(super) kernel: Vec<u64>,
    pub(super) call: Option<u64>,
}

impl Switches {
    /// `stacks`: those that clauses ask for. `asks_calls`: whether they ask for the calls in which threads sleep.
    pub(super) fn new(
        watch: SwitchWatch,
        enablings: Vec<(SwitchKind, usize)>,
        stacks: Stacks,
        asks_calls: bool,
    ) -> Switches {
        Switches {
            watch,
            others: Others::default(),
            threads: HashSet::new(),
            sleeps: Sleeps::default(),
            next: HashMap::new(),
            unknown_next: 0,
            enablings,
            stacks,
            asks_calls,
            pending: Vec::new(),
            read: HashMap::new(),
            off: HashMap::new(),
        }
    }

    /// Watches other threads, too. `threads`: those of the process that exist.
    pub(super) fn beside(self, others: Others, threads: &[ThreadId]) -> Switches {
        Switches {
            others,
            threads: threads.iter().copied().collect(),
            ..self
        }
    }

    /// Whether the wakers of threads are watched.
    pub(super) fn watches_wakers(&self) -> bool {
        self.others.wakes.is_some()
    }

    /// Whether it is watched who runs next.
    pub(super) fn watches_next(&self) -> bool {
        self.others.successions.is_some()
    }

    /// Reads the records, and the stacks of threads that sleep. Returns the records that are in order by now.
    pub(super) fn take(&mut self, process: &Process, is_last: bool) -> (Vec<Moment>, u64) {
        let began = clock::monotonic_ns();
        let mut lost = self.take_in();
        if (self.reads_stacks() || self.asks_calls) && !is_last {
            let found = self.read_sleepers(process);
            if found {
                let more = self.take_in();
                lost += more;
                let last = self.last_of_each();
                self.read.retain(|thread, (left_ns, _)| {
                    more == 0 && last.get(thread).is_none_or(|(time, _)| time <= left_ns)
                });
            }
        }
        let settled = u64::try_from(SETTLED.as_nanos()).unwrap_or(0);
        let horizon = if is_last {
            u64::MAX
        } else {
            began.saturating_sub(settled)
        };
        let ready = self.pending.partition_point(|moment| moment.time_ns() <= horizon);
        (self.pending.drain(..ready).collect(), lost)
    }

    /// Whether the tracer itself must read the stacks that clauses ask for.
    fn reads_stacks(&self) -> bool {
        self.stacks.program && !self.watch.has_stacks()
    }

    fn take_in(&mut self) -> u64 {
        let (switches, mut lost) = self.watch.take();
        self.pending.extend(switches.into_iter().map(Moment::Switch));
        if let Some(wakes) = &mut self.others.wakes {
            let (wakings, more) = wakes.take();
            lost += more;
            self.pending
                .extend(wakings.into_iter().map(Box::new).map(Moment::Waking));
        }
        if let Some(watch) = &mut self.others.discards {
            let (discards, more) = watch.take();
            lost += more;
            self.pending
                .extend(discards.into_iter().map(Box::new).map(Moment::Discard));
        }
        if let Some(watch) = &mut self.others.successions {
            let (successions, more) = watch.take();
            lost += more;
            self.pending.extend(successions.into_iter().map(Moment::Succession));
        }
        self.pending.sort_by_key(Moment::time_ns);
        lost
    }

    /// The last record of each thread: its time, and whether the thread went to sleep.
    fn last_of_each(&self) -> HashMap<ThreadId, (u64, bool)> {
        let last = self.pending.iter().filter_map(Moment::switch).map(|switch| {
            let sleeps = matches!(
                switch.turn,
                Turn::Off {
                    is_preempted: false,
                    ..
                }
            );
            (switch.thread, (switch.time_ns, sleeps))
        });
        last.collect()
    }

    /// Reads the stacks of the threads that have gone to sleep. Returns whether there were any.
    fn read_sleepers(&mut self, process: &Process) -> bool {
        let sleepers: Vec<(ThreadId, u64)> = self
            .last_of_each()
            .into_iter()
            .filter_map(|(thread, (time, sleeps))| sleeps.then_some((thread, time)))
            .filter(|(thread, time)| self.read.get(thread).is_none_or(|(left_ns, _)| left_ns != time))
            .take(LOOKS_MAX)
            .collect();
        for (thread, time) in &sleepers {
            if let Some(seen) = seen_of(process, *thread, self.reads_stacks()) {
                self.read.insert(*thread, (*time, seen));
            }
        }
        !sleepers.is_empty()
    }
}

fn seen_of(process: &Process, thread: ThreadId, with_stack: bool) -> Option<Seen> {
    let asleep = Asleep::of(process.pid(), thread)?;
    let user = if with_stack {
        Some(state_of(process, &asleep)?)
    } else {
        None
    };
    Some(Seen {
        user,
        call: asleep.call,
    })
}

/// The state of a thread that sleeps. Its other registers are not known: where a frame is found by rbp only, the stack
/// ends, unless a function below has saved rbp.
fn state_of(process: &Process, asleep: &Asleep) -> Option<UserState> {
    let mut user = UserState::default();
    for (name, register) in UserState::NAMES.iter().zip(&mut user.registers) {
        match *name {
            "sp" => *register = asleep.stack_pointer,
            "ip" => *register = asleep.program_counter,
            _ => {}
        }
    }
    let mut stack = vec![0; STACK_BYTES];
    let address = TargetAddress(asleep.stack_pointer);
    let read = process.memory().read_some(address, &mut stack).ok()?;
    stack.truncate(read);
    user.stack = stack;
    Some(user)
}
