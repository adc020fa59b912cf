//! How a hit finds out which thread it is in. The choice depends on what the threads look like, and not on how the
//! program was linked.
//!
//! ```text
//!   TlsSelf   mov rax, fs:[0]   free       a C library is there, and every thread's control block begins with its own address
//!   FsBase    rdfsbase rax      2 ns       always right, where the processor and the kernel have it
//!   Asked     a system call     100 ns     threads that share a thread pointer, or a machine without rdfsbase
//! ```
//!
//! With TlsSelf a thread whose word is not its own address (the program has given it another thread pointer) is
//! still found: the agent asks rdfsbase where the machine has it (`agent/threads.h`). See docs/design/stacks.md.

use std::collections::HashSet;

use nanoprobe_arena::layout::{KEY_ASKED, KEY_FSBASE, KEY_OF_NUMBER, KEY_TLS_CHECKED, KEY_TLS_SELF, SLOT_ENDED};
use nanoprobe_patch::{TargetAddress, ThreadKey};
use nanoprobe_symbols::{Libc, Module, ModuleKind};
use nanoprobe_target::{Process, StopError, Stopped};

/// The threads' thread pointers at a moment when all threads were stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// There are threads, and the word at each thread pointer is that pointer.
    all_self: bool,
    /// Two threads have the same thread pointer.
    pub shared: bool,
}

impl Seen {
    /// Looks at stopped threads.
    ///
    /// # Errors
    /// One of them has ended.
    pub fn of(stopped: &Stopped) -> Result<Seen, StopError> {
        let mut pointers = HashSet::new();
        let mut seen = Seen {
            all_self: true,
            shared: false,
        };
        for tid in stopped.threads() {
            let pointer = stopped.thread_pointer(tid)?;
            let word = stopped.process().memory().read_u64(pointer).ok();
            seen.all_self &= pointer != TargetAddress(0) && word == Some(pointer.0);
            // Threads without a thread pointer are distinguished by their number anyway.
            seen.shared |= pointer != TargetAddress(0) && !pointers.insert(pointer);
        }
        Ok(seen)
    }
}

/// Whether a C library gives each new thread a control block that begins with its own address.
pub(crate) fn has_libc(modules: &[Module]) -> bool {
    let is_libc = |name: &str| name == "libc.so.6" || name == "libc.so" || name.contains("libc.musl");
    modules.iter().any(|module| {
        let linkage = module.linkage();
        // The program may have just begun, with its libraries not loaded yet. musl's dynamic linker is its C
        // library.
        let needs = || linkage.needed.iter().any(|name| is_libc(name));
        let is_static = || {
            module.kind() == ModuleKind::Executable
                && linkage.interpreter.is_none()
                && linkage.thread_local.is_some()
                && !linkage.go
        };
        linkage.soname.as_deref().is_some_and(is_libc) || needs() || is_static()
    })
}

/// The choice. `seen`: `None` before the program's first instruction.
pub(crate) fn choose(seen: Option<Seen>, has_libc: bool, is_dynamic: bool, has_fsgsbase: bool) -> ThreadKey {
    match seen {
        Some(Seen { shared: true, .. }) => ThreadKey::Asked,
        Some(Seen { all_self: true, .. }) if has_libc || !has_fsgsbase => ThreadKey::TlsSelf,
        // The linker makes the first thread's control block; until then the tracer lends the thread a thread pointer.
        None if has_libc && is_dynamic => ThreadKey::TlsSelf,
        _ if has_fsgsbase => ThreadKey::FsBase,
        _ => ThreadKey::Asked,
    }
}

/// The choice as the agent reads it (`enum np_thread_key`).
pub(crate) fn mode(key: ThreadKey, has_fsgsbase: bool) -> u64 {
    match key {
        ThreadKey::TlsSelf if has_fsgsbase => KEY_TLS_CHECKED,
        ThreadKey::TlsSelf => KEY_TLS_SELF,
        ThreadKey::FsBase => KEY_FSBASE,
        ThreadKey::Asked => KEY_ASKED,
    }
}

/// Whether programs may execute rdfsbase: this machine is the target's, too.
pub(crate) fn has_fsgsbase() -> bool {
    rustix::param::linux_hwcap().1 & 2 != 0
}

/// The value of the agent's `np_thread_key` in a thread that is identified by its number.
pub(crate) fn of_number(process: &Process, tid: i32) -> u64 {
    KEY_OF_NUMBER | u64::from(process.inner_tid(tid).unwrap_or(tid).unsigned_abs())
}

/// The value of the agent's `np_thread_key` in a thread with this thread pointer. Not for [`ThreadKey::Asked`], where
/// every thread is identified by its number.
pub(crate) fn of_pointer(process: &Process, tid: i32, pointer: u64) -> u64 {
    if pointer > SLOT_ENDED {
        pointer
    } else {
        of_number(process, tid)
    }
}

/// Where a C library keeps the number of a thread, from its thread pointer: `struct
/// pthread`'s `tid`. The agent uses it for thread pointers that point to themselves.
pub(crate) fn tid_offset(libc: Option<Libc>, is_dynamic: bool) -> u32 {
    match libc {
        Some(Libc::Glibc) if is_dynamic => 0x2d0,
        Some(Libc::Musl) => 0x30,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELF: Option<Seen> = Some(Seen {
        all_self: true,
        shared: false,
    });
    const OTHER: Option<Seen> = Some(Seen {
        all_self: false,
        shared: false,
    });
    const SHARED: Option<Seen> = Some(Seen {
        all_self: true,
        shared: true,
    });

    #[test]
    fn the_key_follows_what_the_threads_show() {
        assert_eq!(choose(SELF, true, true, true), ThreadKey::TlsSelf);
        assert_eq!(
            choose(SELF, false, true, true),
            ThreadKey::FsBase,
            "nothing keeps it so"
        );
        assert_eq!(
            choose(OTHER, true, true, true),
            ThreadKey::FsBase,
            "one thread has another"
        );
        assert_eq!(choose(SHARED, true, true, true), ThreadKey::Asked);
    }

    #[test]
    fn before_the_first_instruction_the_key_is_one_that_is_always_right() {
        assert_eq!(
            choose(None, true, true, true),
            ThreadKey::TlsSelf,
            "the linker is about to keep it so"
        );
        assert_eq!(
            choose(None, false, true, true),
            ThreadKey::FsBase,
            "Go, position-independent"
        );
        assert_eq!(choose(None, true, false, true), ThreadKey::FsBase, "static");
    }

    #[test]
    fn without_rdfsbase_the_kernel_is_asked_where_the_threads_do_not_show_it() {
        assert_eq!(choose(SELF, false, false, false), ThreadKey::TlsSelf);
        assert_eq!(choose(OTHER, false, false, false), ThreadKey::Asked);
        assert_eq!(choose(None, false, false, false), ThreadKey::Asked);
    }
}
