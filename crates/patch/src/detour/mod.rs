//! Detours: see [`build`].

use crate::{Refusal, RunPlan, TargetAddress};

/// How a thread finds its key into the thread table (`enum np_thread_key` of the agent's contract).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadKey {
    /// `mov rax, fs:[0]`: the thread control block begins with its own address (glibc, musl).
    TlsSelf,
    /// `rdfsbase rax`.
    FsBase,
}

/// What detours need to know of the agent in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// `np_enter`.
    pub enter: TargetAddress,
    /// `struct np_thread_table`.
    pub table: TargetAddress,
    /// How threads are told apart.
    pub thread_key: ThreadKey,
}

/// Where a trap sends a thread (`struct np_redirect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Redirect {
    /// Address of the trapping byte.
    pub from: TargetAddress,
    /// Where the instruction that used to start there lives on (the fires in front of it included).
    pub to: TargetAddress,
}

/// Two addresses between which a stopped thread may be moved, by its instruction pointer alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Move {
    /// In the original text.
    pub original: TargetAddress,
    /// In the detour.
    pub relocated: TargetAddress,
}

/// The bytes to write for one run, and which original address corresponds to which new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// Where the patch is written.
    pub address: TargetAddress,
    /// The text it replaces.
    pub original: Vec<u8>,
    /// The patch, as long as `original`.
    pub patched: Vec<u8>,
    /// The code at the detour's address.
    pub detour: Vec<u8>,
    /// One for every boundary, and for the site of a `trap`; ascending.
    pub redirects: Vec<Redirect>,
    /// One for every displaced instruction, and one from behind the run to the jump back; ascending.
    pub moves: Vec<Move>,
}

/// Builds the patch and the detour of a run at the address that was chosen for it.
///
/// # Errors
///
/// [`Refusal::OutOfReach`] and [`Refusal::BoundaryUnprotected`] when `detour` does not satisfy the run's reach or
/// constraint; addresses from [`crate::NearSpace::place`] do.
pub fn build(run: &RunPlan, detour: TargetAddress, runtime: &Runtime) -> Result<Built, Refusal> {
    todo!("{run:?} {detour:?} {runtime:?}")
}
