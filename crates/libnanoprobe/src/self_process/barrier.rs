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

/// After this call every thread sees the memory as the calling thread does, and no processor executes an instruction
/// that it fetched before.
///
/// # Errors
/// Not registered.
pub fn synchronise_cores() -> Result<(), Error> {
    membarrier(PRIVATE_EXPEDITED_SYNC_CORE).map(drop)
}

/// How long to wait instead of a barrier where the kernel makes none.
const DRAINED: std::time::Duration = std::time::Duration::from_millis(10);

/// A full memory barrier in every running thread. If a seccomp filter of the program has forbidden the call
/// meanwhile, this waits: ten thousand times as long as a processor may hold back a store.
pub fn synchronise_memory() {
    if membarrier(PRIVATE_EXPEDITED).is_err() {
        std::thread::sleep(DRAINED);
    }
}
