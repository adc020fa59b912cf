//! /proc/PID/status and /proc/PID/stat, parsed leniently: every field may be missing.

use std::io;

use crate::proc_file;
use crate::{ProcessId, ThreadId};

/// The seccomp mode of a thread (prctl(2), PR_GET_SECCOMP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Seccomp {
    /// No filter.
    #[default]
    Disabled,
    /// Only read, write, exit and sigreturn are allowed: any other call kills. Nothing can be mapped in such a process.
    Strict,
    /// A filter decides. It may answer our calls with an error, with SIGSYS, or by killing the process: see
    /// [`Sandbox`](crate::Sandbox).
    Filter,
}

/// Fields of /proc/PID/status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub name: String,
    pub state: Option<char>,
    pub process: Option<ProcessId>,
    pub parent: ProcessId,
    pub tracer: ProcessId,
    /// Real, effective, saved, filesystem.
    pub uids: Vec<u32>,
    pub gids: Vec<u32>,
    /// One number for each pid namespace, from the reader's down to the process's own.
    pub namespace_ids: Vec<ThreadId>,
    pub seccomp: Seccomp,
    /// The number of the thread's seccomp filters; `None` from kernels before 5.9.
    pub filters: Option<u32>,
    pub capabilities: u64,
    pub is_kernel_thread: bool,
}

impl Status {
    /// Reads the status of a process or thread.
    pub fn of(id: ThreadId) -> io::Result<Status> {
        let text = proc_file::read(format!("/proc/{id}/status"))?;
        Ok(Status::parse(&String::from_utf8_lossy(&text)))
    }

    pub fn parse(text: &str) -> Status {
        let mut status = Status::default();
        for line in text.lines() {
            let Some((field, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            match field {
                "Name" => status.name = value.to_owned(),
                "State" => status.state = value.chars().next(),
                "Tgid" => status.process = value.parse().ok(),
                "PPid" => status.parent = value.parse().unwrap_or(0),
                "TracerPid" => status.tracer = value.parse().unwrap_or(0),
                "Uid" => status.uids = numbers(value),
                "Gid" => status.gids = numbers(value),
                "NSpid" => status.namespace_ids = numbers(value),
                "Seccomp" => {
                    status.seccomp = match value {
                        "1" => Seccomp::Strict,
                        "2" => Seccomp::Filter,
                        _ => Seccomp::Disabled,
                    }
                }
                "Seccomp_filters" => status.filters = value.parse().ok(),
                "CapEff" => status.capabilities = u64::from_str_radix(value, 16).unwrap_or(0),
                "Kthread" => status.is_kernel_thread = value == "1",
                _ => {}
            }
        }
        status
    }
}

fn numbers<T: std::str::FromStr>(text: &str) -> Vec<T> {
    text.split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// Fields of /proc/PID/stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// One letter.
    pub state: Option<char>,
    /// `PF_*` of the kernel.
    pub flags: u64,
    /// In clock ticks since boot. Together with the pid, it identifies a process for good.
    pub start_time: u64,
    /// The address where the program break began; 0 when the kernel does not show it to us.
    pub break_start: u64,
}

const PF_KTHREAD: u64 = 0x0020_0000;

impl Stat {
    /// Reads the stat line of a process or thread.
    pub fn of(id: ThreadId) -> io::Result<Stat> {
        let text = proc_file::read(format!("/proc/{id}/stat"))?;
        Ok(Stat::parse(&String::from_utf8_lossy(&text)))
    }

    /// The name in parentheses may contain anything, also parentheses: fields count from the last one.
    pub fn parse(text: &str) -> Stat {
        let Some((_, rest)) = text.rsplit_once(')') else {
            return Stat::default();
        };
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Numbered as in proc_pid_stat(5): the state is field 3.
        let number = |field: usize| fields.get(field - 3).and_then(|word| word.parse().ok()).unwrap_or(0);
        Stat {
            state: fields.first().and_then(|word| word.chars().next()),
            flags: number(9),
            start_time: number(22),
            break_start: number(47),
        }
    }

    pub fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_fields_and_survives_their_absence() {
        let text = "Name:\tweird: name\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t70\nNgid:\t0\nPid:\t71\nTracerPid:\t9\n\
                    Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nNSpid:\t71\t3\nSeccomp:\t2\nSeccomp_filters:\t3\nCapEff:\t0000000000080000\n";
        let status = Status::parse(text);
        assert_eq!(status.name, "weird: name");
        assert_eq!(status.state, Some('S'));
        assert_eq!(status.process, Some(70));
        assert_eq!(status.tracer, 9);
        assert_eq!(status.uids, [1, 2, 3, 4]);
        assert_eq!(status.gids, [5, 6, 7, 8]);
        assert_eq!(status.namespace_ids, [71, 3]);
        assert_eq!((status.seccomp, status.filters), (Seccomp::Filter, Some(3)));
        assert_eq!(status.capabilities, 1 << 19);
        assert_eq!(Status::parse("garbage\n:\nUid:\tx y\nSeccomp:\t\n"), Status::default());
    }

    #[test]
    fn a_hostile_name_does_not_shift_the_fields() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = Stat::parse(&format!("7 (a) R (b) Z 0 ) S {}", fields.join(" ")));
        assert_eq!(
            stat,
            Stat {
                state: Some('S'),
                flags: 9,
                start_time: 22,
                break_start: 47
            }
        );
        assert_eq!(Stat::parse("7 (cut off"), Stat::default());
        assert_eq!(Stat::parse("7 (cut) S 1").start_time, 0);
    }
}
