//! The threads of a process as /proc lists them, and their states.

use std::fs;
use std::io::{ErrorKind, Read as _};

use crate::error::MemoryError;
use crate::proc_file;
use crate::status::Stat;
use crate::{ProcessId, ThreadId};

/// All threads, including those that have ended and wait to be collected.
pub(crate) fn list(pid: ProcessId) -> Result<Vec<ThreadId>, MemoryError> {
    let file = format!("/proc/{pid}/task");
    let entries = fs::read_dir(&file).map_err(|error| match error.kind() {
        ErrorKind::NotFound => MemoryError::Gone { pid },
        _ => MemoryError::Proc {
            pid,
            file,
            reason: error.to_string(),
        },
    })?;
    let name = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(entries.filter_map(name).collect())
}

/// The letter of a thread's state; `None` when the thread is gone.
pub(crate) fn state(pid: ProcessId, tid: ThreadId) -> Option<char> {
    // One read must do, because this function is called for every thread at every step of the protocol. The state
    // is the third field, after the name.
    let mut start = [0; 128];
    let mut file = fs::File::open(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let length = file.read(&mut start).ok()?;
    Stat::parse(&String::from_utf8_lossy(start.get(..length)?)).state
}

/// When a thread was created, in clock ticks since boot; `None` when the thread is gone.
pub(crate) fn created(pid: ProcessId, tid: ThreadId) -> Option<u64> {
    let text = proc_file::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    Some(Stat::parse(&String::from_utf8_lossy(&text)).start_time)
}

/// The clock ticks since boot, as [`created`] counts them.
pub(crate) fn ticks_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ticks = rustix::param::clock_ticks_per_second();
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * ticks + nanoseconds * ticks / 1_000_000_000
}

/// Whether the thread has ended, collected or not.
pub(crate) fn has_ended(pid: ProcessId, tid: ThreadId) -> bool {
    matches!(state(pid, tid), None | Some('Z' | 'X' | 'x'))
}

/// A thread that lives, preferably the main one: the /proc files of an ended main thread are empty, although the
/// process may live on.
pub(crate) fn living(pid: ProcessId) -> Option<ThreadId> {
    if !has_ended(pid, pid) {
        return Some(pid);
    }
    list(pid).ok()?.into_iter().find(|&tid| !has_ended(pid, tid))
}

/// How often the thread has left its processor; `None` when the thread is gone.
pub(crate) fn switches(pid: ProcessId, tid: ThreadId) -> Option<u64> {
    let text = proc_file::read_text(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let counts = text.lines().filter_map(|line| line.split_once("ctxt_switches:"));
    counts.map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}

/// Whether a thread waits for a child of vfork that still has its memory.
pub(crate) fn is_in_vfork(pid: ProcessId, tid: ThreadId) -> bool {
    const CLONE3: i64 = 435;
    let text = proc_file::read_text(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
    let number = text.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
    matches!(number, Some(libc::SYS_vfork | libc::SYS_clone | CLONE3))
}

/// Where in the kernel a thread waits: a function's name if we may read it, else the number of its system call, else
/// `?`.
pub(crate) fn waits_at(pid: ProcessId, tid: ThreadId) -> String {
    let file = |name: &str| proc_file::read_text(format!("/proc/{pid}/task/{tid}/{name}")).ok();
    let function = file("wchan").filter(|name| !name.is_empty() && name != "0");
    let call = || {
        Some(format!(
            "system call {}",
            file("syscall")?.split_ascii_whitespace().next()?
        ))
    };
    function.or_else(call).unwrap_or_else(|| "?".to_owned())
}

/// The signals in a thread's own queue (not its process's) that it does not block. The kernel's present mask counts;
/// for a thread in sigsuspend that is the temporary mask. Bit n-1: signal n.
pub(crate) fn deliverable(tid: ThreadId) -> u64 {
    let text = proc_file::read(format!("/proc/{tid}/status")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let set = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
    };
    set("SigPnd:").unwrap_or(0) & !set("SigBlk:").unwrap_or(0)
}

/// The signals that the kernel raises for a thread's own instructions, as bits of a signal mask: SIGILL, SIGTRAP,
/// SIGBUS, SIGFPE, SIGSEGV and SIGSYS.
pub(crate) fn raised_by_itself() -> u64 {
    [
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGSEGV,
        libc::SIGSYS,
    ]
    .iter()
    .fold(0, |mask, signal| mask | 1 << (signal - 1))
}
