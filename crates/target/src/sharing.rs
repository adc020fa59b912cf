//! Other processes with the same memory: tasks that were made by clone(CLONE_VM) without CLONE_THREAD.
//!
//! Patches are in the text of such a task, too, but the task has its own table of signal actions, and is not among
//! the threads that are stopped. A trap would kill it. So a process that shares its memory is refused. The ordinary
//! case is an exception: a child of vfork or posix_spawn has its parent's memory until it executes another program,
//! so nanoprobe waits for that.
//!
//! Only the kernel knows (kcmp(2)): a child of fork has a map that looks the same.

use std::fs;
use std::time::{Duration, Instant};

use crate::error::AttachError;
use crate::process::Process;
use crate::status::Status;
use crate::{ProcessId, ThreadId, raw, threads};

/// How long to wait for a child of vfork, and how often to look at the child at least.
const LIMIT: Duration = Duration::from_secs(1);
const LOOKS_MIN: u32 = 200;

impl Process {
    /// The other processes that share the memory of this process now. Empty if the kernel has no kcmp(2), or if we
    /// may not trace these processes.
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

    /// A thread that still has memory. Neither an ended main thread nor a kernel thread has memory, so kcmp would
    /// call their memory equal.
    fn thread_with_memory(&self) -> Option<ThreadId> {
        threads::living(self.pid())
    }

    fn shares(&self, own: ThreadId, other: ProcessId) -> bool {
        // An error means that the other process has ended, or that we may not examine it.
        other != self.pid() && raw::has_same_memory(own, other).unwrap_or(false)
    }

    /// Whether another process shares this process's memory now.
    pub fn is_shared_with(&self, other: ProcessId) -> bool {
        self.thread_with_memory().is_some_and(|own| self.shares(own, other))
    }

    /// Checks that no other process shares this process's memory. If there are children of vfork, waits until their
    /// parents no longer wait for them.
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
                // The later stop reports the threads that wait in vfork, by name.
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
