//! Memory that was needed for a moment. Between reading symbols, planning and writing, most of what is held becomes
//! free, in pieces among others that stay. The C library keeps them, and what comes next has other sizes.

/// Fewer probes leave nothing behind that is worth the time.
const PROBES_MIN: usize = 1 << 14;

/// Gives free memory back to the system, if there are many probes.
pub(crate) fn give_back(probes: usize) {
    if probes < PROBES_MIN {
        return;
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes the allocator's own locks, and frees only unused memory.
    unsafe {
        libc::malloc_trim(0);
    }
}
