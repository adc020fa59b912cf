//! Probes that cannot be placed, and why, for the user.

use nanoprobe_patch::{Refusal, TargetAddress};
use nanoprobe_text::ReturnRefusal;
use nanoprobe_text::space::Full;

/// A probe that could not be placed, or one of its sites that could not be patched.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The site, if it is known.
    pub site: Option<TargetAddress>,
    /// Module and function.
    pub function: String,
    /// The reason.
    pub reason: RefusedBecause,
}

impl Refused {
    /// Whether the probe fires nevertheless, but too early: at a jump to another function. There, neither the returned
    /// value nor the time of the return is known yet.
    pub fn is_early_return(&self) -> bool {
        matches!(self.reason, RefusedBecause::TailCall(_))
    }
}

/// Why a probe has no place.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RefusedBecause {
    /// The planner's reason.
    #[error("{0}")]
    Patch(#[from] Refusal),
    /// The module's file does not contain the code.
    #[error("its code is not in the file")]
    NoCode,
    /// An IFUNC that was not resolved.
    #[error("an IFUNC whose choice is not known yet")]
    Unresolved,
    /// A function without any exit: it ends in a call that does not return.
    #[error("no exit was found: the function never returns")]
    NoExit,
    /// A function whose only exits, if any, lie after a breakpoint of its own.
    #[error(
        "no exit was found: the function has its own breakpoint (int3) at {0}, and whether it continues after that \
         is unknown (-x return=address sees its returns)"
    )]
    BehindBreakpoint(TargetAddress),
    /// A computed branch has unknown targets, and nothing else leads to some of the function's code. The known
    /// exits fire nevertheless.
    #[error("a computed branch may lead to unknown code: returns from there are missed (-x return=address sees them)")]
    ExitsUnknown,
    /// The arena or the code block is full.
    #[error("{0}")]
    Full(#[from] Full),
    /// The target's text is not what the file says.
    #[error("the text in memory differs from the file: somebody else patched it (a kernel uprobe, a debugger?)")]
    TextDiffers,
    /// Another tracer has displaced the instruction, or traps there.
    #[error("another nanoprobe has a patch over this instruction, beside which no other one fits")]
    OtherTracer,
    /// The jump ends with the bytes of the patch after it, and that patch is missing, or was replaced by another patch.
    #[error("the patch after it, with which its jump shares bytes, was refused or replaced")]
    SuccessorGone,
    /// More probes are wanted in a function that is patched, and one of its patches may not be replaced: see
    /// [`nanoprobe_patch::Built::carries`].
    #[error("its patches cannot be replaced while the program runs: one of them holds a jump of another patch")]
    Host,
    /// The user wants the return address replaced, but here this is not allowed.
    #[error("its return address cannot be replaced: {0}")]
    ReturnAddress(ReturnRefusal),
    /// The function jumps to other functions. Its return fires at these jumps, because the return address cannot be
    /// replaced there.
    #[error("at a jump to another function (a tail call), its return fires before that function has returned: {0}")]
    TailCall(ReturnRefusal),
    /// No form of a return probe is possible.
    #[error("not all of its exits can be found ({at} is no known instruction), nor can its return address be replaced: {0}", at = .1)]
    NoReturnForm(ReturnRefusal, TargetAddress),
    /// An argument of a static probe that a clause uses.
    #[error("{0}")]
    Argument(String),
    /// A system call at which nothing may fire, or not always.
    #[error("not all system calls at {0} are seen: {1}")]
    SystemCall(TargetAddress, &'static str),
    /// See [`crate::shims`].
    #[error("the program sets its signal mask here, and nanoprobe needs this place for a patch of its own")]
    Shim,
}
