//! Why a site cannot be patched. Every variant says what, where and why, for the user.

use crate::{Obstacle, Tactic, TargetAddress};

/// A typed reason why a point cannot be placed. Never a panic, never a silent skip.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The site lies outside of the function's bytes.
    #[error("{site} lies outside of the function")]
    OutsideFunction {
        /// The site asked for.
        site: TargetAddress,
    },
    /// No instruction starts at the site.
    #[error("{site} is not the start of an instruction (the one around it starts at {start})")]
    NotAnInstruction {
        /// The site asked for.
        site: TargetAddress,
        /// Start of the instruction that covers it.
        start: TargetAddress,
    },
    /// The bytes from `at` on are no instruction we know, so nothing after them can be trusted.
    #[error("{site} lies at or behind bytes that are no known instruction, at {at}")]
    Undecodable {
        /// The site asked for.
        site: TargetAddress,
        /// The first byte that could not be decoded.
        at: TargetAddress,
    },
    /// Padding between blocks of code: no control flow reaches it.
    #[error("{site} is padding: nothing leads there")]
    Padding {
        /// The site asked for.
        site: TargetAddress,
    },
    /// No control flow that is known reaches the bytes: a table or constants among the code, or code that only an
    /// unforeseeable branch reaches. A patch on data would change what the program reads.
    #[error("nothing is known to lead to {site}: it may be data among the code")]
    Unreached {
        /// The site asked for.
        site: TargetAddress,
    },
    /// The instruction is an `int3` already: the program's own or a debugger's breakpoint.
    #[error("there is a breakpoint at {site} already")]
    Breakpoint {
        /// The site asked for.
        site: TargetAddress,
    },
    /// The instruction is a call, and the threads have shadow stacks. Executed elsewhere, or imitated, it would leave
    /// another return address there than on the stack. The processor would end the process at the return.
    #[error(
        "the call at {site} must stay in place: the process has a shadow stack, on which the processor compares return addresses"
    )]
    ShadowStack {
        /// The site asked for.
        site: TargetAddress,
    },
    /// The instruction belongs to a restartable sequence, which is atomic only in place: see [`crate::Restartable`].
    #[error(
        "the instruction at {site} belongs to the restartable sequence {start}..{end} (rseq): executed elsewhere, or with a \
         trap in it, it would not be atomic any more; probe the function around it, or an instruction before or after"
    )]
    Restartable {
        /// The site asked for.
        site: TargetAddress,
        /// The first byte of the sequence.
        start: TargetAddress,
        /// After its last byte.
        end: TargetAddress,
    },
    /// The stack pointer is used for something else there, so neither a detour nor a signal handler can run.
    #[error(
        "at {site} rsp is no stack: the function computes with it, and gives it back later; probe an instruction before or after"
    )]
    NoStack {
        /// The site asked for.
        site: TargetAddress,
    },
    /// The instruction cannot be executed anywhere but in place.
    #[error("the instruction at {address} cannot be executed out of line: {reason}")]
    Unmovable {
        /// Address of the instruction.
        address: TargetAddress,
        /// What it is that cannot be moved.
        reason: &'static str,
    },
    /// A [`crate::FireCondition`] other than `Always` on an instruction that has no such edge.
    #[error("the instruction at {site} has no {edge} edge to fire on")]
    NoSuchEdge {
        /// The site asked for.
        site: TargetAddress,
        /// `taken`, `leaving` or `straight`.
        edge: &'static str,
    },
    /// Functions and other fires share a condition at a site: they have different frames.
    #[error("functions and compiled handlers cannot share the site {site}")]
    MixedFires {
        /// The site asked for.
        site: TargetAddress,
    },
    /// The tactic that was forced does not fit.
    #[error("the tactic `{tactic}` does not fit at {site}{}", since(.obstacle))]
    TacticUnavailable {
        /// The site asked for.
        site: TargetAddress,
        /// The forced tactic.
        tactic: Tactic,
        /// Why, as far as it is known: [`crate::why_not`] finds it out.
        obstacle: Option<Obstacle>,
    },
    /// The detour does not reach what the displaced code refers to, or the site does not reach the detour.
    #[error("{target} cannot be reached from the detour at {from} (further than 2 GiB)")]
    OutOfReach {
        /// Where the reference is made.
        from: TargetAddress,
        /// What it refers to.
        target: TargetAddress,
    },
    /// The address chosen for the detour does not spell trapping bytes where the run has boundaries, or not the
    /// original bytes where its jump is punned.
    #[error("a jump from {start} to {detour} would leave a boundary without a trapping byte, or change a punned byte")]
    BoundaryUnprotected {
        /// Start of the run.
        start: TargetAddress,
        /// The address that was asked for.
        detour: TargetAddress,
    },
    /// A structure's limit was exceeded: a detour longer than 2 GiB, a function larger than 4 GiB.
    #[error("too large: {what}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
    },
}

fn since(obstacle: &Option<Obstacle>) -> String {
    obstacle.map_or_else(String::new, |obstacle| format!(": {obstacle}"))
}
