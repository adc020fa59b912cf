//! What can go wrong, each with what to do about it.

#![allow(missing_docs, reason = "each message says what its fields are")]

use nanoprobe_patch::TargetAddress;
use nix::errno::Errno;

use crate::sandbox::Sandbox;
use crate::{ProcessId, ThreadId};

/// Why a process cannot be traced. Nothing of it was touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// Another process has the same memory, with signal actions of its own.
    #[error(
        "process {pid} cannot be traced: process {other} ({name}) has the same memory (clone with CLONE_VM) and is no thread \
         of it, so that probes would kill it; end that one first"
    )]
    SharesMemory {
        pid: ProcessId,
        other: ProcessId,
        name: String,
    },
    /// No such process, or it ended while we looked at it.
    #[error("process {pid} does not exist; `ps -e` lists those that do")]
    NotFound { pid: ProcessId },
    /// The number is a thread's, not its process's.
    #[error("{tid} is a thread of process {pid}; give the process: -p {pid}")]
    IsThread {
        /// The number given.
        tid: ThreadId,
        /// The process it belongs to.
        pid: ProcessId,
    },
    /// It has ended, and only waits to be collected by its parent.
    #[error(
        "process {pid} has ended already (a zombie, waiting for its parent to collect it); there is nothing to trace"
    )]
    Zombie { pid: ProcessId },
    /// A process cannot stop itself.
    #[error("process {pid} is nanoprobe itself; to probe one's own program from inside, use libnanoprobe")]
    Ourselves { pid: ProcessId },
    /// It has no user memory.
    #[error("process {pid} is a kernel thread and has no user code; trace the kernel with bpftrace or perf")]
    KernelThread { pid: ProcessId },
    /// Not a 64-bit x86 program.
    #[error("process {pid} runs {executable}, which is {found}; nanoprobe traces 64-bit x86-64 ELF programs only")]
    Architecture {
        pid: ProcessId,
        executable: String,
        /// What it is instead.
        found: String,
    },
    /// Another user's.
    #[error("process {pid} belongs to user {owner}; run nanoprobe as that user, or as root")]
    OtherUser {
        pid: ProcessId,
        /// Name or number of its user.
        owner: String,
    },
    /// Some of its user or group ids differ from ours: it was started set-user-id, or changed them.
    #[error(
        "process {pid} has mixed user or group ids (uids {uids}, gids {gids}), as set-user-id programs do, and the kernel \
         lets only root trace it; run nanoprobe as root"
    )]
    MixedIds {
        pid: ProcessId,
        /// Real, effective, saved and filesystem user id.
        uids: String,
        /// The same of the group.
        gids: String,
    },
    /// PR_SET_DUMPABLE is off, or the program's file is not readable for us.
    #[error(
        "process {pid} is protected (not dumpable: it called prctl(PR_SET_DUMPABLE, 0), changed its user, or its file is \
         not readable); run nanoprobe as root"
    )]
    NotDumpable { pid: ProcessId },
    /// The Yama security module forbids it.
    #[error("process {pid}: the kernel's setting kernel.yama.ptrace_scope={scope} forbids tracing it: {remedy}")]
    Yama {
        pid: ProcessId,
        /// 1: descendants only; 2: root only; 3: not at all.
        scope: u32,
        /// What to do.
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
    /// Refused for a reason that the kernel does not tell.
    #[error(
        "process {pid}: the kernel refuses access to its memory ({errno}); a security module (SELinux, AppArmor), a \
         container without CAP_SYS_PTRACE or a user namespace may be the reason: run nanoprobe where the process runs, or as root"
    )]
    Refused { pid: ProcessId, errno: Errno },
    /// /proc is missing, unreadable, or holds nonsense.
    #[error("process {pid}: cannot read {file}: {reason}; is /proc mounted, and does hidepid hide the process?")]
    Proc {
        pid: ProcessId,
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A system call that needs a newer kernel, or a resource that ran out.
    #[error("process {pid}: {call} failed: {errno}; nanoprobe needs Linux 5.4 or newer")]
    System {
        pid: ProcessId,
        /// The call.
        call: &'static str,
        errno: Errno,
    },
}

/// Why memory could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// Nothing readable is there.
    #[error("process {pid}: cannot read {bytes} bytes at {address}: {errno}; {read} bytes before it could be read")]
    Unreadable {
        pid: ProcessId,
        /// The first address that could not be read.
        address: TargetAddress,
        /// How many bytes were asked for from there.
        bytes: usize,
        /// How many came before.
        read: usize,
        errno: Errno,
    },
    /// Nothing writable is there, or the kernel forbids to write to text. Everything below `address` was written,
    /// nothing from it on.
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
    Overlap {
        pid: ProcessId,
        /// The second one's start.
        address: TargetAddress,
    },
    /// The address space that was opened is no more: the process ended, or executed another program.
    #[error("process {pid}: its memory is gone: it has ended, or has executed another program; trace it anew")]
    Gone { pid: ProcessId },
    /// The file in /proc could not be read, or was nonsense.
    #[error("process {pid}: cannot read {file}: {reason}")]
    Proc {
        pid: ProcessId,
        file: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Why a process could not be stopped. Whatever was stopped already has been let go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// It ended.
    #[error("process {pid} has ended; there is nothing to stop")]
    Gone { pid: ProcessId },
    /// It executed another program while it was being stopped, or before.
    #[error("process {pid} has executed another program; look at its map and try again")]
    Executed { pid: ProcessId },
    /// A thread sleeps where the kernel cannot be interrupted.
    #[error(
        "thread {tid} of process {pid} cannot be stopped: it is in state {state} in the kernel (at {place}), for instance in \
         vfork, waiting for its child, or for a disk or network file system; try again when it is through"
    )]
    Uninterruptible {
        pid: ProcessId,
        tid: ThreadId,
        /// The state's letter in /proc/PID/stat.
        state: char,
        /// Where it waits (wchan), or the number of its system call, or `?`.
        place: String,
    },
    /// Another tracer has a thread of it, or the kernel refuses now what it allowed at `open`.
    #[error("thread {tid} of process {pid} cannot be traced: {errno}; {reason}")]
    Refused {
        pid: ProcessId,
        tid: ThreadId,
        errno: Errno,
        /// What is in the way, and what to do.
        reason: String,
    },
    /// A new thread came up in every round.
    #[error("process {pid} creates threads faster than they can be stopped ({threads} so far); try again")]
    TooManyThreads {
        pid: ProcessId,
        /// Stopped in vain.
        threads: usize,
    },
    /// A ptrace request failed on a thread that stood still.
    #[error("thread {tid} of process {pid}: {request} failed: {errno}")]
    Ptrace {
        pid: ProcessId,
        tid: ThreadId,
        request: &'static str,
        /// What the kernel said. ESRCH: the thread was killed meanwhile.
        errno: Errno,
    },
    /// The thread is not one of the stopped ones.
    #[error("thread {tid} of process {pid} is not stopped by us: it has ended, or was never there")]
    NoSuchThread { pid: ProcessId, tid: ThreadId },
    /// Memory of the target that a step needed could not be read or written.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Why a system call or a function call made in the target failed. The thread is as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// The system call was made, and failed.
    #[error("{call} in process {pid} failed: {errno}{hint}")]
    Call {
        pid: ProcessId,
        /// Name or number of the call, with its important arguments.
        call: String,
        errno: Errno,
        /// What to do, beginning with a semicolon, or empty.
        hint: &'static str,
    },
    /// The system call worked, and did something else than was asked: a sandbox that pretends.
    #[error("{call} in process {pid} returned {returned:#x} instead of what was asked for; is it sandboxed?")]
    Lied {
        pid: ProcessId,
        /// Name of the call, with its important arguments.
        call: String,
        /// What came back.
        returned: i64,
    },
    /// The thread is under seccomp, which might kill it for a call made in it.
    #[error("no call can be made in thread {tid} of process {pid}: {sandbox}")]
    Sandboxed {
        pid: ProcessId,
        tid: ThreadId,
        /// What of its filters is in the way.
        sandbox: Sandbox,
    },
    /// It was refused with SIGSYS.
    #[error("{call} in process {pid} is refused by its syscall user dispatch (SIGSYS); it cannot be traced")]
    Dispatched {
        pid: ProcessId,
        /// Name or number of the call.
        call: String,
    },
    /// The called function raised a signal instead of returning.
    #[error("a function called in process {pid} raised signal {signal} at {address}")]
    Fault {
        pid: ProcessId,
        signal: i32,
        /// The instruction.
        address: TargetAddress,
    },
    /// It did not come back, and is not merely slow.
    #[error(
        "{call} in process {pid} did not return: the thread executed for {} ms and slept for {} ms meanwhile; it was \
         interrupted, and goes on as it was",
        .executed.as_millis(), .slept.as_millis()
    )]
    Timeout {
        pid: ProcessId,
        call: String,
        /// For how long the thread executed.
        executed: std::time::Duration,
        /// For how long it slept.
        slept: std::time::Duration,
    },
    /// The tracer was held up, and the thread did not wait any longer. What it was to do is done.
    #[error(
        "thread {tid} of process {pid} went on by itself, since nanoprobe was held up for a third of a second while it made \
         calls in it: was nanoprobe stopped? Try again"
    )]
    WentHome { pid: ProcessId, tid: ThreadId },
    /// The thread ended: the process was killed.
    #[error(
        "thread {tid} of process {pid} ended in the middle of a call made in it: was it killed, perhaps by seccomp?"
    )]
    Ended { pid: ProcessId, tid: ThreadId },
    /// No page with room for the 12 bytes from which system calls are made.
    #[error("process {pid}: no executable mapping ends in 16 unused bytes, from which system calls could be made")]
    NoRoomForCode { pid: ProcessId },
    /// No unused stack for the frame that leads the thread home.
    #[error(
        "thread {tid} of process {pid}: found no {bytes} unused bytes of stack (its stack pointer is {stack_pointer}); try again"
    )]
    NoRoomForFrame {
        pid: ProcessId,
        tid: ThreadId,
        /// How many were needed.
        bytes: u64,
        /// Where the stack is.
        stack_pointer: TargetAddress,
    },
    /// The file that was made to be shared could not be opened, sized, sealed or locked by us.
    #[error("{step} the memory shared with process {pid} failed: {errno}{hint}")]
    Shared {
        pid: ProcessId,
        step: &'static str,
        errno: Errno,
        /// What to do, beginning with a semicolon, or empty.
        hint: &'static str,
    },
    /// The descriptor, or the mapping, shows something else than the file that was made for us. Nothing was written.
    #[error(
        "process {pid}: {place} shows {found} instead of the memory made for tracing: another thread of the process has \
         replaced it; nothing was written; try again, and if that does not help the program keeps tracers out"
    )]
    Replaced {
        pid: ProcessId,
        /// The descriptor, or the address.
        place: String,
        /// What is there.
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
    /// No words.
    #[error("no command given; -c wants a program and its arguments")]
    Empty,
    /// A word holds a NUL byte.
    #[error("the command `{command}` has a word or variable with a NUL byte in it, which no program can be given")]
    Nul {
        /// The first word.
        command: String,
    },
    /// Not in any directory of PATH.
    #[error("cannot run `{command}`: no such program in PATH; give its path, for instance ./{command}")]
    NotFound {
        /// The first word.
        command: String,
    },
    /// execve failed.
    #[error("cannot run `{command}`: {errno}{hint}")]
    Exec {
        /// The first word.
        command: String,
        errno: Errno,
        /// What to do, beginning with a semicolon, or empty.
        hint: &'static str,
    },
    /// It was killed before its first instruction.
    #[error("`{command}` ended before its first instruction; was it killed?")]
    Ended {
        /// The first word.
        command: String,
    },
    /// A system call of ours failed.
    #[error("cannot start `{command}`: {call}: {errno}")]
    System {
        /// The first word.
        command: String,
        call: &'static str,
        errno: Errno,
    },
    /// It was started, and cannot be traced; it has been killed.
    #[error("started `{command}`, and ended it again: {error}")]
    Attach {
        /// The first word.
        command: String,
        error: AttachError,
    },
    /// It was started, and could not be stopped; it has been killed.
    #[error("started `{command}`, and ended it again: {error}")]
    Stop {
        /// The first word.
        command: String,
        error: StopError,
    },
}
