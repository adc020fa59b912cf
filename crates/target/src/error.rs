//! The errors. Each message says what to do.

use nanoprobe_patch::TargetAddress;
use nix::errno::Errno;

use crate::sandbox::Sandbox;
use crate::{ProcessId, ThreadId};

/// Why a process cannot be traced. The process was not touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// Another process has the same memory, but its own signal actions.
    #[error(
        "process {pid} cannot be traced: process {other} ({name}) has the same memory (clone with CLONE_VM) and is no thread \
         of it, so probes would kill that process; end it first"
    )]
    SharesMemory {
        pid: ProcessId,
        other: ProcessId,
        name: String,
    },
    /// There is no such process, or it ended while it was examined.
    #[error("process {pid} does not exist; `ps -e` lists those that do")]
    NotFound { pid: ProcessId },
    /// The number is that of a thread and not of a process.
    #[error("{tid} is a thread of process {pid}; give the process: -p {pid}")]
    IsThread { tid: ThreadId, pid: ProcessId },
    /// The process has ended, and waits for its parent to collect it.
    #[error(
        "process {pid} has ended already (a zombie, waiting for its parent to collect it); there is nothing to trace"
    )]
    Zombie { pid: ProcessId },
    /// A process cannot stop itself.
    #[error("process {pid} is nanoprobe itself; to probe one's own program from inside, use libnanoprobe")]
    Ourselves { pid: ProcessId },
    /// The process has no user memory.
    #[error("process {pid} is a kernel thread and has no user code; trace the kernel with bpftrace or perf")]
    KernelThread { pid: ProcessId },
    #[error("process {pid} runs {executable}, which is {found}; nanoprobe traces 64-bit x86-64 ELF programs only")]
    Architecture {
        pid: ProcessId,
        executable: String,
        found: String,
    },
    /// The process belongs to another user.
    #[error("process {pid} belongs to user {owner}; run nanoprobe as that user, or as root")]
    OtherUser {
        pid: ProcessId,
        /// The owner's name or number.
        owner: String,
    },
    /// Some user or group ids of the process differ from ours: its program is set-user-id, or it has changed its
    /// ids.
    #[error(
        "process {pid} has mixed user or group ids (uids {uids}, gids {gids}), as set-user-id programs do, and the kernel \
         lets only root trace it; run nanoprobe as root"
    )]
    MixedIds {
        pid: ProcessId,
        /// Real, effective, saved and filesystem user ids.
        uids: String,
        /// Real, effective, saved and filesystem group ids.
        gids: String,
    },
    /// PR_SET_DUMPABLE is off, or we may not read the program's file.
    #[error(
        "process {pid} is protected (not dumpable: it called prctl(PR_SET_DUMPABLE, 0), changed its user, or its file is \
         not readable); run nanoprobe as root"
    )]
    NotDumpable { pid: ProcessId },
    /// The Yama security module forbids tracing the process.
    #[error("process {pid}: the kernel's setting kernel.yama.ptrace_scope={scope} forbids tracing it: {remedy}")]
    Yama {
        pid: ProcessId,
        /// 1: only descendants may be traced; 2: only root may trace; 3: tracing is off.
        scope: u32,
        remedy: &'static str,
    },
    /// One process has one tracer at a time.
    #[error("process {pid} is being traced by process {tracer} ({tracer_name}); end that one (or detach it) first")]
    AlreadyTraced {
        pid: ProcessId,
        tracer: ProcessId,
        /// The tracer's name, `?` when unknown.
        tracer_name: String,
    },
    /// The kernel refused, and no reason was found.
    #[error(
        "process {pid}: the kernel refuses access to its memory ({errno}); a security module (SELinux, AppArmor), a \
         container without CAP_SYS_PTRACE or a user namespace may be the reason: run nanoprobe where the process runs, or as root"
    )]
    Refused { pid: ProcessId, errno: Errno },
    /// A file in /proc is missing, unreadable or nonsensical.
    #[error("process {pid}: cannot read {file}: {reason}; is /proc mounted, and does hidepid hide the process?")]
    Proc {
        pid: ProcessId,
        file: String,
        reason: String,
    },
    /// A system call needs a newer kernel, or a resource ran out.
    #[error(
        "process {pid}: {call} failed: {errno}; nanoprobe needs Linux 5.4 or newer; in a container, nanoprobe's \
         seccomp profile must permit the call"
    )]
    System {
        pid: ProcessId,
        call: &'static str,
        errno: Errno,
    },
}

/// Why reading or writing memory has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// No readable memory is mapped at the address.
    #[error("process {pid}: cannot read {bytes} bytes at {address}: {errno}; {read} bytes before it could be read")]
    Unreadable {
        pid: ProcessId,
        /// The first address that could not be read.
        address: TargetAddress,
        bytes: usize,
        /// The number of bytes that were read before that address.
        read: usize,
        errno: Errno,
    },
    /// No writable memory is mapped at the address, or the kernel forbids writes to text. All bytes below `address`
    /// were written, and no others.
    #[error(
        "process {pid}: cannot write {bytes} bytes at {address}: {errno}; is something mapped there, and is the kernel \
         booted with proc_mem.force_override=always (its default)?"
    )]
    Unwritable {
        pid: ProcessId,
        address: TargetAddress,
        bytes: usize,
        errno: Errno,
    },
    /// Two writes of one batch cover the same byte. Nothing was written.
    #[error("process {pid}: two writes of one batch overlap at {address}; nothing was written")]
    Overlap { pid: ProcessId, address: TargetAddress },
    /// The address space that was opened no longer exists: the process ended, or executed another program.
    #[error("process {pid}: its memory is gone: it has ended, or has executed another program; trace it anew")]
    Gone { pid: ProcessId },
    /// The file in /proc could not be read, or was nonsensical.
    #[error("process {pid}: cannot read {file}: {reason}")]
    Proc {
        pid: ProcessId,
        file: String,
        reason: String,
    },
}

/// Why a process could not be stopped. The threads that were already stopped run again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    #[error("process {pid} has ended; there is nothing to stop")]
    Gone { pid: ProcessId },
    /// The process executed another program while it was being stopped, or before.
    #[error("process {pid} has executed another program; look at its map and try again")]
    Executed { pid: ProcessId },
    /// A thread is in an uninterruptible sleep.
    #[error(
        "thread {tid} of process {pid} cannot be stopped: it is in state {state} in the kernel (at {place}), for instance in \
         vfork, waiting for its child, or for a disk or network file system; try again later"
    )]
    Uninterruptible {
        pid: ProcessId,
        tid: ThreadId,
        /// The state's letter in /proc/PID/stat.
        state: char,
        /// The place in the kernel where the thread waits (wchan), or the number of its system call, or `?`.
        place: String,
    },
    /// Another tracer traces one of the threads, or the kernel now refuses access that it allowed at `open`.
    #[error("thread {tid} of process {pid} cannot be traced: {errno}; {reason}")]
    Refused {
        pid: ProcessId,
        tid: ThreadId,
        errno: Errno,
        reason: String,
    },
    /// Another tracer has been at work in the process all the time.
    #[error(
        "another nanoprobe has been at work in process {pid} for a minute: is it stopped? `nanoprobe ps` shows its number; \
         try again"
    )]
    Busy { pid: ProcessId },
    /// Every round found a new thread.
    #[error("process {pid} creates threads faster than they can be stopped ({threads} so far); try again")]
    TooManyThreads {
        pid: ProcessId,
        /// The threads stopped so far.
        threads: usize,
    },
    /// A ptrace request failed on a thread that stood still.
    #[error("thread {tid} of process {pid}: {request} failed: {errno}")]
    Ptrace {
        pid: ProcessId,
        tid: ThreadId,
        request: &'static str,
        /// The kernel's error. ESRCH: the thread was killed meanwhile.
        errno: Errno,
    },
    /// The thread is not among the stopped ones.
    #[error("thread {tid} of process {pid} is not stopped by us: it has ended, or was never there")]
    NoSuchThread { pid: ProcessId, tid: ThreadId },
    /// Memory of the target that a step needed could not be read or written.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Why a system call or a function call made in the target failed. The thread's state is as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// The system call was made, and failed.
    #[error("{call} in process {pid} failed: {errno}{hint}")]
    Call {
        pid: ProcessId,
        /// Name or number of the call, with its important arguments.
        call: String,
        errno: Errno,
        /// Advice on what to do, beginning with a semicolon; may be empty.
        hint: &'static str,
    },
    /// The system call reported success, but did something other than requested: a sandbox has faked its result.
    #[error("{call} in process {pid} returned {returned:#x} and did not do what was asked; is it sandboxed?")]
    Lied {
        pid: ProcessId,
        /// The name of the call, with its important arguments.
        call: String,
        returned: i64,
    },
    /// The thread is under seccomp, which might kill it for a system call that we make in it.
    #[error("no call can be made in thread {tid} of process {pid}: {sandbox}")]
    Sandboxed {
        pid: ProcessId,
        tid: ThreadId,
        /// Why the thread's filters are an obstacle.
        sandbox: Sandbox,
    },
    /// The process's syscall user dispatch refused the call with SIGSYS.
    #[error("{call} in process {pid} is refused by its syscall user dispatch (SIGSYS); it cannot be traced")]
    Dispatched { pid: ProcessId, call: String },
    /// The called function raised a signal instead of returning.
    #[error("a function called in process {pid} raised signal {signal} at {address}")]
    Fault {
        pid: ProcessId,
        signal: i32,
        /// The address of the instruction.
        address: TargetAddress,
    },
    /// The called function would wait for a thread that is stopped.
    #[error(
        "{call} in process {pid} would wait for another thread, but all threads are stopped: the call was abandoned"
    )]
    Waits { pid: ProcessId, call: String },
    /// The function or call did not return, and is not merely slow.
    #[error(
        "{call} in process {pid} did not return: the thread executed for {} ms and slept for {} ms meanwhile; it was \
         interrupted, and continues unharmed",
        .executed.as_millis(), .slept.as_millis()
    )]
    Timeout {
        pid: ProcessId,
        call: String,
        /// How long the thread executed.
        executed: std::time::Duration,
        /// How long the thread slept.
        slept: std::time::Duration,
    },
    /// The tracer was delayed, and the thread did not wait any longer. The thread has obeyed the request.
    #[error(
        "thread {tid} of process {pid} continued without nanoprobe, which was delayed for a third of a second while \
         it made calls in this thread: was nanoprobe stopped? Try again"
    )]
    WentHome { pid: ProcessId, tid: ThreadId },
    /// The thread ended: the process was killed.
    #[error(
        "thread {tid} of process {pid} ended in the middle of a call made in it: was it killed, perhaps by seccomp?"
    )]
    Ended { pid: ProcessId, tid: ThreadId },
    /// There is no page with room for the code from which borrowed threads make system calls.
    #[error("process {pid}: no executable mapping ends in 16 unused bytes, from which system calls could be made")]
    NoRoomForCode { pid: ProcessId },
    /// There is no unused stack for the frame by which the thread returns to its own work.
    #[error(
        "thread {tid} of process {pid}: found no {bytes} unused bytes of stack (its stack pointer is {stack_pointer}); try again"
    )]
    NoRoomForFrame {
        pid: ProcessId,
        tid: ThreadId,
        bytes: u64,
        stack_pointer: TargetAddress,
    },
    /// The tracer could not open, size, seal or lock the file for the shared memory.
    #[error("{step} the memory shared with process {pid} failed: {errno}{hint}")]
    Shared {
        pid: ProcessId,
        step: &'static str,
        errno: Errno,
        /// Advice on what to do, beginning with a semicolon; may be empty.
        hint: &'static str,
    },
    /// The descriptor, or the mapping, shows something other than the file that was made for us. Nothing was written.
    #[error(
        "process {pid}: {place} shows {found} instead of the memory made for tracing: another thread of the process has \
         replaced it; nothing was written; try again, and if that does not help the program keeps tracers out"
    )]
    Replaced {
        pid: ProcessId,
        place: String,
        found: String,
    },
    /// A ptrace request failed.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// The target's memory could not be read or written.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Why a command could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    #[error("no command given; -c wants a program and its arguments")]
    Empty,
    /// A word or an environment variable contains a NUL byte.
    #[error(
        "the command `{command}` has a word or variable with a NUL byte in it, which cannot be passed to a program"
    )]
    Nul { command: String },
    /// No directory of PATH has the program.
    #[error("cannot run `{command}`: no such program in PATH; give its path, for instance ./{command}")]
    NotFound { command: String },
    #[error("cannot run `{command}`: {errno}{hint}")]
    Exec {
        command: String,
        errno: Errno,
        /// Advice on what to do, beginning with a semicolon; may be empty.
        hint: &'static str,
    },
    /// The program was killed before its first instruction.
    #[error("`{command}` ended before its first instruction; was it killed?")]
    Ended { command: String },
    /// A system call of the tracer failed.
    #[error("cannot start `{command}`: {call}: {errno}")]
    System {
        command: String,
        call: &'static str,
        errno: Errno,
    },
    /// It was started but cannot be traced, and was killed.
    #[error("started `{command}`, and ended it again: {error}")]
    Attach { command: String, error: AttachError },
    /// The program was started, could not be stopped, and was killed.
    #[error("started `{command}`, and ended it again: {error}")]
    Stop { command: String, error: StopError },
}
