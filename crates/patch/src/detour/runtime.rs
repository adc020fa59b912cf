//! What detours need to know of the agent.

use crate::{TargetAddress, TrapForm};

/// How a thread finds its key into the thread table (`enum np_thread_key` of the agent's contract).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadKey {
    /// `mov rax, fs:[0]`: the thread control block begins with its own address (glibc, musl).
    TlsSelf,
    /// `rdfsbase rax`.
    FsBase,
    /// No look-up: `np_enter` is called at each hit, and asks the kernel.
    Asked,
}

/// What detours need to know of the agent in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// `np_enter`: called on a miss in the table, and where handlers run already; may change rax and flags only.
    pub enter: TargetAddress,
    /// `struct np_thread_table`.
    pub table: TargetAddress,
    /// How threads are told apart.
    pub thread_key: ThreadKey,
    /// Traps take this form wherever they can.
    pub trap: Option<TrapForm>,
}

impl Runtime {
    /// Stands in where only the length matters: no other runtime makes a detour longer.
    pub(crate) const LONGEST: Self = Self {
        enter: TargetAddress(0),
        table: TargetAddress(0),
        thread_key: ThreadKey::TlsSelf,
        trap: Some(TrapForm::Step),
    };
}
