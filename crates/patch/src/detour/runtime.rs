//! The addresses of the agent that detours use.

use crate::{TargetAddress, TrapForm};

/// How a thread's key into the thread table is found (`enum np_thread_key` of the agent's contract).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadKey {
    /// `mov rax, fs:[0]`: the thread control block begins with its own address (glibc, musl).
    TlsSelf,
    /// `rdfsbase rax`.
    FsBase,
    /// There is no look-up: `np_enter` is called at each hit, and asks the kernel.
    Asked,
}

/// The addresses of the agent that detours use in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// `np_enter`, which is called when the table lacks the thread, and on a hit while handlers run. It may change only
    /// rax and the flags.
    pub enter: TargetAddress,
    /// `struct np_thread_table`.
    pub table: TargetAddress,
    /// How threads are told apart.
    pub thread_key: ThreadKey,
    /// The form that traps take if their instructions allow it.
    pub trap: Option<TrapForm>,
}

impl Runtime {
    /// A runtime for measuring: no other runtime makes a detour longer.
    pub(crate) const LONGEST: Self = Self {
        enter: TargetAddress(0),
        table: TargetAddress(0),
        thread_key: ThreadKey::TlsSelf,
        trap: Some(TrapForm::Step),
    };
}
