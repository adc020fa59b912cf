//! Other processes with the same memory: tasks that were made by clone(CLONE_VM) without CLONE_THREAD.
//!
//! Our patches are in their text, too, but their tables of signal actions are their own, and a stop does not
//! find them among the threads. A trap would kill such a task. So a process with one is refused. The ordinary
//! case is an exception: a child of vfork or posix_spawn has its parent's memory until it executes another
//! program, so it is waited for.
//!
//! Only the kernel can tell (kcmp(2)): a child of fork has a map that looks the same.

use std::fs;
use std::time::{Duration, Instant};

use crate::error::AttachError;
use crate::process::Process;
use crate::status::Status;
use crate::{ProcessId, ThreadId, raw, threads};

/// For how long a child of vfork is waited for, and how often it is looked at at least.
const LIMIT: Duration = Duration::from_secs(1);
const LOOKS_MIN: u32 = 200;

impl Process {
    /// The other processes that have its memory now. None where the kernel does not say: it has no kcmp(2), or we may
    /// not trace them.
    pub fn sharers(&self) -> Vec<ProcessId> {
        let Some(own) = self.thread_with_memory() else {
            return Vec::new();
        };
        if raw::has_same_memory(own, own).is_err() {
            return Vec::new();
        }
        let entries = fs::read_dir("/proc").into_iter().flatten();
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|&other| self.shares(own, other))
            .collect()
    }

    /// A main thread that has ended has no memory any more, as a thread of the kernel's has none: to the kernel these
    /// are equal.
    fn thread_with_memory(&self) -> Option<ThreadId> {
        threads::living(self.pid())
    }

    fn shares(&self, own: ThreadId, other: ProcessId) -> bool {
        // An error: it has ended, or is not ours to look at.
        other != self.pid() && raw::has_same_memory(own, other).unwrap_or(false)
    }

    /// Whether another process has its memory now.
    pub fn is_shared_with(&self, other: ProcessId) -> bool {
        self.thread_with_memory().is_some_and(|own| self.shares(own, other))
    }

    /// Checks that no other process has its memory. Children of vfork are waited for, as long as their
    /// parents wait for them.
    ///
    /// # Errors
    /// [`AttachError::SharesMemory`].
    pub fn check_sharing(&self) -> Result<(), AttachError> {
        let mut sharers = self.sharers();
        let deadline = Instant::now() + LIMIT;
        let mut looks = 0;
        loop {
            sharers.retain(|&other| self.is_shared_with(other));
            let Some(&other) = sharers.first() else { return Ok(()) };
            looks += 1;
            if looks > LOOKS_MIN && Instant::now() >= deadline {
                // Threads that wait in vfork are met, and named, when they are to be stopped.
                if self.waits_in_vfork() {
                    return Ok(());
                }
                let name = Status::of(other).map_or_else(|_| "?".to_owned(), |status| status.name);
                return Err(AttachError::SharesMemory {
                    pid: self.pid(),
                    other,
                    name,
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn waits_in_vfork(&self) -> bool {
        let pid = self.pid();
        let all = threads::list(pid).unwrap_or_default();
        let mut waiting = all.into_iter().filter(|&tid| threads::state(pid, tid) == Some('D'));
        waiting.any(|tid| threads::is_in_vfork(pid, tid))
    }
}
