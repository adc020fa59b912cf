//! Processes under seccomp. A filter may answer a system call that we make in the process with an error, a signal, or
//! its end. So a thread is borrowed only where its filters let pass whatever we may have it call, the `rt_sigprocmask`
//! that leads a borrowed thread home, and the `rt_sigreturn` with which our signal handlers end. To read filters takes
//! CAP_SYS_ADMIN; without it a process under seccomp is left alone.
//!
//! What a filter says of arguments is not looked at: the filters of the borrowed thread are suspended besides
//! (PTRACE_O_SUSPEND_SECCOMP). That alone would not do. If we are killed in the middle of a call, the kernel lets go of
//! the thread, and the filter meets the call.

use std::fmt;

use nix::errno::Errno;

use crate::status::{Seccomp, Status};
use crate::{ThreadId, filter, raw};

/// What is called in a process. The second: by the kernel, when a thread that sleeps for a time goes on after a stop.
const CALLS: [(libc::c_long, &str); 11] = [
    (libc::SYS_rt_sigreturn, "rt_sigreturn"),
    (libc::SYS_restart_syscall, "restart_syscall"),
    (libc::SYS_rt_sigprocmask, "rt_sigprocmask"),
    (libc::SYS_rt_sigaction, "rt_sigaction"),
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_mprotect, "mprotect"),
    (libc::SYS_munmap, "munmap"),
    (libc::SYS_madvise, "madvise"),
    (libc::SYS_munlock, "munlock"),
    (libc::SYS_memfd_create, "memfd_create"),
    (libc::SYS_close, "close"),
];

/// What the seccomp filters of a stopped process mean for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// There are none.
    None,
    /// They let pass whatever we call.
    Permits,
    /// They do not let this system call pass, or not always.
    Forbids {
        /// Its name.
        call: &'static str,
    },
    /// They cannot be read: that takes CAP_SYS_ADMIN, and that none holds for ourselves.
    Unknown {
        /// What the kernel said.
        errno: Errno,
    },
}

impl fmt::Display for Sandbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sandbox::None => write!(formatter, "it is under no seccomp filter"),
            Sandbox::Permits => write!(formatter, "its seccomp filter permits what tracing needs"),
            Sandbox::Forbids { call } => write!(
                formatter,
                "it runs under a seccomp filter that forbids {call}, which tracing needs, and may kill it for that"
            ),
            Sandbox::Unknown { errno } => write!(
                formatter,
                "it runs under a seccomp filter, which may kill it for what tracing needs; to read it takes CAP_SYS_ADMIN \
                 ({errno}): run nanoprobe as root, outside of any sandbox"
            ),
        }
    }
}

/// Whether a stopped thread may be killed when the kernel has it call restart_syscall.
pub(crate) fn may_forbid_restart(tid: ThreadId) -> bool {
    match raw::seccomp_filters(tid) {
        Ok(filters) => !filters
            .iter()
            .all(|filter| filter::allows(filter, libc::SYS_restart_syscall as u32)),
        // It has none.
        Err(Errno::EINVAL) => false,
        Err(_) => Status::of(tid).is_ok_and(|status| status.seccomp != Seccomp::Disabled),
    }
}

/// Looks at the filters of one stopped thread.
pub(crate) fn sandbox_of(tid: ThreadId) -> Sandbox {
    // A thread without a status has ended.
    match Status::of(tid).map_or(Seccomp::Disabled, |status| status.seccomp) {
        Seccomp::Disabled => return Sandbox::None,
        Seccomp::Strict => return Sandbox::Forbids { call: "mmap" },
        Seccomp::Filter => {}
    }
    let filters = match raw::seccomp_filters(tid) {
        Ok(filters) => filters,
        Err(errno) => return Sandbox::Unknown { errno },
    };
    let forbids = |number: libc::c_long| {
        u32::try_from(number).map_or(true, |number| {
            !filters.iter().all(|filter| filter::allows(filter, number))
        })
    };
    match CALLS.iter().find(|(number, _)| forbids(*number)) {
        Some((_, call)) => Sandbox::Forbids { call },
        None => Sandbox::Permits,
    }
}
