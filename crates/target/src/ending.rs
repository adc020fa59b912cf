//! How a process ended that is not our child. The kernel tells its parent; others learn of it in two ways:
//!
//! ```text
//! until its parent has collected it    /proc/PID/stat, whose last field says which signal has killed its first thread
//! after that                           the pidfd, since Linux 6.15
//! ```
//!
//! A status of 0 in /proc may also mean that we may not know it, or that the first thread has ended before others. A
//! signal there is true: it has killed all threads.

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::ProcessId;
use crate::proc_file;

/// The place of the status after the state in /proc/PID/stat.
const STATUS: usize = 49;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// The process called exit with this status.
    Status(i32),
    /// This signal killed the process.
    Signal { number: i32, dumped_core: bool },
    /// The process is not our child, and nobody tells how it ended.
    Unknown,
}

impl Exit {
    /// The end that a status of wait(2) tells.
    pub(crate) fn of_status(status: i32) -> Exit {
        match status & 0x7f {
            0 => Exit::Status(status >> 8 & 0xff),
            number => Exit::Signal {
                number,
                dumped_core: status & 0x80 != 0,
            },
        }
    }
}

/// A process whose end is waited for; nothing else is asked of it.
#[derive(Debug)]
pub struct Ending {
    pid: ProcessId,
    pidfd: OwnedFd,
}

impl Ending {
    /// Opens a process of this number; `None`: there is none.
    #[must_use]
    pub fn open(pid: ProcessId) -> Option<Ending> {
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        Some(Ending { pid, pidfd })
    }

    /// Whether the process has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        is_readable(&self.pidfd, Some(Duration::ZERO))
    }

    /// How it has ended, as soon as that can be known.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        exit(self.pidfd.as_fd(), self.pid)
    }
}

/// How a process has ended; `None`: it lives, or nobody tells us.
pub(crate) fn exit(pidfd: BorrowedFd<'_>, pid: ProcessId) -> Option<Exit> {
    uncollected(pidfd, pid).or_else(|| collected(pidfd))
}

/// The signal that has killed a process which its parent has not collected.
fn uncollected(pidfd: BorrowedFd<'_>, pid: ProcessId) -> Option<Exit> {
    let stat = proc_file::read_text(format!("/proc/{pid}/stat")).ok()?;
    // The number may be another process's by now, if ours was collected before.
    is_there(pidfd).then(|| killed_by(&stat)).flatten()
}

fn killed_by(stat: &str) -> Option<Exit> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_whitespace();
    let state = fields.next().filter(|state| *state == "Z");
    let status = state.and(fields.nth(STATUS - 1))?.parse().ok()?;
    Some(Exit::of_status(status)).filter(|exit| matches!(exit, Exit::Signal { .. }))
}

/// Whether the process has not been collected.
fn is_there(pidfd: BorrowedFd<'_>) -> bool {
    // SAFETY: signal 0 sends nothing, and the kernel reads no siginfo at 0.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), 0, 0_usize, 0) };
    sent == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// The end of a process which its parent has collected. Older kernels know no such question.
fn collected(pidfd: BorrowedFd<'_>) -> Option<Exit> {
    let mut information = MaybeUninit::<libc::pidfd_info>::zeroed();
    // The kernel is told the size in the number of the question.
    const { assert!(size_of::<libc::pidfd_info>() == libc::PIDFD_INFO_SIZE_VER0 as usize) };
    // SAFETY: plain numbers, for which all bytes are valid.
    let asked = unsafe { information.assume_init_mut() };
    asked.mask = libc::PIDFD_INFO_EXIT.into();
    // SAFETY: the kernel writes no more than the structure.
    let answer = unsafe { libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, std::ptr::from_mut(asked)) };
    let is_known = answer == 0 && asked.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0;
    is_known.then(|| Exit::of_status(asked.exit_code))
}

/// Whether the process ends, within a time.
pub(crate) fn is_readable(pidfd: &OwnedFd, timeout: Option<Duration>) -> bool {
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A child that was killed, seen by one who does not wait for it.
    #[test]
    fn a_signal_is_known_before_and_after_the_parent_has_collected_its_child() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let ending = Ending::open(child.id().cast_signed()).unwrap();
        assert_eq!((ending.exit(), ending.has_ended()), (None, false));
        child.kill().unwrap();
        assert!(is_readable(&ending.pidfd, None));
        let killed = Exit::Signal {
            number: libc::SIGKILL,
            dumped_core: false,
        };
        assert_eq!((ending.exit(), ending.has_ended()), (Some(killed), true));
        child.wait().unwrap();
        let told = ending.exit();
        // Linux before 6.15 does not tell.
        assert!(told.is_none_or(|told| told == killed), "{told:?}");
    }

    #[test]
    fn only_a_signal_of_a_process_that_has_ended_is_believed() {
        let stat = |state: &str, status: &str| {
            let mut fields = vec!["0"; STATUS + 1];
            (fields[0], fields[STATUS]) = (state, status);
            format!("7 (a) b) {}\n", fields.join(" "))
        };
        assert_eq!(killed_by(&stat("Z", "0")), None);
        assert_eq!(killed_by(&stat("Z", "256")), None);
        assert_eq!(killed_by(&stat("S", "9")), None);
        let dumped = Exit::Signal {
            number: libc::SIGSEGV,
            dumped_core: true,
        };
        assert_eq!(killed_by(&stat("Z", "139")), Some(dumped));
        assert_eq!(killed_by("7 (a"), None);
    }
}
