//! Barriers on all processors that run this process: membarrier(2).

use super::raw;
use crate::error::Error;

const QUERY: i32 = 0;
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
const PRIVATE_EXPEDITED_SYNC_CORE: i32 = 1 << 5;
const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: i32 = 1 << 6;

fn membarrier(command: i32) -> Result<u64, Error> {
    // SAFETY: the call takes numbers only and touches no memory.
    let answer = unsafe { raw::call(libc::SYS_membarrier, [command as u64, 0, 0, 0]) };
    answer.map_err(|error| Error::System {
        call: "membarrier",
        error,
    })
}

/// Registers the process for barriers. A child of fork must do so again, since it does not inherit this.
///
/// # Errors
/// A kernel before 4.16, or a sandbox.
pub fn register() -> Result<(), Error> {
    let wanted = PRIVATE_EXPEDITED | PRIVATE_EXPEDITED_SYNC_CORE;
    let wanted = wanted as u64;
    if membarrier(QUERY)? & wanted != wanted {
        return Err(Error::Unsupported(
            "this kernel cannot synchronise the cores of a process (Linux 4.16 can)",
        ));
    }
    for command in [REGISTER_PRIVATE_EXPEDITED, REGISTER_PRIVATE_EXPEDITED_SYNC_CORE] {
        membarrier(command)?;
    }
    Ok(())
}

/// After this every thread sees the memory as this one does, and no processor holds an instruction of the process
/// that it fetched before.
///
/// # Errors
/// Not registered.
pub fn synchronise_cores() -> Result<(), Error> {
    membarrier(PRIVATE_EXPEDITED_SYNC_CORE).map(drop)
}

/// How long to wait for stores where the kernel makes no barriers.
const DRAINED: std::time::Duration = std::time::Duration::from_millis(10);

/// A full memory barrier in every running thread. Where a seccomp filter of the program's has forbidden the call
/// since, waits ten thousand times as long as a processor keeps a store to itself.
pub fn synchronise_memory() {
    if membarrier(PRIVATE_EXPEDITED).is_err() {
        std::thread::sleep(DRAINED);
    }
}
