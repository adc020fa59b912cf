//! The threads of the processes that the user may trace, and their events.
//!
//! A thread inherits the events of its creator, and so does a forked process. The kernel's records say which threads
//! have inherited events. A thread of which no record says so is opened, if two looks after each other have seen it:
//! the record of a thread that has just been created may not be written yet. Nothing is opened any more when records
//! were lost, because a thread with two sets of events would be counted twice.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use nix::errno::Errno;

use crate::perf::{self, Ring, Sampling};
use crate::{ProcessId, ThreadId};

/// The threads of the user's processes, at one moment.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    list: Vec<(ProcessId, ThreadId)>,
    /// How many processes belong to other users.
    others: usize,
}

impl Tasks {
    pub fn now() -> Tasks {
        let mut tasks = Tasks::default();
        let user = rustix::process::geteuid().as_raw();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let owner = entry.metadata().map(|data| data.uid());
            if user != 0 && owner.is_ok_and(|owner| owner != user) {
                tasks.others += 1;
                continue;
            }
            let threads = fs::read_dir(format!("/proc/{pid}/task"))
                .into_iter()
                .flatten()
                .flatten();
            let numbers = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
            tasks.list.extend(numbers.map(|thread| (pid, thread)));
        }
        tasks
    }
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// The events that were opened, by their number.
    events: HashMap<usize, Opened>,
    next: usize,
    /// For each living thread that is sampled: from which events.
    origins: HashMap<ThreadId, usize>,
    /// The threads that the last look has seen, and that no events are known of.
    unknown: HashSet<ThreadId>,
    /// The processes that were found.
    processes: HashSet<ProcessId>,
    /// Those that may not be opened.
    refused: HashSet<ProcessId>,
    others: usize,
    has_lost: bool,
}

/// The events of one thread, and how many living threads have them.
#[derive(Debug, Default)]
struct Opened {
    list: Vec<Arc<OwnedFd>>,
    threads: usize,
}

impl Own {
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    pub fn others(&self) -> usize {
        self.others + self.refused.len()
    }

    /// Adds an event of a thread.
    pub fn add(&mut self, process: ProcessId, thread: ThreadId, event: Arc<OwnedFd>) {
        self.processes.insert(process);
        let number = *self.origins.entry(thread).or_insert_with(|| {
            self.next += 1;
            self.next
        });
        let opened = self.events.entry(number).or_default();
        opened.threads = opened.threads.max(1);
        opened.list.push(event);
    }

    /// Notes which threads have come and gone. `has_lost`: records are missing.
    pub fn note<'e>(&mut self, events: impl Iterator<Item = &'e super::events::Event>, has_lost: bool) {
        use super::events::Event;
        self.has_lost |= has_lost;
        for event in events {
            match event {
                Event::Created {
                    process,
                    thread,
                    creator,
                    ..
                } => {
                    if let Some(number) = self.origins.get(creator).copied() {
                        self.processes.insert(*process);
                        if self.origins.insert(*thread, number).is_none()
                            && let Some(opened) = self.events.get_mut(&number)
                        {
                            opened.threads += 1;
                        }
                    }
                }
                Event::Ended { thread, .. } => self.ended(*thread),
                Event::Sample(_) | Event::Named { .. } | Event::Switched { .. } => {}
            }
        }
    }

    /// Closes the events that no thread has any more. Closing the first thread's events would also end those that
    /// others have inherited.
    fn ended(&mut self, thread: ThreadId) {
        let Some(number) = self.origins.remove(&thread) else {
            return;
        };
        let Some(opened) = self.events.get_mut(&number) else {
            return;
        };
        opened.threads = opened.threads.saturating_sub(1);
        if opened.threads == 0 && !self.has_lost {
            self.events.remove(&number);
        }
    }

    /// Opens the threads that have no events, and that the last look has seen, too.
    pub fn open(&mut self, tasks: &Tasks, sampling: Sampling, rings: &HashMap<u32, Ring>) {
        self.others = tasks.others;
        let unknown = tasks
            .list
            .iter()
            .filter(|(_, thread)| !self.origins.contains_key(thread));
        let unknown: Vec<(ProcessId, ThreadId)> = unknown.copied().collect();
        self.refused.clear();
        for (process, thread) in &unknown {
            if !self.has_lost && self.unknown.contains(thread) {
                let result = self.open_thread(*process, *thread, sampling, rings);
                if matches!(result, Err(Errno::EACCES | Errno::EPERM)) {
                    self.refused.insert(*process);
                }
            }
        }
        self.unknown = unknown.into_iter().map(|(_, thread)| thread).collect();
    }

    fn open_thread(
        &mut self,
        process: ProcessId,
        thread: ThreadId,
        sampling: Sampling,
        rings: &HashMap<u32, Ring>,
    ) -> Result<(), Errno> {
        for (processor, ring) in rings {
            let event = perf::sampling(thread, *processor, sampling)?;
            ring.take_in(&event)?;
            self.add(process, thread, Arc::new(event));
        }
        Ok(())
    }
}
