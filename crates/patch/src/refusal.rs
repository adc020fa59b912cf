//! Why a site cannot be patched. Every variant says what, where and why, for the user.

use crate::{Obstacle, Tactic, TargetAddress};

/// A typed reason why a point cannot be placed. Never a panic, never a silent skip.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The site lies outside of the function's bytes.
    #[error("{site} lies outside of the function")]
    OutsideFunction { site: TargetAddress },
    /// No instruction starts at the site.
    #[error("{site} is not the start of an instruction (the one around it starts at {start})")]
    NotAnInstruction {
        site: TargetAddress,
        /// Start of the instruction that covers the site.
        start: TargetAddress,
    },
    /// The bytes from `at` on are no known instruction, so it is not known where later instructions start.
    #[error("{site} lies at or after bytes that are no known instruction, at {at}")]
    Undecodable {
        site: TargetAddress,
        /// The first byte that could not be decoded.
        at: TargetAddress,
    },
    /// Padding between blocks of code: no control flow reaches it.
    #[error("{site} is padding: nothing leads there")]
    Padding { site: TargetAddress },
    /// No known control flow reaches the bytes: a table or constants among the code, or code that only an unforeseeable
    /// branch reaches. A patch on data would change what the program reads.
    #[error("no known control flow leads to {site}: it may be data among the code")]
    Unreached { site: TargetAddress },
    /// The instruction is an `int3` already: a breakpoint of the program or of a debugger.
    #[error("there is a breakpoint at {site} already")]
    Breakpoint { site: TargetAddress },
    /// The instruction is a call, and the threads have shadow stacks. Executed elsewhere, or imitated, it would leave a
    /// return address on the shadow stack that differs from that on the stack. The processor would end the process at
    /// the return.
    #[error(
        "the call at {site} must stay in place: the process has a shadow stack, on which the processor compares return addresses"
    )]
    ShadowStack { site: TargetAddress },
    /// The instruction belongs to a restartable sequence, which is atomic only in place: see [`crate::Restartable`].
    #[error(
        "the instruction at {site} belongs to the restartable sequence {start}..{end} (rseq): executed elsewhere, or with a \
         trap in it, it would not be atomic any more; probe the function around it, or an instruction before or after"
    )]
    Restartable {
        site: TargetAddress,
        /// The first byte of the sequence.
        start: TargetAddress,
        /// The address after its last byte.
        end: TargetAddress,
    },
    /// At the site the stack pointer does not point to a stack, so neither a detour nor a signal handler can run.
    #[error(
        "at {site} rsp points to no stack: the function computes with it, and restores it later; probe an instruction before or after"
    )]
    NoStack { site: TargetAddress },
    /// The instruction can only be executed in place.
    #[error("the instruction at {address} cannot be executed out of line: {reason}")]
    Unmovable {
        address: TargetAddress,
        /// Why the instruction cannot be moved.
        reason: &'static str,
    },
    /// A [`crate::FireCondition`] other than `Always` on an instruction that has no such edge.
    #[error("the instruction at {site} has no {edge} edge to fire on")]
    NoSuchEdge {
        site: TargetAddress,
        /// `taken`, `leaving` or `straight`.
        edge: &'static str,
    },
    /// Functions and other fires share a condition at a site, but need different frames.
    #[error("functions and compiled handlers cannot share the site {site}")]
    MixedFires { site: TargetAddress },
    /// The forced tactic does not fit.
    #[error("the tactic `{tactic}` does not fit at {site}{}", since(.obstacle))]
    TacticUnavailable {
        site: TargetAddress,
        tactic: Tactic,
        /// The reason, if known: [`crate::why_not`] finds it out.
        obstacle: Option<Obstacle>,
    },
    /// The detour does not reach an address to which the displaced code refers, or the site does not reach the detour.
    #[error("{target} cannot be reached from the detour at {from} (further than 2 GiB)")]
    OutOfReach {
        /// The address of the reference.
        from: TargetAddress,
        /// The address to which the instruction refers.
        target: TargetAddress,
    },
    /// The address chosen for the detour does not give the jump trapping bytes at the run's boundaries, or the
    /// original bytes at the punned places.
    #[error("a jump from {start} to {detour} would leave a boundary without a trapping byte, or change a punned byte")]
    BoundaryUnprotected {
        /// Start of the run.
        start: TargetAddress,
        detour: TargetAddress,
    },
    /// A value exceeds what a structure can hold: a detour longer than 2 GiB, a function larger than 4 GiB.
    #[error("too large: {what}")]
    TooLarge {
        /// The value that is too large.
        what: &'static str,
    },
}

fn since(obstacle: &Option<Obstacle>) -> String {
    obstacle.map_or_else(String::new, |obstacle| format!(": {obstacle}"))
}
