//! Barriers on all processors that run this process: membarrier(2).

use crate::error::Error;

const QUERY: i32 = 0;
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
const PRIVATE_EXPEDITED_SYNC_CORE: i32 = 1 << 5;
const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: i32 = 1 << 6;

fn membarrier(command: i32) -> i64 {
    // SAFETY: the call takes numbers only and touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// Announces that barriers will be asked for. Also in a child of fork, which inherits nothing of it.
///
/// # Errors
/// A kernel before 4.16, or a sandbox.
pub fn register() -> Result<(), Error> {
    let wanted = PRIVATE_EXPEDITED | PRIVATE_EXPEDITED_SYNC_CORE;
    let has = membarrier(QUERY);
    if has < 0 {
        return Err(Error::last_os("membarrier"));
    }
    if has & i64::from(wanted) != i64::from(wanted) {
        return Err(Error::Unsupported(
            "this kernel cannot synchronise the cores of a process (Linux 4.16 can)",
        ));
    }
    for command in [REGISTER_PRIVATE_EXPEDITED, REGISTER_PRIVATE_EXPEDITED_SYNC_CORE] {
        if membarrier(command) < 0 {
            return Err(Error::last_os("membarrier"));
        }
    }
    Ok(())
}

/// From here on every thread sees the memory as this one does, and no processor holds an instruction of the process that
/// it fetched before.
///
/// # Errors
/// Not registered.
pub fn synchronise_cores() -> Result<(), Error> {
    if membarrier(PRIVATE_EXPEDITED_SYNC_CORE) < 0 {
        return Err(Error::last_os("membarrier"));
    }
    Ok(())
}

/// A full memory barrier in every thread that runs.
///
/// # Errors
/// Not registered.
pub fn synchronise_memory() -> Result<(), Error> {
    if membarrier(PRIVATE_EXPEDITED) < 0 {
        return Err(Error::last_os("membarrier"));
    }
    Ok(())
}
