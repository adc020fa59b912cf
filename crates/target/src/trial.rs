//! A child of ours makes the calls that we make in a process, under the filters that it inherits from us: what happens
//! to the child would happen to the process.
//!
//! The calls have the numbers, flags and protections that we use. A filter that answers by an error answers the child
//! likewise. A filter that kills, kills the child: the memory that it shares with us says at which call.

#![allow(unsafe_code, reason = "a child of fork makes raw system calls")]

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::raw;

const PAGE: usize = 4096;
/// How long a child may take. A filter may ask a supervisor about each call, and the supervisor may never answer.
const LIMIT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(1);
const NOEXEC_SEAL: u32 = 8;
const MADV_DONTDUMP: i32 = 16;
const MADV_WIPEONFORK: i32 = 18;

/// The answer of a filter to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call returned this error.
    Error(Errno),
    /// It killed.
    Kills,
    /// The call did not return in time: the filter asks a supervisor that does not answer.
    Hangs,
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Error(errno) => write!(formatter, "returns an error ({errno})"),
            Answer::Kills => write!(formatter, "kills"),
            Answer::Hangs => write!(formatter, "waits for a supervisor"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    Permitted,
    Refused {
        call: &'static str,
        answer: Answer,
    },
    /// No child could be made.
    Failed {
        errno: Errno,
    },
}

/// The steps, in the order in which the child takes them: a name, and the error that the kernel returns to the child
/// although no filter forbids the call (0: none). `None`: any error will do, because the call is needed only sometimes,
/// and its failure is then reported.
const STEPS: [(&str, Option<i32>); 16] = [
    ("the start of a process", Some(0)),
    ("rt_sigprocmask", Some(0)),
    ("rt_sigaction", Some(0)),
    ("rt_sigreturn", Some(0)),
    ("restart_syscall", Some(libc::EINTR)),
    ("rt_sigtimedwait", Some(libc::EAGAIN)),
    ("memfd_create", Some(0)),
    ("mmap", Some(0)),
    ("munmap", Some(0)),
    ("mmap of shared pages", Some(0)),
    ("madvise", Some(0)),
    ("mprotect", Some(0)),
    ("munlock", Some(0)),
    ("mmap of pages that may be executed", Some(0)),
    ("mprotect of pages that may be executed", None),
    ("close", Some(0)),
];

/// Memory that the child shares with us: its progress, and the results of its calls.
struct Report {
    step: AtomicU32,
    results: [AtomicI64; STEPS.len()],
}

/// The result of the trial. The trial is made only once, because our filters do not change.
pub(crate) fn tried() -> Tried {
    static RESULT: OnceLock<Tried> = OnceLock::new();
    *RESULT.get_or_init(|| try_calls().unwrap_or_else(|errno| Tried::Failed { errno }))
}

fn try_calls() -> Result<Tried, Errno> {
    let bytes = size_of::<Report>();
    // SAFETY: new memory, filled with zeros, which is a valid report.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    // SAFETY: the mapping is large enough and aligned, lives until the end of this function, and holds only atomics.
    let report = unsafe { &*memory.cast::<Report>() };
    let cores = NoCores::new();
    // SAFETY: the child only makes system calls and ends; it touches no lock of other threads.
    let tried = match unsafe { libc::fork() } {
        0 => take_steps(report),
        child => Errno::result(child).and_then(|child| watch(child, report)),
    };
    drop(cores);
    // SAFETY: the child has ended or was killed, and `report` is not used any more.
    unsafe { libc::munmap(memory, bytes) };
    tried
}

/// While this lives, a child that is killed leaves no core file.
struct NoCores(Rlimit);

impl NoCores {
    fn new() -> NoCores {
        let before = getrlimit(Resource::Core);
        let none = Rlimit {
            current: Some(0),
            ..before
        };
        // A process may always lower its limit, and raise it again up to the hard limit.
        let _ = setrlimit(Resource::Core, none);
        NoCores(before)
    }
}

impl Drop for NoCores {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Core, self.0);
    }
}

/// Waits for the end of the child, and reads its report.
fn watch(child: libc::pid_t, report: &Report) -> Result<Tried, Errno> {
    let deadline = Instant::now() + LIMIT;
    let hangs = loop {
        match raw::poll_event(child, false)? {
            Some(raw::Event::Ended) => break false,
            _ if Instant::now() > deadline => break true,
            _ => std::thread::sleep(LOOK),
        }
    };
    if hangs {
        // SAFETY: the child was not collected, so the number is still its own.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
    let done = report.step.load(Ordering::Acquire) as usize;
    for ((name, expected), result) in STEPS.iter().zip(&report.results).take(done) {
        let result = result.load(Ordering::Acquire);
        let errno = if (-4095..0).contains(&result) {
            -result as i32
        } else {
            0
        };
        if expected.is_some_and(|expected| expected != errno) {
            let errno = if errno == 0 {
                Errno::EPROTO
            } else {
                Errno::from_raw(errno)
            };
            let answer = Answer::Error(errno);
            return Ok(Tried::Refused { call: name, answer });
        }
    }
    match STEPS.get(done) {
        None => Ok(Tried::Permitted),
        Some((call, _)) => Ok(Tried::Refused {
            call,
            answer: if hangs { Answer::Hangs } else { Answer::Kills },
        }),
    }
}

extern "C" fn ignore(_signal: libc::c_int) {}

/// The child: makes the calls one after the other, and ends. Nothing here allocates or locks.
fn take_steps(report: &Report) -> ! {
    let mut next = 0;
    let mut note = |result: i64| {
        if let Some(place) = report.results.get(next) {
            place.store(result, Ordering::Release);
        }
        next += 1;
        report.step.store(next as u32, Ordering::Release);
        result
    };
    let call = |number: libc::c_long, arguments: [u64; 6]| -> i64 {
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: each call below concerns memory that the child has mapped itself, or its own signals and descriptors.
        let returned = unsafe { libc::syscall(number, a, b, c, d, e, f) };
        if returned == -1 {
            -i64::from(Errno::last_raw())
        } else {
            returned
        }
    };
    note(0);
    let none = 0_u64;
    let nothing = std::ptr::from_ref(&none) as u64;
    let mask = [libc::SIG_SETMASK as u64, nothing, 0, 8, 0, 0];
    note(call(libc::SYS_rt_sigprocmask, mask));
    let mut before = [0_u64; 4];
    let before = std::ptr::from_mut(&mut before) as u64;
    note(call(libc::SYS_rt_sigaction, [libc::SIGTRAP as u64, 0, before, 8, 0, 0]));
    // SAFETY: an all-zero action is valid; the handler only returns. The trap is then one of our own instructions.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as *const () as usize;
        libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut());
        std::arch::asm!("int3");
    }
    note(0);
    note(call(libc::SYS_restart_syscall, [0; 6]));
    let moment = [0_u64, 1_000_000];
    let moment = std::ptr::from_ref(&moment) as u64;
    note(call(libc::SYS_rt_sigtimedwait, [nothing, 0, moment, 8, 0, 0]));
    let descriptor = note(memfd(&call));

    let page = PAGE as u64;
    let both = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let run = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let place = (libc::MAP_FIXED_NOREPLACE) as u64;
    let at = note(call(libc::SYS_mmap, [0, page, both, private, u64::MAX, 0])) as u64;
    note(call(libc::SYS_munmap, [at, page, 0, 0, 0, 0]));
    let shared = [at, page, 0, libc::MAP_SHARED as u64 | place, descriptor as u64, 0];
    note(call(libc::SYS_mmap, shared));
    let advise = |advice: i32| call(libc::SYS_madvise, [at, page, advice as u64, 0, 0, 0]);
    note(advise(libc::MADV_DONTNEED).min(advise(MADV_DONTDUMP)));
    note(call(libc::SYS_mprotect, [at, page, both, 0, 0, 0]));
    note(call(libc::SYS_munlock, [at, page, 0, 0, 0, 0]));
    call(libc::SYS_munmap, [at, page, 0, 0, 0, 0]);
    let code = call(libc::SYS_mmap, [at, page, run, private | place, u64::MAX, 0]);
    // A private page, with the advice MADV_WIPEONFORK; older kernels do not know this advice.
    note(if advise(MADV_WIPEONFORK) == -i64::from(libc::EPERM) {
        -i64::from(libc::EPERM)
    } else {
        code
    });
    note(call(libc::SYS_mprotect, [at, page, run, 0, 0, 0]));
    note(call(libc::SYS_close, [descriptor as u64, 0, 0, 0, 0, 0]));
    // SAFETY: ends the child without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

/// The two forms in which a borrowed thread calls memfd_create; the second form is for kernels before 6.3.
fn memfd(call: &impl Fn(libc::c_long, [u64; 6]) -> i64) -> i64 {
    let name = c"nanoprobe-trial".as_ptr() as u64;
    let create = |flags: u32| call(libc::SYS_memfd_create, [name, u64::from(flags), 0, 0, 0, 0]);
    match create(libc::MFD_CLOEXEC | NOEXEC_SEAL) {
        descriptor if descriptor == -i64::from(libc::EINVAL) => create(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING),
        descriptor => descriptor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_filter_everything_is_permitted() {
        assert_eq!(try_calls(), Ok(Tried::Permitted));
        assert_eq!(tried(), Tried::Permitted);
    }
}
