//! The process's resource limits. They are checked beforehand where exceeding a limit would raise a signal, or make
//! Rust end the program.

use crate::error::Error;

/// Which work a call does, and so how much memory it needs at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The call makes the engine: it maps the agent and reads modules.
    First,
    /// The call registers something: it may read other modules.
    Registers,
    /// The call changes registered probes.
    Changes,
}

/// How much stack a call needs at most, in bytes.
const STACK: u64 = 256 << 10;

/// The soft limit; `None`: there is none.
fn limit(of: libc::__rlimit_resource_t) -> Option<u64> {
    let mut found = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is of the type that the call fills in.
    let is_told = unsafe { libc::getrlimit(of, &mut found) } == 0;
    (is_told && found.rlim_cur != libc::RLIM_INFINITY).then_some(found.rlim_cur)
}

/// Whether a file may become this large (RLIMIT_FSIZE). If not, a write would raise SIGXFSZ.
pub fn may_have_file_of(bytes: u64) -> bool {
    limit(libc::RLIMIT_FSIZE).is_none_or(|most| bytes <= most)
}

/// Checks that there is enough memory and stack for a call. Where memory is limited, this first tries to map as much
/// as is needed, since Rust ends a program that runs out of memory.
///
/// # Errors
/// There is too little memory or stack.
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

/// Only the main thread's stack grows up to the limit.
fn is_main_thread() -> bool {
    // SAFETY: the calls take no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) == libc::c_long::from(libc::getpid()) }
}

fn can_map(bytes: u64) -> bool {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: this makes a new mapping, wherever there is room, and unmaps it at once.
    unsafe {
        let found = libc::mmap(std::ptr::null_mut(), bytes as usize, protection, flags, -1, 0);
        found != libc::MAP_FAILED && libc::munmap(found, bytes as usize) == 0
    }
}
