//! Everything that is checked before a process is touched.
//!
//! The order matters twice. The pidfd is opened first, and at the end it shows whether the process still lives. If
//! so, everything that was read in between was about this process, and not about a later process with the same
//! number. And /proc/PID/mem is opened after our own checks, because the kernel applies the rules of ptrace there,
//! but its only error is "permission denied".

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{Uid, User};

use crate::error::AttachError;
use crate::map::Map;
use crate::proc_file;
use crate::status::{Seccomp, Stat, Status};
use crate::{ProcessId, ThreadId, threads};

const CAP_SYS_PTRACE: u64 = 1 << 19;
/// The bytes of an ELF file up to and including the machine's number.
const HEAD_BYTES: usize = 20;

/// The facts about a process that are known when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The short name of the process (comm).
    pub name: String,
    /// The program's file, by the path in the mount namespace of the process.
    pub executable: PathBuf,
    pub uid: u32,
    pub gid: u32,
    /// Whether a thread of the process runs under seccomp. If so, system calls that we make in the process may
    /// fail, or kill it.
    pub seccomp: Seccomp,
    /// The number of the process in its own pid namespace: the result of its getpid().
    pub inner_pid: ProcessId,
    /// Whether the pid namespace of the process differs from ours.
    pub in_other_pid_namespace: bool,
    /// When the process started, in clock ticks since boot. Together with the pid, this identifies a process for
    /// good.
    pub start_time: u64,
}

pub(crate) struct Examined {
    pub facts: Facts,
    pub memory: File,
    /// Whether the tracer is the parent of the process.
    pub is_our_child: bool,
}

/// Examines a process. `our_tracee`: we trace the process already.
pub(crate) fn examine(pid: ProcessId, our_tracee: bool) -> Result<Examined, AttachError> {
    let unreadable = |file: &str, error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => AttachError::NotFound { pid },
        _ if error.raw_os_error() == Some(Errno::ESRCH as i32) => AttachError::NotFound { pid },
        _ => AttachError::Proc {
            pid,
            file: format!("/proc/{pid}/{file}"),
            reason: error.to_string(),
        },
    };
    let status = Status::of(pid).map_err(|error| unreadable("status", error))?;
    let stat = Stat::of(pid).map_err(|error| unreadable("stat", error))?;
    let us = read_status_of_ourselves(pid)?;
    let living = threads::living(pid);
    check_status(pid, &status, &stat, &us, living, our_tracee)?;

    // The files of a main thread that has ended are empty; those of any other thread show the same process.
    let tid = living.ok_or(AttachError::NotFound { pid })?;
    let memory = File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{tid}/mem"))
        .map_err(|error| {
            let owner = fs::metadata(format!("/proc/{tid}/mem"))
                .ok()
                .map(|metadata| metadata.uid());
            explain(pid, &status, owner, yama_scope(), error)
        })?;
    let executable = fs::read_link(format!("/proc/{tid}/exe")).map_err(|error| unreadable("exe", error))?;
    check_architecture(pid, tid, &executable, &memory)?;
    Ok(Examined {
        facts: Facts {
            executable,
            uid: status.uids.get(1).copied().unwrap_or(0),
            gid: status.gids.get(1).copied().unwrap_or(0),
            seccomp: seccomp_of_threads(pid, &status),
            inner_pid: status.namespace_ids.last().copied().unwrap_or(pid),
            in_other_pid_namespace: status.namespace_ids.len() > us.namespace_ids.len(),
            start_time: stat.start_time,
            name: status.name,
        },
        memory,
        is_our_child: us.process == Some(status.parent),
    })
}

/// The seccomp mode of the main thread. If the main thread has none, the mode of another thread: each thread may
/// have its own filters.
fn seccomp_of_threads(pid: ProcessId, main: &Status) -> Seccomp {
    if main.seccomp != Seccomp::Disabled {
        return main.seccomp;
    }
    let threads = threads::list(pid).unwrap_or_default().into_iter();
    threads
        .filter(|tid| *tid != pid)
        .filter_map(|tid| Some(Status::of(tid).ok()?.seccomp))
        .find(|seccomp| *seccomp != Seccomp::Disabled)
        .unwrap_or_default()
}

fn read_status_of_ourselves(pid: ProcessId) -> Result<Status, AttachError> {
    let text = proc_file::read("/proc/thread-self/status").map_err(|error| AttachError::Proc {
        pid,
        file: "/proc/thread-self/status".to_owned(),
        reason: error.to_string(),
    })?;
    Ok(Status::parse(&String::from_utf8_lossy(&text)))
}

fn check_status(
    pid: ProcessId,
    status: &Status,
    stat: &Stat,
    us: &Status,
    living: Option<ThreadId>,
    our_tracee: bool,
) -> Result<(), AttachError> {
    if let Some(process) = status.process.filter(|&process| process != pid) {
        return Err(AttachError::IsThread { tid: pid, pid: process });
    }
    if us.process == Some(pid) {
        return Err(AttachError::Ourselves { pid });
    }
    if stat.is_kernel_thread() || status.is_kernel_thread {
        return Err(AttachError::KernelThread { pid });
    }
    if matches!(status.state, Some('Z' | 'X' | 'x')) && living.is_none() {
        return Err(AttachError::Zombie { pid });
    }
    if us.capabilities & CAP_SYS_PTRACE == 0 {
        check_user(pid, status, us)?;
    }
    if status.tracer != 0 && !our_tracee {
        let tracer_name = Status::of(status.tracer).map_or_else(|_| "?".to_owned(), |tracer| tracer.name);
        return Err(AttachError::AlreadyTraced {
            pid,
            tracer: status.tracer,
            tracer_name,
        });
    }
    Ok(())
}

/// The rule of ptrace_may_access: the target's real, effective and saved ids must all equal the caller's (filesystem)
/// id.
fn check_user(pid: ProcessId, status: &Status, us: &Status) -> Result<(), AttachError> {
    let (Some(&our_user), Some(&our_group)) = (us.uids.get(3), us.gids.get(3)) else {
        return Ok(());
    };
    let others = |ids: &[u32], ours: u32| ids.iter().take(3).any(|&id| id != ours);
    if !others(&status.uids, our_user) && !others(&status.gids, our_group) {
        return Ok(());
    }
    let owner = status.uids.get(1).copied().unwrap_or(u32::MAX);
    if owner != our_user {
        return Err(AttachError::OtherUser {
            pid,
            owner: user_name(owner),
        });
    }
    let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    Err(AttachError::MixedIds {
        pid,
        uids: list(&status.uids),
        gids: list(&status.gids),
    })
}

fn user_name(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

fn yama_scope() -> u32 {
    proc_file::read_text("/proc/sys/kernel/yama/ptrace_scope")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// Why /proc/PID/mem could not be opened, although both processes have the same user.
fn explain(
    pid: ProcessId,
    status: &Status,
    owner_in_proc: Option<u32>,
    yama_scope: u32,
    error: std::io::Error,
) -> AttachError {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
    if matches!(errno, Errno::ENOENT | Errno::ESRCH) {
        return AttachError::NotFound { pid };
    }
    // If a process is not dumpable, the kernel makes root the owner of its /proc files.
    if owner_in_proc.is_some() && owner_in_proc != status.uids.get(1).copied() {
        return AttachError::NotDumpable { pid };
    }
    let remedy = match yama_scope {
        0 => return AttachError::Refused { pid, errno },
        1 => {
            "only a program's own descendants may be traced: start it with `nanoprobe -c`, run nanoprobe as root, or \
             allow it with `sysctl kernel.yama.ptrace_scope=0`"
        }
        2 => "only root may trace: run nanoprobe as root, or allow it with `sysctl kernel.yama.ptrace_scope=0`",
        _ => "tracing is switched off, and only a reboot switches it on again",
    };
    AttachError::Yama {
        pid,
        scope: yama_scope,
        remedy,
    }
}

/// Checks the machine by the head of the program's file. The link in /proc leads to the file even if the file no
/// longer has a name. A file that may be executed but not read is checked by the head of its image in memory.
fn check_architecture(pid: ProcessId, tid: ThreadId, executable: &Path, memory: &File) -> Result<(), AttachError> {
    let file = format!("/proc/{tid}/exe");
    let from_file = || {
        let mut head = Vec::new();
        File::open(&file)?
            .take(HEAD_BYTES as u64)
            .read_to_end(&mut head)
            .map(|_| head)
    };
    let head = from_file()
        .or_else(|error: std::io::Error| image_head(tid, executable, memory).ok_or(error))
        .map_err(|error| AttachError::Proc {
            pid,
            file: file.clone(),
            reason: error.to_string(),
        })?;
    describe_foreign(&head).map_or(Ok(()), |found| {
        Err(AttachError::Architecture {
            pid,
            executable: executable.display().to_string(),
            found,
        })
    })
}

fn image_head(tid: ThreadId, executable: &Path, memory: &File) -> Option<Vec<u8>> {
    let map = Map::parse(&proc_file::read(format!("/proc/{tid}/maps")).ok()?);
    let first = map
        .mappings()
        .iter()
        .find(|mapping| mapping.path() == Some(executable) && mapping.offset == 0)?;
    let mut head = vec![0; HEAD_BYTES];
    memory.read_exact_at(&mut head, first.start.0).ok()?;
    Some(head)
}

/// `None` for the head of an x86-64 ELF file, else a description of the program.
fn describe_foreign(head: &[u8]) -> Option<String> {
    const X86_64: u16 = 62;
    if !head.starts_with(b"\x7fELF") {
        return Some("not an ELF file".to_owned());
    }
    let class = head.get(4).copied().unwrap_or(0);
    let machine = match (head.get(18), head.get(19)) {
        (Some(&low), Some(&high)) => u16::from_le_bytes([low, high]),
        _ => 0,
    };
    match (class, machine) {
        (2, X86_64) => None,
        (1, X86_64) => Some("an x32 program".to_owned()),
        (1, 3) => Some("a 32-bit (i386) program".to_owned()),
        (1, _) => Some(format!("a 32-bit program for machine {machine}")),
        _ => Some(format!("a program for machine {machine}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uids: [u32; 4], gids: [u32; 4]) -> Status {
        Status {
            uids: uids.to_vec(),
            gids: gids.to_vec(),
            process: Some(10),
            ..Status::default()
        }
    }

    fn check(target: &Status) -> Result<(), AttachError> {
        let us = Status {
            process: Some(99),
            ..user([7; 4], [8; 4])
        };
        check_status(10, target, &Stat::default(), &us, None, false)
    }

    #[test]
    fn users_are_compared_as_the_kernel_does() {
        assert_eq!(check(&user([7; 4], [8; 4])), Ok(()));
        assert_eq!(
            check(&user([4_000_000; 4], [8; 4])),
            Err(AttachError::OtherUser {
                pid: 10,
                owner: "4000000".into()
            })
        );
        assert!(matches!(
            check(&user([7, 7, 0, 7], [8; 4])),
            Err(AttachError::MixedIds { .. })
        ));
        assert!(matches!(
            check(&user([7; 4], [8, 8, 9, 8])),
            Err(AttachError::MixedIds { .. })
        ));
    }

    #[test]
    fn states_are_told_apart() {
        let own = user([7; 4], [8; 4]);
        assert_eq!(
            check(&Status {
                state: Some('Z'),
                ..own.clone()
            }),
            Err(AttachError::Zombie { pid: 10 })
        );
        assert_eq!(
            check(&Status {
                process: Some(9),
                ..own.clone()
            }),
            Err(AttachError::IsThread { tid: 10, pid: 9 })
        );
        let us = Status {
            process: Some(10),
            ..own.clone()
        };
        assert_eq!(
            check_status(10, &own, &Stat::default(), &us, None, false),
            Err(AttachError::Ourselves { pid: 10 })
        );
        let traced = Status {
            tracer: i32::MAX,
            ..own.clone()
        };
        assert_eq!(
            check(&traced),
            Err(AttachError::AlreadyTraced {
                pid: 10,
                tracer: i32::MAX,
                tracer_name: "?".into()
            })
        );
        assert_eq!(
            check_status(10, &traced, &Stat::default(), &user([7; 4], [8; 4]), None, true),
            Err(AttachError::Ourselves { pid: 10 })
        );
    }

    #[test]
    fn a_refusal_is_explained() {
        let own = user([7; 4], [8; 4]);
        let denied = || std::io::Error::from_raw_os_error(Errno::EACCES as i32);
        assert_eq!(
            explain(10, &own, Some(0), 1, denied()),
            AttachError::NotDumpable { pid: 10 }
        );
        assert!(matches!(
            explain(10, &own, Some(7), 1, denied()),
            AttachError::Yama { scope: 1, .. }
        ));
        assert!(matches!(
            explain(10, &own, Some(7), 3, denied()),
            AttachError::Yama { scope: 3, .. }
        ));
        assert_eq!(
            explain(10, &own, Some(7), 0, denied()),
            AttachError::Refused {
                pid: 10,
                errno: Errno::EACCES
            }
        );
        let gone = std::io::Error::from_raw_os_error(Errno::ENOENT as i32);
        assert_eq!(explain(10, &own, None, 3, gone), AttachError::NotFound { pid: 10 });
    }

    #[test]
    fn foreign_programs_are_named() {
        let head = |class: u8, machine: u8| {
            let mut head = [0u8; 20];
            head[..4].copy_from_slice(b"\x7fELF");
            head[4] = class;
            head[18] = machine;
            head
        };
        assert_eq!(describe_foreign(&head(2, 62)), None);
        assert_eq!(describe_foreign(&head(1, 3)).unwrap(), "a 32-bit (i386) program");
        assert_eq!(describe_foreign(&head(1, 62)).unwrap(), "an x32 program");
        assert_eq!(describe_foreign(&head(2, 183)).unwrap(), "a program for machine 183");
        assert_eq!(describe_foreign(b"#!/bin/sh").unwrap(), "not an ELF file");
        assert_eq!(describe_foreign(b"\x7fELF").unwrap(), "a program for machine 0");
    }
}
