//! Whether the kernel shows its own stacks.

use nix::errno::Errno;

use super::opening::processors;
use crate::perf::{self, Sampling};

/// Why samples cannot have the kernel's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelStackError {
    /// Forbidden by perf_event_paranoid, seccomp or the kernel's lockdown, or missing in the kernel.
    #[error(
        "stack( ): the kernel does not show its stacks ({reason}): run nanoprobe as root, give it CAP_PERFMON, or set \
         /proc/sys/kernel/perf_event_paranoid to 1 or less; a container must permit perf_event_open"
    )]
    Refused { reason: Errno },
}

/// Opens an event of the calling thread as a trial. It is closed at once, and nothing is sampled.
///
/// # Errors
/// [`KernelStackError`].
pub fn check_kernel_stacks() -> Result<(), KernelStackError> {
    let trial = Sampling {
        period_ns: 1_000_000_000,
        stack_bytes: 0,
        kernel: true,
        kernel_stack: true,
        threads_only: false,
        wakes: false,
        names: false,
    };
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let processor = processors().first().copied().unwrap_or(0);
    match perf::sampling(own, processor, trial) {
        Ok(_) => Ok(()),
        Err(reason) => Err(KernelStackError::Refused { reason }),
    }
}
