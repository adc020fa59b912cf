//! Memory for detours in this process.

use std::ops::Range;

use nanoprobe_patch::TargetAddress;
use nanoprobe_text::NearMemory;

use crate::error::Error;

/// This process's memory.
pub struct OwnMemory;

impl NearMemory for OwnMemory {
    type Error = Error;

    fn map(&mut self, region: &Range<TargetAddress>) -> Result<bool, Error> {
        let bytes = region.end.0.saturating_sub(region.start.0) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
        let wanted = region.start.0 as *mut libc::c_void;
        // SAFETY: this makes a new mapping. If the address is not free, the call fails.
        let found = unsafe { libc::mmap(wanted, bytes, libc::PROT_READ | libc::PROT_EXEC, flags, -1, 0) };
        if found == wanted {
            return Ok(true);
        }
        let error = std::io::Error::last_os_error();
        if found != libc::MAP_FAILED {
            // Kernels before 4.17 take the address as a hint only. SAFETY: unmaps what the call above has just mapped
            // for us.
            unsafe { libc::munmap(found, bytes) };
            return Ok(false);
        }
        match error.raw_os_error() {
            Some(libc::EEXIST) => Ok(false),
            _ => Err(Error::System {
                call: "mmap of near memory",
                error,
            }),
        }
    }
}
