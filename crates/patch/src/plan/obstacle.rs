//! Why a site has no jump; `why.rs` finds out the reason.

/// The reason why a site has no jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Obstacle {
    /// Neighbouring sites: if no other site were probed, this site would have a jump.
    #[error("the patches around it leave no room")]
    Neighbours,
    /// Other springboards occupy all padding in reach that could hold a springboard.
    #[error("all springboards in its reach are taken")]
    Springboards,
    /// No hole of the address space lies where the jump would have to lead.
    #[error("no free memory lies where its jump can lead")]
    Address,
    /// A known branch leads into the run. A thread that takes it would trap each time.
    #[error("a branch leads to where its jump would lie")]
    Branch,
    /// The function ends where the jump would lie, without enough padding after it.
    #[error("the function ends where its jump would lie")]
    End,
    /// Several of these reasons together.
    #[error("several obstacles: a branch, the function's end, or no free address")]
    Several,
    /// The instruction cannot be displaced under any circumstances.
    #[error("it cannot be moved together with its neighbours")]
    Unmovable,
    /// Functions share text, and patches of both would overlap.
    #[error("its patch would cross that of a function that shares its text")]
    Crossing,
    /// The jump would end with the bytes of the next patch, which is missing.
    #[error("its jump would end with the bytes of the next patch, which could not be placed")]
    Successor,
    /// A forced tactic can never fit these instructions.
    #[error("the instructions there are too short for it, or too long")]
    Length,
    /// The instruction that should hold the springboard is not displaced.
    #[error("the instruction nearby that its springboard would lie in could not be displaced")]
    Host,
}
