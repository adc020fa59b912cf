//! A process: its identity, its memory, its end.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nanoprobe_patch::TargetAddress;
use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};

use crate::attach::{self, Facts};
use crate::error::{AttachError, MemoryError};
use crate::holes::HoleRules;
use crate::map::Map;
use crate::memory::Memory;
use crate::status::{Seccomp, Stat, Status};
use crate::unused::Unused;
use crate::{ProcessId, ThreadId, threads};

/// For how long the end of a child is waited for that was killed: one that is large, or in the midst of a slow call,
/// takes a while.
const LAST_MOMENTS: Duration = Duration::from_secs(10);

/// For how long nothing is to be seen of a process that is about to end, or to execute another program.
const LAST_THREADS: Duration = Duration::from_millis(500);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// By exit(status).
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// It is not our child: only its parent learns how.
    Unknown,
}

/// A process that may be traced. Cheap to clone; holding one does nothing to the process.
#[derive(Clone, Debug)]
pub struct Process {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pid: ProcessId,
    pidfd: OwnedFd,
    facts: Facts,
    memory: Memory,
    /// Its end is to be left to the code that waits for it.
    is_our_child: bool,
    /// Started by [`Process::spawn`]: then that is us.
    is_child: bool,
    kill_on_drop: AtomicBool,
    /// The kernel fills and locks whatever it maps: mlockall(MCL_FUTURE). Found out when shared memory is made.
    locks_new_memory: AtomicBool,
    /// A thread was ready to run, and a wait for it was necessary: [`Process::synchronise`] then asks clocks.
    has_late_threads: AtomicBool,
    /// Where borrowed threads stand, when that was found before.
    unused: Mutex<Option<Unused>>,
    /// Memory of ours in it that system calls may write to; 0: none.
    scratch: AtomicU64,
    /// How often a borrowed thread was resumed while all stood.
    resumes: AtomicU64,
}

impl Process {
    /// How much memory of ours is needed: system calls write to it, and lists of calls lie in it.
    pub const SCRATCH_BYTES: u64 = 16 << 10;

    /// Looks at a process, and touches nothing.
    ///
    /// # Errors
    /// Why it cannot be traced; see [`AttachError`].
    pub fn open(pid: ProcessId) -> Result<Process, AttachError> {
        Process::open_as(pid, false)
    }

    /// Opens a child that is ours and traced by us.
    pub(crate) fn open_child(pid: ProcessId) -> Result<Process, AttachError> {
        Process::open_as(pid, true)
    }

    fn open_as(pid: ProcessId, is_child: bool) -> Result<Process, AttachError> {
        let number = u32::try_from(pid)
            .ok()
            .and_then(|_| Pid::from_raw(pid))
            .ok_or(AttachError::NotFound { pid })?;
        let pidfd = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            // EINVAL (ENOENT since 6.15): a thread's number; examine() names its process.
            Err(error) => {
                let errno = Errno::from_raw(error.raw_os_error());
                attach::examine(pid, is_child)?;
                return Err(match errno {
                    Errno::ESRCH => AttachError::NotFound { pid },
                    errno => AttachError::System {
                        pid,
                        call: "pidfd_open",
                        errno,
                    },
                });
            }
        };
        let deadline = Instant::now() + LAST_THREADS;
        let examined = loop {
            let examined = attach::examine(pid, is_child);
            let may_live = !is_readable(&pidfd, Some(Duration::ZERO)) && Instant::now() < deadline;
            match examined {
                // One thread is ending all others, and taking the main one's number, to execute another program.
                Err(AttachError::NotFound { .. }) if may_live => std::thread::sleep(Duration::from_millis(1)),
                other => break other?,
            }
        };
        if is_readable(&pidfd, Some(Duration::ZERO)) {
            return Err(AttachError::NotFound { pid });
        }
        Ok(Process {
            shared: Arc::new(Shared {
                pid,
                pidfd,
                facts: examined.facts,
                memory: Memory::new(pid, examined.memory),
                is_our_child: examined.is_our_child,
                is_child,
                kill_on_drop: AtomicBool::new(false),
                locks_new_memory: AtomicBool::new(false),
                has_late_threads: AtomicBool::new(false),
                unused: Mutex::new(None),
                scratch: AtomicU64::new(0),
                resumes: AtomicU64::new(0),
            }),
        })
    }

    /// Its number.
    pub fn pid(&self) -> ProcessId {
        self.shared.pid
    }

    /// What was found out when it was opened.
    pub fn facts(&self) -> &Facts {
        &self.shared.facts
    }

    /// Becomes readable when the process ends.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.shared.pidfd.as_fd()
    }

    /// Its memory.
    pub fn memory(&self) -> &Memory {
        &self.shared.memory
    }

    /// Whether we have started it.
    pub fn is_child(&self) -> bool {
        self.shared.is_child
    }

    /// Whether a traced thread's end must not be collected by the tracing code: it is the end of a child of ours, for
    /// whose status other code of ours waits.
    pub(crate) fn keeps_end(&self, tid: ThreadId) -> bool {
        self.shared.is_our_child && tid == self.shared.pid
    }

    /// Whether a wait has been necessary for a thread that was ready to run, and found no processor.
    pub(crate) fn has_late_threads(&self) -> bool {
        self.shared.has_late_threads.load(Ordering::Relaxed)
    }

    pub(crate) fn note_late_threads(&self) {
        self.shared.has_late_threads.store(true, Ordering::Relaxed);
    }

    /// Whether the end of the last clone kills the process. Only for children; off at first.
    pub fn set_kill_on_drop(&self, kill: bool) {
        self.shared.kill_on_drop.store(kill, Ordering::Relaxed);
    }

    /// Sends SIGKILL. Harmless when it has ended.
    pub fn kill(&self) {
        // The only possible errors are that it has ended, or that it is no longer ours to kill.
        let _ = pidfd_send_signal(&self.shared.pidfd, Signal::KILL);
    }

    /// Sends SIGSTOP. Harmless when it has ended.
    pub fn suspend(&self) {
        // As for kill.
        let _ = pidfd_send_signal(&self.shared.pidfd, Signal::STOP);
    }

    /// Where borrowed threads have stood before.
    pub(crate) fn unused(&self) -> Option<Unused> {
        // Poisoned: another thread panicked. A look at the map serves as well.
        self.shared.unused.lock().ok().and_then(|unused| *unused)
    }

    pub(crate) fn note_unused(&self, unused: Unused) {
        if let Ok(mut known) = self.shared.unused.lock() {
            *known = Some(unused);
        }
    }

    /// Names [`Process::SCRATCH_BYTES`] of ours in the process, to which system calls made in it may write from now on;
    /// `None`: they are no more. Where there are none, a page is mapped for each thread that is borrowed and needs it.
    pub fn set_scratch(&self, address: Option<TargetAddress>) {
        let address = address.map_or(0, |address| address.0);
        self.shared.scratch.store(address, Ordering::Relaxed);
    }

    pub(crate) fn scratch(&self) -> Option<TargetAddress> {
        Some(TargetAddress(self.shared.scratch.load(Ordering::Relaxed))).filter(|address| address.0 != 0)
    }

    /// How often a borrowed thread was resumed so far while all threads stood: each time all wait until it gets a
    /// processor.
    pub fn resumes_in_whole_stops(&self) -> u64 {
        self.shared.resumes.load(Ordering::Relaxed)
    }

    pub(crate) fn count_resume_in_whole_stop(&self) {
        self.shared.resumes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn locks_new_memory(&self) -> &AtomicBool {
        &self.shared.locks_new_memory
    }

    /// What is mapped now.
    ///
    /// # Errors
    /// [`MemoryError::Gone`] when it has ended, [`MemoryError::Proc`].
    pub fn map(&self) -> Result<Map, MemoryError> {
        let pid = self.pid();
        let living = threads::living(pid).ok_or(MemoryError::Gone { pid })?;
        let file = format!("/proc/{living}/maps");
        let text = fs::read(&file).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => MemoryError::Gone { pid },
            _ => MemoryError::Proc {
                pid,
                file,
                reason: error.to_string(),
            },
        })?;
        let map = Map::parse(&text);
        // It has ended in between.
        if map.mappings().is_empty() {
            Err(MemoryError::Gone { pid })
        } else {
            Ok(map)
        }
    }

    /// Whether it lives, and executes another program than when it was opened (or the same one anew).
    pub fn has_executed(&self) -> bool {
        let deadline = Instant::now() + LAST_THREADS;
        while self.memory().is_gone() && !self.has_ended() && Instant::now() < deadline {
            if self.map().is_ok() {
                return true;
            }
            // It has given up its memory, and not ended yet.
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// No thread was found that lives: waits, for a moment, until the process has ended, or executes another program,
    /// for which one thread ends all others and takes the main one's number.
    pub fn wait_for_its_fate(&self) {
        let deadline = Instant::now() + LAST_THREADS;
        while !self.has_ended() && !self.memory().is_gone() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn has_ended(&self) -> bool {
        is_readable(&self.shared.pidfd, Some(Duration::ZERO))
    }

    /// Which holes of the map are fit for near memory, by this system's and this process's limits.
    pub fn hole_rules(&self) -> HoleRules {
        const PAGE: u64 = 4096;
        const MIB: u64 = 1 << 20;
        let minimum = fs::read_to_string("/proc/sys/vm/mmap_min_addr")
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let stack_limit = self.stack_limit().unwrap_or(0);
        let break_start = threads::living(self.pid())
            .and_then(|tid| Stat::of(tid).ok())
            .map(|stat| stat.break_start)
            .filter(|&start| start != 0);
        HoleRules {
            minimum: TargetAddress(minimum.unwrap_or(0x10000u64).max(PAGE)),
            break_start: break_start.map(TargetAddress),
            stack_guard: HoleRules::STACK_GUARD.max(stack_limit.saturating_add(MIB)),
            ..HoleRules::default()
        }
    }

    /// Whether its main thread is under seccomp now.
    pub fn has_seccomp(&self) -> bool {
        Status::of(self.living_thread()).is_ok_and(|status| status.seccomp != Seccomp::Disabled)
    }

    /// Bytes of address space that it may still map; `None` when they are not limited, or that is not known.
    pub fn spare_address_space(&self) -> Option<u64> {
        let limit = self.soft_limit("Max address space")?;
        let text = fs::read_to_string(format!("/proc/{}/statm", self.living_thread())).ok()?;
        let pages: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
        Some(limit.saturating_sub(pages.saturating_mul(4096)))
    }

    /// The soft limit of the stack in bytes; `None` when unlimited (the kernel then lays out memory bottom-up) or
    /// unknown.
    fn stack_limit(&self) -> Option<u64> {
        self.soft_limit("Max stack size")
    }

    /// A line of /proc/PID/limits; `None` when unlimited or unknown.
    fn soft_limit(&self, name: &str) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/limits", self.living_thread())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    }

    /// The number under which /proc shows its memory and files: its own, but that of another thread when the main one
    /// has ended.
    pub fn living_thread(&self) -> ThreadId {
        threads::living(self.pid()).unwrap_or(self.pid())
    }

    /// The ids of its threads now, as we see them.
    ///
    /// # Errors
    /// [`MemoryError::Gone`], [`MemoryError::Proc`].
    pub fn threads(&self) -> Result<Vec<ThreadId>, MemoryError> {
        threads::list(self.pid())
    }

    /// What a thread's gettid() returns in its own pid namespace; `None` when it has ended.
    pub fn inner_tid(&self, tid: ThreadId) -> Option<ThreadId> {
        Status::of(tid).ok()?.namespace_ids.last().copied()
    }

    /// Whether another process, a debugger, traces it now.
    pub fn is_debugged(&self) -> bool {
        let tracer = Status::of(self.pid()).map_or(0, |status| status.tracer);
        tracer != 0 && u32::try_from(tracer) != Ok(std::process::id())
    }

    /// How it ended, or `None` while it has not. May be asked again and again: a child is collected only when the last
    /// clone of this `Process` goes.
    pub fn try_wait(&self) -> Option<Exit> {
        self.wait_exit(Some(Duration::ZERO))
    }

    /// Waits until it ends, at most `timeout` (`None`: for ever). `None`: it lives on.
    pub fn wait_exit(&self, timeout: Option<Duration>) -> Option<Exit> {
        if !is_readable(&self.shared.pidfd, timeout) {
            return None;
        }
        // A main thread that ended while it was being stopped has stayed ours, and its parent waits for us to collect
        // it. An error means that it did not end so, which is the ordinary case.
        let _ = crate::raw::poll_event(self.pid(), self.keeps_end(self.pid()));
        Some(self.collect().unwrap_or(Exit::Unknown))
    }

    fn collect(&self) -> Option<Exit> {
        if !self.shared.is_child {
            return None;
        }
        // Only the end is asked for: the stops of a traced child belong to the code that traces it. NOWAIT leaves the
        // status for the next question. It is collected when the last clone goes.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(self.pidfd()), options).ok().flatten()?;
        status
            .exit_status()
            .map(Exit::Status)
            .or_else(|| status.terminating_signal().map(Exit::Signal))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.is_child {
            return;
        }
        if self.kill_on_drop.load(Ordering::Relaxed) {
            // It may have ended already.
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
            is_readable(&self.pidfd, Some(LAST_MOMENTS));
        }
        // Nothing to collect is fine: it lives on, or is collected already.
        let _ = waitid(
            WaitId::PidFd(self.pidfd.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
    }
}

fn is_readable(pidfd: &OwnedFd, timeout: Option<Duration>) -> bool {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(count) => return count > 0,
            Err(_) => return false,
        }
    }
}
