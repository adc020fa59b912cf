//! Whether a process is under the very seccomp filters that we are under, without a look at them.
//!
//! A process inherits its parent's filters, keeps them over execve, may add some, and never loses one. A container's
//! runtime (or systemd, for a unit) gives the same filters to every process that enters the container. So in one
//! container every process has these first, and those that it or an ancestor has added after them. If a process has no
//! more than these, it has exactly these.
//!
//! So the tracer asks the kernel whether these statements hold:
//!
//! 1. target and tracer are in the same container: the same control groups, and the same namespaces of mounts, users
//!    and processes;
//! 2. target and tracer have the same number of filters;
//! 3. every ancestor of both in the container has that number, too: neither comes from a process that has added a
//!    filter;
//! 4. no process that is seen in the container has fewer filters: else the container's own number is smaller, and
//!    further filters were added.
//!
//! `docs/design/seccomp.md` states the argument, and where it ends.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::proc_file;
use crate::status::{Seccomp, Status};
use crate::{ProcessId, ThreadId};

/// The namespaces in which containers differ.
const NAMESPACES: [&str; 3] = ["mnt", "pid", "user"];

/// Why it is not certain that the filters of a process are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// We are under no filter, but the process is.
    OursAreNone,
    /// The numbers of filters differ. `None`: the kernel is older than 5.9, and does not show the number.
    Number { ours: Option<u32>, theirs: Option<u32> },
    /// The process is in another container: this namespace or control group differs.
    OtherContainer { difference: &'static str },
    /// A process of the same container has another number of filters.
    Relative { pid: ProcessId, ours: u32, theirs: u32 },
    /// An ancestor cannot be seen (hidepid).
    Unseen { pid: ProcessId },
    /// No child could try the calls.
    NotTried { errno: Errno },
    /// The filters were read, but cannot be suspended.
    NotSuspended { errno: Errno },
}

impl fmt::Display for Doubt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::OursAreNone => write!(
                formatter,
                "nanoprobe itself is under no filter, so it cannot try the calls"
            ),
            Doubt::Number {
                ours: Some(ours),
                theirs: Some(theirs),
            } if theirs > ours => write!(
                formatter,
                "it is under {theirs} filters and nanoprobe under {ours}, so the program has added its own"
            ),
            Doubt::Number {
                ours: Some(ours),
                theirs: Some(theirs),
            } => write!(
                formatter,
                "it is under {theirs} filters and nanoprobe under {ours}: not the same ones"
            ),
            Doubt::Number { .. } => write!(
                formatter,
                "the kernel does not say how many filters there are (since Linux 5.9)"
            ),
            Doubt::OtherContainer { difference } => {
                write!(
                    formatter,
                    "it is in another container than nanoprobe ({difference} differ)"
                )
            }
            Doubt::Relative { pid, ours, theirs } => write!(
                formatter,
                "process {pid} of the same container is under {theirs} filters and nanoprobe under {ours}, so some of them \
                 are not the container's"
            ),
            Doubt::Unseen { pid } => write!(
                formatter,
                "process {pid}, a parent, cannot be examined (is /proc mounted with hidepid?)"
            ),
            Doubt::NotTried { errno } => write!(
                formatter,
                "nanoprobe could not make a child that tries the calls ({errno})"
            ),
            Doubt::NotSuspended { errno } => write!(formatter, "its filter cannot be suspended ({errno})"),
        }
    }
}

/// A process that /proc shows.
#[derive(Clone, Copy, Debug)]
struct Seen {
    parent: ProcessId,
    filters: u32,
    /// Whether the process is in our control groups.
    is_inside: bool,
}

/// The number of filters of the process to which a thread belongs, if these filters are certain to be our own
/// filters.
pub(crate) fn number_in_common(tid: ThreadId) -> Result<u32, Doubt> {
    let ours = status("thread-self").ok_or(Doubt::Unseen { pid: tid })?;
    let theirs = status(&tid.to_string()).ok_or(Doubt::Unseen { pid: tid })?;
    if ours.seccomp != Seccomp::Filter {
        return Err(Doubt::OursAreNone);
    }
    let number = match (ours.filters, theirs.filters) {
        (Some(ours), Some(theirs)) if ours == theirs && ours > 0 => ours,
        (ours, theirs) => return Err(Doubt::Number { ours, theirs }),
    };
    same_container(tid)?;
    let (Some(we), Some(they)) = (ours.process, theirs.process) else {
        return Err(Doubt::Unseen { pid: tid });
    };
    certain(number, we, they, &all())
}

fn status(id: &str) -> Option<Status> {
    let text = proc_file::read(format!("/proc/{id}/status")).ok()?;
    Some(Status::parse(&String::from_utf8_lossy(&text)))
}

/// Compares control groups and namespaces. What cannot be read counts as different.
fn same_container(tid: ThreadId) -> Result<(), Doubt> {
    let groups = |id: &str| proc_file::read(format!("/proc/{id}/cgroup")).ok();
    let own = groups("thread-self");
    if own.is_none() || own != groups(&tid.to_string()) {
        return Err(Doubt::OtherContainer {
            difference: "the control groups",
        });
    }
    let namespace = |id: &str, name: &str| -> Option<PathBuf> { fs::read_link(format!("/proc/{id}/ns/{name}")).ok() };
    for (name, difference) in
        NAMESPACES
            .into_iter()
            .zip(["the mount namespaces", "the pid namespaces", "the user namespaces"])
    {
        let own = namespace("thread-self", name);
        if own.is_none() || own != namespace(&tid.to_string(), name) {
            return Err(Doubt::OtherContainer { difference });
        }
    }
    Ok(())
}

/// All processes that /proc shows, except ended processes and threads of the kernel.
fn all() -> BTreeMap<ProcessId, Seen> {
    let own = proc_file::read("/proc/thread-self/cgroup").ok();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<ProcessId>().ok());
    let seen = |pid: ProcessId| {
        let status = status(&pid.to_string())?;
        let lives = !matches!(status.state, Some('Z' | 'X' | 'x')) && !status.is_kernel_thread;
        lives.then(|| Seen {
            parent: status.parent,
            filters: status.filters.unwrap_or(0),
            is_inside: own.is_some() && proc_file::read(format!("/proc/{pid}/cgroup")).ok() == own,
        })
    };
    pids.filter_map(|pid| Some((pid, seen(pid)?))).collect()
}

/// The last two conditions of the module's description.
fn certain(number: u32, we: ProcessId, they: ProcessId, all: &BTreeMap<ProcessId, Seen>) -> Result<u32, Doubt> {
    for first in [they, we] {
        let mut pid = first;
        let mut steps = 0;
        loop {
            // A circle: numbers were given again while we looked.
            steps += 1;
            if steps > all.len() {
                return Err(Doubt::Unseen { pid });
            }
            let seen = all.get(&pid).ok_or(Doubt::Unseen { pid })?;
            if !seen.is_inside {
                break;
            }
            if seen.filters != number {
                return Err(Doubt::Relative {
                    pid,
                    ours: number,
                    theirs: seen.filters,
                });
            }
            // 0: the parent is outside of our pid namespace.
            if seen.parent == 0 {
                break;
            }
            pid = seen.parent;
        }
    }
    match all.iter().find(|(_, seen)| seen.is_inside && seen.filters < number) {
        Some((pid, seen)) => Err(Doubt::Relative {
            pid: *pid,
            ours: number,
            theirs: seen.filters,
        }),
        None => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACER: ProcessId = 20;
    const TARGET: ProcessId = 30;

    /// Processes, each given by its number, its parent, its number of filters, and whether it is inside of the
    /// container.
    fn processes(list: &[(ProcessId, ProcessId, u32, bool)]) -> BTreeMap<ProcessId, Seen> {
        list.iter()
            .map(|&(pid, parent, filters, is_inside)| {
                let seen = Seen {
                    parent,
                    filters,
                    is_inside,
                };
                (pid, seen)
            })
            .collect()
    }

    fn doubt(number: u32, list: &[(ProcessId, ProcessId, u32, bool)]) -> Option<Doubt> {
        certain(number, TRACER, TARGET, &processes(list)).err()
    }

    #[test]
    fn processes_of_a_container_that_added_nothing_are_certain() {
        // docker run, then docker exec: the parents are outside of the pid namespace.
        let entered = [
            (1, 0, 1, true),
            (TARGET, 1, 1, true),
            (7, 0, 1, true),
            (TRACER, 7, 1, true),
        ];
        assert_eq!(doubt(1, &entered), None);
        // A unit of systemd, seen from inside: the unit's parent is in another control group, and under no filter.
        let unit = [
            (1, 0, 0, false),
            (5, 1, 4, true),
            (TARGET, 5, 4, true),
            (TRACER, 5, 4, true),
        ];
        assert_eq!(doubt(4, &unit), None);
        // Another process of the container has added filters to its own.
        let other = [
            (1, 0, 1, true),
            (TARGET, 1, 1, true),
            (9, 1, 3, true),
            (TRACER, 1, 1, true),
        ];
        assert_eq!(doubt(1, &other), None);
    }

    #[test]
    fn the_same_number_by_coincidence_is_doubted() {
        let relative = |pid, ours, theirs| Some(Doubt::Relative { pid, ours, theirs });
        // There is no container: target and tracer each have a sandbox of their own, below the same shell.
        let sandboxes = [
            (1, 0, 0, true),
            (9, 1, 0, true),
            (TARGET, 9, 1, true),
            (TRACER, 9, 1, true),
        ];
        assert_eq!(doubt(1, &sandboxes), relative(9, 1, 0));
        // The tracer has entered an unconfined container in a sandbox of its own; the target has added a filter.
        let entered = [(1, 0, 0, true), (TARGET, 1, 1, true), (TRACER, 0, 1, true)];
        assert_eq!(doubt(1, &entered), relative(1, 1, 0));
        // Target and tracer have each added a filter to the container's filter; the target's parent has not.
        let added = [(1, 0, 1, true), (TARGET, 1, 2, true), (TRACER, 0, 2, true)];
        assert_eq!(doubt(2, &added), relative(1, 2, 1));
        // The target is alone, and only a witness shows that the container has none.
        let witness = [(1, 0, 0, true), (TARGET, 0, 1, true), (TRACER, 0, 1, true)];
        assert_eq!(doubt(1, &witness), relative(1, 1, 0));
        // An ancestor has added filters since the fork: how many filters it had at the fork is not known.
        let supervisor = [(9, 0, 2, true), (TARGET, 9, 1, true), (TRACER, 0, 1, true)];
        assert_eq!(doubt(1, &supervisor), relative(9, 1, 2));
    }

    #[test]
    fn hidden_processes_cause_doubt() {
        let hidden = [(TARGET, 1, 1, true), (TRACER, 0, 1, true)];
        assert_eq!(doubt(1, &hidden), Some(Doubt::Unseen { pid: 1 }));
        assert_eq!(doubt(1, &[]), Some(Doubt::Unseen { pid: TARGET }));
        let circle = [(TARGET, 31, 1, true), (31, TARGET, 1, true), (TRACER, 0, 1, true)];
        assert!(matches!(doubt(1, &circle), Some(Doubt::Unseen { .. })));
    }

    #[test]
    fn without_filters_of_our_own_nothing_is_certain() {
        let own = status("thread-self").unwrap();
        if own.seccomp == Seccomp::Disabled {
            let pid = std::process::id().cast_signed();
            assert_eq!(number_in_common(pid), Err(Doubt::OursAreNone));
        }
    }
}
