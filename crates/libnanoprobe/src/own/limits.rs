//! The process's resource limits: what they refuse must be found out before it is tried, where the kernel answers by a
//! signal, or this library's own language by the end of the program.

use crate::error::Error;

/// What a call needs at most, of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The engine is made: the agent is mapped, and modules are read.
    First,
    /// Something is registered: other modules may be read.
    Registers,
    /// Something is changed that is known.
    Changes,
}

/// What it needs at most of stack.
const STACK: u64 = 256 << 10;

/// The soft limit; `None`: there is none.
fn limit(of: libc::__rlimit_resource_t) -> Option<u64> {
    let mut found = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a structure of the call's own type.
    let is_told = unsafe { libc::getrlimit(of, &mut found) } == 0;
    (is_told && found.rlim_cur != libc::RLIM_INFINITY).then_some(found.rlim_cur)
}

/// Whether a file may be made as large as this (RLIMIT_FSIZE): else SIGXFSZ comes.
pub fn may_have_file_of(bytes: u64) -> bool {
    limit(libc::RLIMIT_FSIZE).is_none_or(|most| bytes <= most)
}

/// Whether there is memory and stack for what a call does. Where it is limited it is tried: a program of this library's
/// language that finds no memory is ended.
///
/// # Errors
/// There is too little.
pub fn check(need: Need) -> Result<(), Error> {
    let bytes = match need {
        Need::First => 192 << 20,
        Need::Registers => 64 << 20,
        Need::Changes => 8 << 20,
    };
    let limits = [libc::RLIMIT_AS, libc::RLIMIT_DATA];
    if limits.into_iter().any(|of| limit(of).is_some()) && !can_map(bytes) {
        return Err(Error::NoRoom(c"RLIMIT_AS or RLIMIT_DATA leaves too little memory: 8 MB for a change of what is registered, 64 MB to register something, 192 MB the first time"));
    }
    if limit(libc::RLIMIT_STACK).is_some_and(|most| most < STACK) && is_main_thread() {
        return Err(Error::NoRoom(
            c"RLIMIT_STACK leaves the main thread less than the 256 KB that is needed: call from another thread",
        ));
    }
    Ok(())
}

/// The only one whose stack grows, up to the limit.
fn is_main_thread() -> bool {
    // SAFETY: calls that take nothing.
    unsafe { libc::syscall(libc::SYS_gettid) == libc::c_long::from(libc::getpid()) }
}

fn can_map(bytes: u64) -> bool {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping, wherever there is room, which nobody uses, and which goes at once.
    unsafe {
        let found = libc::mmap(std::ptr::null_mut(), bytes as usize, protection, flags, -1, 0);
        found != libc::MAP_FAILED && libc::munmap(found, bytes as usize) == 0
    }
}
