//! Processes under seccomp.
//!
//! A filter may answer a system call that we make in the process with an error, a signal, or the process's end. So a
//! thread is borrowed only if its filters let pass all calls that we may make in it, the `rt_sigprocmask` that leads a
//! borrowed thread home, and the `rt_sigreturn` with which our signal handlers end.
//!
//! Filters that can be read (CAP_SYS_ADMIN, and no filter on us) are executed here. The filters of the borrowed thread
//! are then suspended as well (PTRACE_O_SUSPEND_SECCOMP). Suspending alone would not suffice: if we are killed in the
//! middle of a call, the kernel lets the thread go, and its filter sees the call.
//!
//! Filters that cannot be read are permitted only if they are known to be the filters that this process is under
//! ([`chain`](crate::chain)): then a child of ours makes the calls first ([`trial`](crate::trial)).

use std::fmt;

use nix::errno::Errno;

use crate::chain::Doubt;
use crate::status::{Seccomp, Status};
use crate::trial::{Answer, Tried, tried};
use crate::{ThreadId, filter, raw};

/// The calls that are made in a process. The kernel itself makes the second call of this list, when a thread that
/// sleeps for a time continues after a stop.
const CALLS: [(libc::c_long, &str); 12] = [
    (libc::SYS_rt_sigreturn, "rt_sigreturn"),
    (libc::SYS_restart_syscall, "restart_syscall"),
    (libc::SYS_rt_sigprocmask, "rt_sigprocmask"),
    (libc::SYS_rt_sigaction, "rt_sigaction"),
    (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait"),
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_mprotect, "mprotect"),
    (libc::SYS_munmap, "munmap"),
    (libc::SYS_madvise, "madvise"),
    (libc::SYS_munlock, "munlock"),
    (libc::SYS_memfd_create, "memfd_create"),
    (libc::SYS_close, "close"),
];

/// Calls with the arguments by which filters tell them apart: pages that may be executed, and shared ones. A filter
/// that answers one of them by an error does no harm, because it is suspended; a filter that kills would kill if we
/// died in the middle of the call.
const SHAPES: [(libc::c_long, &str, [u64; 6]); 8] = [
    (
        libc::SYS_mmap,
        "mmap of pages that may be executed",
        [0, 4096, READ_EXECUTE, ANONYMOUS_AT, u64::MAX, 0],
    ),
    (
        libc::SYS_mmap,
        "mmap of shared pages",
        [0, 4096, 0, (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64, 3, 0],
    ),
    (
        libc::SYS_mprotect,
        "mprotect to execute",
        [0, 4096, READ_EXECUTE, 0, 0, 0],
    ),
    (
        libc::SYS_mprotect,
        "mprotect to write",
        [0, 4096, (libc::PROT_READ | libc::PROT_WRITE) as u64, 0, 0, 0],
    ),
    advice("madvise(MADV_DONTDUMP)", libc::MADV_DONTDUMP),
    advice("madvise(MADV_WIPEONFORK)", libc::MADV_WIPEONFORK),
    advice("madvise(MADV_RANDOM)", libc::MADV_RANDOM),
    advice("madvise(MADV_NORMAL)", libc::MADV_NORMAL),
];
const fn advice(name: &'static str, advice: i32) -> (libc::c_long, &'static str, [u64; 6]) {
    (libc::SYS_madvise, name, [0, 4096, advice as u64, 0, 0, 0])
}

const READ_EXECUTE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const ANONYMOUS_AT: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;

/// The tracer's verdict on the seccomp filters of a stopped process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// The thread has no filters.
    None,
    /// The filters were read, and let all our calls pass.
    Permits,
    /// The filters are those that the tracer itself is under, and let all our calls pass.
    SameAsOurs,
    /// The filters are unknown, and the user insists on tracing.
    Insisted,
    /// The filters were read, and never or not always let this call pass.
    Forbids { call: &'static str },
    /// The filters are those that the tracer itself is under; `answer` is their answer to a call that we need.
    Answers { call: &'static str, answer: Answer },
    /// The filters cannot be read, because we lack CAP_SYS_ADMIN or are under a filter ourselves. It is not certain
    /// that they are our own filters.
    Unknown { doubt: Doubt },
}

impl fmt::Display for Sandbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sandbox::None => write!(formatter, "it is under no seccomp filter"),
            Sandbox::Permits => write!(formatter, "its seccomp filter permits what tracing needs"),
            Sandbox::SameAsOurs => write!(
                formatter,
                "its seccomp filter is nanoprobe's own, and permits what tracing needs"
            ),
            Sandbox::Insisted => write!(
                formatter,
                "its seccomp filter is unknown, and is ignored (-x seccomp=try)"
            ),
            Sandbox::Forbids { call } => write!(
                formatter,
                "it runs under a seccomp filter that forbids {call}, which tracing needs, and may kill it for that"
            ),
            Sandbox::Answers { call, answer } => write!(
                formatter,
                "it runs under the same seccomp filter as nanoprobe, and that {answer} for {call}, which tracing needs \
                 (a child of nanoprobe has tried it): run nanoprobe as root outside of the container"
            ),
            Sandbox::Unknown { doubt } => write!(
                formatter,
                "it runs under a seccomp filter that only root outside of any sandbox can read, and that may kill it for \
                 what tracing needs: {doubt}. Run nanoprobe there as root, or in the target's own container; or set \
                 -x seccomp=try if you know that its filter only returns errors"
            ),
        }
    }
}

/// Whether the filters may kill a stopped thread when the kernel makes it call restart_syscall.
pub(crate) fn may_forbid_restart(tid: ThreadId) -> bool {
    match raw::seccomp_filters(tid) {
        Ok(filters) => !filters
            .iter()
            .all(|filter| filter::allows(filter, libc::SYS_restart_syscall as u32)),
        // EINVAL: the thread has no filter.
        Err(Errno::EINVAL) => false,
        Err(_) => Status::of(tid).is_ok_and(|status| status.seccomp != Seccomp::Disabled),
    }
}

/// The facts that are known about filters of a process even if they cannot be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreadable {
    /// The number of filters that the process has in common with us, if this number is certain.
    pub kinship: Result<u32, Doubt>,
    /// `-x seccomp=try`
    pub is_insisted_on: bool,
}

/// Examines the filters of one stopped thread. `unreadable` is asked only if they cannot be read.
pub(crate) fn sandbox_of(tid: ThreadId, unreadable: impl FnOnce() -> Unreadable) -> Sandbox {
    // A thread without a status has ended.
    let status = Status::of(tid).unwrap_or_default();
    match status.seccomp {
        Seccomp::Disabled => return Sandbox::None,
        Seccomp::Strict => return Sandbox::Forbids { call: "mmap" },
        Seccomp::Filter => {}
    }
    match raw::seccomp_filters(tid) {
        Ok(filters) => read(&filters),
        Err(_) => {
            let unreadable = unreadable();
            match unread(unreadable.kinship, &status) {
                Sandbox::Unknown { .. } if unreadable.is_insisted_on => Sandbox::Insisted,
                sandbox => sandbox,
            }
        }
    }
}

/// The calls that the filters permit, if the filters could be read.
fn read(filters: &[Vec<filter::Instruction>]) -> Sandbox {
    let number = |number: libc::c_long| u32::try_from(number).unwrap_or(u32::MAX);
    let forbidden = CALLS
        .iter()
        .find(|(call, _)| !filters.iter().all(|filter| filter::allows(filter, number(*call))));
    let deadly = || {
        SHAPES.iter().find(|(call, _, arguments)| {
            filters
                .iter()
                .any(|filter| filter::may_kill(filter, number(*call), arguments))
        })
    };
    match forbidden
        .map(|(_, call)| *call)
        .or_else(|| deadly().map(|(_, call, _)| *call))
    {
        Some(call) => Sandbox::Forbids { call },
        None => Sandbox::Permits,
    }
}

/// The verdict on filters that cannot be read.
fn unread(kinship: Result<u32, Doubt>, thread: &Status) -> Sandbox {
    let same = kinship.and_then(|ours| match thread.filters {
        Some(theirs) if theirs == ours => Ok(()),
        // A thread may have installed a filter of its own, at any time.
        theirs => Err(Doubt::Number {
            ours: Some(ours),
            theirs,
        }),
    });
    match same {
        Err(doubt) => Sandbox::Unknown { doubt },
        Ok(()) => match tried() {
            Tried::Permitted => Sandbox::SameAsOurs,
            Tried::Refused { call, answer } => Sandbox::Answers { call, answer },
            Tried::Failed { errno } => Sandbox::Unknown {
                doubt: Doubt::NotTried { errno },
            },
        },
    }
}
