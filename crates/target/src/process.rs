//! A process: how it is identified, how to reach its memory, and how it ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use nanoprobe_patch::TargetAddress;
use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};

use crate::at_start::AtStart;
use crate::attach::{self, Facts};
use crate::chain::{self, Doubt};
use crate::ending::{self, Exit, is_readable};
use crate::error::{AttachError, MemoryError};
use crate::map::Map;
use crate::memory::Memory;
use crate::proc_file;
use crate::sandbox::Unreadable;
use crate::status::{Seccomp, Status};
use crate::unused::Unused;
use crate::{ProcessId, ThreadId, threads};

/// How long to wait for the end of a killed child. A large child, or one in a slow system call, takes a while.
const LAST_MOMENTS: Duration = Duration::from_secs(10);

/// How long a process may show no living thread while it ends, or executes another program.
const LAST_THREADS: Duration = Duration::from_millis(500);

/// A process that may be traced. A clone is cheap; holding one does nothing to the process.
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
    /// Whether other code of the tracer waits for the end of the process and collects it.
    is_our_child: bool,
    /// Whether [`Process::spawn`] started the process. If so, this type collects the process when it has ended.
    is_child: bool,
    kill_on_drop: AtomicBool,
    /// Whether the process was opened before the first instruction of its program.
    begins: bool,
    at_start: AtStart,
    /// Whether the kernel fills and locks all memory that it maps: mlockall(MCL_FUTURE). The answer is found out
    /// when shared memory is made.
    locks_new_memory: AtomicBool,
    /// Whether the tracer had to wait for a thread that was ready to run but had no processor. If so,
    /// [`Process::synchronise`] opens clocks.
    has_late_threads: AtomicBool,
    /// The place for the code of borrowed threads, if it was found before.
    unused: Mutex<Option<Unused>>,
    /// The address of the tracer's memory in the process to which system calls may write; 0: none.
    scratch: AtomicU64,
    /// How often a borrowed thread was resumed while all threads were stopped.
    resumes: AtomicU64,
    /// Whether the process's seccomp filters are our own: their number, or why this is not certain. Empty until the
    /// first question.
    kinship: OnceLock<Result<u32, Doubt>>,
    /// How many claims on the process this tracer holds.
    claims: Mutex<u32>,
    /// Whether the user insists on tracing the process although its filters cannot be read.
    insists: AtomicBool,
}

impl Process {
    /// The size of the memory that the tracer needs in the process: system calls write to it, and it holds lists of
    /// calls.
    pub const SCRATCH_BYTES: u64 = 16 << 10;

    /// Examines a process without touching it.
    ///
    /// # Errors
    /// Why it cannot be traced; see [`AttachError`].
    pub fn open(pid: ProcessId) -> Result<Process, AttachError> {
        Process::open_as(pid, false, false)
    }

    /// Opens a process that we trace already, and have not started.
    pub(crate) fn open_tracee(pid: ProcessId) -> Result<Process, AttachError> {
        Process::open_as(pid, false, true)
    }

    /// Opens a child that we have started and trace already.
    pub(crate) fn open_child(pid: ProcessId) -> Result<Process, AttachError> {
        Process::open_as(pid, true, true)
    }

    fn open_as(pid: ProcessId, is_child: bool, is_tracee: bool) -> Result<Process, AttachError> {
        let number = u32::try_from(pid)
            .ok()
            .and_then(|_| Pid::from_raw(pid))
            .ok_or(AttachError::NotFound { pid })?;
        let pidfd = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            // EINVAL (ENOENT since 6.15): a thread's number; examine() names its process.
            Err(error) => {
                let errno = Errno::from_raw(error.raw_os_error());
                attach::examine(pid, is_tracee)?;
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
            let examined = attach::examine(pid, is_tracee);
            let may_live = !is_readable(&pidfd, Some(Duration::ZERO)) && Instant::now() < deadline;
            match examined {
                // One thread may be about to execute another program. The kernel then ends all other threads, and
                // gives that thread the main thread's number.
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
                begins: is_tracee,
                at_start: AtStart::default(),
                kill_on_drop: AtomicBool::new(false),
                locks_new_memory: AtomicBool::new(false),
                has_late_threads: AtomicBool::new(false),
                unused: Mutex::new(None),
                scratch: AtomicU64::new(0),
                resumes: AtomicU64::new(0),
                kinship: OnceLock::new(),
                insists: AtomicBool::new(false),
                claims: Mutex::new(0),
            }),
        })
    }

    pub fn pid(&self) -> ProcessId {
        self.shared.pid
    }

    /// The facts that were found when the process was opened.
    pub fn facts(&self) -> &Facts {
        &self.shared.facts
    }

    /// Becomes readable when the process ends.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.shared.pidfd.as_fd()
    }

    pub fn memory(&self) -> &Memory {
        &self.shared.memory
    }

    pub(crate) fn claims(&self) -> &Mutex<u32> {
        &self.shared.claims
    }

    pub fn is_child(&self) -> bool {
        self.shared.is_child
    }

    /// Whether the tracing code must leave the end of this thread uncollected, because it is a child of the tracer
    /// and other code waits for its status.
    pub(crate) fn keeps_end(&self, tid: ThreadId) -> bool {
        self.shared.is_our_child && tid == self.shared.pid
    }

    /// Whether the tracer has had to wait for a thread that was ready to run but had no processor.
    pub(crate) fn has_late_threads(&self) -> bool {
        self.shared.has_late_threads.load(Ordering::Relaxed)
    }

    pub(crate) fn note_late_threads(&self) {
        self.shared.has_late_threads.store(true, Ordering::Relaxed);
    }

    /// Sets whether dropping the last clone kills the process. Only for children of the tracer; at first, dropping
    /// does not kill.
    pub fn set_kill_on_drop(&self, kill: bool) {
        self.shared.kill_on_drop.store(kill, Ordering::Relaxed);
    }

    /// Sends SIGKILL. Harmless when the process has ended.
    pub fn kill(&self) {
        // The only possible errors: the process has ended, or the tracer may no longer kill it.
        let _ = pidfd_send_signal(&self.shared.pidfd, Signal::KILL);
    }

    /// Sends SIGSTOP. Harmless when the process has ended.
    pub fn suspend(&self) {
        // The only expected failure is that the process has ended.
        let _ = pidfd_send_signal(&self.shared.pidfd, Signal::STOP);
    }

    /// The place where borrowed threads have stood before.
    pub(crate) fn unused(&self) -> Option<Unused> {
        // Poisoned: another thread panicked. The map can be searched instead.
        self.shared.unused.lock().ok().and_then(|unused| *unused)
    }

    pub(crate) fn note_unused(&self, unused: Unused) {
        if let Ok(mut known) = self.shared.unused.lock() {
            *known = Some(unused);
        }
    }

    /// Sets the address of [`Process::SCRATCH_BYTES`] of the tracer's memory in the process. System calls may write
    /// to it from now on. `None`: the memory is gone. Without such memory, pages are mapped for each borrowed thread
    /// that needs them.
    pub fn set_scratch(&self, address: Option<TargetAddress>) {
        let address = address.map_or(0, |address| address.0);
        self.shared.scratch.store(address, Ordering::Relaxed);
    }

    pub(crate) fn scratch(&self) -> Option<TargetAddress> {
        Some(TargetAddress(self.shared.scratch.load(Ordering::Relaxed))).filter(|address| address.0 != 0)
    }

    /// How often a borrowed thread was resumed while all threads were stopped. Each time, all threads wait until the
    /// borrowed one gets a processor.
    pub fn resumes_in_whole_stops(&self) -> u64 {
        self.shared.resumes.load(Ordering::Relaxed)
    }

    pub(crate) fn count_resume_in_whole_stop(&self) {
        self.shared.resumes.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the process stood before the first instruction of its program when it was opened: it has one thread, and
    /// has locked no memory (execve(2), mlock(2)).
    pub(crate) fn begins(&self) -> bool {
        self.shared.begins
    }

    /// Whether the program stands before its first instruction, and has stood there since it was opened.
    pub fn stands_at_start(&self) -> bool {
        self.at_start().stands()
    }

    pub(crate) fn at_start(&self) -> &AtStart {
        &self.shared.at_start
    }

    pub(crate) fn locks_new_memory(&self) -> &AtomicBool {
        &self.shared.locks_new_memory
    }

    /// The current mappings.
    ///
    /// # Errors
    /// [`MemoryError::Gone`] when it has ended, [`MemoryError::Proc`].
    pub fn map(&self) -> Result<Map, MemoryError> {
        let pid = self.pid();
        if let Some(known) = self.at_start().map().filter(|_| !self.has_ended()) {
            return Ok(known);
        }
        // The main thread shows the map as long as it lives, which is nearly always.
        let main = proc_file::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let map = Map::parse(&main);
        if !map.mappings().is_empty() {
            self.at_start().keep(&map);
            return Ok(map);
        }
        let living = threads::living(pid).ok_or(MemoryError::Gone { pid })?;
        let file = format!("/proc/{living}/maps");
        let text = proc_file::read(&file).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => MemoryError::Gone { pid },
            _ => MemoryError::Proc {
                pid,
                file,
                reason: error.to_string(),
            },
        })?;
        let map = Map::parse(&text);
        // The thread has ended in between.
        if map.mappings().is_empty() {
            Err(MemoryError::Gone { pid })
        } else {
            Ok(map)
        }
    }

    /// Whether the process lives and has executed another program (or the same program again) since it was opened.
    pub fn has_executed(&self) -> bool {
        let deadline = Instant::now() + LAST_THREADS;
        while self.memory().is_gone() && !self.has_ended() && Instant::now() < deadline {
            if self.map().is_ok() {
                return true;
            }
            // The process has released its memory, but has not ended yet.
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Waits for a moment. It is called when no living thread was found. Either the process ends, or it executes
    /// another program: then one thread ends all others and takes the main thread's number.
    pub fn wait_for_its_fate(&self) {
        let deadline = Instant::now() + LAST_THREADS;
        while !self.has_ended() && !self.memory().is_gone() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn has_ended(&self) -> bool {
        is_readable(&self.shared.pidfd, Some(Duration::ZERO))
    }

    /// The number of the process's seccomp filters, if they are known to be ours. This is found out once, because a
    /// process does not leave its container.
    fn kinship(&self) -> Result<u32, Doubt> {
        *self
            .shared
            .kinship
            .get_or_init(|| chain::number_in_common(self.living_thread()))
    }

    /// Finds out what the seccomp filters permit, as far as possible before the threads are stopped, because a
    /// trial takes time.
    pub fn examine_filters(&self) {
        if self.facts().seccomp == Seccomp::Filter && self.kinship().is_ok() {
            crate::trial::tried();
        }
    }

    /// `-x seccomp=try`: the process is traced even if its filters cannot be read. They may then kill the process
    /// for our system calls.
    pub fn insist(&self) {
        self.shared.insists.store(true, Ordering::Relaxed);
    }

    /// The facts that are known about the filters of the process even if they cannot be read.
    pub(crate) fn unreadable_filters(&self) -> Unreadable {
        Unreadable {
            kinship: self.kinship(),
            is_insisted_on: self.shared.insists.load(Ordering::Relaxed),
        }
    }

    /// Whether the main thread of the process is under seccomp now.
    pub fn has_seccomp(&self) -> bool {
        Status::of(self.living_thread()).is_ok_and(|status| status.seccomp != Seccomp::Disabled)
    }

    /// The number under which /proc shows the process's memory and files: the process's number, or that of another
    /// thread if the main thread has ended.
    pub fn living_thread(&self) -> ThreadId {
        if self.stands_at_start() {
            return self.pid();
        }
        threads::living(self.pid()).unwrap_or(self.pid())
    }

    /// The ids of the process's present threads, in our pid namespace.
    ///
    /// # Errors
    /// [`MemoryError::Gone`], [`MemoryError::Proc`].
    pub fn threads(&self) -> Result<Vec<ThreadId>, MemoryError> {
        threads::list(self.pid())
    }

    /// The result of a thread's gettid() in the thread's own pid namespace; `None` when the thread has ended.
    pub fn inner_tid(&self, tid: ThreadId) -> Option<ThreadId> {
        Status::of(tid).ok()?.namespace_ids.last().copied()
    }

    /// Whether any process, for example a debugger, traces this process now.
    pub fn is_debugged(&self) -> bool {
        let tracer = Status::of(self.pid()).map_or(0, |status| status.tracer);
        tracer != 0 && u32::try_from(tracer) != Ok(std::process::id())
    }

    /// How the process ended; `None` while it lives. May be called repeatedly, because a child is collected only
    /// when the last clone of this `Process` is dropped.
    pub fn try_wait(&self) -> Option<Exit> {
        self.wait_exit(Some(Duration::ZERO))
    }

    /// Waits until the process ends, at most for `timeout` (`None`: for ever). Returns `None` if the process still
    /// lives.
    pub fn wait_exit(&self, timeout: Option<Duration>) -> Option<Exit> {
        if !is_readable(&self.shared.pidfd, timeout) {
            return None;
        }
        // A main thread that ended while it was being stopped is still traced, and its parent waits until we collect
        // it. Usually there is no such thread, and the call fails.
        let _ = crate::raw::poll_event(self.pid(), self.keeps_end(self.pid()));
        // The status of a process that is not our child is known or not, as its parent is quick or slow. Who is told it
        // one time in two relies on it; so only a signal counts.
        let is_signal = |exit: &Exit| matches!(exit, Exit::Signal { .. });
        let told = || ending::exit(self.pidfd(), self.pid()).filter(is_signal);
        Some(self.collect().or_else(told).unwrap_or(Exit::Unknown))
    }

    /// Waits for the end, or until one of the descriptors is readable. Yields whether the descriptors can be waited for
    /// again, or are at their end.
    pub fn wait_exit_or(&self, others: &[BorrowedFd<'_>], timeout: Duration) -> (Option<Exit>, bool) {
        let mut waited = vec![PollFd::new(&self.shared.pidfd, PollFlags::IN)];
        waited.extend(others.iter().map(|other| PollFd::new(other, PollFlags::IN)));
        let _ = poll(&mut waited, Timespec::try_from(timeout).ok().as_ref());
        let ended = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let is_at_end = waited.iter().skip(1).any(|other| other.revents().intersects(ended));
        (self.wait_exit(Some(Duration::ZERO)), !is_at_end)
    }

    fn collect(&self) -> Option<Exit> {
        if !self.shared.is_child {
            return None;
        }
        // This waits only for the end, because the stops of a traced child belong to the code that traces it. NOWAIT
        // leaves the status for the next call. The drop of the last clone collects it.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(self.pidfd()), options).ok().flatten()?;
        status.exit_status().map(Exit::Status).or_else(|| {
            Some(Exit::Signal {
                number: status.terminating_signal()?,
                dumped_core: status.dumped(),
            })
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.is_child {
            return;
        }
        if self.kill_on_drop.load(Ordering::Relaxed) {
            // An error means that the process has ended already.
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
            is_readable(&self.pidfd, Some(LAST_MOMENTS));
        }
        // An error is harmless: the process lives, or is already collected.
        let _ = waitid(
            WaitId::PidFd(self.pidfd.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
    }
}
